//! The LBNodeAgent kind: how nodes announce addresses, in one Rust type for both API versions.
//!
//! As with [`crate::service_group`], the schema is the union of v2 and v1, and what only one version demands is added
//! in [`crds`](mod@crate::crds). The comments on fields are what `kubectl explain` shows.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::conditions_schema;

/// Configures the node agents of the nodes it selects.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "purelb.io",
    version = "v2",
    kind = "LBNodeAgent",
    plural = "lbnodeagents",
    singular = "lbnodeagent",
    shortname = "lbna",
    shortname = "lbnas",
    namespaced,
    status = "LBNodeAgentStatus",
    derive = "PartialEq",
    doc = "An LBNodeAgent configures how nodes announce addresses. A node follows the first object that selects it and has local, objects with a nodeSelector before those without one, then by namespace and name."
)]
#[serde(rename_all = "camelCase")]
pub struct LBNodeAgentSpec {
    /// The nodes this object is for, by their labels. Without a selector it is for every node that no other object
    /// selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,

    /// How the selected nodes announce addresses, local and virtual ones alike. A node without it announces nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalAgent>,
}

/// How a node announces addresses.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LocalAgent {
    /// The interfaces for local addresses: default for the interface of the default route, or a regular expression that
    /// is looked for in the interface names (write ^eth0$ for exactly eth0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_interface: Option<String>,

    /// The virtual interface, which PureLB creates and which holds virtual addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dummy_interface: Option<String>,

    /// Further interfaces for local addresses by their exact names, tried in this order after localInterface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,

    /// How neighbours are told that a local address has moved, by gratuitous ARP for IPv4 and unsolicited neighbour
    /// advertisement for IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub garp_config: Option<GarpConfig>,

    /// Lifetimes and routes of the addresses on the interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_config: Option<AddressConfig>,

    /// Only in purelb.io/v1: what localInterface is in v2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub localint: Option<String>,

    /// Only in purelb.io/v1: what dummyInterface is in v2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extlbint: Option<String>,

    /// Only in purelb.io/v1: what garpConfig.enabled is in v2. False, its default, leaves the choice to PureLB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sendgarp: Option<bool>,
}

/// How often and when neighbours are told that an address has moved.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct GarpConfig {
    /// False sends nothing.
    pub enabled: bool,

    /// How long to wait before the first message, like 100ms or 1.5s.
    pub initial_delay: String,

    /// How many messages to send.
    #[schemars(range(min = 1, max = 10))]
    pub count: i64,

    /// How long to wait between two messages, like 500ms.
    pub interval: String,

    /// Asks before each message whether this node still is the elected one.
    pub verify_before_send: bool,
}

impl Default for GarpConfig {
    fn default() -> Self {
        GarpConfig {
            enabled: true,
            initial_delay: "100ms".to_owned(),
            count: 3,
            interval: "500ms".to_owned(),
            verify_before_send: true,
        }
    }
}

/// Lifetimes and routes per kind of interface.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AddressConfig {
    /// For local addresses on the nodes' own interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_interface: Option<AddressLifetime>,

    /// For virtual addresses on the virtual interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dummy_interface: Option<AddressLifetime>,
}

/// How the kernel keeps an address.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AddressLifetime {
    /// Seconds after which the kernel removes an address that is not refreshed; 0 means never, and 1 to 59 count as 60.
    /// Without a value, local addresses live as long as the node's lease and virtual ones for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub valid_lifetime: Option<i64>,

    /// Seconds during which the kernel prefers the address as a source for new connections; at most, and by default,
    /// validLifetime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub preferred_lifetime: Option<i64>,

    /// Keeps the kernel from adding a route to the address's subnet. By default true for local addresses and false for
    /// virtual ones, whose route is what routing software advertises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_prefix_route: Option<bool>,
}

/// What is known about the nodes that follow this object.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LBNodeAgentStatus {
    /// How many selected nodes hold a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_leases: Option<i64>,

    /// Whether the object is understood, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}
