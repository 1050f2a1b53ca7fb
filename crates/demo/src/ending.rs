//! The ways out that nobody waits for: a signal, or the end of the process outside.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Result;
use rustix::termios::{OptionalActions, Termios, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

use crate::folder;

/// The exit code of a demo that was asked to stop.
pub const STOPPED: u8 = 130;
/// The exit code of a demo that has said what went wrong. One that broke off may end with 1: `unshare` does so for it.
pub const FAILED: u8 = 3;

/// Waits for SIGINT, SIGTERM or SIGHUP.
pub async fn asked_to_stop() -> io::Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

/// What has to be put right before the process ends. All else goes with it: it is the first process of its namespace.
#[derive(Clone)]
pub struct Ending {
    folder: Arc<PathBuf>,
    terminal: Arc<Mutex<Option<(std::fs::File, Termios)>>>,
}

impl Ending {
    /// Ends the process on SIGINT, SIGTERM and SIGHUP, and when standard input does.
    pub fn watch(folder: &Path) -> Result<Self> {
        let ending = Self { folder: Arc::new(folder.to_owned()), terminal: Arc::default() };
        let leash = ending.clone();
        thread::spawn(move || {
            // Nobody writes there: it returns when the process outside is gone, or lets go.
            let _ = io::stdin().read(&mut [0; 1]);
            leash.come();
        });
        let asked = ending.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::spawn(move || {
            // Without the handlers a signal does nothing here, and the process outside still closes standard input.
            if runtime.block_on(asked_to_stop()).is_ok() {
                asked.come();
            }
        });
        Ok(ending)
    }

    /// The terminal will be set back to this.
    pub fn restores(&self, terminal: std::fs::File, to: Termios) {
        *self.terminal.lock().unwrap_or_else(PoisonError::into_inner) = Some((terminal, to));
    }

    fn come(&self) -> ! {
        if let Some((terminal, before)) = self.terminal.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = tcsetattr(&terminal, OptionalActions::Now, &before);
        }
        folder::remove(&self.folder);
        std::process::exit(STOPPED.into())
    }
}
