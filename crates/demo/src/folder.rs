//! The folder of one run: manifests, kubeconfig, sockets and logs. Whoever starts next removes what a crash left.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::process::geteuid;

/// The file whose lock says that somebody still works in a folder.
const LOCK: &str = "lock";

/// A folder that is ours as long as this value lives.
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// A new folder, after those of dead runs are removed.
    pub fn claim() -> Result<Self> {
        let root = std::env::temp_dir().join(format!("purelb-demo-{}", geteuid().as_raw()));
        Self::claim_in(&root).with_context(|| format!("cannot make a folder in {}", root.display()))
    }

    fn claim_in(root: &Path) -> Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(root);
        made?;
        let about = fs::symlink_metadata(root)?;
        ensure!(about.is_dir() && about.uid() == geteuid().as_raw(), "it belongs to somebody else");
        // Nobody sweeps while somebody has made a folder and not yet locked it.
        let gate = File::create(root.join("gate"))?;
        gate.lock()?;
        sweep(root)?;
        let path = tempfile::Builder::new().prefix("run-").tempdir_in(root)?.keep();
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        Ok(Self { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it and, if no other run is there, the folder it is in.
    pub fn remove(self) {
        remove(&self.path);
    }
}

/// How often to try: a program that is about to end may still make a file while its folder is being removed.
const TRIES: usize = 5;

/// Removes the folder of a run. What cannot be removed is left for the next start.
pub fn remove(path: &Path) {
    let _ = (0..TRIES).find(|_| fs::remove_dir_all(path).is_ok());
    let Some(root) = path.parent() else { return };
    let runs = fs::read_dir(root).into_iter().flatten().flatten().filter(|entry| entry.file_name() != "gate");
    if runs.count() == 0 {
        let _ = fs::remove_dir_all(root);
    }
}

/// Removes the folders in which nobody works any more.
fn sweep(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root)?.flatten().filter(|entry| entry.file_name() != "gate") {
        let lock = File::open(entry.path().join(LOCK));
        if lock.map_or(true, |lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_removes_what_dead_runs_left_and_spares_the_living() {
        let root = tempfile::tempdir().unwrap();
        let living = Folder::claim_in(root.path()).unwrap();
        let dead = Folder::claim_in(root.path()).unwrap();
        let left = dead.path().to_owned();
        fs::write(left.join("log"), "words").unwrap();
        drop(dead);
        let next = Folder::claim_in(root.path()).unwrap();
        assert!(!left.exists() && living.path().exists() && next.path().exists());
    }

    #[test]
    fn the_last_run_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("purelb-demo-0");
        let (one, two) = (Folder::claim_in(&root).unwrap(), Folder::claim_in(&root).unwrap());
        one.remove();
        assert!(two.path().exists());
        two.remove();
        assert!(!root.exists());
    }

    #[test]
    fn a_folder_that_somebody_put_there_as_a_link_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("purelb-demo-0");
        std::os::unix::fs::symlink(home.path(), &root).unwrap();
        assert!(Folder::claim_in(&root).is_err());
    }
}
