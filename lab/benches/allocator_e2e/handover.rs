//! A change of leader among ten thousand Services that have all they ask for: how many of them are written to.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::ListParams;

use crate::cluster::{Cluster, Server, names};
use crate::daemon::Daemon;
use crate::numbers::Promise;
use crate::witness::Witness;

const SERVICES: usize = 10_000;
const RANGES: [&str; 3] = ["10.140.0.0/18", "10.141.0.0/18", "10.142.0.0/18"];

pub async fn measure(cluster: &Cluster) -> Result<Vec<Promise>> {
    cluster.group_of("three", &RANGES).await?;
    let daemon = Daemon::start(cluster).await?;
    let mut witness = Witness::new(cluster.plane.client()?).await?;
    let names = names("content", SERVICES);
    let (created, served) =
        futures::join!(cluster.create_all(&names, Server::PureLBFrom("three")), witness.all(&names));
    created?;
    served?;
    cluster.calm().await?;
    daemon.stop().await?;
    let before = versions(cluster).await?;
    let successor = Daemon::start(cluster).await?;
    let after = versions(cluster).await?;
    let written = before.iter().filter(|(name, version)| after.get(*name) != Some(version)).count();
    println!(
        "\n{SERVICES} content Services in a group of {} ranges, a new leader decides after {} ms",
        RANGES.len(),
        successor.start.as_millis()
    );
    let promise = Promise::told("Services written to at a change of leader", written as f64, 0.0);
    successor.stop().await?;
    cluster.clear().await?;
    Ok(vec![promise])
}

/// The version of each Service.
async fn versions(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let all = cluster.services().list_metadata(&ListParams::default()).await?.items.into_iter();
    all.map(|object| Ok((object.name_any(), object.resource_version().context("every object has a version")?)))
        .collect()
}
