//! A router that resets its sessions every second, an agent that stands still, and what others notice of it.

use std::time::Duration;

use anyhow::{Context, Result};
use purelb_lab::router::fabric::NODES;
use serde_json::Value;

use crate::configured::{flaps, neighbors};
use crate::routes::host;
use crate::story::Story;

/// How often the router does so.
const RESETS: usize = 10;
/// How much an agent may grow meanwhile, in MiB.
const GROWTH: f64 = 16.0;

/// Since when each node is in session with the other routers.
async fn others(story: &Story) -> Result<Vec<Value>> {
    let mut since = Vec::new();
    for node in NODES {
        for gate in &story.gates()[1..] {
            for family in [".", ":"] {
                since.push(story.reported(node, gate.address(family)).await?["sessionUpSince"].take());
            }
        }
    }
    Ok(since)
}

fn memory(story: &Story) -> Result<f64> {
    story.nodes()[0].agent.as_ref().context("the agent runs")?.memory("VmRSS")
}

#[tokio::test]
async fn a_router_that_resets_every_second_harms_neither_the_others_nor_the_agents() -> Result<()> {
    let name = "a_router_that_resets_every_second_harms_neither_the_others_nor_the_agents";
    let story = Story::begin(name).await?;
    story.configure(neighbors(story.gates(), |_| ())).await?;
    story.established(6).await?;
    story.group("single", ["/32", "/128"]).await?;
    let (before, memory_before) = (others(&story).await?, memory(&story)?);
    let (restless, well) = story.gates().split_first().context("there are routers")?;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let mut prefixes = Vec::new();
    for round in 0..RESETS {
        second.tick().await;
        for node in story.nodes() {
            restless.router()?.clear(node.v4)?;
            restless.router()?.clear(node.v6)?;
        }
        if round == RESETS / 2 {
            prefixes = story.service("web", "single", "Cluster").await?.map(host).into();
            prefixes.iter().try_for_each(|prefix| story.routed(well, prefix, &[0, 1, 2]))?;
        }
    }
    for node in story.nodes() {
        assert!(flaps(node, restless.address("."))? >= 2, "the session of {} fell again and again", node.name());
        assert!(node.ask("/readyz")?.contains("ok"), "{} is ready", node.name());
    }
    prefixes.iter().try_for_each(|prefix| story.routed(std::slice::from_ref(restless), prefix, &[0, 1, 2]))?;
    assert_eq!(others(&story).await?, before, "no other session was disturbed");
    let grown = memory(&story)? - memory_before;
    println!("after {RESETS} resets the agent has grown by {grown:.1} MiB");
    assert!(grown < GROWTH, "the agent has grown by {grown:.1} MiB");
    story.close()
}

/// Its routes go with the hold timers of the routers, and come back with it.
#[tokio::test]
async fn an_agent_that_stands_still_loses_its_routes_by_the_hold_timer() -> Result<()> {
    let story = Story::begin("an_agent_that_stands_still_loses_its_routes_by_the_hold_timer").await?;
    story.configure(neighbors(story.gates(), |_| ())).await?;
    story.group("single", ["/32", "/128"]).await?;
    let prefixes = story.service("web", "single", "Cluster").await?.map(host);
    prefixes.iter().try_for_each(|prefix| story.routed(story.gates(), prefix, &[0, 1, 2]))?;
    story.established(6).await?;
    let agent = story.nodes()[0].agent.as_ref().context("the agent runs")?;
    agent.freeze()?;
    prefixes.iter().try_for_each(|prefix| story.routed(story.gates(), prefix, &[1, 2]))?;
    for gate in story.forwarding() {
        let words = gate.router()?.neighbour(story.nodes()[0].v4)? + &gate.router()?.log();
        assert!(words.to_lowercase().contains("hold timer expired"), "{words}");
    }
    agent.thaw()?;
    for gate in story.gates() {
        for neighbor in [gate.address("."), gate.address(":")] {
            let line = format!("purelb_bgp_session_last_notification{{peer=\"{neighbor}\",code=\"4/0\"}} 1");
            let told = async |story: &Story| Ok(story.nodes()[0].ask("/metrics")?.contains(&line));
            story.until(&format!("node-a knows that it was 4/0 with {neighbor}"), told).await?;
        }
    }
    prefixes.iter().try_for_each(|prefix| story.routed(story.gates(), prefix, &[0, 1, 2]))?;
    story.close()
}
