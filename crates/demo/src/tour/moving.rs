//! Step 4: with externalTrafficPolicy Local only nodes with a pod attract traffic, and pods see their clients.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Result;
use serde_json::json;

use super::manifests::VIRTUAL;
use super::{at, family, route_of, until_routed, until_served, virtual_addresses};
use crate::ask::ask_often;
use crate::cluster::TEST;
use crate::show::{Show, demand, milliseconds};
use crate::site::Site;
use crate::site::plan::Place;
use crate::watch::Watch;

/// The client behind the router, as its requests name it.
const CLIENT: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, 2))];

pub fn show(site: &mut Site, show: &mut Show) -> Result<()> {
    let all = virtual_addresses(site)?;
    // A tour that was cut short may have left it in a data folder.
    site.cluster.delete(&format!("/api/v1/namespaces/{TEST}/pods/kuard-moved"))?;
    let rest: Vec<String> = site.nodes.iter().skip(1).map(|node| format!("kuard-{}", node.place.number)).collect();
    policy(show, "Local")?;
    // The names of many do not fit the line of the command.
    let between = if rest.len() < 7 { " " } else { " \\\n    " };
    show.types(&format!("kubectl delete pod{between}{}", rest.join(" ")))?;
    until_served(site, show, 1)?;
    until_routed(site, show, &all, &[node(1)])?;
    show.types_on(&site.router.namespace, &route_of(all[0]))?;
    show.line("The only pod now, on node1, saw the client's own address in");
    let mut kept = BTreeMap::new();
    for address in &all {
        let answers = ask_often(&site.client, at(*address), 50)?;
        let own = answers.iter().filter(|answer| CLIENT.contains(&answer.source)).count();
        show.line(&format!("  {own} of 50 requests to {address}"));
        demand(own == answers.len(), "the pod sees the client's address", format!("{answers:?}"))?;
        kept.insert(family(*address), own);
    }
    show.fact("client_address_kept", json!(kept));
    moves(site, show, &all)?;
    policy(show, "Cluster")?;
    show.types("kubectl apply -f pods.yaml")?;
    // Until the others answer, all depends on the one that is about to go.
    until_served(site, show, site.nodes.len() + 1)?;
    show.types("kubectl delete pod kuard-moved")?;
    until_served(site, show, site.nodes.len())?;
    until_routed(site, show, &all, &site.names())
}

fn node(number: u8) -> String {
    Place::of(number).name
}

/// The pod goes to another node: a new one starts there, and the old one is deleted.
fn moves(site: &Site, show: &mut Show, all: &[IpAddr]) -> Result<()> {
    let watch = Watch::start(&site.client, at(all[0]))?;
    show.types("kubectl apply -f moved.yaml")?;
    until_routed(site, show, all, &[node(1), node(2)])?;
    show.types("kubectl delete pod kuard-1")?;
    until_routed(site, show, all, &[node(2)])?;
    show.until("the client gets answers from node2 only", || {
        let asked: Result<Vec<_>> = all.iter().map(|address| ask_often(&site.client, at(*address), 10)).collect();
        let answers = asked.map(|each| each.concat()).map_err(|error| format!("{error:#}"));
        Ok(answers
            .and_then(|all| if all.iter().all(|one| one.node == "node2") { Ok(()) } else { Err(format!("{all:?}")) }))
    })?;
    let report = watch.report();
    show.types_on(&site.router.namespace, &route_of(all[0]))?;
    show.line(&format!(
        "The pod is on node2 now. Lost on the way: {} of {} requests, longest gap {}.",
        report.lost,
        report.answered + report.lost,
        milliseconds(report.gap)
    ));
    show.line("(A router that changes its next hops moves some connections under way.)");
    show.fact("lost", report.lost);
    show.fact("gap_ms", json!(report.gap.as_millis() as u64));
    Ok(())
}

fn policy(show: &mut Show, policy: &str) -> Result<()> {
    let patch = format!("{{\"spec\":{{\"externalTrafficPolicy\":\"{policy}\"}}}}");
    show.types(&format!("kubectl patch svc {VIRTUAL} \\\n    -p '{patch}'")).map(drop)
}
