//! The control plane's own promises: it leaves nothing behind, and it says why it did not start.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb_lab::ControlPlane;
use purelb_lab::control_plane::programs::Programs;
use purelb_lab::control_plane::watchdog::Watchdog;

/// A folder under guard, with a program in it that would run for long and has written its process id.
fn guarded() -> Result<(Watchdog, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let mut watchdog = Watchdog::guard(folder.path())?;
    let folder = folder.keep();
    let script = r#"echo $$ >"$0.part" && mv "$0.part" "$0" && exec sleep 600"#;
    let arguments = vec!["-c".into(), script.into(), folder.join("pid").into()];
    watchdog.start(Path::new("/bin/sh"), &folder.join("log"), arguments)?;
    Ok((watchdog, folder))
}

fn until(what: &str, condition: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        ensure!(Instant::now() < deadline, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn pid_in(folder: &Path) -> Result<u32> {
    until("the program's start", || folder.join("pid").exists())?;
    Ok(fs::read_to_string(folder.join("pid"))?.trim().parse()?)
}

/// Whether a process runs. One that ended may still be listed until its parent, whoever that is by now, has noticed.
fn runs(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn dropping_the_handle_ends_programs_and_removes_the_folder() -> Result<()> {
    let (watchdog, folder) = guarded()?;
    let pid = pid_in(&folder)?;
    assert!(runs(pid) && folder.exists());
    drop(watchdog);
    assert!(!runs(pid) && !folder.exists(), "at once");
    Ok(())
}

#[test]
fn a_killed_test_leaves_no_program_and_no_folder_behind() -> Result<()> {
    let mut victim = Command::new(env::current_exe()?);
    victim.args(["--exact", "the_test_that_is_killed", "--ignored", "--nocapture"]).stdout(Stdio::piped());
    let mut victim = victim.spawn()?;
    let output = BufReader::new(victim.stdout.take().context("standard output was piped")?);
    let folder = output.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("guarded ").map(PathBuf::from));
    let folder = folder.context("the victim did not say where its folder is")?;
    let pid = pid_in(&folder)?;
    assert!(runs(pid) && folder.exists());
    victim.kill()?; // SIGKILL
    victim.wait()?;
    until("the end of the program", || !runs(pid))?;
    until("the removal of the folder", || !folder.exists())
}

#[test]
#[ignore = "it waits to be killed by the test above"]
fn the_test_that_is_killed() -> Result<()> {
    let (_watchdog, folder) = guarded()?;
    println!("\nguarded {}", folder.display());
    std::thread::sleep(Duration::from_secs(600));
    Ok(())
}

/// A folder with an `etcd` that waits and a `kube-apiserver` that says `words` and gives up.
fn broken(words: &str) -> Result<(tempfile::TempDir, Programs)> {
    let folder = tempfile::tempdir()?;
    for (name, script) in [("etcd", "exec sleep 600".to_owned()), ("kube-apiserver", format!("echo '{words}'; exit 1"))]
    {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    let programs = Programs::in_folder(folder.path().to_owned());
    Ok((folder, programs))
}

#[tokio::test]
async fn a_server_that_does_not_start_shows_its_last_words() -> Result<()> {
    let (_folder, programs) = broken("unknown flag: --fancy")?;
    let error = ControlPlane::start_with(&programs).await.err().context("it cannot have started")?;
    assert!(error.to_string().contains("unknown flag: --fancy"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_port_that_is_always_taken_is_named_as_the_cause() -> Result<()> {
    let (_folder, programs) = broken("listen tcp 127.0.0.1:1: bind: address already in use")?;
    let error = ControlPlane::start_with(&programs).await.err().context("it cannot have started")?;
    assert!(error.to_string().contains("found its port taken"), "{error}");
    Ok(())
}
