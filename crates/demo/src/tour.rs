//! The tour: six things that PureLB does, each shown with the commands a user would type and what they print.

mod death;
mod leader;
mod local;
mod manifests;
mod mistake;
mod moving;
mod spread;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::cluster::{Cluster, TEST};
use crate::show::{Look, Show};
use crate::site::Site;
use crate::slices::SERVICE;
use crate::stay::{Key, Keys};

pub use manifests::LOCAL;

/// A step: what it is about, and how it is shown.
type Step = (&'static str, fn(&mut Site, &mut Show) -> Result<()>);

const STEPS: [Step; 6] = [
    ("A virtual address on every node, spread by the router", spread::show),
    ("A local address on exactly one node", local::show),
    ("That node dies", death::show),
    ("externalTrafficPolicy Local, and a pod that moves", moving::show),
    ("A mistake, and what it is told", mistake::show),
    ("The leading allocator dies while Services are created", leader::show),
];

/// Shows all steps. At a keyboard it waits before each but the first, and a person may skip the rest.
pub fn run(site: &mut Site, show: &mut Show, keys: &Keys) -> Result<()> {
    manifests::write(show.folder(), &site.nodes)?;
    for text in [
        "  node1 and so on: 192.168.7.11 and so on, each with a real `purelb agent`",
        "  router: 192.168.7.1 to the nodes, 10.9.0.1 to the world, BIRD and ECMP",
        "  client: 10.9.0.2 behind the router; desk: 192.168.7.9 beside the nodes",
        "  two real `purelb allocator`; kubectl, nft and IPv6 (fd00:7::/64) are real too",
    ] {
        show.line(text);
    }
    show.line(&format!("Manifests: {}", show.folder().join("manifests").display()));
    let mut seen = Vec::new();
    for (number, (title, step)) in (1..).zip(STEPS) {
        if number > 1 && keys.wait(show, "[Enter] next step, [s] skip the tour, [q] quit")? == Key::Skip {
            return local::provide(site, show);
        }
        show.begin(number, STEPS.len(), title);
        step(site, show)?;
        show.done();
        seen.push(title);
    }
    show.line("");
    show.line(&format!(
        "All {} steps were seen to work, {:.1} s after the start.",
        seen.len(),
        show.elapsed().as_secs_f64()
    ));
    show.object(&json!({"ok": true, "steps": seen.len(), "seconds": show.elapsed().as_secs_f64()}));
    Ok(())
}

/// The addresses that a Service has, once it has so many.
fn addresses(cluster: &Cluster, service: &str, count: usize) -> Result<Look<Vec<IpAddr>>> {
    let found = cluster.get(&format!("/api/v1/namespaces/{TEST}/services/{service}"))?.unwrap_or_default();
    let all = ingress(&found);
    Ok(if all.len() == count { Ok(all) } else { Err(format!("its status is {}", found["status"])) })
}

fn ingress(service: &Value) -> Vec<IpAddr> {
    let entries = service["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
    entries.filter_map(|entry| entry["ip"].as_str()?.parse().ok()).collect()
}

/// Whether the router sends an address to exactly these nodes.
fn routed(site: &Site, address: IpAddr, nodes: &[String]) -> Result<Look<()>> {
    let seen = site.router.next_hops(address)?;
    let mut wanted = BTreeSet::new();
    for name in nodes {
        let place = &site.node(name)?.place;
        wanted.insert(if address.is_ipv4() { place.v4 } else { place.v6 });
    }
    Ok(if seen == wanted { Ok(()) } else { Err(format!("next hops of {address}: {seen:?}")) })
}

/// Waits until the router sends both addresses of a Service to exactly these nodes.
fn until_routed(site: &Site, show: &mut Show, all: &[IpAddr], nodes: &[String]) -> Result<()> {
    let expected = format!("the router sends {} to {}", text(all), nodes.join(", "));
    show.until(&expected, || {
        for address in all {
            if let Err(saw) = routed(site, *address, nodes)? {
                return Ok(Err(saw));
            }
        }
        Ok(Ok(()))
    })
}

/// Waits until the virtual Service has exactly so many pods that are ready, and the proxy of every node knows them.
fn until_served(site: &Site, show: &mut Show, pods: usize) -> Result<()> {
    let expected = format!("{pods} pods are ready, and the proxies of all nodes know them");
    show.until(&expected, || {
        if let Err(saw) = ready(site, pods)? {
            return Ok(Err(saw));
        }
        Ok(site.behind()?.map_or(Ok(()), Err))
    })
}

/// Whether both slices of the virtual Service have exactly so many endpoints that are ready.
fn ready(site: &Site, pods: usize) -> Result<Look<()>> {
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{TEST}/endpointslices");
    let slices = site.cluster.list(&format!("{path}?labelSelector={SERVICE}%3D{}", manifests::VIRTUAL))?;
    let full = slices.iter().filter(|slice| {
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true).count() == pods
    });
    Ok(if full.count() == 2 { Ok(()) } else { Err(format!("the slices {}", json!(slices))) })
}

fn text(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" and ")
}

/// The family of an address, as Kubernetes calls it.
fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// The port that all Services of the tour have.
pub fn at(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, 80)
}

/// The virtual Service, whose addresses the first step has shown.
pub fn virtual_addresses(site: &Site) -> Result<Vec<IpAddr>> {
    addresses(&site.cluster, manifests::VIRTUAL, 2)?.ok().context("the virtual Service has lost its addresses")
}

/// The local Service's address, which the second step has shown.
pub fn local_address(site: &Site) -> Result<IpAddr> {
    let all = addresses(&site.cluster, manifests::LOCAL, 1)?.unwrap_or_default();
    all.first().copied().context("the local Service has lost its address")
}

/// What a network engineer types to see where the router sends an address.
fn route_of(address: IpAddr) -> String {
    let family = if address.is_ipv4() { "-4" } else { "-6" };
    format!("ip {family} route show {address}")
}
