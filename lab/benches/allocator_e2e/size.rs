//! Memory and the time to start, with none, a thousand and ten thousand Services.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cluster::{Cluster, Server, names};
use crate::daemon::Daemon;
use crate::numbers::Promise;
use crate::witness::Witness;

/// How many Services come in each step, and how many MiB an allocator may then take.
const STEPS: [(&str, usize, f64); 3] = [("none", 0, 12.0), ("first", 1000, 16.0), ("more", 9000, 40.0)];

pub async fn measure(cluster: &Cluster) -> Result<Vec<Promise>> {
    println!(
        "\nServices   after serving them (peak)   after a restart (peak)   start -> deciding   start -> first address"
    );
    let (mut there, mut kept) = (0, Vec::new());
    for (set, count, most) in STEPS {
        let daemon = Daemon::start(cluster).await?;
        fill(cluster, set, count).await?;
        there += count;
        let grown = daemon.memory().await?;
        daemon.stop().await?;
        let (fresh, first) = restart(cluster, &format!("cold-{set}")).await?;
        let (begun, small) = (fresh.start, fresh.memory().await?);
        fresh.stop().await?;
        println!(
            "{there:>8} {:>11.1} MiB ({:>5.1} MiB) {:>11.1} MiB ({:>5.1} MiB) {:>12} ms {:>15} ms",
            grown.0,
            grown.1,
            small.0,
            small.1,
            begun.as_millis(),
            first.as_millis()
        );
        kept.push((format!("MiB with {there} Services"), grown.0.max(small.0), most));
    }
    // After the table, which they would tear apart.
    let promises = kept.into_iter().map(|(what, value, most)| Promise::told(what, value, most)).collect();
    cluster.clear().await?;
    Ok(promises)
}

/// Starts an allocator while one Service waits; how long it took from the start of the process to its address.
async fn restart(cluster: &Cluster, waiting: &str) -> Result<(Daemon, Duration)> {
    cluster.create(waiting, Server::PureLB).await?;
    let mut witness = Witness::new(cluster.plane.client()?).await?;
    let begun = Instant::now();
    let (daemon, seen) = futures::join!(Daemon::start(cluster), witness.one(waiting));
    Ok((daemon?, seen?.duration_since(begun)))
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
