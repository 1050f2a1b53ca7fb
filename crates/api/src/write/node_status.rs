//! What a node writes about its BGP sessions.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use purelb_core::bgp::status::{NeighborReport, NodeReport};
use serde_json::{Value, json};

use super::{Past, condition, difference, fields, shortened, stored, word};
use crate::bgp_node_status::{
    BGPNodeStatusStatus, ImportedAddressState, InterfaceState, LocalRouteState, NeighborState, NetlinkExportState,
    NetlinkImportState, Rib,
};

/// The most routes, and the most addresses, that a status lists; the counts are always those of all.
const MOST: usize = 500;
/// The type of the one condition.
const READY: &str = "Ready";

/// A BGPNodeStatus as it is created: it goes with its Node.
pub fn node_status_object(node: &str, node_uid: &str) -> Value {
    json!({
        "apiVersion": "bgp.purelb.io/v1",
        "kind": "BGPNodeStatus",
        "metadata": {"name": node, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}]},
        "spec": {},
    })
}

/// What a node reports, as its BGPNodeStatus has it. `previous` is what the object showed before, if anything: the
/// condition keeps its time while its status is the same.
pub fn node_status(report: &NodeReport, previous: Option<&BGPNodeStatusStatus>, now: Timestamp) -> BGPNodeStatusStatus {
    BGPNodeStatusStatus {
        node_name: report.node.clone(),
        router_id: report.router_id.map(|(id, _)| id.to_string()),
        router_id_source: report.router_id.map(|(_, source)| source.name().to_owned()),
        asn: report.asn.map(i64::from),
        last_updated: Some(Time(stored(now))),
        heartbeat_seconds: i64::try_from(report.heartbeat.as_secs()).ok(),
        neighbor_count: count(report.neighbors.len()),
        neighbors: report.neighbors.iter().map(neighbor).collect(),
        netlink_import: Some(import(report)),
        rib: Some(rib(report)),
        netlink_export: Some(NetlinkExportState::default()),
        vrfs: Vec::new(),
        healthy: report.is_healthy(),
        conditions: conditions(report, previous, now),
    }
}

/// The patch of the status subresource that gives the object this status instead of the one it shows. It names no
/// version: a node is the only writer of its status.
pub fn node_status_patch(shown: Option<&BGPNodeStatusStatus>, wanted: &BGPNodeStatusStatus) -> Value {
    json!({"status": difference(&shown.map(fields).unwrap_or_default(), &fields(wanted))})
}

fn neighbor(report: &NeighborReport) -> NeighborState {
    let up = report.up_since.and_then(|second| Timestamp::from_second(second).ok()).map(Time);
    NeighborState {
        address: report.address.to_string(),
        peer_asn: i64::from(report.peer_as),
        local_asn: Some(i64::from(report.local_as)),
        state: report.state.name().to_owned(),
        session_up_since: up,
        prefixes_sent: whole(report.prefixes_sent),
        prefixes_received: whole(report.prefixes_received),
        description: Some(report.description.clone()).filter(|text| !text.is_empty()),
        last_error: Some(shortened(&report.last_error)).filter(|text| !text.is_empty()),
    }
}

fn import(report: &NodeReport) -> NetlinkImportState {
    let import = &report.import;
    let interfaces = import.interfaces.iter().map(|interface| InterfaceState {
        name: interface.name.clone(),
        exists: interface.exists,
        oper_state: interface.exists.then(|| if interface.up { "up" } else { "down" }.to_owned()),
    });
    let addresses = import.addresses.iter().take(MOST).map(|found| ImportedAddressState {
        address: found.address.to_string(),
        interface: found.interface.clone(),
        in_rib: found.advertised,
    });
    NetlinkImportState {
        enabled: import.enabled,
        vrf: None,
        interfaces: interfaces.collect(),
        imported_addresses: addresses.collect(),
        total_imported: count(import.addresses.len()),
        truncated: import.addresses.len() > MOST,
    }
}

fn rib(report: &NodeReport) -> Rib {
    let routes = report.routes.iter().take(MOST).map(|route| LocalRouteState {
        prefix: route.prefix.to_string(),
        next_hop: if route.prefix.addr().is_ipv4() { "0.0.0.0" } else { "::" }.to_owned(),
        advertised_to: route.advertised_to.iter().map(ToString::to_string).collect(),
        communities: route.communities.iter().cloned().collect(),
    });
    Rib {
        local_routes: routes.collect(),
        local_route_count: count(report.routes.len()),
        received_routes: Vec::new(),
        received_route_count: whole(report.received),
        truncated: report.routes.len() > MOST,
    }
}

fn conditions(report: &NodeReport, previous: Option<&BGPNodeStatusStatus>, now: Timestamp) -> Vec<Condition> {
    let previous = previous.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let (holds, reason, message) = verdict(report);
    let own = condition(READY, word(holds), reason, &message, Past { previous, generation: None, now });
    let others = previous.iter().filter(|condition| condition.type_ != READY).cloned();
    std::iter::once(own).chain(others).collect()
}

/// Whether all is well, in one word and a sentence that names everything that is not.
fn verdict(report: &NodeReport) -> (bool, &'static str, String) {
    let established = report.established();
    if report.leaving {
        return (false, "AgentShutdown", "the agent on this node has ended".to_owned());
    }
    if report.is_healthy() {
        let import = if report.import.enabled { ", netlinkImport active" } else { "" };
        return (true, "AllHealthy", format!("{established} neighbor(s) established{import}"));
    }
    let problems = report.problems.iter().map(|problem| format!("{}: {}", problem.field, problem.reason));
    let down = report.neighbors.iter().filter(|neighbor| !neighbor.is_well()).map(|neighbor| {
        let why = if neighbor.last_error.is_empty() { String::new() } else { format!(" ({})", neighbor.last_error) };
        format!("neighbor {} is {}{why}", neighbor.address, neighbor.state.name())
    });
    let unheard = report.import.addresses.iter().filter(|found| !found.advertised);
    let unheard = unheard.map(|found| format!("{} on {} is not advertised", found.address, found.interface));
    let sentences: Vec<_> = problems.chain(down).chain(unheard).collect();
    let sum = format!("{established} of {} neighbor(s) established", report.neighbors.len());
    (false, "Degraded", format!("{sum}; {}", sentences.join("; ")))
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
