//! The BGPConfiguration kind: whom the nodes talk BGP with, and what they advertise.
//!
//! Every field of the API is here, so that nothing of an existing object is refused or lost. Those that have an effect
//! are Rust types; what is only accepted is kept as it is written (see `accepted`), and named in the object's
//! conditions. The comments on fields are what `kubectl explain` shows.
//!
//! Fields that the schema requires are still read when absent: [`crate::read`] names what is missing.

mod accepted;
mod neighbor;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conditions::conditions_schema;
use crate::last_valid::LastValid;
pub use neighbor::{
    Advertise, AfiSafi, EbgpMultihop, Neighbor, NeighborConfig, NextHop, PeerGroup, PeerGroupConfig, SecretText,
    Timers, TimersConfig, Transport, TtlSecurity,
};

/// Whom the nodes talk BGP with, and what they advertise.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "bgp.purelb.io",
    version = "v1",
    kind = "BGPConfiguration",
    plural = "configs",
    singular = "config",
    shortname = "bgpconfig",
    namespaced,
    status = "BGPConfigurationStatus",
    derive = "PartialEq",
    doc = "A BGPConfiguration says with which routers the nodes talk BGP, and which addresses they advertise. One object counts, in the namespace PureLB runs in: the one named default, else the oldest. What a node makes of it is in the BGPNodeStatus of its name."
)]
#[serde(rename_all = "camelCase")]
pub struct BGPConfigurationSpec {
    /// What is the same for all neighbors.
    #[serde(default)]
    pub global: Global,

    /// The routers that nodes talk to. The condition Ready says what is wrong with one. An edit with a mistake leaves the
    /// object as it was before in use; in a new object, only the neighbor with the mistake is left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbors: Vec<Neighbor>,

    /// What several neighbors have in common. A neighbor that names a group takes from it what it does not say itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer_groups: Vec<PeerGroup>,

    /// Where routes come from: the addresses on interfaces of the node. Without it nothing is advertised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netlink_import: Option<NetlinkImport>,

    /// Accepted and without effect: routes that neighbors advertise are not installed on nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::netlink_export")]
    pub netlink_export: Option<Value>,

    /// Accepted and without effect: every neighbor is listed under neighbors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::dynamic_neighbors")]
    pub dynamic_neighbors: Option<Value>,

    /// Accepted and without effect: all sessions are in the node's main routing instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::vrfs")]
    pub vrfs: Option<Value>,

    /// Accepted and without effect: what a neighbor is told is said under its advertise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::policy_definitions")]
    pub policy_definitions: Option<Value>,

    /// Accepted and without effect, as policyDefinitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::defined_sets")]
    pub defined_sets: Option<Value>,
}

/// What is the same for all neighbors.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Global {
    /// The AS number of the nodes, from 1 to 4294967295.
    #[serde(default)]
    pub asn: i64,

    /// The BGP identifier of a node: an IPv4 address, ${NODE_IP}, ${NODE_EXTERNAL_IP}, ${node.annotations['key']}, or
    /// nothing for the node's internal IPv4 address. A node without one gets an address of routerIDPool, by its name.
    #[serde(rename = "routerID", default, skip_serializing_if = "Option::is_none")]
    pub router_id: Option<String>,

    /// The IPv4 network of identifiers for nodes without an IPv4 address, of at most 24 bits; by default 10.255.0.0/16.
    #[serde(rename = "routerIDPool", default, skip_serializing_if = "Option::is_none")]
    pub router_id_pool: Option<String>,

    /// The port to accept sessions on: 0 or nothing for 179, and -1 to accept none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_port: Option<i64>,

    /// The addresses to accept sessions on; by default all of both families.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listen_addresses: Vec<String>,

    /// Accepted and without effect: the families of a session are those of its afiSafis, or that of its address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<String>,

    /// Accepted and without effect: routes of neighbors are not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::flag")]
    pub use_multiple_paths: Option<Value>,

    /// Accepted and without effect: routes of neighbors are not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::route_selection")]
    pub route_selection_options: Option<Value>,

    /// Accepted and without effect: routes of neighbors are not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::route_distance")]
    pub default_route_distance: Option<Value>,

    /// Accepted and without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::confederation")]
    pub confederation: Option<Value>,

    /// Graceful restart of neighbors that say nothing about it themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_restart: Option<GracefulRestart>,

    /// Accepted and without effect: what a neighbor is told is said under its advertise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::apply_policy")]
    pub apply_policy: Option<Value>,

    /// Accepted and without effect: the interface of a session is its transport.bindInterface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::text")]
    pub bind_to_device: Option<Value>,

    /// How nodes report about their sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_status: Option<NodeStatusOptions>,
}

/// How nodes report about their sessions.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatusOptions {
    /// False keeps nodes from writing a BGPNodeStatus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,

    /// How often, in seconds, a status is written that has nothing new to say; by default every 60. Changes are written
    /// at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10))]
    pub heartbeat_seconds: Option<i64>,
}

/// Where routes come from.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NetlinkImport {
    /// True advertises the networks of the addresses on the listed interfaces. Without it nothing is advertised.
    #[serde(default)]
    pub enabled: bool,

    /// Names and patterns (*, ?, [a-c]) of interfaces; kube-lb0 is the one of virtual addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interface_list: Vec<String>,

    /// Accepted and without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::text")]
    pub vrf: Option<Value>,
}

/// Whether routers keep our routes while an agent restarts (RFC 4724).
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GracefulRestart {
    /// True asks routers to keep the routes.
    #[serde(default)]
    pub enabled: bool,

    /// For how many seconds, at most 4095; by default as long as the hold time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_time: Option<i64>,

    /// Accepted; true switches graceful restart off, for there is nothing to help neighbors with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helper_only: Option<bool>,
}

/// What is true of the object on every node. What differs between nodes is in their BGPNodeStatus.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct BGPConfigurationStatus {
    /// The metadata.generation that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready says whether all of the object is in use, and if not, why; UnsupportedFields lists what has no effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,

    /// How many neighbors are in use, on whichever nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbor_count: Option<i64>,

    /// No longer written: sessions are in the BGPNodeStatus of each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub established_neighbors: Option<i64>,

    /// What the condition Ready says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// No longer written: the conditions say when they changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reconcile_time: Option<Time>,

    /// Where the identifier was found, if it is the same on all nodes: explicit.
    #[serde(rename = "routerIDSource", skip_serializing_if = "Option::is_none")]
    pub router_id_source: Option<String>,

    /// No longer written: the condition RouterIDResolved says when it changed.
    #[serde(rename = "routerIDResolutionTime", skip_serializing_if = "Option::is_none")]
    pub router_id_resolution_time: Option<Time>,

    /// The object as it last was when nothing was wrong with it. An edit that breaks the object leaves this form in use,
    /// also after a restart of PureLB, until the object is corrected. A form with a password in it is not kept here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_valid: Option<LastValid>,
}
