//! One Service at a time: from the answer to its creation until its address is seen, beside one raw patch and its sight.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cluster::{Cluster, Server, raw_address};
use crate::daemon::Daemon;
use crate::numbers::{Promise, ms, quantile, ratio};
use crate::witness::Witness;

/// How many times, after some to warm up.
const TIMES: usize = 300;
const WARM_UP: usize = 30;

pub async fn measure(cluster: &Cluster) -> Result<Vec<Promise>> {
    let daemon = Daemon::start(cluster).await?;
    let mut witness = Witness::new(cluster.plane.client()?).await?;
    let (mut served, mut raw) = (Vec::new(), Vec::new());
    for number in 0..WARM_UP + TIMES {
        // In turns, so that whatever else the machine does is done to both.
        served.push(serve(cluster, &mut witness, number).await?);
        raw.push(patch(cluster, &mut witness, number).await?);
    }
    let (served, raw) = (&served[WARM_UP..], &raw[WARM_UP..]);
    println!("\none at a time, {TIMES} times            p50        p99");
    let row = |what: &str, values: &[Duration]| {
        println!("{what:<28} {:>10} {:>10}", ms(quantile(values, 0.5)), ms(quantile(values, 0.99)));
    };
    row("created -> address seen", served);
    row("raw patch sent -> seen", raw);
    let ratio = |share| ratio(quantile(served, share), quantile(raw, share));
    println!("{:<28} {:>10.2} {:>10.2}", "ratio", ratio(0.5), ratio(0.99));
    let promise = Promise::told("p50 to one raw patch and its delivery", ratio(0.5), 2.0);
    daemon.stop().await?;
    cluster.clear().await?;
    Ok(vec![promise])
}

async fn serve(cluster: &Cluster, witness: &mut Witness, number: usize) -> Result<Duration> {
    let name = format!("served-{number}");
    cluster.create(&name, Server::PureLB).await?;
    let created = Instant::now();
    Ok(witness.one(&name).await?.duration_since(created))
}

async fn patch(cluster: &Cluster, witness: &mut Witness, number: usize) -> Result<Duration> {
    let name = format!("raw-{number}");
    let service = cluster.create(&name, Server::Raw).await?;
    let sent = Instant::now();
    cluster.patch(&service, &raw_address(number)).await?;
    Ok(witness.one(&name).await?.duration_since(sent))
}
