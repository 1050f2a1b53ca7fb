//! Neighbors and the groups they take settings from.

use std::fmt;

use k8s_openapi::api::core::v1::SecretKeySelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{GracefulRestart, accepted};

/// A router that nodes talk to.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Neighbor {
    /// Who it is.
    #[serde(default)]
    pub config: NeighborConfig,

    /// The nodes that talk to it, by their labels; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,

    /// What the session is about; by default the family of the neighbor's address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub afi_safis: Vec<AfiSafi>,

    /// The session's timers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timers: Option<Timers>,

    /// How the session is carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,

    /// Whether the neighbor keeps our routes while an agent restarts; by default as in global.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_restart: Option<GracefulRestart>,

    /// For a neighbor of another AS that is more than one hop away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ebgp_multihop: Option<EbgpMultihop>,

    /// Drops packets that came from further away than the neighbor is (RFC 5082). The neighbor must do the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_security: Option<TtlSecurity>,

    /// The next hop that the neighbor is told; by default the node's address on the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<NextHop>,

    /// What the neighbor is told of our routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertise>,

    /// Accepted and without effect: routes of neighbors are not passed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::route_reflector")]
    pub route_reflector: Option<Value>,

    /// Accepted and without effect: what the neighbor is told is said under advertise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::apply_policy")]
    pub apply_policy: Option<Value>,
}

/// Who a neighbor is.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NeighborConfig {
    /// Its address, IPv4 or IPv6. A link-local address is written with its interface, as fe80::1%eth1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbor_address: Option<String>,

    /// Accepted and without effect: write neighborAddress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbor_interface: Option<String>,

    /// Its AS number. Equal to that of the nodes makes the session internal; 0 is that of its peer group.
    #[serde(default)]
    pub peer_asn: i64,

    /// The AS number of the nodes towards it; by default the one in global.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_asn: Option<i64>,

    /// A word for people; nodes repeat it in their status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,

    /// The password of the session (TCP MD5), for all to read who can read this object: better use
    /// authPasswordSecretRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_password: Option<SecretText>,

    /// The entry of a Secret in this namespace with the password of the session (TCP MD5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::secret_key")]
    pub auth_password_secret_ref: Option<SecretKeySelector>,

    /// The group that the neighbor takes from what it does not say itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_group: Option<String>,

    /// True keeps the session down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_down: Option<bool>,

    /// Accepted and without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::text")]
    pub vrf: Option<Value>,
}

/// A text that appears in the object itself and nowhere else: its `Debug` form is three dots.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Default, PartialEq)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("...")
    }
}

/// One family that a session is about.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AfiSafi {
    /// ipv4-unicast or ipv6-unicast; others are accepted and without effect.
    #[serde(default)]
    pub family: String,

    /// False leaves the family out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,

    /// Accepted and without effect: routes of neighbors are counted and dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::prefix_limit")]
    pub prefix_limit: Option<Value>,

    /// Accepted and without effect: there is one path to each prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::add_paths")]
    pub add_paths: Option<Value>,
}

/// The timers of a session.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Timers {
    /// The values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<TimersConfig>,
}

/// The values of timers, in seconds.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TimersConfig {
    /// The longest pause between two attempts to connect; attempts begin a second apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_retry: Option<i64>,

    /// How long silence of the neighbor is tolerated: from 3, or 0 for ever; by default 90.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_time: Option<i64>,

    /// How often the neighbor is told that we are alive; by default a third of holdTime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive_interval: Option<i64>,

    /// The least time between two announcements of one route, up to a day; by default there is none. Withdrawals never wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_advertisement_interval: Option<i64>,
}

/// How a session is carried.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Transport {
    /// The node's address on the session; by default the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_address: Option<String>,

    /// True waits for the neighbor to connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passive_mode: Option<bool>,

    /// The interface of the session; by default the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind_interface: Option<String>,
}

/// How far away a neighbor of another AS may be.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EbgpMultihop {
    /// True lets it be further away than one hop.
    #[serde(default)]
    pub enabled: bool,

    /// The TTL of packets to it; 0 or nothing for 255.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multihop_ttl: Option<i64>,
}

/// How far away a neighbor is at most.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TtlSecurity {
    /// True drops what comes from further away.
    #[serde(default)]
    pub enabled: bool,

    /// The hops to the neighbor; by default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 254))]
    pub hops: Option<i64>,
}

/// Next hops, by family.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NextHop {
    /// The next hop of IPv4 routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<String>,

    /// The next hop of IPv6 routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<String>,
}

/// What a neighbor is told of our routes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Advertise {
    /// Communities, as 64512:100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,

    /// Large communities, as 64512:1:100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub large_communities: Vec<String>,

    /// The multi-exit discriminator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4294967295_i64))]
    pub med: Option<i64>,

    /// The local preference, to neighbors of the same AS; by default 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4294967295_i64))]
    pub local_pref: Option<i64>,

    /// How often the AS of the nodes is repeated in the path to a neighbor of another AS, up to 32 times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 32))]
    pub prepend: Option<i64>,

    /// Only addresses of these ServiceGroups are advertised to the neighbor; by default all, and addresses of nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_groups: Option<Vec<String>>,
}

/// What several neighbors have in common.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PeerGroup {
    /// Its name, and who its neighbors are.
    #[serde(default)]
    pub config: PeerGroupConfig,

    /// The nodes that talk to its neighbors, as far as these select them, too; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,

    /// What sessions are about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub afi_safis: Vec<AfiSafi>,

    /// Accepted and without effect: what a neighbor is told is said under its advertise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::apply_policy")]
    pub apply_policy: Option<Value>,

    /// The timers of sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timers: Option<Timers>,

    /// How sessions are carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
}

/// The name of a group, and who its neighbors are.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PeerGroupConfig {
    /// The name that neighbors give in peerGroup.
    #[serde(default)]
    pub peer_group_name: String,

    /// The AS number of neighbors whose peerAsn is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_asn: Option<i64>,

    /// The AS number of the nodes towards its neighbors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_asn: Option<i64>,

    /// A word for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,

    /// The password of sessions, as in neighbors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_password: Option<SecretText>,

    /// The entry of a Secret with the password of sessions, as in neighbors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted::secret_key")]
    pub auth_password_secret_ref: Option<SecretKeySelector>,
}
