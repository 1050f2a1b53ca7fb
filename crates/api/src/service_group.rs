//! The ServiceGroup kind: where addresses come from, in one Rust type for both API versions.
//!
//! The schema is the union of `purelb.io/v2` and `purelb.io/v1`, so that nothing is pruned on an object's way through
//! storage; what only one version demands (defaults, patterns, rules) is added in [`crds`](mod@crate::crds). The
//! daemons read and write through v2 only. The comments on fields are what `kubectl explain` shows.
//!
//! Fields that the schema requires are still read when absent: one object that an older CRD let in must not make the
//! list of all groups unreadable. [`crate::read`] names what is missing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::conditions_schema;
use crate::last_valid::LastValid;

/// Where the addresses come from, how they are announced, and which namespaces may use them.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "purelb.io",
    version = "v2",
    kind = "ServiceGroup",
    plural = "servicegroups",
    singular = "servicegroup",
    shortname = "sg",
    shortname = "sgs",
    namespaced,
    status = "ServiceGroupStatus",
    derive = "PartialEq",
    doc = "A ServiceGroup holds the addresses that Services of type LoadBalancer can get, and says how these addresses are announced. A Service chooses its group with the annotation purelb.io/service-group; without it, the group named default serves."
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceGroupSpec {
    /// Addresses in a subnet of the nodes themselves: each is announced by exactly one elected node, on its own network
    /// interface. In v1, and with placement Auto, addresses outside every node's subnet may stand here too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<LocalPools>,

    /// Addresses outside the subnets of the nodes: each is put on the virtual interface (kube-lb0) of every node, from
    /// where routing software or PureLB's own BGP speaker advertises it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Pools>,

    /// Addresses handed out by an external IPAM, which PureLB asks through a Unix socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,

    /// Namespaces that this group serves by default. A Service in one of them that names no group gets its address
    /// here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")))]
    pub namespaces: Vec<String>,

    /// Confines the listed namespaces to the groups that list them, and keeps all other namespaces out of this group.
    #[serde(default)]
    pub enforce_namespaces: bool,

    /// Makes this group the default of the listed namespaces where more than one group lists them.
    #[serde(default)]
    pub namespace_default: bool,

    /// Who decides whether an address is local or virtual; what `kubectl explain` shows is the comment of
    /// [`Placement`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,

    /// Only in purelb.io/v1, and without effect: a group is called by its metadata.name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Only in purelb.io/v1: the subnet of the group's single range, as local.subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,

    /// Only in purelb.io/v1: the group's single range, as local.pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,

    /// Only in purelb.io/v1: the prefix length of the group's single range, as local.aggregation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<String>,

    /// Only in purelb.io/v1: a NetBox server that hands out addresses. Kept as it is written; in v2 external takes its
    /// place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netbox: Option<Netbox>,
}

/// Auto lets each node decide whether an address is local (in one of the node's own subnets) or virtual (in any other).
/// Groups written as purelb.io/v1 always have it; in v2 it may be written together with local. Without it, local and
/// remote mean what they say.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each node decides: in one of its own subnets an address is local, elsewhere virtual.
    Auto,
}

/// Address pools of both families.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Pools {
    /// One IPv4 pool; used after v4pools if both are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v4pool: Option<AddressPool>,

    /// One IPv6 pool; used after v6pools if both are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v6pool: Option<AddressPool>,

    /// IPv4 pools, used in the order written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub v4pools: Vec<AddressPool>,

    /// IPv6 pools, used in the order written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub v6pools: Vec<AddressPool>,

    /// Gives each Service one address from every pool of its families instead of one per family. Not together with
    /// balancePools.
    #[serde(default)]
    pub multi_pool: bool,

    /// Takes each new address from the pool with the fewest addresses in use instead of the first with a free one. Not
    /// together with multiPool.
    #[serde(default)]
    pub balance_pools: bool,
}

/// Address pools that nodes announce on their own interfaces.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LocalPools {
    /// The pools, which local and remote groups write alike.
    #[serde(flatten)]
    pub pools: Pools,

    /// Puts IPv6 addresses on the interface without duplicate address detection, so that they answer at once.
    #[serde(default, rename = "skipIPv6DAD")]
    pub skip_ipv6_dad: bool,

    /// Only in purelb.io/v1: the group's single range; in v2 write v4pools or v6pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,

    /// Only in purelb.io/v1: the subnet of the group's single range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,

    /// Only in purelb.io/v1: the prefix length of the group's single range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<String>,
}

/// One range of addresses inside one subnet.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["pool", "subnet"]))]
pub struct AddressPool {
    /// The addresses to hand out: a range like 192.168.1.10-192.168.1.50, a CIDR like 192.168.1.64/26, or one address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pool: String,

    /// The subnet the addresses belong to, like 192.168.1.0/24. The whole range must lie in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subnet: String,

    /// The prefix length an address gets on the virtual interface, like /32 or /128, and therefore the size of the
    /// route that is advertised. With default, or without a value, the prefix length of the subnet is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<String>,
}

/// An external IPAM.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["announce", "provider"]))]
pub struct External {
    /// What to call the IPAM in the group's status; it is shown and nothing else.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1))]
    pub provider: String,

    /// The Unix socket through which the allocator reaches the IPAM.
    #[serde(default = "default_socket")]
    pub socket: String,

    /// How the addresses are announced: as those of a local or of a remote group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["local", "remote"]))]
    pub announce: String,
}

/// The socket of an external group that names none.
pub const DEFAULT_SOCKET: &str = "/var/run/purelb/ipam.sock";

fn default_socket() -> String {
    DEFAULT_SOCKET.to_owned()
}

/// A NetBox server, as PureLB 0.13 knew it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["url"]))]
pub struct Netbox {
    /// The address of the NetBox server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,

    /// The NetBox tenant whose addresses are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,

    /// The prefix length an address gets on the virtual interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<String>,
}

/// What the allocator found out about a group.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["allocatedIPv4", "allocatedIPv6"]))]
pub struct ServiceGroupStatus {
    /// How the addresses are announced: Local, Remote or Auto; None if the group cannot be read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub announce: String,

    /// Who hands out the addresses: Cluster for PureLB itself, otherwise the provider of the external IPAM; None if the group cannot be
    /// read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ipam: String,

    /// The ranges as they are written, IPv4 before IPv6.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,

    /// How many IPv4 addresses are in use.
    #[serde(default, rename = "allocatedIPv4")]
    #[schemars(range(min = 0))]
    pub allocated_ipv4: i64,

    /// How many IPv6 addresses are in use.
    #[serde(default, rename = "allocatedIPv6")]
    #[schemars(range(min = 0))]
    pub allocated_ipv6: i64,

    /// How many IPv4 addresses are free; absent if nobody knows.
    #[serde(default, rename = "availableIPv4", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub available_ipv4: Option<i64>,

    /// How many IPv6 addresses are free; absent if nobody knows.
    #[serde(default, rename = "availableIPv6", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub available_ipv6: Option<i64>,

    /// The namespaces bound to this group, as they are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound_namespaces: Vec<String>,

    /// Whether the group is understood and in use, and if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,

    /// The group as it last was when nothing was wrong with it. An edit that breaks the group leaves this form in use, also after a
    /// restart of PureLB, until the group is corrected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_valid: Option<LastValid>,
}
