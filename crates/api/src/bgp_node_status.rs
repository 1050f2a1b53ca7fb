//! The BGPNodeStatus kind: what one node reports about its BGP sessions.
//!
//! The comments on fields are what `kubectl explain` shows.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::conditions_schema;

/// A node has nothing to be told here.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "bgp.purelb.io",
    version = "v1",
    kind = "BGPNodeStatus",
    plural = "bgpnodestatuses",
    singular = "bgpnodestatus",
    shortname = "bgpns",
    status = "BGPNodeStatusStatus",
    derive = "PartialEq",
    doc = "A BGPNodeStatus is what the node of its name reports about its BGP sessions. PureLB writes it, and it goes with the Node."
)]
pub struct BGPNodeStatusSpec {}

/// What a node reports.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct BGPNodeStatusStatus {
    /// The node.
    pub node_name: String,

    /// Its BGP identifier.
    #[serde(rename = "routerID", skip_serializing_if = "Option::is_none")]
    pub router_id: Option<String>,

    /// Where the identifier was found: explicit, template, node-ipv4 or hash-from-node-name.
    #[serde(rename = "routerIDSource", skip_serializing_if = "Option::is_none")]
    pub router_id_source: Option<String>,

    /// Its AS number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asn: Option<i64>,

    /// When this was written. Older than three heartbeats means that the agent is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,

    /// How often this is written, in seconds, when there is nothing new to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_seconds: Option<i64>,

    /// How many neighbors are for this node.
    pub neighbor_count: i64,

    /// The neighbors that are for this node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub neighbors: Vec<NeighborState>,

    /// Where routes come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netlink_import: Option<NetlinkImportState>,

    /// What is advertised, and what neighbors have told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rib: Option<Rib>,

    /// Routes of neighbors on this node; there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netlink_export: Option<NetlinkExportState>,

    /// No longer written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vrfs: Vec<VrfState>,

    /// Whether every session is up and every address is advertised. Absent means no.
    #[serde(skip_serializing_if = "is_false")]
    pub healthy: bool,

    /// Ready says whether all is well, and if not, what is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// One neighbor and its session.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct NeighborState {
    /// Its address.
    pub address: String,

    /// Its AS number.
    #[serde(rename = "peerASN")]
    pub peer_asn: i64,

    /// The AS number of the node towards it.
    #[serde(rename = "localASN", skip_serializing_if = "Option::is_none")]
    pub local_asn: Option<i64>,

    /// Idle, Connect, Active, OpenSent, OpenConfirm, Established or Unknown.
    pub state: String,

    /// Since when the session is up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_up_since: Option<Time>,

    /// How many prefixes the neighbor was told.
    pub prefixes_sent: i64,

    /// How many prefixes the neighbor has told. They are counted and dropped.
    pub prefixes_received: i64,

    /// What the configuration calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,

    /// Why the session is not up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Where routes come from.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct NetlinkImportState {
    /// Whether addresses of interfaces are advertised.
    pub enabled: bool,

    /// No longer written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,

    /// The interfaces whose addresses are advertised.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceState>,

    /// The addresses on them, at most 500.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub imported_addresses: Vec<ImportedAddressState>,

    /// How many addresses there are.
    pub total_imported: i64,

    /// Whether there are more than are listed.
    #[serde(skip_serializing_if = "is_false")]
    pub truncated: bool,
}

/// One interface.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct InterfaceState {
    /// Its name.
    pub name: String,

    /// Whether the node has it.
    pub exists: bool,

    /// up or down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oper_state: Option<String>,
}

/// One address.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ImportedAddressState {
    /// The address with its prefix length, as the interface has it.
    pub address: String,

    /// The interface.
    pub interface: String,

    /// Whether its network is advertised.
    #[serde(rename = "inRIB")]
    pub in_rib: bool,
}

/// What is advertised, and what neighbors have told.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Rib {
    /// The prefixes that are advertised, at most 500.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub local_routes: Vec<LocalRouteState>,

    /// How many there are.
    pub local_route_count: i64,

    /// No longer written: routes of neighbors are counted and dropped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub received_routes: Vec<ReceivedRouteState>,

    /// How many prefixes neighbors have told.
    pub received_route_count: i64,

    /// Whether there are more than are listed.
    #[serde(skip_serializing_if = "is_false")]
    pub truncated: bool,
}

/// One prefix that is advertised.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalRouteState {
    /// The prefix.
    pub prefix: String,

    /// 0.0.0.0 or ::, for this node itself.
    pub next_hop: String,

    /// The neighbors that were told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advertised_to: Vec<String>,

    /// The communities that some neighbor was told with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,
}

/// One prefix that a neighbor has told.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ReceivedRouteState {
    /// The prefix.
    pub prefix: String,

    /// Where it leads.
    pub next_hop: String,

    /// Who told it.
    pub from_peer: String,

    /// The communities it came with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,
}

/// Routes of neighbors on the node.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct NetlinkExportState {
    /// Whether any are installed: no.
    pub enabled: bool,

    /// No longer written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<i64>,

    /// No longer written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<ExportRuleState>,

    /// No longer written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exported_routes: Vec<ExportedRouteState>,

    /// How many are installed: none.
    pub total_exported: i64,

    /// No longer written.
    #[serde(skip_serializing_if = "is_false")]
    pub truncated: bool,
}

/// One rule for routes of neighbors.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ExportRuleState {
    /// Its name.
    pub name: String,

    /// The metric of routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<i64>,

    /// The routing table.
    #[serde(rename = "tableID", skip_serializing_if = "Option::is_none")]
    pub table_id: Option<i64>,
}

/// One route of a neighbor.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ExportedRouteState {
    /// The prefix.
    pub prefix: String,

    /// The routing table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,

    /// Its metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<i64>,

    /// Whether it is installed.
    pub installed: bool,

    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One routing instance.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct VrfState {
    /// Its name.
    pub name: String,

    /// Its route distinguisher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rd: Option<String>,

    /// How many routes came into it.
    pub imported_route_count: i64,

    /// How many routes left it.
    pub exported_route_count: i64,
}

fn is_false(value: &bool) -> bool {
    !value
}
