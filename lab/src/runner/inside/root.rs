//! The root of a container: the image, the mounts of its Pod, and the kernel's own folders with their dangers removed.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind_recursive, mount_remount, unmount};
use rustix::process::{chdir, pivot_root};

use crate::runner::recipe::{Mount, Recipe};

/// Kernel folders of which a container sees the contents, and changes nothing.
const READ_ONLY: [&str; 5] = ["proc/sys", "proc/bus", "proc/fs", "proc/irq", "proc/sysrq-trigger"];
/// Kernel files that tell too much.
const HIDDEN: [&str; 4] = ["proc/kcore", "proc/keys", "proc/timer_list", "proc/sched_debug"];
/// Device files that every container has.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Links that programs expect.
const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
];

/// Puts the root together and makes it the root of this mount namespace, which must be the caller's own.
pub(super) fn enter(recipe: &Recipe) -> Result<()> {
    let root = recipe.folder.join("root");
    fs::create_dir_all(&root)?;
    memory(&root, MountFlags::NOSUID | MountFlags::NODEV, c"mode=755")?;
    let copies = !recipe.rights.read_only_root;
    let targets: Vec<&Path> = recipe.mounts.iter().map(|mount| inside(&mount.target)).collect();
    Graft { image: &recipe.image, root: &root, targets: &targets, copies }.folder(Path::new(""))?;
    kernel(&root, recipe.rights.privileged)?;
    devices(&root)?;
    for mount in &recipe.mounts {
        attach(&root, mount).with_context(|| format!("cannot mount {}", mount.target.display()))?;
    }
    if recipe.rights.read_only_root {
        mount_remount(&root, MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, c"")?;
    }
    // The old root lands on the new one and is taken away from there: no folder is needed to put it.
    chdir(&root)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    Ok(chdir("/")?)
}

fn inside(target: &Path) -> &Path {
    target.strip_prefix("/").unwrap_or(target)
}

fn memory(target: &Path, flags: MountFlags, options: &std::ffi::CStr) -> Result<()> {
    Ok(mount(c"tmpfs", target, c"tmpfs", flags, options)?)
}

/// How an image gets into a root.
struct Graft<'a> {
    image: &'a Path,
    root: &'a Path,
    /// Where something will be mounted: the folders above must be real ones.
    targets: &'a [&'a Path],
    /// A root that can be written has copies, so that the image stays as it is.
    copies: bool,
}

impl Graft<'_> {
    fn folder(&self, below: &Path) -> Result<()> {
        for entry in fs::read_dir(self.image.join(below)).context("the image cannot be read")? {
            self.entry(&below.join(entry?.file_name()))?;
        }
        Ok(())
    }

    fn entry(&self, path: &Path) -> Result<()> {
        let (source, target) = (self.image.join(path), self.root.join(path));
        let kind = fs::symlink_metadata(&source)?.file_type();
        let is_above = self.targets.iter().any(|mounted| mounted.starts_with(path));
        if kind.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if kind.is_dir() && (self.copies || is_above) {
            fs::create_dir(&target)?;
            self.folder(path)?;
        } else if self.copies {
            fs::copy(&source, &target)?;
        } else {
            bind(&source, &target, true)?;
        }
        Ok(())
    }
}

/// Mounts a file or folder of the machine over a new file or folder.
fn bind(source: &Path, target: &Path, read_only: bool) -> Result<()> {
    if source.is_dir() {
        fs::create_dir_all(target)?;
    } else if !target.exists() {
        File::create(target)?;
    }
    mount_bind_recursive(source, target)?;
    if read_only {
        mount_remount(target, MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID, c"")?;
    }
    Ok(())
}

fn attach(root: &Path, mount: &Mount) -> Result<()> {
    let target = root.join(inside(&mount.target));
    fs::create_dir_all(target.parent().context("the root is no target")?)?;
    bind(&mount.source, &target, mount.read_only)
}

fn kernel(root: &Path, privileged: bool) -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let (proc, sys) = (root.join("proc"), root.join("sys"));
    fs::create_dir_all(&proc)?;
    fs::create_dir_all(&sys)?;
    mount(c"proc", &proc, c"proc", flags, c"").context("no /proc")?;
    mount(c"sysfs", &sys, c"sysfs", if privileged { flags } else { flags | MountFlags::RDONLY }, c"")
        .context("no /sys")?;
    if privileged {
        return Ok(());
    }
    for path in present(root, &READ_ONLY) {
        mount_bind_recursive(&path, &path)?;
        mount_remount(&path, MountFlags::BIND | MountFlags::RDONLY | flags, c"")?;
    }
    for path in present(root, &HIDDEN) {
        mount_bind_recursive(c"/dev/null", &path)?;
    }
    Ok(())
}

fn present(root: &Path, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| root.join(name)).filter(|path| path.exists()).collect()
}

fn devices(root: &Path) -> Result<()> {
    let folder = root.join("dev");
    fs::create_dir_all(&folder)?;
    memory(&folder, MountFlags::NOSUID | MountFlags::NOEXEC, c"mode=755,size=64k")?;
    for name in DEVICES {
        bind(&Path::new("/dev").join(name), &folder.join(name), false)?;
    }
    for (source, target) in LINKS {
        symlink(source, root.join(target))?;
    }
    fs::create_dir(folder.join("shm"))?;
    memory(&folder.join("shm"), MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, c"mode=1777,size=64m")
}
