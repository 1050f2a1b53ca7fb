//! Agents that are told to stop while the kernel refuses, hangs or takes its time: nobody takes over too early, and nothing
//! is left for ever.

use std::time::Duration;

use anyhow::Result;
use purelb::agent::stop::OnStop;
use purelb_core::plan::Step;
use rstest::rstest;
use serde_json::json;
use tokio::time::Instant;

use crate::stories::with_local;
use crate::town::{TIMING, Town};

/// What keeps an address on the NIC of an agent that stops.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// The kernel refuses to take it off.
    Refused,
    /// The kernel's thread hangs.
    Hangs,
    /// The kernel's thread has died.
    Gone,
}

#[rstest]
#[case::refused(Trouble::Refused)]
#[case::hangs(Trouble::Hangs)]
#[case::gone(Trouble::Gone)]
#[tokio::test(start_paused = true)]
async fn b22_nobody_takes_over_from_an_agent_that_stops_and_cannot_let_go(#[case] trouble: Trouble) -> Result<()> {
    let (mut town, addr, first) = with_local(3).await?;
    // At every phase of its renewals.
    for phase in 0..6 {
        town.pass(TIMING.renew() * phase / 6).await;
        let kernel = &town.nodes[first].kernel;
        match trouble {
            Trouble::Refused => kernel.refuse(|step| matches!(step, Step::DropAddr { .. })),
            Trouble::Hangs => kernel.hold(),
            Trouble::Gone => kernel.unplug(),
        }
        let stopped = Instant::now();
        town.pass(Duration::from_millis(1)).await;
        let ended = town.stop(first).await;
        assert_eq!(ended.is_err(), matches!(trouble, Trouble::Gone), "{ended:?}");
        assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
        assert_eq!(town.holders_of(addr), [first], "it is still there, and nobody else's yet");
        if phase % 2 == 0 {
            // Who starts now has never seen the one that stopped.
            let other = (first + 1) % 3;
            town.kill(other);
            town.start(other);
        }
        town.until("another has it", async |town| {
            Ok(town.holders_of(addr).iter().any(|node| *node != first).then_some(()))
        })
        .await?;
        town.check()?;
        let waited = stopped.elapsed();
        assert!(waited <= TIMING.lease + Duration::from_secs(1), "no longer than for one that is killed: {waited:?}");
        town.nodes[first].kernel.refuse(|_| false);
        town.start(first);
        town.until("it is back", async |town| Ok((town.holders_of(addr) == [first]).then_some(()))).await?;
        town.check()?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn b22_an_address_that_is_on_its_way_to_the_nic_when_the_agent_stops_has_not_been_let_go() -> Result<()> {
    let (mut town, addr, first) = with_local(2).await?;
    let other = 1 - first;
    town.stop(first).await?;
    town.until("the other has it", async |town| Ok((town.holders_of(addr) == [other]).then_some(()))).await?;
    // Steps take so long that the address is still on its way when the agent is told to stop.
    town.nodes[first].kernel.slow_down(Duration::from_millis(200));
    town.start(first);
    town.until("the other has let go", async |town| Ok(town.holders_of(addr).is_empty().then_some(()))).await?;
    town.pass(Duration::from_millis(50)).await;
    assert!(town.holders_of(addr).is_empty(), "on its way");
    town.stop(first).await?;
    town.holder(addr).await?;
    town.check()
}

/// A town of one node with so many virtual addresses.
async fn with_many(services: usize, on_stop: OnStop) -> Result<Town> {
    let mut town = Town::new(1).await?;
    town.nodes[0].on_stop = on_stop;
    town.start(0);
    town.remote_group("edge", "/32").await?;
    for number in 0..services {
        town.service(&format!("web{number}"), json!({"purelb.io/service-group": "edge"}), json!({})).await?;
    }
    town.until("all are there", async |town| Ok((town.on(0, "kube-lb0").len() == services).then_some(()))).await?;
    Ok(town)
}

#[tokio::test(start_paused = true)]
async fn i19_an_agent_that_leaves_for_good_leaves_nothing_however_long_it_takes() -> Result<()> {
    for refuse in [|_: &Step| false, |step: &Step| matches!(step, Step::DropLink { .. })] {
        let mut town = with_many(250, OnStop::Leave).await?;
        let kernel = &town.nodes[0].kernel;
        kernel.slow_down(Duration::from_millis(5));
        kernel.refuse(refuse);
        let stopped = Instant::now();
        town.stop(0).await?;
        let left = town.nodes[0].kernel.links();
        let took = stopped.elapsed();
        let left = left.named("kube-lb0").map(|(_, link)| link.addrs.iter().filter(|held| !held.is_kernels()).count());
        if refuse(&Step::DropLink { link: 0 }) {
            assert_eq!(left, Some(0), "one after the other, if the interface cannot go: after {took:?}");
            assert!(took > Duration::from_secs(1) && took < Duration::from_secs(3), "{took:?}");
        } else {
            assert_eq!(left, None, "the interface goes with all that is on it: after {took:?}");
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn every_address_that_waits_for_a_successor_gets_its_end_however_long_it_takes() -> Result<()> {
    let mut town = with_many(250, OnStop::Stay).await?;
    town.nodes[0].kernel.slow_down(Duration::from_millis(5));
    let stopped = Instant::now();
    town.stop(0).await?;
    let links = town.nodes[0].kernel.links();
    let (_, link) = links.named("kube-lb0").expect("it stays");
    let held: Vec<_> = link.addrs.iter().filter(|held| !held.is_kernels()).collect();
    let endless = held.iter().filter(|held| held.valid_until.is_none()).count();
    assert_eq!((held.len(), endless), (250, 0), "after {:?}", stopped.elapsed());
    town.pass(Duration::from_secs(70)).await;
    assert!(town.on(0, "kube-lb0").is_empty(), "without a successor the kernel takes them off");
    Ok(())
}
