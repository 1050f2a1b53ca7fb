//! The folder of one run: manifests, kubeconfig, sockets and logs. Whoever starts next removes what a crash left.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::geteuid;

/// The file whose lock says that somebody still works in a folder.
const LOCK: &str = "lock";
/// The file whose lock lets one at a time make folders or remove them.
const GATE: &str = "gate";

/// The first file that the demo itself writes: what it shows.
pub const TOUR: &str = "tour.log";

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
        // Nobody sweeps while somebody has made a folder and not yet locked it.
        let _gate = loop {
            match DirBuilder::new().recursive(true).mode(0o700).create(root) {
                // It was there, and may have gone while it was looked at.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
            match enter(root) {
                // The last run has ended and taken the root with it: we are the first of the next.
                Err(error) if is_gone(&error) => {}
                entered => break entered?,
            }
        };
        sweep(root)?;
        let path = tempfile::Builder::new().prefix("run-").tempdir_in(root)?.keep();
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        Ok(Self { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the demo has written there.
    pub fn has_begun(&self) -> bool {
        self.path.join(TOUR).exists()
    }

    /// Removes it and, if no other run is there, the folder it is in.
    pub fn remove(self) {
        remove(&self.path);
    }
}

/// How often to try: a program that is about to end may still make a file while its folder is being removed.
const TRIES: usize = 50;
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Removes the folder of a run. What cannot be removed is left for the next start.
pub fn remove(path: &Path) {
    for _ in 0..TRIES {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => thread::sleep(PAUSE),
            _ => break,
        }
    }
    let Some(root) = path.parent() else { return };
    // Whoever starts now waits at the gate, or finds it gone and begins anew.
    let Ok(_gate) = File::open(root.join(GATE)).map_err(Into::into).and_then(|gate| pass(gate, root)) else {
        // A program that was about to end may have made its folder anew after all was gone, and this one with it.
        let _ = fs::remove_dir(root);
        return;
    };
    let mut runs = fs::read_dir(root).into_iter().flatten().flatten().filter(|entry| entry.file_name() != GATE);
    if runs.next().is_none() {
        // Only as long as it is empty: without the old gate the next may already be there.
        let _ = fs::remove_file(root.join(GATE)).and_then(|()| fs::remove_dir(root));
    }
}

/// Passes the gate of a root that is ours.
fn enter(root: &Path) -> Result<File> {
    let about = fs::symlink_metadata(root)?;
    ensure!(about.is_dir() && about.uid() == geteuid().as_raw(), "it belongs to somebody else");
    pass(File::create(root.join(GATE))?, root)
}

/// Waits for the lock of a gate, which must then still be the gate of the root.
fn pass(gate: File, root: &Path) -> Result<File> {
    gate.lock()?;
    let (held, there) = (gate.metadata()?, fs::metadata(root.join(GATE))?);
    if (held.dev(), held.ino()) != (there.dev(), there.ino()) {
        return Err(io::Error::from(io::ErrorKind::NotFound).into());
    }
    Ok(gate)
}

fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Removes the folders in which nobody works any more.
fn sweep(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root)?.flatten().filter(|entry| entry.file_name() != GATE) {
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
    fn nothing_is_left_of_a_folder_that_was_made_anew_by_a_program_that_ends() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("purelb-demo-0");
        let run = Folder::claim_in(&root).unwrap();
        remove(run.path());
        fs::create_dir_all(run.path().join("kubectl-cache")).unwrap();
        run.remove();
        assert!(!root.exists());
    }

    #[test]
    fn a_start_at_the_moment_of_an_end_gets_its_folder() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("purelb-demo-0");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let run = Folder::claim_in(&root).unwrap();
                        assert!(run.path().join(LOCK).exists());
                        run.remove();
                    }
                });
            }
        });
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
