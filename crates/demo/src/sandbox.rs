//! The outer process: it makes the namespaces, starts the demo in them, and tidies up after it.
//!
//! All processes of the demo live in a process namespace whose first process is the demo itself: the kernel ends them
//! with it, however it ends. The demo in turn ends when its standard input does: the other end is here, and the kernel
//! closes it whatever ends this process. An ordinary user gets a user namespace around it, in which the demo is root.

use std::env;
use std::ffi::OsString;
use std::io::stdin;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::geteuid;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::ending::{STOPPED, asked_to_stop};
use crate::folder::Folder;

/// What is run, and the Debian package it is in.
const PROGRAMS: [(&str, &str); 6] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("bird", "bird2"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("kubectl", "kubectl; or build it with lab/tools/build kubectl"),
];
/// Set in the demo of an ordinary user.
pub const USER_NAMESPACE: &str = "PURELB_DEMO_USER_NAMESPACE";
/// How long the demo may take to tidy up.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// Runs the demo in namespaces of its own.
pub fn run(once: bool) -> Result<ExitCode> {
    let path = search_path();
    for (program, package) in PROGRAMS {
        if find(program, &path).is_none() {
            bail!("{program} is not installed (Debian package {package}); `make demo` installs what is missing");
        }
    }
    let folder = Folder::claim()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let terminal = tcgetattr(stdin()).ok();
    let status = runtime.block_on(supervise(folder.path(), &path))?;
    if let Some(terminal) = &terminal {
        // Whatever ended the demo, the shell gets the terminal back as it was.
        let _ = tcsetattr(stdin(), OptionalActions::Now, terminal);
    }
    if status.code().is_none() {
        eprintln!("purelb-demo: the demo was killed; its logs: {}", folder.path().display());
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    // The logs of a failure stay, for the one who looks for its cause.
    if matches!(code, 0 | STOPPED) {
        folder.remove();
    }
    // Ctrl-C is the way out of a demo that stays up.
    Ok(if code == STOPPED && !once { ExitCode::SUCCESS } else { ExitCode::from(code) })
}

async fn supervise(folder: &Path, path: &OsString) -> Result<ExitStatus> {
    let mut child = command(folder, path)?.spawn().context("cannot run unshare")?;
    let leash = child.stdin.take();
    tokio::select! {
        status = child.wait() => return Ok(status?),
        asked = asked_to_stop() => asked?,
    }
    drop(leash);
    end(&mut child).await
}

async fn end(child: &mut Child) -> Result<ExitStatus> {
    match timeout(STOPS_WITHIN, child.wait()).await {
        Ok(status) => Ok(status?),
        Err(_) => {
            child.kill().await?;
            Ok(child.wait().await?)
        }
    }
}

/// The demo again, as the first process of a process namespace.
fn command(folder: &Path, path: &OsString) -> Result<Command> {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]).env(USER_NAMESPACE, "yes");
    }
    command.args(["--pid", "--fork", "--kill-child", "--"]);
    command.arg(env::current_exe().context("cannot find my own program")?);
    command.arg("--inside").arg(folder).args(env::args_os().skip(1));
    command.env("PATH", path).stdin(Stdio::piped()).kill_on_drop(true);
    Ok(command)
}

/// The search path of an ordinary user often lacks the folders that routers and network tools are in.
fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    path
}

fn find(program: &str, path: &OsString) -> Option<PathBuf> {
    env::split_paths(path).map(|folder| folder.join(program)).find(|file| file.is_file())
}
