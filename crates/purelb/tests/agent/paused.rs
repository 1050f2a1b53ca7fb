//! Agents that stand still and go on, as after SIGSTOP or on a node that is starved: what they begin late does no harm.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use purelb_core::elect::elect;

use crate::stories::with_local;
use crate::town::{TIMING, Town};

/// Waits until exactly this node holds an address.
async fn held_by(town: &Town, addr: std::net::IpAddr, node: usize) -> Result<()> {
    let what = format!("node{} holds {addr}", node + 1);
    town.until(&what, async |town| Ok((town.holders_of(addr) == [node]).then_some(()))).await
}

#[tokio::test(start_paused = true)]
async fn b22_an_owner_that_stands_still_loses_its_address_before_another_takes_it_and_gets_it_back_later() -> Result<()>
{
    let (mut town, addr, first) = with_local(3).await?;
    // At every phase of its renewals.
    for phase in 0..12 {
        town.pass(TIMING.renew() * phase / 12).await;
        town.pause(first);
        town.until("another has it", async |town| {
            Ok(town.holders_of(addr).iter().any(|node| *node != first).then_some(()))
        })
        .await?;
        town.pass(Duration::from_secs(u64::from(phase))).await;
        town.resume(first);
        held_by(&town, addr, first).await?;
        town.check()?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn b22_what_an_heir_decided_before_it_stood_still_is_not_done_when_it_goes_on() -> Result<()> {
    let (mut town, addr, first) = with_local(3).await?;
    let others: Vec<usize> = (0..3).filter(|node| *node != first).collect();
    let names: Vec<Arc<str>> = others.iter().map(|node| town.nodes[*node].name.as_str().into()).collect();
    let elected = elect(addr, &names, None).context("one of two is elected")?.node.clone();
    let heir = others[names.iter().position(|name| *name == elected).context("it is one of them")?];
    let third = 3 - first - heir;
    town.nodes[heir].kernel.hold();
    town.kill(first);
    // It is elected and has ordered its kernel to take the address; the order is stuck on the way.
    town.pass(TIMING.lease + Duration::from_secs(2)).await;
    assert!(town.holders_of(addr).is_empty(), "{:?}", town.holders_of(addr));
    town.pause(heir);
    held_by(&town, addr, third).await?;
    town.resume(heir);
    town.check()?;
    held_by(&town, addr, heir).await?;
    town.check()
}
