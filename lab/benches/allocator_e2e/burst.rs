//! A thousand Services at once until the last one has its address, beside a raw client with as many writes under way.

use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};

use crate::cluster::{AT_ONCE, Cluster, Server, names};
use crate::daemon::Daemon;
use crate::effort::Effort;
use crate::numbers::{Promise, median, ratio};
use crate::witness::Witness;

const SERVICES: usize = 1000;
const ROUNDS: usize = 5;

/// Services that are there and wait: nothing happens but the writes.
pub async fn measure_waiting(cluster: &Cluster) -> Result<Vec<Promise>> {
    let mut table = Table::new("waiting for a group");
    for round in 0..ROUNDS {
        let served = serve_waiting(cluster, round).await?;
        table.row(served, write_waiting(cluster, round).await?);
    }
    Ok(vec![table.end()])
}

/// Services that are being created: the API server has this to do, too.
pub async fn measure_new(cluster: &Cluster) -> Result<Vec<Promise>> {
    let mut table = Table::new("being created");
    for round in 0..ROUNDS {
        let served = serve_new(cluster, round).await?;
        table.row(served, write_new(cluster, round).await?);
    }
    Ok(vec![table.end()])
}

/// From the creation of the group until the last address.
async fn serve_waiting(cluster: &Cluster, round: usize) -> Result<(Duration, f64)> {
    let daemon = Daemon::start(cluster).await?;
    let mut witness = Witness::new(cluster.plane.client()?).await?;
    let (names, group) = (names(&format!("waiting-{round}"), SERVICES), format!("group-{round}"));
    cluster.create_all(&names, Server::PureLBFrom(&group)).await?;
    cluster.calm().await?;
    let effort = Effort::begin();
    cluster.group(&group, &format!("10.{}.0.0/16", 130 + round)).await?;
    let took = effort.until(witness.all(&names).await?);
    daemon.stop().await?;
    cluster.clear().await?;
    Ok(took)
}

/// From the first patch until the last address; no allocator runs.
async fn write_waiting(cluster: &Cluster, round: usize) -> Result<(Duration, f64)> {
    let mut witness = Witness::new(cluster.plane.client()?).await?;
    let names = names(&format!("raw-waiting-{round}"), SERVICES);
    // The same state as the allocator's Services are in: the API server has more to do for an object that it knows longer.
    let services = cluster.delay_all(cluster.create_all(&names, Server::Raw).await?).await?;
    let effort = Effort::begin();
    let (patched, last) = futures::join!(cluster.patch_all(stream::iter(services)), witness.all(&names));
    patched?;
    let took = effort.until(last?);
    cluster.clear().await?;
    Ok(took)
}

/// From the first creation until the last address.
async fn serve_new(cluster: &Cluster, round: usize) -> Result<(Duration, f64)> {
    let daemon = Daemon::start(cluster).await?;
    let mut witness = Witness::new(cluster.plane.client()?).await?;
    let names = names(&format!("served-{round}"), SERVICES);
    let effort = Effort::begin();
    let (created, last) = futures::join!(cluster.create_all(&names, Server::PureLB), witness.all(&names));
    created?;
    let took = effort.until(last?);
    daemon.stop().await?;
    cluster.clear().await?;
    Ok(took)
}

/// The same with patches by a client that need not watch; no allocator runs.
async fn write_new(cluster: &Cluster, round: usize) -> Result<(Duration, f64)> {
    let mut witness = Witness::new(cluster.plane.client()?).await?;
    let names = names(&format!("raw-{round}"), SERVICES);
    let (tell, mut created) = tokio::sync::mpsc::unbounded_channel();
    let effort = Effort::begin();
    let creating = stream::iter(&names).map(|name| cluster.create(name, Server::Raw)).buffer_unordered(AT_ONCE);
    // The sender goes with the last creation, and so the patching ends.
    let creating = creating.try_for_each(move |service| {
        drop(tell.send(service));
        std::future::ready(Ok(()))
    });
    let patching = cluster.patch_all(stream::poll_fn(move |context| created.poll_recv(context)));
    let (creation, patched, last) = futures::join!(creating, patching, witness.all(&names));
    creation?;
    patched?;
    let took = effort.until(last?);
    cluster.clear().await?;
    Ok(took)
}

/// One line for each round and the median of the ratios.
struct Table {
    what: String,
    ratios: Vec<f64>,
    efforts: Vec<f64>,
}

impl Table {
    fn new(what: &str) -> Self {
        println!("\n{SERVICES} Services, {what}\nallocator        raw   ratio   processor        raw   ratio");
        Self { what: what.to_owned(), ratios: Vec::new(), efforts: Vec::new() }
    }

    fn row(&mut self, served: (Duration, f64), raw: (Duration, f64)) {
        let (ratio, effort) = (ratio(served.0, raw.0), served.1 / raw.1);
        print!("{:>7.2} s {:>8.2} s {ratio:>7.2}", served.0.as_secs_f64(), raw.0.as_secs_f64());
        println!(" {:>9.2} s {:>8.2} s {effort:>7.2}", served.1, raw.1);
        self.ratios.push(ratio);
        self.efforts.push(effort);
    }

    fn end(&self) -> Promise {
        println!("median ratio of processor time {:.2}", median(&self.efforts));
        let what = format!("{SERVICES} Services {}, median ratio to a raw client", self.what);
        Promise::told(what, median(&self.ratios), 1.3)
    }
}
