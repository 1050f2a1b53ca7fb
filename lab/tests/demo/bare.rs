//! `scripts/demo` on a machine with Linux, Rust and no more: for a user without root, and for root.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::stage::{NOBODY, ROOT, Stage, signal_to};
use crate::tour::lines;

/// The repository, as far as `scripts/demo` looks at it, and a home with nothing but a kubectl in the cache: building one
/// takes minutes, and `scripts/setup` does the same.
fn settle(stage: &Stage) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the lab is in the repository")?;
    let clone = stage.path("clone");
    fs::create_dir(&clone)?;
    let copied = Command::new("cp").arg("-r").arg(root.join("scripts")).arg(&clone).status()?;
    ensure!(copied.success(), "cannot copy scripts");
    let mut home = stage.folder_for_the_user("home")?;
    for name in [".cache", "purelb", "bin-kubernetes-v0"] {
        home.push(name);
        fs::create_dir(&home)?;
        chown(&home, Some(NOBODY), Some(NOBODY))?;
    }
    fs::rename(stage.path("kubectl"), home.join("kubectl"))?;
    // What cargo would build is there.
    fs::create_dir(stage.path("bin"))?;
    fs::write(stage.path("bin/cargo"), "#!/bin/sh\n")?;
    fs::set_permissions(stage.path("bin/cargo"), Permissions::from_mode(0o755))?;
    fs::create_dir(stage.path("target"))?;
    Ok(symlink(stage.path(""), stage.path("target/debug"))?)
}

/// Starts `scripts/demo` on a bare machine; each start gets another one, and all the same home.
fn start(stage: &Stage, machine: &str, arguments: &[&str]) -> Result<Child> {
    let mut inner = stage.command("scripts/demo");
    inner.args(arguments);
    on_a_bare_machine(stage, machine, &inner)?.spawn().context("cannot run unshare")
}

/// A command there, without its environment.
fn on_a_bare_machine(stage: &Stage, machine: &str, inner: &Command) -> Result<Command> {
    let folder = stage.path(machine);
    fs::create_dir(&folder)?;
    let mut command = Command::new("unshare");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/demo/bare.sh");
    command.args(["--mount", "--propagation", "private", "--", "sh"]).arg(script).arg(&folder);
    command.arg(inner.get_program()).args(inner.get_args()).current_dir(stage.path("clone"));
    command.env_clear().env("HOME", stage.path("home")).env("TMPDIR", stage.path("tmp"));
    command.env("CARGO_TARGET_DIR", stage.path("target"));
    command.env("PATH", format!("{}:/usr/bin:/bin", stage.path("bin").display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Where the program of the router is, as the kernel tells.
fn bird(stage: &Stage) -> Result<String> {
    let found = stage.processes().into_iter().find(|process| process.words[0] == "bird").context("no router runs")?;
    Ok(fs::read_link(format!("/proc/{}/exe", found.id))?.display().to_string())
}

/// What a person is told before anything is fetched.
const LACKS: &str = "demo: this machine lacks iproute2 nftables bird2: unpacking the packages in ";

#[tokio::test]
async fn on_a_bare_machine_root_gets_it_into_the_cache_too_and_nothing_is_installed() -> Result<()> {
    let stage = Stage::for_user(ROOT).await?;
    settle(&stage)?;
    let mut command = on_a_bare_machine(&stage, "machine", Command::new("scripts/demo").arg("--version"))?;
    let output = command.output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && told.contains(LACKS), "{told}");
    ensure!(stage.path("home/.cache/purelb/debian/root/usr/sbin/bird").exists(), "BIRD is in the cache: {told}");
    let installed = fs::read_to_string(stage.path("machine/status"))?;
    ensure!(!installed.contains("\nPackage: bird2\n"), "the machine has no more packages than before");
    Ok(())
}

#[tokio::test]
async fn on_a_bare_machine_an_ordinary_user_gets_all_that_is_missing_into_the_cache() -> Result<()> {
    let stage = Stage::for_user(NOBODY).await?;
    settle(&stage)?;
    let mut demo = start(&stage, "first", &["--once", "--json"])?;
    let mut words = demo.stderr.take().context("it is a pipe")?;
    let first: Result<Value> = lines(&mut demo)?.next().context("it ended before its first step").flatten();
    let router = bird(&stage);
    signal_to(demo.id(), "TERM")?;
    let mut told = String::new();
    words.read_to_string(&mut told)?;
    demo.wait()?;
    let first = first.with_context(|| told.clone())?;
    ensure!(first["ok"] == true && first["facts"]["since_make"].as_f64() > Some(0.0), "{first:#}\n{told}");
    ensure!(told.contains(LACKS) && told.contains("demo: nothing is installed"), "{told}");
    ensure!(told.find(LACKS) < told.find("demo: downloading iproute2: 0 of "), "said before it is done: {told}");
    let unpacked = stage.path("home/.cache/purelb/debian/root/usr/sbin/bird").display().to_string();
    ensure!(router? == unpacked, "BIRD comes from the cache");
    stage.is_swept(true, &[])?;

    let again = start(&stage, "second", &["--version"])?.wait_with_output()?;
    let told = String::from_utf8_lossy(&again.stderr);
    ensure!(again.status.success() && !told.contains("unpacking"), "what is there is not fetched again: {told}");

    for (machine, inner) in [("third", stage.command("scripts/demo")), ("fourth", Command::new("scripts/demo"))] {
        let mut command = on_a_bare_machine(&stage, machine, &inner)?;
        let empty = stage.folder_for_the_user(&format!("cache-{machine}"))?;
        let output = command.env("PURELB_BARE_HIDE", "apt-get").env("PURELB_CACHE", empty).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        let sentence = "demo: this machine lacks iproute2 nftables bird2 (as Debian calls them), and has no apt-get to";
        ensure!(output.status.code() == Some(1) && told.starts_with(sentence), "without apt-get: {told}");
    }
    Ok(())
}
