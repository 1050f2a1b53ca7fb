//! What a machine is made of, and how it comes to life.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

use super::Machine;
use super::archive::Archive;
use super::commands::Commands;
use super::monitor::Monitor;
use super::qemu::{Card, Qemu};
use super::system::{self, System};
use crate::daemon;
use crate::net::{Lan, Namespace};

/// Network cards of this process so far: no two on a segment have one address.
static CARDS: AtomicU32 = AtomicU32::new(1);

/// A machine that is not running yet.
pub struct Plan<'a> {
    name: String,
    cpu: String,
    archive: Archive,
    lans: Vec<&'a Lan>,
}

impl<'a> Plan<'a> {
    /// A machine with busybox and no network card. The name is for people only.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), cpu: "qemu64".to_owned(), archive: Archive::default(), lans: Vec::new() }
    }

    /// Another CPU than `qemu64`, the plainest; see `qemu-system-x86_64 -cpu help`.
    #[must_use]
    pub fn cpu(mut self, model: &str) -> Self {
        model.clone_into(&mut self.cpu);
        self
    }

    /// Programs of this machine, such as `ip`, with the libraries they are linked with; they go before busybox's.
    ///
    /// # Errors
    /// When one is not installed.
    pub fn tools(self, names: &[&str]) -> Result<Self> {
        names.iter().try_fold(self, |plan, name| {
            let path = system::which(name).with_context(|| format!("{name} is not installed: run scripts/setup"))?;
            plan.program(name, &path)
        })
    }

    /// A program of this machine by this name, with the libraries it is linked with.
    ///
    /// # Errors
    /// When there is none.
    pub fn program(mut self, name: &str, path: &Path) -> Result<Self> {
        system::program(&mut self.archive, &format!("usr/local/bin/{name}"), path)?;
        Ok(self)
    }

    /// `purelb`: the program of the image where `PURELB_STATIC` names it, or else the one of this working tree, which is
    /// slow: nothing optimised it.
    ///
    /// # Errors
    /// When it does not build.
    pub fn purelb(self) -> Result<Self> {
        if let Some(path) = env::var_os("PURELB_STATIC") {
            return self.program("purelb", Path::new(&path));
        }
        // Half of it is for debuggers, and all of it would have to be unpacked at boot.
        let stripped = tempfile::NamedTempFile::new()?;
        let strip = Command::new("strip").arg("-o").arg(stripped.path()).arg(daemon::program()?).status();
        ensure!(strip.context("cannot run strip")?.success(), "strip failed");
        let plan = self.program("purelb", stripped.path())?;
        Ok(plan.file("usr/local/bin/purelb", fs::read(stripped.path())?))
    }

    /// A file with these bytes, below folders that are made for it.
    #[must_use]
    pub fn file(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.archive.file(name, bytes);
        self
    }

    /// All files of a folder of this machine, by the same names.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn folder(mut self, path: &str) -> Result<Self> {
        for entry in Path::new(path).read_dir().with_context(|| format!("no folder {path}"))? {
            let file = entry?.path();
            self.archive.copy(&file.display().to_string(), &file);
        }
        Ok(self)
    }

    /// A network card on this segment: the first is `eth0`. It is down, as its kernel makes it.
    #[must_use]
    pub fn nic(mut self, lan: &'a Lan) -> Self {
        self.lans.push(lan);
        self
    }

    /// Switches it on, and returns when it takes commands.
    ///
    /// # Errors
    /// When QEMU or the kernel is not there, or does not come up; with what both said.
    pub fn boot(mut self) -> Result<Machine> {
        let system = System::find()?;
        system.fill(&mut self.archive)?;
        let place = Qemu::folder()?;
        self.archive.write(&place.0.join("initramfs"))?;
        let cards: Vec<_> = self.lans.iter().map(|_| card()).collect();
        // The cables' other ends come into being in a namespace with nothing else, and go to their segments from there.
        let namespace = Namespace::new(&self.name)?;
        let qemu = Qemu::start(place, &namespace, &self.cpu, &system.kernel, &cards)?;
        let commands = Commands::new(qemu.connect("commands")?);
        let monitor = Monitor::new(qemu.connect("monitor")?)?;
        for (lan, card) in self.lans.iter().zip(&cards) {
            lan.adopt(&namespace, &card.interface)?;
        }
        let machine = Machine { name: self.name, qemu, commands: Mutex::new(commands), monitor: Mutex::new(monitor) };
        machine.run("true").context("it does not boot")?;
        Ok(machine)
    }
}

fn card() -> Card {
    let number = CARDS.fetch_add(1, Ordering::Relaxed);
    let [_, a, b, c] = number.to_be_bytes();
    // 52:54:00 is what QEMU's cards begin with.
    Card { mac: format!("52:54:00:{a:02x}:{b:02x}:{c:02x}"), interface: format!("tap{number}") }
}
