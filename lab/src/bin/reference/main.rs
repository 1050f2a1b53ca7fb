//! Plays the programs of PureLB 0.13 and 0.17 in their Pods: what the cluster, the nodes and the routers see of them.
//!
//! Each program of the reference has an image of its own; here all are this one, which goes by its own name. It does what
//! the compatibility specification says of leases, election, annotations, addresses and the end, and nothing else.

mod agent;
mod election;
mod node;
mod speaker;

use std::env;

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // The first process of a container must listen for this: nobody else ends it.
    let mut told = signal(SignalKind::terminate())?;
    let name = env::args().next().unwrap_or_default();
    match name.rsplit('/').next().unwrap_or_default() {
        "lbnodeagent" => agent::run(&mut told).await,
        "k8gobgp" => speaker::run(&mut told).await,
        // What it gave is in the Services; that it must not run beside ours is for the Deployment to see to.
        "allocator" => {
            told.recv().await;
            Ok(())
        }
        other => bail!("PureLB had no program {other}"),
    }
}
