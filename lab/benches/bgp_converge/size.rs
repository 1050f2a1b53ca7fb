//! Memory per peer: sessions that are up, each told a thousand routes, in the process that measures.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use purelb_bgp::{Handle, Peer, Speaker};
use purelb_lab::net::{Lan, Namespace};
use purelb_lab::router::{Make, Router};

use crate::bird;
use crate::many::{NODE_AS, ROUTER_AS, in_session, node, routes, set};

const PEERS: u8 = 20;

pub fn measure() -> Result<()> {
    let lan = Lan::new()?;
    let (router_space, our_space) = (Namespace::new("router")?, Namespace::new("ours")?);
    let faces: Vec<IpAddr> = (1..=PEERS).map(|face| Ipv4Addr::new(10, 9, 1, face).into()).collect();
    let addresses: Vec<String> = faces.iter().map(|face| format!("{face}/16")).collect();
    lan.plug(&router_space, "eth0", &addresses.iter().map(String::as_str).collect::<Vec<_>>())?;
    lan.plug(&our_space, "eth0", &[&format!("{}/16", node(1))])?;
    let start = |face: &IpAddr| {
        Router::start_with(Make::Bird, &router_space, &bird::has_a_face(*face, node(1), NODE_AS, ROUTER_AS))
    };
    let _routers = faces.iter().map(start).collect::<Result<Vec<_>>>()?;
    let speaker = our_space.run(Speaker::start)?;
    let told = routes(102);
    set(&speaker, Vec::new(), &told);
    let alone = resident()?;
    let silent = with_peers(&speaker, &faces, &[])?;
    let full = with_peers(&speaker, &faces, &told)?;
    let each = |kib: u64| kib.saturating_sub(alone) as f64 / f64::from(PEERS);
    println!(
        "\nmemory per peer, {PEERS} in session: {:.0} KiB, and {:.0} KiB with {} routes",
        each(silent),
        each(full),
        told.len()
    );
    Ok(())
}

/// Resident memory once all are in session and were told these.
fn with_peers(speaker: &Handle, faces: &[IpAddr], told: &[Ipv4Addr]) -> Result<u64> {
    set(speaker, faces.iter().map(|face| Peer::new(*face, ROUTER_AS)).collect(), told);
    faces.iter().try_for_each(|face| in_session(speaker, *face))?;
    resident()
}

/// In KiB.
fn resident() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("/proc tells no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
