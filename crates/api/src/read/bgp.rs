//! From a BGPConfiguration to what it says, or to the reasons why not.
//!
//! A neighbor with a mistake is left out and named; the others are read. Without an AS number or with a wrong `routerID`
//! there is nothing to go by, and no value. Where an edit broke an object that was valid, [`bgp_in_force`] knows the form
//! it had before.

mod in_force;
mod neighbor;
mod object;
mod parts;
mod unsupported;

use std::net::IpAddr;
use std::time::Duration;

use ipnet::Ipv4Net;
use kube::ResourceExt;
use purelb_core::bgp::import::check_pattern;
use purelb_core::bgp::{Configuration, Import, Listen, NodeStatus, PORT, RouterIdWish};
use purelb_core::reason::Reason;

use super::{Notes, Reading};
use crate::bgp_configuration::{BGPConfigurationSpec, Global, NetlinkImport};
pub use in_force::{bgp_in_force, bgp_last_valid};
pub use object::{BgpObject, bgp_candidate};

/// Where identifiers come from when nobody says otherwise.
const ROUTER_ID_POOL: &str = "10.255.0.0/16";
/// The longest prefix of that pool: a smaller one would give many nodes the same identifier.
const LONGEST_POOL: u8 = 24;
/// The shortest heartbeat, in seconds.
const SHORTEST_HEARTBEAT: i64 = 10;

/// What reading a BGPConfiguration gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BgpReading {
    /// What it says, and what is wrong with it.
    pub reading: Reading<Configuration>,
    /// The fields that have no effect, such as `spec.netlinkExport`.
    pub unsupported: Vec<String>,
}

/// Reads a BGPConfiguration.
pub fn bgp(read: &BgpObject) -> BgpReading {
    let mut notes = Notes { problems: read.unread.clone(), warnings: Vec::new() };
    let value = configuration(read, &mut notes);
    BgpReading { reading: notes.reading(value), unsupported: unsupported::fields(&read.object.spec) }
}

fn configuration(read: &BgpObject, notes: &mut Notes) -> Option<Configuration> {
    let spec: &BGPConfigurationSpec = &read.object.spec;
    let global = &spec.global;
    let asn = notes.accept("spec.global.asn", parts::asn(global.asn));
    let router_id = RouterIdWish::parse(global.router_id.as_deref().unwrap_or_default());
    let router_id = notes.accept("spec.global.routerID", router_id);
    let router_id_pool = router_id_pool(global, notes);
    let listen = listen(global, notes);
    let node_status = node_status(global, notes);
    let import = import(spec.netlink_import.as_ref(), notes);
    let neighbors = neighbor::all(spec, notes);
    Some(Configuration {
        namespace: read.object.namespace().unwrap_or_default(),
        name: read.object.name_any(),
        asn: asn?,
        router_id: router_id?,
        router_id_pool,
        listen,
        node_status,
        import,
        neighbors,
    })
}

fn router_id_pool(global: &Global, notes: &mut Notes) -> Ipv4Net {
    let text = global.router_id_pool.as_deref().filter(|text| !text.is_empty());
    let read = text.map(|text| {
        let pool = text.parse::<Ipv4Net>().ok().filter(|pool| pool.prefix_len() <= LONGEST_POOL);
        pool.ok_or_else(|| Reason::RouterIdPoolSyntax { text: text.to_owned() })
    });
    let read = read.and_then(|read| notes.accept("spec.global.routerIDPool", read));
    read.unwrap_or_else(|| ROUTER_ID_POOL.parse().expect("the default pool is a network"))
}

fn listen(global: &Global, notes: &mut Notes) -> Option<Listen> {
    let port = match global.listen_port.unwrap_or(0) {
        -1 => return None,
        0 => PORT,
        value => {
            let read = u16::try_from(value);
            let reason = |_| Reason::NumberOutOfRange { value, lowest: -1, highest: i64::from(u16::MAX) };
            notes.accept("spec.global.listenPort", read.map_err(reason)).unwrap_or(PORT)
        }
    };
    let mut addresses = Vec::new();
    for (i, text) in global.listen_addresses.iter().enumerate() {
        let read = parts::address(text, "an address", "192.0.2.1");
        addresses.extend(notes.accept(format!("spec.global.listenAddresses[{i}]"), read));
    }
    // The wildcards of both families are what no address at all means.
    let wildcards = addresses.iter().filter(|addr: &&IpAddr| addr.is_unspecified()).count();
    if wildcards > 1 {
        addresses.clear();
    }
    Some(Listen { port, addresses })
}

fn node_status(global: &Global, notes: &mut Notes) -> NodeStatus {
    let default = NodeStatus::default();
    let Some(written) = &global.node_status else { return default };
    let heartbeat = written.heartbeat_seconds.map(|value| {
        if value < SHORTEST_HEARTBEAT {
            let reason = Reason::NumberOutOfRange { value, lowest: SHORTEST_HEARTBEAT, highest: i64::from(i32::MAX) };
            notes.warning("spec.global.nodeStatus.heartbeatSeconds", reason);
        }
        Duration::from_secs(value.clamp(SHORTEST_HEARTBEAT, i64::from(i32::MAX)).unsigned_abs())
    });
    NodeStatus {
        enabled: written.enabled.unwrap_or(default.enabled),
        heartbeat: heartbeat.unwrap_or(default.heartbeat),
    }
}

fn import(written: Option<&NetlinkImport>, notes: &mut Notes) -> Import {
    let Some(written) = written.filter(|written| written.enabled) else {
        notes.warning("spec.netlinkImport", Reason::NothingImported { why: "netlinkImport is not enabled" });
        return Import::default();
    };
    if written.interface_list.is_empty() {
        let reason = Reason::NothingImported { why: "interfaceList is empty" };
        notes.warning("spec.netlinkImport.interfaceList", reason);
    }
    let mut interfaces = Vec::new();
    for (i, pattern) in written.interface_list.iter().enumerate() {
        let read = check_pattern(pattern).map(|()| pattern.clone());
        interfaces.extend(notes.accept(format!("spec.netlinkImport.interfaceList[{i}]"), read));
    }
    Import { enabled: true, interfaces }
}

#[cfg(test)]
mod tests;
