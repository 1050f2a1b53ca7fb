//! What goes over a wire and what becomes of addresses, as `tcpdump` and `ip monitor` tell it.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Namespace;
use crate::control_plane::watchdog::Watchdog;

/// Only a guard against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// A `tcpdump` or `ip monitor` at work. It ends with this value, or with the test however that ends.
pub struct Capture {
    log: PathBuf,
    // Holds the program and its folder.
    _watchdog: Watchdog,
}

impl Capture {
    /// Listens on an interface for what the filter, in tcpdump's words, lets through; an empty one is everything.
    /// Returns when it really listens: what is sent from now on will be seen.
    ///
    /// # Errors
    /// When tcpdump is not installed, or refuses the filter.
    pub fn start(namespace: &Namespace, interface: &str, filter: &str) -> Result<Self> {
        let line = ["-l", "-n", "-e", "-v", "--immediate-mode", "-tt", "-i", interface, filter];
        let line: Vec<&str> = line.into_iter().filter(|word| !word.is_empty()).collect();
        let capture = Self::launch(namespace, "tcpdump", &line)?;
        capture.wait_for("tcpdump to listen", |line| line.contains("listening on"))?;
        Ok(capture)
    }

    /// Listens to what the kernel tells of addresses, in the words of `ip monitor`: each change, however short.
    /// Returns when it really listens.
    ///
    /// # Errors
    /// When `ip` does not run.
    pub fn addresses(namespace: &Namespace) -> Result<Self> {
        let capture = Self::launch(namespace, "ip", &["-o", "monitor", "address"])?;
        let deadline = Instant::now() + PATIENCE;
        // It does not say when it begins, so it is given something to tell until it does.
        while capture.lines().is_empty() {
            ensure!(Instant::now() < deadline, "ip monitor tells nothing");
            namespace.batch("addr add 127.9.9.9/32 dev lo\naddr del 127.9.9.9/32 dev lo\n")?;
        }
        Ok(capture)
    }

    fn launch(namespace: &Namespace, program: &str, line: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("purelb-lab-").tempdir().context("cannot make a folder")?;
        let mut watchdog = Watchdog::guard(folder.path())?;
        let log = folder.keep().join("log");
        let command = namespace.command(program);
        let arguments = command.get_args().map(OsString::from).chain(line.iter().map(OsString::from)).collect();
        watchdog.start(Path::new(command.get_program()), &log, arguments)?;
        Ok(Self { log, _watchdog: watchdog })
    }

    /// All complete lines so far, one or more for each packet: time, MAC addresses, contents.
    ///
    /// A line can be a few milliseconds younger than its packet.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        complete.lines().map(str::to_owned).collect()
    }

    /// Waits for a line and returns it.
    ///
    /// # Errors
    /// When it does not come; the error shows what came instead.
    pub fn wait_for(&self, what: &str, matches: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lines = self.lines();
            if let Some(line) = lines.iter().find(|line| matches(line)) {
                return Ok(line.clone());
            }
            ensure!(!lines.iter().any(|line| line.starts_with("tcpdump: ") && line.contains("rror")), "{lines:#?}");
            if Instant::now() > deadline {
                bail!("waited in vain for {what}; seen: {lines:#?}");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}
