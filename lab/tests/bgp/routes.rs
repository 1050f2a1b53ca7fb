//! What routers are told, whoever tells them: single addresses, aggregates, and addresses that follow their pods.

use std::net::IpAddr;

use anyhow::Result;
use purelb_lab::router::fabric::{Gate, Node};

use crate::story::Story;

/// The networks of the group `wide`.
pub const AGGREGATES: [&str; 2] = ["172.23.0.0/24", "fc00:23::/64"];

/// The route to one address alone.
pub fn host(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })
}

/// A Service is reached through every node in both families, evenly, until it goes.
pub async fn single_addresses(story: &Story, gates: &[&Gate]) -> Result<()> {
    story.group("single", ["/32", "/128"]).await?;
    let addresses = story.service("web", "single", "Cluster").await?;
    let _servers = story.serve()?;
    for address in addresses {
        story.routed(gates, &host(address), &[0, 1, 2])?;
        story.spread(address)?;
    }
    story.delete("web").await?;
    addresses.into_iter().try_for_each(|address| story.routed(gates, &host(address), &[]))
}

/// Two addresses in one aggregate are one route, which goes with the last of them: for these prefixes, if not for all.
pub async fn aggregates(story: &Story, gates: &[&Gate], prefixes: &[&str]) -> Result<()> {
    story.group_in("wide", ["default", "default"], 23).await?;
    for name in ["one", "two"] {
        story.service(name, "wide", "Cluster").await?;
    }
    for prefix in AGGREGATES {
        story.routed(gates, prefix, &[0, 1, 2])?;
    }
    story.delete("one").await?;
    let one_left = async |story: &Story| {
        let held = story.nodes().iter().map(Node::virtual_addresses).collect::<Result<Vec<_>>>()?;
        Ok(held.iter().all(|held| held.len() == 2))
    };
    story.until("one address of each family is left", one_left).await?;
    prefixes.iter().try_for_each(|prefix| story.routed(gates, prefix, &[0, 1, 2]))?;
    story.delete("two").await?;
    AGGREGATES.iter().try_for_each(|prefix| story.routed(gates, prefix, &[]))
}

/// externalTrafficPolicy Local: only nodes with a pod are next hops, and the route follows the pod.
pub async fn policy_local(story: &Story, gates: &[&Gate]) -> Result<()> {
    story.pods("near", &["node-a"]).await?;
    let addresses = story.service("near", "single", "Local").await?;
    for (nodes, hops) in [(&["node-a"][..], &[0][..]), (&["node-b"], &[1]), (&["node-b", "node-c"], &[1, 2])] {
        story.pods("near", nodes).await?;
        addresses.into_iter().try_for_each(|address| story.routed(gates, &host(address), hops))?;
    }
    story.delete("near").await
}
