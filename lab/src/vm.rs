//! Machines with a distribution's own kernel, for what the kernel of the test machine lacks: dummy, VLAN, bond, IPVS, netem.
//!
//! QEMU interprets every instruction (`tcg`), so that they run on any make of CPU, and never uses `/dev/kvm`; programs take
//! about ten times as long as outside. A machine is on segments of the lab like any namespace, and ends with this process,
//! however that ends. It has busybox and what its [`Plan`] adds; the kernel loads modules when they are asked for.
//!
//! ```no_run
//! # fn example() -> anyhow::Result<()> {
//! use purelb_lab::net::Lan;
//! use purelb_lab::vm::Plan;
//!
//! let lan = Lan::new()?;
//! let machine = Plan::new("node-a").tools(&["ip"])?.purelb()?.nic(&lan).boot()?;
//! machine.run("ip addr add 192.168.7.11/24 dev eth0 && ip link set eth0 up")?;
//! machine.start("agent", "purelb agent --node-name node-a --namespace purelb-system --kubeconfig /etc/kubeconfig")?;
//! machine.pause()?; // by its hypervisor: its clocks stand still, and its connections stay open
//! machine.resume()?;
//! println!("{}", machine.run("cat /log/agent")?);
//! # Ok(())
//! # }
//! ```

mod archive;
mod commands;
mod monitor;
mod plan;
mod qemu;
mod system;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use commands::Commands;
use monitor::Monitor;
use qemu::Qemu;

pub use commands::Ended;
pub use plan::Plan;

/// Only a guard against waiting for ever: a boot takes three seconds where nothing else runs.
const PATIENCE: Duration = Duration::from_secs(180);

/// A running machine. It loses its power with this value.
pub struct Machine {
    name: String,
    qemu: Qemu,
    commands: Mutex<Commands>,
    monitor: Mutex<Monitor>,
}

impl Machine {
    /// What it was called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id of its QEMU.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.qemu.pid
    }

    /// Runs a script in its shell and returns what it printed.
    ///
    /// # Errors
    /// When it fails, with what it printed, or does not end in time.
    pub fn run(&self, script: &str) -> Result<String> {
        let ended = self.attempt(script)?;
        ensure!(ended.code == 0, "on {}: {script:?} failed ({}): {}", self.name, ended.code, ended.output);
        Ok(ended.output)
    }

    /// Runs a script that may fail.
    ///
    /// # Errors
    /// When it does not end in time, as in a machine that is paused or has ended.
    pub fn attempt(&self, script: &str) -> Result<Ended> {
        let ended = lock(&self.commands).run(script, PATIENCE);
        ended.with_context(|| format!("on {}: {script:?}; its console: {}", self.name, self.console()))
    }

    /// Starts a program that goes on, with its output in `/log/NAME`; returns its process id in the machine.
    ///
    /// # Errors
    /// See [`Machine::run`]. That the program itself is missing is seen in its log.
    pub fn start(&self, name: &str, line: &str) -> Result<u32> {
        let pid = self.run(&format!("setsid sh -c 'exec \"$@\"' - {line} >/log/{name} 2>&1 & echo $!"))?;
        pid.trim().parse().with_context(|| format!("{pid:?} is no process id"))
    }

    /// Writes a file.
    ///
    /// # Errors
    /// When its folder is not there.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        self.run(&format!("cat >{path} <<'THAT IS ALL'\n{text}\nTHAT IS ALL\n")).map(drop)
    }

    /// What its kernel said.
    #[must_use]
    pub fn console(&self) -> String {
        self.qemu.said("console")
    }

    /// Its hypervisor stops it: it does not run, its clocks stand still, and it does not notice.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&self) -> Result<()> {
        self.monitor("stop", json!({}))
    }

    /// It goes on as if no time had passed.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&self) -> Result<()> {
        self.monitor("cont", json!({}))
    }

    /// Pulls the cable out of a network card: `eth0` is number 0.
    ///
    /// # Errors
    /// When it has no such card.
    pub fn unplug(&self, nic: usize) -> Result<()> {
        self.monitor("set_link", json!({"name": qemu::device(nic), "up": false}))
    }

    /// Plugs the cable in again.
    ///
    /// # Errors
    /// When it has no such card.
    pub fn plug(&self, nic: usize) -> Result<()> {
        self.monitor("set_link", json!({"name": qemu::device(nic), "up": true}))
    }

    fn monitor(&self, command: &str, arguments: serde_json::Value) -> Result<()> {
        let done = lock(&self.monitor).ask(command, arguments);
        done.map(drop).with_context(|| format!("on {}", self.name))
    }
}

/// A panic in another test leaves nothing half done in there.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
