//! However it ends, nothing is left, and the terminal is as it was before.

use anyhow::{Context, Result, ensure};

use crate::person::is_asked;
use crate::screen::Screen;
use crate::stage::{NOBODY, Process, ROOT, Stage, machine, signal_to};
use crate::tour::lines;

#[tokio::test]
async fn nothing_is_left_however_it_ends() -> Result<()> {
    let stage = Stage::for_user(ROOT).await?;
    for signal in ["INT", "TERM", "KILL"] {
        let mut demo = stage.start(&["--once", "--json"])?;
        let mut steps = lines(&mut demo)?;
        let first = steps.next().context("it ended before its first step")??;
        ensure!(first["ok"] == true, "{first:#}");
        signal_to(demo.id(), signal)?;
        demo.wait()?;
        // A process that is killed cannot remove its folder; the next start does.
        stage.is_swept(signal != "KILL", &[]).with_context(|| format!("after SIG{signal}"))?;
    }
    Ok(())
}

/// The process that made the namespaces, or the one that works in them.
fn demo(stage: &Stage, inside: bool) -> Result<Process> {
    let all = stage.processes().into_iter();
    let mut ours = all.filter(|process| process.words[0].ends_with("purelb-demo"));
    let found = ours.find(|process| process.words.iter().any(|word| word == "--inside") == inside);
    found.context("the demo does not run")
}

/// Starts it, and waits until the first step begins.
fn starts(screen: &Screen) -> Result<()> {
    screen.wipes()?;
    screen.types("purelb-demo")?;
    screen.shows("== 1/6")
}

#[tokio::test]
async fn whatever_ends_it_the_shell_gets_its_terminal_back_and_nothing_is_left() -> Result<()> {
    let stage = Stage::for_user(NOBODY).await?;
    let before = machine()?;
    let screen = Screen::open(&stage)?;
    let terminal = screen.processes()?;

    starts(&screen)?;
    screen.presses("C-c")?;
    screen.is_as_before(0)?;
    stage.is_swept(true, &terminal).context("after Ctrl-C in the first step")?;

    starts(&screen)?;
    demo(&stage, true)?.gets("KILL")?;
    screen.shows("purelb-demo: the demo broke off; its logs: ")?;
    screen.is_as_before(1)?;
    stage.is_swept(false, &terminal).context("after the demo inside was killed")?;
    let left = stage.runs();
    ensure!(left.len() == 1 && left[0].join("allocator-1.log").exists(), "its logs stay: {left:?}");

    starts(&screen)?;
    ensure!(!left[0].exists() && stage.runs().len() == 1, "the next start removes them: {:?}", stage.runs());
    demo(&stage, false)?.gets("KILL")?;
    // The process inside takes keys until it is gone, too.
    stage.is_swept(false, &terminal).context("after the process outside was killed")?;
    screen.is_as_before(137)?;

    starts(&screen)?;
    is_asked(&screen)?;
    ensure!(stage.runs().len() == 1, "one run is there, the living one: {:?}", stage.runs());
    screen.closes()?;
    stage.is_swept(true, &[]).context("after the window was closed")?;
    ensure!(machine()? == before, "the machine's own network is as it was");
    Ok(())
}
