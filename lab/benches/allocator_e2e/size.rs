//! Memory and the time to start, with none, a thousand and ten thousand Services.

use anyhow::Result;

use crate::cluster::{Cluster, Server, names};
use crate::daemon::Daemon;
use crate::witness::Witness;

pub async fn measure(cluster: &Cluster) -> Result<()> {
    println!("\nServices   after serving them (peak)   after a restart (peak)   start -> deciding");
    let mut there = 0;
    for (set, count) in [("none", 0), ("first", 1000), ("more", 9000)] {
        let daemon = Daemon::start(cluster).await?;
        fill(cluster, set, count).await?;
        there += count;
        let grown = daemon.memory().await?;
        daemon.stop().await?;
        let fresh = Daemon::start(cluster).await?;
        let (begun, small) = (fresh.start, fresh.memory().await?);
        fresh.stop().await?;
        println!(
            "{there:>8} {:>11.1} MiB ({:>5.1} MiB) {:>11.1} MiB ({:>5.1} MiB) {:>12} ms",
            grown.0,
            grown.1,
            small.0,
            small.1,
            begun.as_millis()
        );
    }
    cluster.clear().await
}

/// Creates Services and waits until each has its address and no more Events follow.
async fn fill(cluster: &Cluster, set: &str, count: usize) -> Result<()> {
    let mut witness = Witness::new(cluster.plane.client()?).await?;
    let names = names(set, count);
    let (created, served) = futures::join!(cluster.create_all(&names, Server::PureLB), witness.all(&names));
    created?;
    served?;
    cluster.calm().await
}
