//! What is counted of BGP, under the names that k8gobgp had where it had any.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Series;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use purelb_core::bgp::status::{NodeReport, SessionState};

use super::{add, count};
use crate::agent::bgp::SpeakerNews;
use crate::cluster::scope::Key;

const V4: &str = "ipv4_unicast";
const V6: &str = "ipv6_unicast";

/// BGP's metrics; clones count into the same ones.
#[derive(Clone, Debug)]
pub struct BgpMetrics {
    configured: Series<Object, Gauge>,
    established: Series<Object, Gauge>,
    ready: Series<Object, Gauge>,
    routes: Series<Family, Gauge>,
    neighbors: [Gauge; 4],
    told: Gauge,
    heard: Gauge,
    router_id: Series<RouterId, Gauge>,
    router_id_source: Series<Source, Gauge>,
    router_id_resolved: Series<Outcome, Counter>,
    status_writes: Series<Outcome, Counter>,
    status_written: Gauge<f64, AtomicU64>,
    status_size: Gauge,
    told_to: Series<Neighbor, Gauge>,
    up: Series<Peer, Gauge>,
    flaps: Series<Peer, Counter>,
    notification: Series<Notified, Gauge>,
    deaf: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Object {
    name: String,
    namespace: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Family {
    family: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouterId {
    router_id: String,
    source: &'static str,
    node: String,
    asn: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Source {
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Peer {
    peer: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Neighbor {
    neighbor: String,
    family: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Notified {
    peer: String,
    code: String,
}

impl BgpMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let neighbors = [
            ("k8gobgp_neighbors_total", "Neighbors of this node"),
            ("k8gobgp_neighbors_established_total", "Neighbors of this node whose session is up"),
            ("k8gobgp_neighbors_active", "Neighbors of this node whose session is being opened"),
            ("k8gobgp_neighbors_idle", "Neighbors of this node whose session is not tried"),
        ]
        .map(|(name, help)| add(registry, name, help));
        Self {
            configured: add(
                registry,
                "k8gobgp_neighbors_configured",
                "Neighbors that the configuration gives this node",
            ),
            established: add(registry, "k8gobgp_neighbors_established", "Neighbors of them whose session is up"),
            ready: add(
                registry,
                "k8gobgp_configuration_ready",
                "1 while everything the configuration asks of this node works",
            ),
            routes: add(registry, "k8gobgp_rib_route_count", "Routes that this node has to tell"),
            neighbors,
            told: add(registry, "k8gobgp_routes_advertised_total", "Routes told to neighbors, summed over them"),
            heard: add(
                registry,
                "k8gobgp_routes_received_total",
                "Routes that neighbors told us, summed over them; all are dropped",
            ),
            router_id: add(registry, "k8gobgp_router_id_info", "The router ID of this node"),
            router_id_source: add(registry, "k8gobgp_router_id_source", "Where the router ID was found"),
            router_id_resolved: add(
                registry,
                "k8gobgp_router_id_resolution",
                "How often the node got a router ID, or was found to have none",
            ),
            status_writes: add(registry, "k8gobgp_nodestatus_write", "Writes of this node's BGPNodeStatus"),
            status_written: add(
                registry,
                "k8gobgp_nodestatus_last_successful_write_timestamp",
                "When it was last written",
            ),
            status_size: add(
                registry,
                "k8gobgp_nodestatus_object_size_bytes",
                "How large the status was that was last written",
            ),
            told_to: add(registry, "k8gobgp_neighbor_routes_advertised", "Routes told to a neighbor"),
            up: add(registry, "purelb_bgp_session_up", "1 while the session is up"),
            flaps: add(
                registry,
                "purelb_bgp_session_flaps",
                "How often the session fell since the neighbor was configured",
            ),
            notification: add(
                registry,
                "purelb_bgp_session_last_notification",
                "1 for the last notification that was sent or heard",
            ),
            deaf: add(registry, "purelb_bgp_not_listening", "1 while routers should be able to connect and cannot"),
        }
    }

    /// What a report of this node says; `object` is the configuration that counts, if there is one.
    pub fn observe(&self, object: Option<&Key>, report: &NodeReport, speaker: &SpeakerNews) {
        let all = report.neighbors.len();
        let in_state = |states: &[SessionState]| {
            count(report.neighbors.iter().filter(|neighbor| states.contains(&neighbor.state)).count())
        };
        let [total, established, active, idle] = &self.neighbors;
        total.set(count(all));
        established.set(count(report.established()));
        idle.set(in_state(&[SessionState::Idle]));
        active.set(count(all) - count(report.established()) - in_state(&[SessionState::Idle]));
        self.observe_object(object, report);
        let (v4, v6): (Vec<_>, Vec<_>) = report.routes.iter().partition(|route| route.prefix.addr().is_ipv4());
        self.routes.get_or_create(&Family { family: V4 }).set(count(v4.len()));
        self.routes.get_or_create(&Family { family: V6 }).set(count(v6.len()));
        self.told.set(report.neighbors.iter().map(|neighbor| neighbor.prefixes_sent as i64).sum());
        self.heard.set(i64::try_from(report.received).unwrap_or(i64::MAX));
        self.deaf.set(i64::from(speaker.deaf.is_some()));
        self.observe_router_id(report);
        self.observe_sessions(speaker);
    }

    fn observe_object(&self, object: Option<&Key>, report: &NodeReport) {
        for series in [&self.configured, &self.established, &self.ready] {
            series.clear();
        }
        if let Some((namespace, name)) = object {
            let label = Object { name: name.clone(), namespace: namespace.clone() };
            self.configured.get_or_create(&label).set(count(report.neighbors.len()));
            self.established.get_or_create(&label).set(count(report.established()));
            self.ready.get_or_create(&label).set(i64::from(report.is_healthy()));
        }
    }

    fn observe_router_id(&self, report: &NodeReport) {
        self.router_id.clear();
        self.router_id_source.clear();
        if let (Some((id, source)), Some(asn)) = (report.router_id, report.asn) {
            let source = source.name();
            self.router_id_source.get_or_create(&Source { source }).set(1);
            let label = RouterId { router_id: id.to_string(), source, node: report.node.clone(), asn };
            self.router_id.get_or_create(&label).set(1);
        }
    }

    fn observe_sessions(&self, speaker: &SpeakerNews) {
        self.up.clear();
        self.flaps.clear();
        self.notification.clear();
        self.told_to.clear();
        for (address, peer) in &speaker.peers {
            let label = peer_label(*address);
            self.up.get_or_create(&label).set(i64::from(peer.state == SessionState::Established));
            // The speaker counts, also what happens between two looks.
            self.flaps.get_or_create(&label).inner().store(peer.flaps, Ordering::Relaxed);
            let v4 = peer.told.iter().filter(|net| net.addr().is_ipv4()).count();
            for (family, told) in [(V4, v4), (V6, peer.told.len() - v4)] {
                self.told_to.get_or_create(&Neighbor { neighbor: label.peer.clone(), family }).set(count(told));
            }
            if let Some(code) = &peer.notification {
                let label = Notified { peer: label.peer, code: code.clone() };
                self.notification.get_or_create(&label).set(1);
            }
        }
    }

    /// The node got a router ID, or was found to have none.
    pub fn router_id_resolved(&self, well: bool) {
        self.router_id_resolved.get_or_create(&outcome(well)).inc();
    }

    /// A BGPNodeStatus of this many octets was written at this Unix time, or could not be.
    pub fn status_written(&self, written: Option<(f64, usize)>) {
        self.status_writes.get_or_create(&outcome(written.is_some())).inc();
        if let Some((at, size)) = written {
            self.status_written.set(at);
            self.status_size.set(count(size));
        }
    }
}

fn outcome(well: bool) -> Outcome {
    Outcome { result: if well { "success" } else { "failed" } }
}

fn peer_label(address: IpAddr) -> Peer {
    Peer { peer: address.to_string() }
}
