//! Every annotation key, annotation value and well-known name that PureLB shares with users and other programs.

// --- Set by users on a Service ---

/// Names the ServiceGroup a Service takes its addresses from.
pub const SERVICE_GROUP: &str = "purelb.io/service-group";
/// Asks for particular addresses: one per family, separated by a comma.
pub const ADDRESSES: &str = "purelb.io/addresses";
/// A sharing key: Services with the same key may share an address as long as their ports differ.
pub const ALLOW_SHARED_IP: &str = "purelb.io/allow-shared-ip";
/// Keeps `externalTrafficPolicy: Local` on a local address; only its presence counts.
pub const ALLOW_LOCAL: &str = "purelb.io/allow-local";
/// Overrides the group's `multiPool` for one Service: `true`, or anything else for false.
pub const MULTI_POOL: &str = "purelb.io/multi-pool";
/// Asks once for the Service to be looked at again; the allocator removes it.
pub const RE_EVALUATE: &str = "purelb.io/re-evaluate";
/// Says which nodes the election should prefer; see [`NODE_AFFINITY_ENDPOINTS`].
pub const NODE_AFFINITY: &str = "purelb.io/node-affinity";

// --- Set by the allocator on a Service ---

/// The brand: this Service's addresses came from PureLB; see [`BRAND`].
pub const ALLOCATED_BY: &str = "purelb.io/allocated-by";
/// The ServiceGroup the addresses came from, or several as `a, b`.
pub const ALLOCATED_FROM: &str = "purelb.io/allocated-from";
/// How the group announces; its values are those of `Placement::pool_type` in core.
pub const POOL_TYPE: &str = "purelb.io/pool-type";
/// `true` when the group's IPv6 addresses skip duplicate address detection.
pub const SKIP_IPV6_DAD: &str = "purelb.io/skip-ipv6-dad";

// --- Set by node agents on a Service ---

/// Where the IPv4 address is announced: `node,iface,ip`, several separated by blanks (0.13 wrote `node,iface`).
pub const ANNOUNCING_IPV4: &str = "purelb.io/announcing-IPv4";
/// Where the IPv6 address is announced, in the form of [`ANNOUNCING_IPV4`].
pub const ANNOUNCING_IPV6: &str = "purelb.io/announcing-IPv6";
/// What early releases wrote for whatever family; only ever removed by us.
pub const ANNOUNCING: &str = "purelb.io/announcing";
/// What the reference wrote when it could not tell the family; only ever removed by us.
pub const ANNOUNCING_UNKNOWN: &str = "purelb.io/announcing-unknown";
/// `externalTrafficPolicy: Local` of this Service was once set to Cluster, because a local address cannot have it.
pub const POLICY_REWRITTEN: &str = "purelb.io/traffic-policy-rewritten";

// --- Set by node agents on their Lease ---

/// The subnets a node can serve local addresses in: CIDRs separated by commas.
pub const LEASE_SUBNETS: &str = "purelb.io/subnets";
/// The UID of the agent's Pod, so that two agents on one node notice each other.
pub const LEASE_INSTANCE: &str = "purelb.io/instance";
/// The highest version of any Lease that the agent had acted on when it wrote its own.
pub const LEASE_SAW: &str = "purelb.io/saw";
/// `true` if all nodes whose Leases were deleted before that version are known to have let go of their addresses.
pub const LEASE_SETTLED: &str = "purelb.io/settled";
/// Which kernel the agent works on: two agents of one node name on two machines notice each other by it.
pub const LEASE_HOST: &str = "purelb.io/host";
/// The addresses that a node comes first for because endpoints of their Services are there, separated by commas.
pub const LEASE_CLAIMS: &str = "purelb.io/claims";
/// The addresses of the agent's Node, separated by commas: no other agent announces them.
pub const LEASE_ADDRESSES: &str = "purelb.io/node-addresses";
/// The routers that the node's default routes go through, separated by commas: no Service gets them, and nobody announces
/// them.
pub const LEASE_GATEWAYS: &str = "purelb.io/gateways";
/// The addresses of the API server as the node knows them, separated by commas; as [`LEASE_GATEWAYS`].
pub const LEASE_API_SERVERS: &str = "purelb.io/api-servers";
/// An agent's Lease is called this followed by the node's name.
pub const LEASE_PREFIX: &str = "purelb-node-";

// --- Values ---

/// The value of [`ALLOCATED_BY`], and the value of `DEFAULT_ANNOUNCER` that makes PureLB serve Services without a
/// class.
pub const BRAND: &str = "PureLB";
/// The value of [`NODE_AFFINITY`] that prefers nodes with a ready endpoint of the Service.
pub const NODE_AFFINITY_ENDPOINTS: &str = "service-endpoints";
/// The value that switches boolean annotations on.
pub const TRUE: &str = "true";

// --- Names ---

/// The `loadBalancerClass` of PureLB up to 0.13, and the one its documentation has always named.
pub const CLASS: &str = "purelb.io/purelb";
/// The `loadBalancerClass` the 0.15 to 0.17 releases answer to.
pub const CLASS_V2: &str = "purelb.io/purelbv2";
/// The condition type on a Service that says whether it has all the addresses it asked for.
pub const ADDRESS_ASSIGNED: &str = "purelb.io/AddressAssigned";
