//! A daemon as a process, with its output in a file. All of them end with the demo: it is the first process they have.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

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
