//! The process that is a machine: how it is started, and the sockets that it opens.

use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::PATIENCE;
use crate::control_plane::watchdog::Watchdog;
use crate::net::Namespace;

/// Enough for kube-proxy beside us; what is not used costs nothing.
const MEGABYTES: &str = "768";

/// A QEMU, which ends with this value or with this process, and its folder.
pub(super) struct Qemu {
    pub(super) pid: u32,
    folder: PathBuf,
    watchdog: Watchdog,
}

impl Qemu {
    /// A place for its files, without a process yet.
    pub(super) fn folder() -> Result<(PathBuf, Watchdog)> {
        let folder = tempfile::Builder::new().prefix("purelb-lab-").tempdir()?;
        let watchdog = Watchdog::guard(folder.path())?;
        Ok((TempDir::keep(folder), watchdog))
    }

    /// Starts it in this namespace, where its network cards have these interfaces at their other ends.
    pub(super) fn start(
        (folder, mut watchdog): (PathBuf, Watchdog),
        namespace: &Namespace,
        cpu: &str,
        kernel: &Path,
        cards: &[Card],
    ) -> Result<Self> {
        let command = namespace.command("qemu-system-x86_64");
        let mut line: Vec<OsString> = command.get_args().map(OsString::from).collect();
        line.extend(hardware(&folder, cpu).into_iter().map(OsString::from));
        line.extend(["-kernel".into(), kernel.into(), "-initrd".into(), folder.join("initramfs").into()]);
        line.extend(cards.iter().enumerate().flat_map(|(number, card)| card.arguments(number)).map(OsString::from));
        let pid = watchdog.start(Path::new(command.get_program()), &folder.join("log"), line)?;
        Ok(Self { pid, folder, watchdog })
    }

    /// Connects to one of its sockets as soon as that is there.
    pub(super) fn connect(&self, socket: &str) -> Result<UnixStream> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match UnixStream::connect(self.folder.join(socket)) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) => {
                    ensure!(!self.watchdog.any_ended(), "QEMU has ended: {}", self.said("log"));
                    ensure!(Instant::now() < deadline, "no socket {socket} of QEMU: {error}; {}", self.said("log"));
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    /// What is in one of the files that it writes: `log` is its own words, `console` those of the machine's kernel.
    pub(super) fn said(&self, file: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join(file)).unwrap_or_default()).into_owned()
    }
}

/// A network card: its address, and the name of the interface at the other end of its cable.
pub(super) struct Card {
    pub(super) mac: String,
    pub(super) interface: String,
}

impl Card {
    fn arguments(&self, number: usize) -> [String; 4] {
        let Self { mac, interface } = self;
        [
            "-netdev".to_owned(),
            format!("tap,id=cable{number},ifname={interface},script=no,downscript=no"),
            "-device".to_owned(),
            // Nothing boots from a network, so no card needs a program for that.
            format!("virtio-net-pci,id={},netdev=cable{number},mac={mac},romfile=", device(number)),
        ]
    }
}

/// What the monitor calls a network card.
pub(super) fn device(number: usize) -> String {
    format!("eth{number}")
}

/// The port for commands waits for us before the machine starts: nothing that it says is lost.
fn hardware(folder: &Path, cpu: &str) -> Vec<String> {
    let at = |name: &str| folder.join(name).display().to_string();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut line = words("-nodefaults -no-user-config -display none -no-reboot -M q35 -accel tcg");
    line.extend(["-cpu".to_owned(), cpu.to_owned(), "-m".to_owned(), MEGABYTES.to_owned()]);
    line.extend(["-append".to_owned(), "console=ttyS0 quiet panic=-1".to_owned()]);
    line.extend(["-serial".to_owned(), format!("file:{}", at("console"))]);
    line.extend(["-qmp".to_owned(), format!("unix:{},server=on,wait=off", at("monitor"))]);
    line.extend(["-chardev".to_owned(), format!("socket,id=port,path={},server=on,wait=on", at("commands"))]);
    line.extend(words("-device virtio-serial-pci -device virtserialport,chardev=port -device virtio-rng-pci"));
    line
}
