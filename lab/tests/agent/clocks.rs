//! Nodes whose clocks are wrong: nobody compares clocks, so nothing comes of it.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use purelb_lab::net::Capture;
use serde_json::json;
use tempfile::TempDir;

use crate::groups;
use crate::local_addresses::{length, ranking};
use crate::site::{LEASE, NODES};
use crate::story::Story;

/// Builds the clock that is off.
fn wrong_clock(folder: &TempDir) -> Result<PathBuf> {
    let library = folder.path().join("clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agent/clock.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status()?;
    ensure!(built.success(), "cc does not build {source}");
    Ok(library)
}

/// When a node last renewed its lease, by its own clock.
async fn renewed(story: &Story, node: &str) -> Result<Timestamp> {
    let lease = story.lease(node).await?;
    Ok(lease["spec"]["renewTime"].as_str().with_context(|| format!("{lease:#}"))?.parse()?)
}

#[tokio::test]
async fn i11_clocks_that_are_off_move_no_address_and_double_none() -> Result<()> {
    let (mut story, folder) = (Story::begin().await?, TempDir::new()?);
    let library = wrong_clock(&folder)?.display().to_string();
    for (name, off) in [("node-b", "30"), ("node-c", "-30")] {
        let account = story.site().account.clone();
        let node = story.site_mut().node_mut(name)?;
        node.take()?.stop().await?;
        node.start_with(&account, &[("LD_PRELOAD", &library), ("CLOCK_OFF", off)])?;
    }
    story.members(&NODES).await?;
    let apart = renewed(&story, "node-b").await?.duration_since(renewed(&story, "node-c").await?);
    ensure!(apart.as_secs() > 50, "the clocks are only {apart:?} apart");
    story.group("local", groups::local()).await?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for name in ["one", "two", "three"] {
        addresses.extend(story.service(name, "local", json!({})).await?);
    }
    for address in &addresses {
        story.held(*address, &[(ranking(*address)[0], "eth0", length(*address))]).await?;
    }
    let nodes = story.site().nodes.iter();
    let kernels = nodes.map(|node| Capture::addresses(&node.namespace)).collect::<Result<Vec<_>>>()?;
    // Long enough for everybody to have been declared dead twice.
    let until = renewed(&story, "node-a").await? + jiff::SignedDuration::try_from(LEASE * 2)?;
    story.until("time has passed", async |story| Ok(renewed(story, "node-a").await? > until)).await?;
    for line in kernels.iter().flat_map(Capture::lines).filter(|line| line.starts_with("Deleted")) {
        ensure!(!addresses.iter().any(|address| line.contains(&format!(" {address}/"))), "an address moved: {line}");
    }
    // Whoever is killed, right or wrong, is followed by the next in line.
    let (address, heir) = addresses
        .iter()
        .find_map(|address| (ranking(*address)[0] == "node-b").then(|| (*address, ranking(*address)[1])))
        .unwrap_or((addresses[0], ranking(addresses[0])[1]));
    story.site_mut().node_mut(ranking(address)[0])?.take()?.kill();
    story
        .until("the heir has it", async |story| {
            let holders = story.holders(address)?;
            ensure!(holders.len() <= 1, "two nodes hold {address}: {holders:?}");
            Ok(holders.first().is_some_and(|(node, ..)| node == heir))
        })
        .await?;
    for name in NODES {
        let node = story.site_mut().node_mut(name)?;
        if let Some(agent) = node.agent.take() {
            agent.stop().await?;
        }
        story.site_mut().start(name)?;
    }
    story.members(&NODES).await?;
    story.close().await
}
