//! The port over which a machine is given scripts to run: nothing of it is seen on the machine's networks.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result};

/// How a script ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code.
    pub code: i32,
    /// What it printed, errors included.
    pub output: String,
}

/// The host's end of the port.
pub(super) struct Commands {
    stream: BufReader<UnixStream>,
}

impl Commands {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Runs a script to its end, see `init.sh` for the other side.
    pub(super) fn run(&mut self, script: &str, patience: Duration) -> Result<Ended> {
        self.stream.get_ref().set_read_timeout(Some(patience))?;
        self.stream.get_mut().write_all(format!("{}\n{script}", script.len()).as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line).context("the machine does not answer")?;
        let (code, size) = line.trim().split_once(' ').with_context(|| format!("{line:?} is no end of a script"))?;
        let mut output = vec![0; size.parse()?];
        self.stream.read_exact(&mut output)?;
        Ok(Ended { code: code.parse()?, output: String::from_utf8_lossy(&output).into_owned() })
    }
}
