//! 410 Gone: the API server has forgotten what the allocator's watches would go on from, while Services came and went.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, bail};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, ips};
use crate::line::Line;

/// More than the allocator reads in one page.
const SERVICES: usize = 130;
/// The kinds an allocator watches, its own lease among them.
const WATCHES: usize = 7;

/// Each Service that asks for an address, as the API server shows it.
async fn shown(cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
    let all = cluster.services().list(&ListParams::default()).await?.items;
    let all = all.into_iter().map(|service| Ok(serde_json::to_value(service)?)).collect::<Result<Vec<Value>>>()?;
    let ours = all.into_iter().filter(|service| service["spec"]["type"] == "LoadBalancer");
    let name = |service: &Value| service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(ours.map(|service| (name(&service), service)).collect())
}

/// Asks now and then until it is so. Time stands still but for what is waited for, so that a minute is no time at all, and
/// nothing here depends on how busy the machine is.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    for _ in 0..300 {
        if is_so().await? {
            return Ok(());
        }
        sleep(Duration::from_millis(200)).await;
    }
    bail!("it never came true that {what}")
}

/// Waits until all have an address, each one of its own.
async fn everybody_is_served(cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    until("every Service has an address", async || {
        all = shown(cluster).await?;
        Ok(all.values().all(|service| ips(service).len() == 1))
    })
    .await?;
    let distinct: BTreeSet<_> = all.values().flat_map(ips).collect();
    assert_eq!(distinct.len(), all.len(), "an address was given twice");
    Ok(all)
}

/// What happens while nobody watches: some go, one of them comes back under its name, one is retyped, others come. Those
/// that are not as before are named.
async fn come_and_go(cluster: &Cluster, round: usize) -> Result<BTreeSet<String>> {
    let names: Vec<_> = (0..12).map(|n| format!("s{:03}", round * 12 + n)).collect();
    for name in &names[1..] {
        cluster.services().delete(name, &DeleteParams::default()).await?;
    }
    cluster.patch(&names[0], json!({"spec": {"type": "ClusterIP"}})).await?;
    cluster.service(&names[1], json!({})).await?;
    let new: Vec<_> = (0..14).map(|n| format!("new-{round}-{n}")).collect();
    for name in &new {
        cluster.service(name, json!({})).await?;
    }
    Ok(names.into_iter().chain(new).collect())
}

/// Waits until the API server is asked nothing for ten seconds, in which the lease is renewed a hundred times.
pub async fn at_rest(line: &Line) -> Result<()> {
    let (mut asked, mut since) = (line.requests(), Instant::now());
    until("nothing is asked any more", async || {
        if std::mem::replace(&mut asked, line.requests()) != line.requests() {
            since = Instant::now();
        }
        Ok(since.elapsed() > Duration::from_secs(10))
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn what_happened_in_a_forgotten_time_costs_no_address_and_no_flood() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.1.0/24").await?;
    for n in 0..SERVICES {
        cluster.service(&format!("s{n:03}"), json!({})).await?;
    }
    let line = Line::to(&cluster.server);
    line.forget_within_a_list();
    let allocator = cluster.allocator_with(line.client(), Cluster::settings());
    let mut before = everybody_is_served(&cluster).await?;
    assert_eq!(line.expired().1, 1, "the first list was forgotten before its second page was read");
    at_rest(&line).await?;
    for round in 0..3 {
        let (expired, refused) = (line.expired(), line.refused());
        line.cut();
        until("the cut is noticed", async || Ok(line.refused() >= refused + WATCHES)).await?;
        let changed = come_and_go(&cluster, round).await?;
        cluster.server.compact();
        line.forget_within_a_list();
        let asked = line.requests();
        line.mend();
        let after = everybody_is_served(&cluster).await?;
        at_rest(&line).await?;
        assert!(line.expired().0 >= expired.0 + WATCHES, "each watch is told: {:?}", line.expired());
        assert_eq!(line.expired().1, expired.1 + 1, "and so is the second page of the list that follows");
        for (name, service) in before.iter().filter(|(name, _)| !changed.contains(*name)) {
            assert_eq!(after.get(name), Some(service), "nothing is written to who is content");
        }
        // A watch that is refused, two lists and a watch again; a look, a write and an Event for each that is new.
        let (asked, most) = (line.requests() - asked, WATCHES * 6 + changed.len() * 3);
        assert!(asked <= most, "{asked} requests are a flood");
        before = after;
    }
    allocator.stop().await
}
