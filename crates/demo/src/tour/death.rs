//! Step 3: the node with the local address loses power: how long is nobody there?

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use super::local::{holder, holders};
use super::manifests::LOCAL;
use super::{at, local_address, until_routed, virtual_addresses};
use crate::show::{Look, Show, demand, milliseconds};
use crate::site::Site;
use crate::site::node::LEASE;
use crate::watch::Watch;

/// So many answers in a row mean that the service is back.
const STEADY: usize = 50;

pub fn show(site: &mut Site, show: &mut Show) -> Result<()> {
    let (address, all) = (local_address(site)?, virtual_addresses(site)?);
    let dead = show.until("exactly one node has the address", || holder(site, address))?;
    let watch = Watch::start(&site.desk, at(address))?;
    show.until("the client gets answers", || Ok(steady(&watch)))?;
    show.line(&format!("A client asks {address} every 10 ms. {dead} has it, and dies:"));
    let killed = Instant::now();
    site.kill(&dead)?;
    let others: Vec<String> = site.names().into_iter().filter(|name| *name != dead).collect();
    until_routed(site, show, &all, &others)?;
    let rerouted = killed.elapsed();
    let heir = show.until("another node has the address", || heir(site, address, &dead))?;
    show.until("the client gets answers again", || Ok(steady(&watch)))?;
    let gap = watch.report().gap;
    show.types(&format!(
        "kubectl get svc {LOCAL} \\\n    -o jsonpath='{{.metadata.annotations.purelb\\.io/announcing-IPv4}}{{\"\\n\"}}'"
    ))?;
    show.line(&format!("{heir} took over. Without an answer: {}.", milliseconds(gap)));
    show.line(&format!("(The others wait {LEASE} for a sign of life: the shortest there is; 5s by default.)"));
    show.line(&format!("The router stopped using {dead} for the virtual addresses after {}.", milliseconds(rerouted)));
    demand(gap > Duration::ZERO, "a dead node leaves a gap", "none: it was not the one that answered")?;
    show.fact("gap_ms", json!(gap.as_millis() as u64));
    show.fact("rerouted_ms", json!(rerouted.as_millis() as u64));
    show.fact("from", dead.clone());
    show.fact("to", heir);
    drop(watch);
    back(site, show, &dead)
}

/// The node comes back, and takes its address again: it still ranks lowest.
fn back(site: &mut Site, show: &mut Show, dead: &str) -> Result<()> {
    let (address, all) = (local_address(site)?, virtual_addresses(site)?);
    let watch = Watch::start(&site.desk, at(address))?;
    show.until("the client gets answers", || Ok(steady(&watch)))?;
    site.revive(dead)?;
    show.until(&format!("{dead} has its address again"), || {
        Ok(holder(site, address)?.and_then(|name| if name == dead { Ok(()) } else { Err(format!("{name} has it")) }))
    })?;
    until_routed(site, show, &all, &site.names())?;
    show.until("the client gets answers", || Ok(steady(&watch)))?;
    let gap = watch.report().gap;
    show.line(&format!("{dead} has power again and takes its address back: {} without an answer.", milliseconds(gap)));
    show.fact("return_gap_ms", json!(gap.as_millis() as u64));
    Ok(())
}

fn heir(site: &Site, address: IpAddr, dead: &str) -> Result<Look<String>> {
    let other = holders(site, address)?.into_iter().find(|name| name != dead);
    Ok(other.ok_or_else(|| "no other node has it".to_owned()))
}

fn steady(watch: &Watch) -> Look<()> {
    let answers = watch.steady();
    if answers >= STEADY { Ok(()) } else { Err(format!("{answers} answers in a row")) }
}
