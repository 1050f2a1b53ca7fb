//! How long it takes from `make demo` on built programs to the end of the first step.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::stage::{ROOT, Stage, signal_to};
use crate::tour::lines;

/// The promise.
const SOON: Duration = Duration::from_secs(10);
/// The machine may have other work, and the first start may have to build: the quickest of so many counts.
const TRIES: usize = 5;

/// `make demo` in the repository, as somebody types it who has built before; only its folder is one of the stage.
fn make_demo(stage: &Stage) -> Result<Child> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the lab is in the repository")?;
    let mut make = Command::new("setpriv");
    make.args(["--pdeathsig", "KILL", "--", "make", "demo", "ARGS=--once --json"]).current_dir(root);
    // The kubectl of the tests. Nothing of a `make` around us.
    make.env("PATH", format!("{}:{}", std::env::var("PATH")?, stage.path("").display()));
    make.env("TMPDIR", stage.path("tmp")).env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    // What cargo tells a test of its package, some build scripts take for news, and all is built again.
    let told = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for name in std::env::vars().map(|(name, _)| name).filter(told) {
        make.env_remove(name);
    }
    make.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run setpriv")
}

#[tokio::test]
async fn the_first_step_is_seen_within_ten_seconds_of_make_demo() -> Result<()> {
    let stage = Stage::for_user(ROOT).await?;
    let mut seen = Vec::new();
    while seen.len() < TRIES && seen.iter().all(|time| *time > SOON) {
        let mut demo = make_demo(&stage)?;
        let first = lines(&mut demo)?.next().context("it ended before its first step")??;
        signal_to(demo.id(), "TERM")?;
        demo.wait()?;
        ensure!(first["ok"] == true, "{first:#}");
        let time = first["facts"]["since_make"].as_f64().context("it tells the time since make began")?;
        println!("from make demo to the end of the first step: {time:.1} s");
        seen.push(Duration::try_from_secs_f64(time)?);
        stage.is_swept(true, &[])?;
    }
    ensure!(seen.iter().any(|time| *time <= SOON), "not once within {SOON:?}: {seen:?}");
    Ok(())
}
