//! The end of a daemon: the signals that ask for it, and the word that is passed on.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Waits for SIGTERM, SIGINT or SIGQUIT.
pub async fn terminated() -> std::io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut quit = signal(SignalKind::quit())?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        _ = quit.recv() => {}
    }
    Ok(())
}

/// Waits until somebody says stop.
pub async fn stopped(mut stop: watch::Receiver<bool>) {
    // A sender that is gone means the same.
    drop(stop.wait_for(|stop| *stop).await);
}
