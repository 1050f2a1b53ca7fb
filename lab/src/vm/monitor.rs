//! QEMU's monitor: what somebody can do to a machine who has its power switch and its cables in hand.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// A connection to the monitor, which speaks JSON, one object a line (QMP).
pub(super) struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    /// Takes a fresh connection into use.
    pub(super) fn new(stream: UnixStream) -> Result<Self> {
        let mut monitor = Self { stream: BufReader::new(stream) };
        monitor.read().context("the monitor does not greet")?;
        monitor.ask("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }

    /// Has the monitor do something, and waits until it is done.
    pub(super) fn ask(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let mut line = json!({"execute": command, "arguments": arguments}).to_string();
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())?;
        loop {
            let mut answer = self.read().with_context(|| format!("no answer to {command}"))?;
            if answer["return"] != Value::Null {
                return Ok(answer["return"].take());
            }
            if answer["error"] != Value::Null {
                bail!("the monitor refuses {command}: {}", answer["error"]);
            }
            // What is left is an event, of which nothing is to be learnt.
        }
    }

    fn read(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("{line:?} is no JSON"))
    }
}
