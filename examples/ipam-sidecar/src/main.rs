//! Runs the sidecar until it is told to stop.

use anyhow::{Context, Result};
use purelb_ipam_sidecar::{Config, Sidecar};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<()> {
    let config = Config::from_env(|name| std::env::var(name).ok())?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let sidecar = Sidecar::bind(&config)?;
    println!("{}: giving out {} on {}", config.provider, config.cidrs().join(" and "), config.socket.display());
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = tokio::signal::ctrl_c() => (),
        }
    };
    sidecar.run(stop).await
}
