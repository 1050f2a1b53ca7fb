//! A daemon as a process, with its output in a file. All of them end with the demo: it is the first process they have.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// What would send a daemon's requests out of the demo, to a proxy that its machine cannot reach.
const PROXIES: [&str; 6] = ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// One running daemon; dropping it kills it.
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts it, with its output at the end of a log.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let name = command.get_program().display().to_string();
        let file = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        for name in PROXIES {
            command.env_remove(name);
        }
        // A group of its own: Ctrl-C on the terminal is for the demo.
        let child = command.process_group(0).spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child })
    }

    /// SIGTERM, and waits until it is gone.
    pub fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has ended cannot be killed, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_does_not_hear_of_the_proxies_of_whoever_started_the_demo() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut command = Command::new("env");
        command.env_clear().env("PATH", "/usr/bin:/bin").env("KEPT", "yes");
        command.envs(PROXIES.map(|name| (name, "http://192.0.2.1:3128")));
        let mut daemon = Process::start(&mut command, &log).unwrap();
        daemon.child.wait().unwrap();
        let told = std::fs::read_to_string(&log).unwrap();
        assert!(told.contains("KEPT=yes") && !told.to_lowercase().contains("_proxy"), "{told}");
    }
}
