//! The outer process: it makes the namespaces, starts the demo in them, and tidies up after it.
//!
//! All processes of the demo live in a process namespace whose first process is the demo itself: the kernel ends them
//! with it, however it ends. The demo in turn ends when its standard input does: the other end is here, and the kernel
//! closes it whatever ends this process. An ordinary user gets a user namespace around it, in which the demo is root.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, geteuid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::ending::{FAILED, STOPPED, asked_to_stop};
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
/// The search path of whoever started `scripts/demo`, which adds its cache for the demo.
const OWN_PATH: &str = "PURELB_DEMO_OWN_PATH";
/// Becomes the demo. When the process outside is killed, the shell takes the terminal back before the demo can set it right,
/// and the kernel stops whoever does that from behind; unless the signal is ignored, which only a shell can arrange for.
const IGNORE_AND_BECOME: &str = r#"trap '' TTOU && exec "$0" "$@""#;
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
    let terminal = Terminal::now();
    let code = runtime.block_on(supervise(folder.path(), &path));
    if stdout().is_terminal() {
        // The passing word of a demo that was cut short.
        let _ = write!(stdout(), "\r\x1b[K").and_then(|()| stdout().flush());
    }
    if let Some(terminal) = terminal {
        terminal.restore();
    }
    Ok(outcome(code?, once, folder))
}

/// What becomes of the folder and of the exit code.
fn outcome(code: Option<u8>, once: bool, folder: Folder) -> ExitCode {
    match code {
        // Ctrl-C is the way out of a demo that stays up.
        Some(code @ (0 | STOPPED)) => {
            folder.remove();
            if once { ExitCode::from(code) } else { ExitCode::SUCCESS }
        }
        // The logs of a failure stay, for the one who looks for its cause.
        Some(FAILED) => ExitCode::FAILURE,
        _ if folder.has_begun() => {
            let logs = folder.path().display();
            let _ = writeln!(stderr(), "purelb-demo: the demo broke off; its logs: {logs}");
            ExitCode::FAILURE
        }
        // Nothing ran; `unshare` has said why, each in its own words.
        _ => {
            folder.remove();
            let _ = writeln!(stderr(), "purelb-demo: {}", refusal(geteuid().is_root()));
            ExitCode::FAILURE
        }
    }
}

/// What a machine that gives no namespaces should hear, whatever it has said itself.
fn refusal(root: bool) -> &'static str {
    if root {
        "root may not make namespaces here.\nA container needs more rights for that: start it with --privileged."
    } else {
        "ordinary users may not make user namespaces here.\n\
         Run it as root, or let root allow it, with the one of these that exists here:\n  \
         sysctl -w kernel.apparmor_restrict_unprivileged_userns=0\n  \
         sysctl -w kernel.unprivileged_userns_clone=1\n  \
         sysctl -w user.max_user_namespaces=15000"
    }
}

/// The terminal that the demo takes its keys from, wherever standard input is, and how it was.
struct Terminal {
    device: File,
    before: Termios,
}

impl Terminal {
    fn now() -> Option<Self> {
        let device = File::open("/dev/tty").ok()?;
        Some(Self { before: tcgetattr(&device).ok()?, device })
    }

    /// Whatever ended the demo, the shell gets the terminal back as it was. One that nobody changed is left alone: a demo
    /// in the background would be stopped for it.
    fn restore(self) {
        if tcgetattr(&self.device).is_ok_and(|now| now.local_modes != self.before.local_modes) {
            let _ = tcsetattr(&self.device, OptionalActions::Now, &self.before);
        }
    }
}

/// The exit code of the demo, if it had time to give one.
async fn supervise(folder: &Path, path: &OsString) -> Result<Option<u8>> {
    let mut child = command(folder, path)?.spawn().context("cannot run unshare")?;
    let leash = child.stdin.take();
    tokio::select! {
        status = child.wait() => return Ok(code(status?)),
        asked = asked_to_stop() => asked?,
    }
    drop(leash);
    end(&mut child).await?;
    Ok(Some(STOPPED))
}

/// A terminal that is closed tells all who sit at it: `unshare` may have heard of it before us.
fn code(status: ExitStatus) -> Option<u8> {
    let asked = [Signal::HUP, Signal::INT, Signal::TERM].map(|signal| Some(signal.as_raw()));
    if asked.contains(&status.signal()) {
        return Some(STOPPED);
    }
    status.code().and_then(|code| u8::try_from(code).ok())
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
    command.args(["--pid", "--fork", "--kill-child", "--", "sh", "-c", IGNORE_AND_BECOME]);
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

/// Whether the demo finds a program.
pub fn finds(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| find(program, &path).is_some())
}

/// The folder of a program that the demo finds, and the person who started it would not.
pub fn hidden(program: &str) -> Option<PathBuf> {
    hidden_from(&env::var_os(OWN_PATH)?, &env::var_os("PATH")?, program)
}

fn hidden_from(own: &OsString, path: &OsString, program: &str) -> Option<PathBuf> {
    if find(program, own).is_some() {
        return None;
    }
    find(program, path)?.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_the_cache_is_one_that_another_terminal_does_not_find() {
        let (cache, usual) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (folder, program) in [(&cache, "kubectl"), (&cache, "ip"), (&usual, "ip")] {
            File::create(folder.path().join(program)).unwrap();
        }
        let own = usual.path().as_os_str().to_owned();
        let path = env::join_paths([usual.path(), cache.path()]).unwrap();
        assert_eq!(hidden_from(&own, &path, "kubectl").as_deref(), Some(cache.path()));
        assert_eq!(hidden_from(&own, &path, "ip"), None);
        assert_eq!(hidden_from(&own, &path, "bird"), None, "nobody has it");
    }
}
