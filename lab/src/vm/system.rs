//! What every machine has: a distribution's kernel with its modules for networks, and busybox.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::archive::Archive;

/// Which modules a machine gets, with those that they need: everything about networks, and the devices of the machine.
const MODULES: [&str; 21] = [
    "drivers/char/hw_random/virtio-rng.ko",
    "drivers/char/virtio_console.ko",
    "drivers/net/bonding/",
    "drivers/net/dummy.ko",
    "drivers/net/ifb.ko",
    "drivers/net/macvlan.ko",
    "drivers/net/tun.ko",
    "drivers/net/veth.ko",
    "drivers/net/virtio_net.ko",
    "drivers/net/vrf.ko",
    "drivers/net/vxlan/",
    "drivers/virtio/",
    "net/802/",
    "net/8021q/",
    "net/bridge/",
    "net/core/",
    "net/ipv4/",
    "net/ipv6/",
    "net/llc/",
    "net/netfilter/",
    "net/sched/",
];

/// What modprobe reads, as `depmod` wrote it.
const INDEXES: [&str; 5] = ["modules.dep", "modules.alias", "modules.softdep", "modules.builtin", "modules.order"];

/// A kernel and its modules.
pub(super) struct System {
    /// The file to boot.
    pub(super) kernel: PathBuf,
    modules: PathBuf,
    version: String,
}

impl System {
    /// Takes `PURELB_KERNEL` where it is set; otherwise fetches what is missing, once.
    pub(super) fn find() -> Result<Self> {
        let folder = folder()?;
        let versions = fs::read_dir(folder.join("lib/modules")).with_context(|| format!("{}", folder.display()))?;
        let version = versions.flatten().next().with_context(|| format!("no modules in {}", folder.display()))?;
        let version = version.file_name().to_string_lossy().into_owned();
        let kernel = folder.join(format!("boot/vmlinuz-{version}"));
        Ok(Self { kernel, modules: folder.join("lib/modules").join(&version), version })
    }

    /// Puts what every machine has into its initramfs.
    pub(super) fn fill(&self, archive: &mut Archive) -> Result<()> {
        let home = format!("lib/modules/{}", self.version);
        for index in INDEXES {
            archive.copy(&format!("{home}/{index}"), &self.modules.join(index));
        }
        let needs = fs::read_to_string(self.modules.join("modules.dep"))?;
        for name in wanted(&needs) {
            archive.copy(&format!("{home}/{name}"), &self.modules.join(name));
        }
        let busybox = which("busybox").context("busybox is not installed: run scripts/setup")?;
        program(archive, "/bin/busybox", &busybox)?;
        // Busybox's own shell takes busybox's programs before all others of the same name.
        program(archive, "/usr/local/bin/sh", Path::new("/bin/sh"))?;
        archive.file("init", include_str!("init.sh"));
        Ok(())
    }
}

fn folder() -> Result<PathBuf> {
    if let Some(folder) = env::var_os("PURELB_KERNEL") {
        return Ok(folder.into());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/kernel");
    let output = Command::new(&script).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {}", script.display()))?;
    ensure!(output.status.success(), "{} failed ({})", script.display(), output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().into())
}

/// A line of `modules.dep` is a module and all that it needs, however indirectly.
fn wanted(needs: &str) -> impl Iterator<Item = &str> {
    let is_wanted = |line: &&str| MODULES.iter().any(|wanted| line.starts_with(&format!("kernel/{wanted}")));
    let lines = needs.lines().filter(is_wanted);
    lines.flat_map(|line| line.split_whitespace().map(|name| name.trim_end_matches(':')))
}

/// Puts a program of this machine into the archive, and the libraries that it is linked with where they are here.
pub(super) fn program(archive: &mut Archive, name: &str, path: &Path) -> Result<()> {
    ensure!(path.exists(), "there is no {}: run scripts/setup", path.display());
    archive.copy(name, path);
    let libraries = Command::new("ldd").arg(path).output().context("cannot run ldd")?;
    // A static program makes ldd fail, and has no lines with paths.
    for line in String::from_utf8_lossy(&libraries.stdout).lines() {
        if let Some(library) = line.split_whitespace().find(|word| word.starts_with('/')) {
            archive.copy(library, Path::new(library));
        }
    }
    Ok(())
}

/// Where a program is in the `PATH`.
pub(super) fn which(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}
