//! Step 2: an address of the nodes' own subnet: who has it, and why that one.

use std::net::IpAddr;

use anyhow::{Context, Result};
use purelb_core::elect::rank;
use serde_json::json;

use super::manifests::LOCAL;
use super::{addresses, at};
use crate::ask::{Answer, ask_often};
use crate::show::{Look, Show};
use crate::site::Site;

pub fn show(site: &mut Site, show: &mut Show) -> Result<()> {
    show.types("kubectl apply -f local.yaml")?;
    let all = show.until("the Service has an address", || addresses(&site.cluster, LOCAL, 1))?;
    let address = *all.first().context("a Service with one address has one")?;
    let mut ranks: Vec<(String, String)> = site.names().into_iter().map(|name| (hex(&name, address), name)).collect();
    ranks.sort();
    let winner = ranks.first().context("there are nodes")?.1.clone();
    // A node that has only just started may come later, and take the address then.
    show.until(&format!("{winner} and no other node has {address}"), || {
        Ok(holder(site, address)?.and_then(|name| if name == winner { Ok(()) } else { Err(format!("{name} has it")) }))
    })?;
    show.types(&format!(
        "kubectl get svc {LOCAL} \\\n    -o jsonpath='{{.status.loadBalancer.ingress[0].ip}}{{\"\\n\"}}'"
    ))?;
    show.types_on(&site.node(&winner)?.namespace, "ip -4 -br addr show dev eth0")?;
    show.line(&format!("Agents rank live nodes by SHA-256 of NODE#{address}; the lowest wins:"));
    for (number, (digest, name)) in ranks.iter().enumerate() {
        let note = if number == 0 { "  <- announces it" } else { "" };
        show.line(&format!("  {name:<8} {digest}...{note}"));
    }
    let answers = answers(site, show, address)?;
    show.line(&format!("A client on the same segment asked {} times: all answered.", answers.len()));
    show.fact("address", json!(address));
    show.fact("winner", winner);
    Ok(())
}

/// The Service of this step for those who skip it: it is the one that is asked while they play with nodes.
pub fn provide(site: &Site, show: &mut Show) -> Result<()> {
    if addresses(&site.cluster, LOCAL, 1)?.is_ok() {
        return Ok(());
    }
    show.line("");
    show.line("Skipped. A Service with a local address is of use below:");
    show.types("kubectl apply -f local.yaml")?;
    let all = show.until("the Service has an address", || addresses(&site.cluster, LOCAL, 1))?;
    let address = *all.first().context("a Service with one address has one")?;
    answers(site, show, address).map(drop)
}

/// What a client on the segment hears, which asks until somebody has the address.
fn answers(site: &Site, show: &mut Show, address: IpAddr) -> Result<Vec<Answer>> {
    show.until("a client on the segment gets answers", || {
        Ok(ask_often(&site.desk, at(address), 20).map_err(|error| format!("{error:#}")))
    })
}

fn hex(node: &str, address: IpAddr) -> String {
    rank(node, address).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// The one node whose kernel has the address on its NIC.
pub fn holder(site: &Site, address: IpAddr) -> Result<Look<String>> {
    let holders = holders(site, address)?;
    Ok(match &holders[..] {
        [one] => Ok(one.clone()),
        _ => Err(format!("{address} is on {holders:?}")),
    })
}

/// All nodes whose kernels have the address on their NICs; a dead one's may still have it, where nobody can reach it.
pub fn holders(site: &Site, address: IpAddr) -> Result<Vec<String>> {
    let mut holders = Vec::new();
    for node in &site.nodes {
        let shown = node.namespace.ip(&["-j", "addr", "show", "dev", "eth0"])?;
        let addresses = shown[0]["addr_info"].as_array().cloned().unwrap_or_default();
        if addresses.iter().any(|entry| entry["local"] == address.to_string()) {
            holders.push(node.name().to_owned());
        }
    }
    Ok(holders)
}
