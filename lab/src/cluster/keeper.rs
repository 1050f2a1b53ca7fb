//! A cluster that outlives the command that asked for it: `cargo lab up` and `cargo lab down`.
//!
//! A *keeper* process holds the cluster. It is the leader of a session of its own, so that everything it has started can
//! be told from everything else by the session, never by a name. When the keeper ends, however it ends, its watchdogs end
//! the rest; `down` asks it to, and waits until the session is empty.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::Cluster;

/// How long a cluster may take to be up, and to be gone.
const PATIENCE: Duration = Duration::from_secs(240);
/// How long a keeper may take to obey.
const OBEYS_WITHIN: Duration = Duration::from_secs(30);
/// How long after its keeper everything else may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// The folder that remembers the one cluster of this machine.
#[derive(Clone, Debug)]
pub struct Office {
    folder: PathBuf,
}

/// Who keeps the cluster: a process id is reused one day, together with its start time never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Keeper {
    pid: i32,
    started: u64,
}

/// What `up` tells about a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Notice {
    /// For kubectl.
    pub kubeconfig: PathBuf,
    /// The folder with the Kubernetes programs.
    pub programs: PathBuf,
    /// The folder with all logs.
    pub logs: PathBuf,
    /// Names and paths of the networks.
    pub networks: Vec<(String, String)>,
}

impl Notice {
    /// What there is to tell about this cluster.
    #[must_use]
    pub fn of(cluster: &Cluster) -> Self {
        let networks = cluster.places().into_iter().map(|place| (place.name().to_owned(), place.path()));
        Self {
            kubeconfig: cluster.plane.kubeconfig(),
            programs: cluster.plane.programs().path(""),
            logs: cluster.logs(),
            networks: networks.collect(),
        }
    }
}

impl Office {
    /// The folder named by `PURELB_LAB_STATE`, or `/run/purelb-lab`.
    #[must_use]
    pub fn find() -> Self {
        let named = std::env::var_os("PURELB_LAB_STATE").map(PathBuf::from);
        Self { folder: named.unwrap_or_else(|| PathBuf::from("/run/purelb-lab")) }
    }

    /// Starts a keeper, which is this program with these arguments, and waits until it has told that the cluster is up.
    ///
    /// # Errors
    /// When there is a cluster already, or when it does not come up: then nothing of it is left.
    pub fn open(&self, arguments: &[String]) -> Result<Notice> {
        ensure!(self.left().is_empty(), "a lab is up already; end it with: cargo lab down");
        self.clear()?;
        fs::create_dir_all(&self.folder).with_context(|| format!("cannot make {}", self.folder.display()))?;
        let log = fs::File::create(self.log())?;
        let mut keeper = Command::new("setsid");
        keeper.arg(std::env::current_exe()?).args(arguments);
        keeper.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut keeper = keeper.spawn().context("cannot run setsid")?;
        let pid = i32::try_from(keeper.id())?;
        let started = start_time(pid).context("the keeper has ended at once")?;
        fs::write(self.folder.join("keeper"), serde_json::to_vec(&Keeper { pid, started })?)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(notice) = self.notice() {
                return Ok(notice);
            }
            let ended = keeper.try_wait()?.is_some();
            if ended || Instant::now() > deadline {
                let words = fs::read_to_string(self.log()).unwrap_or_default();
                self.close()?;
                bail!("the lab did not come up:\n{words}");
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Tells whoever waits that the cluster is up.
    ///
    /// # Errors
    /// When the folder is gone.
    pub fn announce(&self, notice: &Notice) -> Result<()> {
        let part = self.folder.join("notice.part");
        fs::write(&part, serde_json::to_vec(notice)?)?;
        Ok(fs::rename(part, self.folder.join("notice"))?)
    }

    /// What was told about the cluster that is up.
    ///
    /// # Errors
    /// When none is.
    pub fn notice(&self) -> Result<Notice> {
        let text = fs::read(self.folder.join("notice")).context("no lab is up; start one with: cargo lab up")?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Ends the cluster and waits until nothing of it is left. Does nothing where there is none.
    ///
    /// # Errors
    /// When something does not end: then its process ids are told, and the folder stays.
    pub fn close(&self) -> Result<()> {
        let Some(keeper) = self.keeper() else { return self.clear() };
        for (signal, patience) in [(Signal::TERM, OBEYS_WITHIN), (Signal::KILL, GONE_WITHIN)] {
            if keeper.runs()
                && let Some(pid) = Pid::from_raw(keeper.pid)
            {
                // It may have ended meanwhile.
                let _ = kill_process(pid, signal);
            }
            wait(patience, || !keeper.runs());
        }
        wait(GONE_WITHIN, || self.left().is_empty());
        let left = self.left();
        ensure!(left.is_empty(), "these processes of the lab did not end: {left:?}");
        self.clear()
    }

    /// The processes that the cluster consists of now.
    #[must_use]
    pub fn left(&self) -> Vec<i32> {
        let Some(keeper) = self.keeper() else { return Vec::new() };
        // The number of a session is taken as long as somebody is in it. If it has a leader that is not our keeper, then
        // our session was empty before and the number is somebody else's now.
        if start_time(keeper.pid).is_some_and(|started| started != keeper.started) {
            return Vec::new();
        }
        processes().into_iter().filter(|pid| session(*pid) == Some(keeper.pid)).collect()
    }

    fn keeper(&self) -> Option<Keeper> {
        serde_json::from_slice(&fs::read(self.folder.join("keeper")).ok()?).ok()
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn clear(&self) -> Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).context("cannot remove the lab's folder")
            }
            _ => Ok(()),
        }
    }
}

impl Keeper {
    fn runs(self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

fn wait(patience: Duration, done: impl Fn() -> bool) {
    let deadline = Instant::now() + patience;
    while !done() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
}

fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The fields of `/proc/PID/stat` after the name, of a process that runs.
fn fields(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<String> = rest.split(' ').map(str::to_owned).collect();
    // One that has ended and waits to be noticed runs no more.
    (fields.first()? != "Z").then_some(fields)
}

/// When a process was started, in ticks since the machine was.
fn start_time(pid: i32) -> Option<u64> {
    fields(pid)?.get(19)?.parse().ok()
}

/// The session that a process belongs to.
fn session(pid: i32) -> Option<i32> {
    fields(pid)?.get(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_start_time_and_a_session() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(start_time(own), start_time(own));
        assert!(start_time(own).is_some() && session(own).is_some());
        assert!(processes().contains(&own));
    }

    #[test]
    fn a_number_that_has_a_new_owner_is_not_our_keeper() {
        let folder = tempfile::tempdir().unwrap();
        let office = Office { folder: folder.path().to_owned() };
        let own = i32::try_from(std::process::id()).unwrap();
        let stranger = Keeper { pid: own, started: 1 };
        fs::write(office.folder.join("keeper"), serde_json::to_vec(&stranger).unwrap()).unwrap();
        assert!(!stranger.runs());
        assert_eq!(office.left(), Vec::<i32>::new());
        office.close().unwrap();
    }
}
