//! One container as a process of this machine.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};

use super::recipe::Recipe;
use crate::control_plane::watchdog::Watchdog;
use crate::net::Namespace;

/// A started container. It is killed with this value, or with this process however that ends.
pub(super) struct Process {
    folder: PathBuf,
    watchdog: Watchdog,
    pub(super) since: Instant,
    pub(super) started: Timestamp,
}

impl Process {
    /// Starts the container of a recipe, in a network of its own if there is one, with its output in a log.
    pub(super) fn start(lab: &Path, recipe: &Recipe, network: Option<&Namespace>, log: &Path) -> Result<Self> {
        fs::create_dir_all(&recipe.folder)?;
        let mut watchdog = Watchdog::guard(&recipe.folder)?;
        let file = recipe.folder.join("recipe");
        fs::write(&file, serde_json::to_vec(recipe)?)?;
        let mut line: Vec<OsString> = Vec::new();
        if let Some(network) = network {
            line.extend(["nsenter".into(), format!("--net={}", network.path()).into(), "--".into()]);
        }
        line.extend(["unshare", "--mount", "--pid", "--uts", "--ipc", "--"].map(OsString::from));
        line.extend([lab.into(), "contain".into(), file.into()]);
        watchdog.start(Path::new("env"), log, line)?;
        Ok(Self { folder: recipe.folder.clone(), watchdog, since: Instant::now(), started: Timestamp::now() })
    }

    /// Its exit code, if it has ended.
    pub(super) fn exit_code(&self) -> Option<i32> {
        let status = self.watchdog.ended()?;
        Some(status.code().unwrap_or(137))
    }

    /// Where `/proc` shows its first process as long as there is one.
    pub(super) fn first_process(&self) -> Option<PathBuf> {
        self.pid().map(|pid| PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero())))
    }

    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.folder.join("pid")).ok()?;
        text.trim().parse().ok().and_then(Pid::from_raw)
    }

    /// Asks it to end. One that has just been started is asked when it runs.
    pub(super) fn terminate(&self) -> Result<()> {
        let pid = self.pid().context("the container does not run yet")?;
        match kill_process(pid, Signal::TERM) {
            Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
