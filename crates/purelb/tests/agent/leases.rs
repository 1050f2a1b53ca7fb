//! Leases on the shipped numbers: slow and standing API servers, agents that come back, two agents of one name.

use std::time::Duration;

use anyhow::Result;
use purelb_core::addr::Family;
use rstest::rstest;
use serde_json::json;
use tokio::time::Instant;

use crate::line::Weather;
use crate::stories::with_local;
use crate::town::{TIMING, Town};

const HEALTHY: &str = "purelb_election_lease_healthy 1";

/// Waits until a node's lease lists subnets.
async fn listed(town: &Town, node: usize) -> Result<()> {
    let name = format!("purelb-node-{}", town.nodes[node].name);
    town.until("the lease lists subnets", async |town| {
        let leases = town.leases().await?;
        let lease = leases.iter().find(|lease| lease.metadata.name.as_ref() == Some(&name));
        let annotations = lease.and_then(|lease| lease.metadata.annotations.as_ref());
        Ok(annotations.is_some_and(|all| all["purelb.io/subnets"].contains('/')).then_some(()))
    })
    .await
}

/// Waits until an agent says that its lease is healthy.
async fn healthy(town: &Town, node: usize) -> Result<()> {
    town.until("it says that it is healthy", async |town| Ok(town.counts(node, HEALTHY)?.then_some(()))).await
}

#[rstest]
#[case::slow(400)]
#[case::slower(750)]
#[case::longer_than_half_the_patience(1_000)]
#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_always_slow_costs_nobody_an_address(#[case] millis: u64) -> Result<()> {
    let (mut town, addr, first) = with_local(3).await?;
    let slow = Weather::Slow(Duration::from_millis(millis));
    for node in 0..3 {
        town.weather(node, slow);
    }
    town.pass(Duration::from_secs(20)).await;
    // One answer takes longer than anybody waits; what was asked for is done all the same.
    town.weather(first, Weather::Late);
    town.pass(Duration::from_secs(2)).await;
    town.weather(first, slow);
    town.pass(Duration::from_secs(60)).await;
    assert_eq!(town.losses_of(addr), []);
    town.check()
}

#[tokio::test(start_paused = true)]
async fn three_seconds_of_silence_move_nothing() -> Result<()> {
    let (mut town, addr, _) = with_local(3).await?;
    for phase in 0..10 {
        town.pass(TIMING.renew() * phase / 10).await;
        for node in 0..3 {
            town.weather(node, Weather::Late);
        }
        town.pass(Duration::from_secs(3)).await;
        for node in 0..3 {
            town.weather(node, Weather::Fair);
        }
        town.pass(Duration::from_secs(5)).await;
        assert_eq!(town.losses_of(addr), [], "in phase {phase}");
    }
    town.check()
}

#[tokio::test(start_paused = true)]
async fn a_restarted_agent_is_back_within_two_seconds_and_its_address_moves_at_once() -> Result<()> {
    let (mut town, addr, first) = with_local(3).await?;
    town.pass(TIMING.lease).await;
    town.stop(first).await?;
    town.holder(addr).await?;
    town.pass(Duration::from_millis(300)).await;
    let started = Instant::now();
    town.start(first);
    healthy(&town, first).await?;
    println!("healthy after {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
    listed(&town, first).await?;
    println!("its subnets are listed after {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let before = town.losses_of(addr).len();
    town.until("it has its address back", async |town| Ok((town.holders_of(addr) == [first]).then_some(()))).await?;
    let losses = town.losses_of(addr);
    let gap = losses.get(before).map_or(Duration::ZERO, |(lost, _)| town.clock.now().0 - *lost);
    println!("on no node for {gap:?}");
    assert!(gap < Duration::from_millis(500), "{gap:?}");
    town.check()
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_killed_announces_a_new_service_within_two_seconds() -> Result<()> {
    let (mut town, _, first) = with_local(3).await?;
    town.pass(TIMING.lease).await;
    town.kill(first);
    town.start(first);
    let started = Instant::now();
    for number in 0..6 {
        town.service(&format!("new{number}"), json!({}), json!({"ipFamilyPolicy": "SingleStack"})).await?;
    }
    for number in 0..6 {
        let addr = town.address(&format!("new{number}"), Family::V4).await?;
        town.holder(addr).await?;
    }
    println!("six new Services are announced after {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    town.check()
}

#[tokio::test(start_paused = true)]
async fn of_two_agents_with_one_node_name_the_one_that_did_not_write_last_stops() -> Result<()> {
    let (mut town, addr, first) = with_local(2).await?;
    for phase in 0..4 {
        town.pass(TIMING.lease * 2 + TIMING.renew() * phase / 4).await;
        town.holder(addr).await?;
        let name = town.nodes[first].name.clone();
        town.add_machine(&format!("twin{phase}"), &name, 20 + u8::try_from(phase)?);
        let twin = town.nodes.len() - 1;
        // Its watch shows nothing: it holds what it may hold to the last moment.
        if phase % 2 == 1 {
            town.weather(first, Weather::Mute);
        }
        town.start(twin);
        town.pass(TIMING.lease * 3).await;
        town.weather(first, Weather::Fair);
        let why = town.ended(first).await?;
        assert!(why.contains("--node-name"), "{why:?}");
        town.check()?;
        town.until("the twin has it", async |town| Ok((town.holders_of(addr) == [twin]).then_some(()))).await?;
        // The operator has understood.
        town.stop(twin).await?;
        town.start(first);
        town.until("it is back", async |town| Ok((town.holders_of(addr) == [first]).then_some(()))).await?;
    }
    town.check()
}
