//! Every refusal and warning PureLB knows, once, with the sentence a person reads.
//!
//! A [`Reason`] is at the same time the reason of a condition, the label of a metric, the field of a log line and the
//! sentence that `validate` and `inspect` print. A sentence says what is wrong and what to write instead.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::addr::{AddrRange, Family};
use crate::pool::Port;

/// Why something was refused, passed over or only just accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
pub enum Reason {
    /// The text of a `pool` field is no range at all.
    #[error("{problem}; write a range such as 192.0.2.10-192.0.2.20, a CIDR such as 192.0.2.0/28, or one address")]
    RangeSyntax {
        /// What could not be read, with the text as it was written.
        problem: String,
    },

    /// The first address of a range comes after the last one.
    #[error("range {first}-{last} runs backwards: {last} comes before {first}; write {instead} instead")]
    RangeReversed {
        /// The address written first.
        first: IpAddr,
        /// The address written last.
        last: IpAddr,
        /// The range its author most likely meant.
        instead: String,
    },

    /// The two ends of a range belong to different families.
    #[error(
        "range {first}-{last} mixes families: one end is {}, the other {}; write two addresses of one family",
        Family::of(*first), Family::of(*last)
    )]
    RangeMixedFamilies {
        /// The address written first.
        first: IpAddr,
        /// The address written last.
        last: IpAddr,
    },

    /// The range is not inside the subnet beside it.
    #[error(
        "{} range {range} not contained by network {subnet}: {outside} is outside; write a range between {} and {}, \
         or correct the subnet",
        upper(range.family()), subnet.network(), subnet.broadcast()
    )]
    RangeOutsideSubnet {
        /// The range.
        range: AddrRange,
        /// The subnet it should lie in.
        subnet: IpNet,
        /// The first of its ends that does not.
        outside: IpAddr,
    },

    /// An IPv6 range stands in a v4 field, or the other way round.
    #[error("range {range} is {}, but this field takes {wanted}; move it to {}pools", range.family(), range.family().short())]
    RangeWrongFamily {
        /// The range.
        range: AddrRange,
        /// The family its field is for.
        wanted: Family,
    },

    /// A `pool` or `subnet` is missing.
    #[error("{field} is missing; write {example}")]
    FieldMissing {
        /// The name of the missing field.
        field: &'static str,
        /// What could stand there.
        example: &'static str,
    },

    /// A field that an older CRD let in and that has another type than it should.
    #[error("this cannot be read: {why}; `kubectl explain` shows how it is written")]
    FieldUnreadable {
        /// What the parser says.
        why: String,
    },

    /// The text of a `subnet` field is no network.
    #[error("invalid CIDR address: {text:?}; write the subnet as network and prefix length, such as 192.0.2.0/24")]
    SubnetSyntax {
        /// The text as it was written.
        text: String,
    },

    /// The text of an `aggregation` field is no prefix.
    #[error("aggregation {text:?} is not a prefix length; write default, or a length from /8 to /{longest}")]
    AggregationSyntax {
        /// The text as it was written.
        text: String,
        /// The longest prefix the pool's family allows.
        longest: u8,
    },

    /// The `aggregation` is longer than an address of the family has bits.
    #[error("aggregation /{length} is too long for {family}; write default, or a length from /8 to /{}", family.max_prefix())]
    AggregationTooLong {
        /// The prefix length as written.
        length: u8,
        /// The family of the pool.
        family: Family,
    },

    /// An old `aggregation` without its slash, which 0.13 stored as it was.
    #[error("aggregation {text:?} has no slash and is read as /{text}; write /{text}")]
    AggregationWithoutSlash {
        /// The text as it was written.
        text: String,
    },

    /// A range repeats addresses of an earlier range of the same group.
    #[error("range {range} overlaps {earlier} of the same group; the addresses in both count once")]
    RangesMerged {
        /// The later range.
        range: AddrRange,
        /// The earlier range.
        earlier: AddrRange,
    },

    /// The v1 single range stands beside a pool of its own family.
    #[error(
        "Invalid Spec: both legacy Pool and {}Pool are {}; write the range as one more entry of {}pools and delete pool",
        family.short().to_uppercase(), upper(*family), family.short()
    )]
    LegacyRangeBesidePool {
        /// The family of both.
        family: Family,
    },

    /// A group that says nothing about where its addresses come from.
    #[error(
        "Pool must specify local, remote, or external; write for example spec.local.v4pools with a pool and a subnet"
    )]
    NoSource,

    /// A group with a source but no usable range in it.
    #[error("no valid address range found; write at least one entry in v4pools or v6pools")]
    NoRanges,

    /// Several sources where only one counts.
    #[error("{ignored} is ignored because {used} is there too; delete one of them")]
    SourceIgnored {
        /// The source that is passed over.
        ignored: &'static str,
        /// The source that counts.
        used: &'static str,
    },

    /// A group names itself differently inside.
    #[error("spec.name {written:?} is ignored: the group's name is {name:?}; delete spec.name")]
    NameIgnored {
        /// The name under `spec`.
        written: String,
        /// The object's own name.
        name: String,
    },

    /// `placement: Auto` together with a source that says where it announces.
    #[error("placement: Auto goes with local only, not with {source_field}; delete placement")]
    PlacementContradicted {
        /// `remote` or `external`.
        source_field: &'static str,
    },

    /// Two ways of choosing among ranges that exclude each other.
    #[error("multiPool and balancePools are mutually exclusive; set only one of them")]
    MultiPoolAndBalancePools,

    /// A namespace rule without namespaces.
    #[error("{flag} requires a non-empty namespaces list; list the namespaces, or delete {flag}")]
    NamespacesMissing {
        /// `enforceNamespaces` or `namespaceDefault`.
        flag: &'static str,
    },

    /// An external group with an `announce` that is neither word.
    #[error(
        "external pool announce must be \"local\" or \"remote\", got {announce:?} (is the ServiceGroup CRD up to date?)"
    )]
    ExternalAnnounce {
        /// The text as it was written.
        announce: String,
    },

    /// A second group of the same name.
    #[error("Duplicate definition of pool {name}: ServiceGroup {first} has that name already; rename one of them")]
    GroupDuplicate {
        /// The name of both.
        name: String,
        /// The group that keeps it, as `namespace/name`.
        first: String,
    },

    /// A group with addresses that an earlier group has already.
    #[error(
        "Pool overlaps with already defined pool \"{other}\": {range} and its {other_range} have addresses in common; \
         write ranges that are apart"
    )]
    GroupsOverlap {
        /// The group that keeps the addresses.
        other: String,
        /// The range of the refused group.
        range: AddrRange,
        /// The range of the group that keeps them.
        other_range: AddrRange,
    },

    /// A pool with ranges of the family, all of it in use.
    #[error(
        "pool \"{pool}\" exhausted: no available addresses for {service} (all {size} {family} addresses are in use); add a \
         range to the group, or delete a Service that uses it"
    )]
    Exhausted {
        /// The group.
        pool: String,
        /// The Service that asked.
        service: String,
        /// The family it asked for.
        family: Family,
        /// How many addresses the pool has.
        size: u128,
    },

    /// A pool without any range of the family.
    #[error("pool \"{pool}\" has no {family} range for {service}; add one to {}pools, or ask for another family", family.short())]
    FamilyNotServed {
        /// The group.
        pool: String,
        /// The Service that asked.
        service: String,
        /// The family it asked for.
        family: Family,
    },

    /// An address asked for by name that the pool does not have.
    #[error("{addr} does not belong to pool \"{pool}\"")]
    AddressNotInPool {
        /// The address.
        addr: IpAddr,
        /// The group.
        pool: String,
    },

    /// The Service's sharing key has another address already.
    #[error("sharing key \"{key}\" is bound to {bound}, cannot use {addr}")]
    SharingKeyBound {
        /// The key.
        key: String,
        /// The address that all Services with this key share.
        bound: IpAddr,
        /// The address asked for.
        addr: IpAddr,
    },

    /// An address that belongs to somebody other than a Service.
    #[error(
        "{addr} is the {what} and is never given to a Service; take it out of the pool, or ask for another address"
    )]
    AddressReserved {
        /// The address.
        addr: IpAddr,
        /// Whose it is.
        what: String,
    },

    /// There is no ServiceGroup at all.
    #[error(
        "unknown pool \"{group}\": there is no ServiceGroup; create one named {group} in the namespace PureLB runs in"
    )]
    NoGroups {
        /// The group that was wanted.
        group: String,
    },

    /// There are ServiceGroups, but none of that name.
    #[error(
        "unknown pool \"{group}\"; create a ServiceGroup of that name in the namespace PureLB runs in, or name an \
         existing one in the annotation purelb.io/service-group"
    )]
    UnknownPool {
        /// The group that was wanted.
        group: String,
    },

    /// The ServiceGroup exists but cannot be used.
    #[error("no usable pool: ServiceGroup \"{group}\" failed to parse: {why}")]
    GroupUnusable {
        /// The group.
        group: String,
        /// What is wrong with it.
        why: String,
    },

    /// The group serves only its own namespaces.
    #[error(
        "namespace denied: ServiceGroup \"{group}\" serves a confined namespace and does not serve \"{namespace}\"; add \
         {namespace} to its spec.namespaces, or name another group in purelb.io/service-group"
    )]
    GroupConfined {
        /// The group.
        group: String,
        /// The namespace that asked.
        namespace: String,
    },

    /// The namespace may use only its own groups.
    #[error(
        "namespace denied: namespace \"{namespace}\" may only use {allowed}, not ServiceGroup \"{group}\"; name one of \
         these in purelb.io/service-group, or add {namespace} to spec.namespaces of {group}"
    )]
    NamespaceConfined {
        /// The namespace that asked.
        namespace: String,
        /// The groups it may use, in brackets.
        allowed: String,
        /// The group it asked for.
        group: String,
    },

    /// Several groups serve the namespace and not exactly one is its default.
    #[error("ambiguous namespace default: {why}")]
    AmbiguousNamespaceDefault {
        /// Which groups, and what they should say.
        why: String,
    },

    /// A pinned address that is no address.
    #[error("invalid user-specified address: {text:?}; write addresses such as 192.0.2.10, separated by commas")]
    PinSyntax {
        /// The text as it was written.
        text: String,
    },

    /// A pinned address that no group has.
    #[error("\"{addr}\" does not belong to any group; pin an address of a ServiceGroup's range")]
    PinOutsideGroups {
        /// The address.
        addr: IpAddr,
    },

    /// An address from every range, and an address to share: both cannot be.
    #[error(
        "multi-pool allocation cannot be combined with IP sharing (annotation purelb.io/allow-shared-ip); delete one of them"
    )]
    MultiPoolShared,

    /// No range of the group has a node that could announce its addresses.
    #[error(
        "no IPs allocated for service {service}: {skipped} ranges skipped (no active nodes); start the node agent on a node \
         in one of the group's subnets, or write the subnet of your nodes in the group"
    )]
    NoActiveSubnet {
        /// The Service that asked.
        service: String,
        /// How many ranges were passed over.
        skipped: usize,
    },

    /// The addresses of a multi-pool Service are not all of one group.
    #[error(
        "addresses span more than one pool ({first}, {second}); set purelb.io/re-evaluate: \"true\" to take them from one"
    )]
    MultiPoolSpans {
        /// One of the groups.
        first: String,
        /// Another.
        second: String,
    },

    /// An address the Service keeps although no group has it any more.
    #[error(
        "{addr} is in no ServiceGroup's range any more and is kept; set purelb.io/re-evaluate: \"true\" to get another"
    )]
    Orphaned {
        /// The address.
        addr: IpAddr,
    },

    /// The Service asks for something other than what it has.
    #[error("{asked} is asked for, but {has} is kept; set purelb.io/re-evaluate: \"true\" to move")]
    MovePending {
        /// What the annotations say now.
        asked: String,
        /// What the Service has.
        has: String,
    },

    /// A group in a namespace that nobody reads groups from.
    #[error(
        "Ignored: ServiceGroups are read only from the PureLB install namespace, and {namespace} is not it. This group is \
         {kind}, so {}. Move it: kubectl get servicegroup {name} -n {namespace} -o yaml | sed 's/namespace: {namespace}/namespace: \
         {install_namespace}/' | kubectl apply -f -",
        if *kind == "remote" { "addresses allocated from it are withdrawn from every node" } else { "its pool is not allocatable" }
    )]
    GroupOutOfScope {
        /// The group's namespace.
        namespace: String,
        /// The group's name.
        name: String,
        /// The namespace PureLB runs in.
        install_namespace: String,
        /// What the group is, in the words of its spec: `local`, `remote` or `external`.
        kind: &'static str,
    },

    /// An external IPAM gave no address.
    #[error("ServiceGroup \"{group}\" gets its addresses from an IPAM, and it gave none: {why}")]
    ExternalFailed {
        /// The group.
        group: String,
        /// What the IPAM said, or that it said nothing.
        why: String,
    },

    /// The API server does not let the allocator write to a Service.
    #[error(
        "the API server refuses what the allocator writes to the Service: {why}; look for an admission webhook or policy \
         that covers services/status, or apply PureLB's manifests again, with the allocator's rights; it is tried again"
    )]
    WriteRefused {
        /// What the API server said.
        why: String,
    },

    /// Who holds addresses of an external IPAM cannot be put on record.
    #[error(
        "ServiceGroup \"{group}\" gets its addresses from an IPAM, which is not asked because the ConfigMap \
         purelb-external-holders cannot be kept: {why}; without that record an address could never be given back; \
         apply PureLB's manifests again, with the allocator's rights"
    )]
    HoldersUnrecorded {
        /// The group.
        group: String,
        /// What the API server said.
        why: String,
    },

    /// Another LBNodeAgent is chosen before this one on every node.
    #[error(
        "LBNodeAgent {by} takes precedence on every node, so that no node follows this object; give this one a \
         nodeSelector, or delete one of the two"
    )]
    AgentShadowed {
        /// Namespace and name of the other one.
        by: String,
    },

    /// NetBox is accepted in the API and not yet asked for addresses.
    #[error(
        "ServiceGroup \"{group}\" takes its addresses from NetBox, which is not supported yet; use local, remote or external"
    )]
    NetboxUnsupported {
        /// The group.
        group: String,
    },

    /// Somebody else has the address and does not share it with this Service.
    #[error(
        "{addr} is already in use by {holders} and cannot be given to {service}; to share it, set the same \
         purelb.io/allow-shared-ip on all of them"
    )]
    AddressInUse {
        /// The address.
        addr: IpAddr,
        /// The Service that asked.
        service: String,
        /// The Services that have it, joined by commas.
        holders: String,
    },

    /// Somebody who shares the address has the port.
    #[error("port {}/{} on \"{addr}\" is already in use by {holder}; use another port or another sharing key", port.protocol, port.number)]
    PortInUse {
        /// The shared address.
        addr: IpAddr,
        /// The port both want.
        port: Port,
        /// The Service that has it.
        holder: String,
    },

    /// An address that a Service has to give up, because an edit put it in the way of another that has it for longer.
    #[error("{addr} is taken away, because the Service was edited and may not share it any more: {why}")]
    AddressLost {
        /// The address.
        addr: IpAddr,
        /// What is in the way.
        why: String,
    },

    /// An address of a local group that no interface of this node serves.
    #[error(
        "{addr} of local group \"{group}\" is in no subnet of this node's interfaces; if it should be here, correct \
         localInterface or interfaces of the LBNodeAgent, or make the group remote"
    )]
    NoLocalSubnet {
        /// The address.
        addr: IpAddr,
        /// The group.
        group: String,
    },

    /// An address in a subnet of this node that it cannot serve at the moment.
    #[error(
        "{addr} is in {net}, a subnet of this node that it cannot serve now: its interface is down or has no carrier, or \
         there is no default route that says which interface serves it; restore it, or name the interface in \
         localInterface of the LBNodeAgent"
    )]
    SubnetUnavailable {
        /// The address.
        addr: IpAddr,
        /// The subnet.
        net: IpNet,
    },

    /// An aggregate whose route would swallow traffic to somebody else.
    #[error(
        "{addr} is not announced: the route to {net} that comes with it would capture traffic to {what}; write a longer \
         aggregation, such as /{}",
        Family::of(*addr).max_prefix()
    )]
    AggregateCaptures {
        /// The address.
        addr: IpAddr,
        /// The aggregate.
        net: IpNet,
        /// What is inside it.
        what: String,
    },

    /// An address that somebody else takes off its interface again and again.
    #[error(
        "somebody keeps removing {addr} from {link}; it is put back with growing pauses; find out who manages {link} \
         (NetworkManager, systemd-networkd, a script) and exclude it there"
    )]
    KeepsDisappearing {
        /// The address.
        addr: IpAddr,
        /// The interface.
        link: String,
    },

    /// The virtual interface, which somebody else deletes again and again.
    #[error(
        "somebody keeps deleting the interface {link}; it is made again with growing pauses; find out who manages it \
         (NetworkManager, systemd-networkd, a script) and exclude it there"
    )]
    InterfaceKeepsDisappearing {
        /// The interface.
        link: String,
    },

    /// The kernel does not make the virtual interface, or does not switch it on.
    #[error(
        "node {node} cannot have the interface {link} as it should be, and announces no virtual address: {problem}; load \
         the kernel module dummy or ifb, and give the agent the capability NET_ADMIN"
    )]
    InterfaceRefused {
        /// The node.
        node: String,
        /// The interface.
        link: String,
        /// What the kernel said.
        problem: String,
    },

    /// An IPv6 address that another host answers for.
    #[error("another host on {link} has {addr} already (duplicate address detection failed); find it and take it off")]
    AddressDuplicate {
        /// The address.
        addr: IpAddr,
        /// The interface.
        link: String,
    },

    /// `externalTrafficPolicy: Local` came back on a local address after it had been set to Cluster.
    #[error(
        "externalTrafficPolicy was set back to Local and is left so: the address is on one node, and traffic reaches only \
         the endpoints there; set it to Cluster, or write the annotation purelb.io/allow-local if this is what you want"
    )]
    PolicySetBack,

    /// The kernel has no dummy interfaces.
    #[error(
        "the kernel of this node has no dummy interfaces, so {name} is an ifb; addresses work all the same, but load the \
         kernel module dummy if you can"
    )]
    NoDummyInterface {
        /// The virtual interface.
        name: String,
    },

    /// There are LBNodeAgents, but none for this node.
    #[error(
        "no LBNodeAgent selects node {node}, so that it announces nothing; label the node, or create an LBNodeAgent \
         without nodeSelector"
    )]
    NodeDeselected {
        /// The node.
        node: String,
    },

    /// No LBNodeAgent says how this node announces.
    #[error("no LBNodeAgent with spec.local is for node {node}, so that it announces nothing; create one")]
    NoNodeAgent {
        /// The node.
        node: String,
    },

    /// A local interface pattern that is no regular expression.
    #[error(
        "localInterface {text:?} is not a regular expression ({problem}); write default, an interface name, or a pattern such as ^eth"
    )]
    InterfacePattern {
        /// The text as it was written.
        text: String,
        /// What the parser says.
        problem: String,
    },

    /// An interface name the kernel would refuse.
    #[error("{text:?} is not an interface name; write 1 to 15 characters without blanks or slashes, such as kube-lb0")]
    InterfaceName {
        /// The text as it was written.
        text: String,
    },

    /// A duration that is not written as Go writes them.
    #[error(
        "{text:?} is not a duration; write a number with a unit, such as 100ms or 1.5s (until then {fallback} is used)"
    )]
    DurationSyntax {
        /// The text as it was written.
        text: String,
        /// What is used instead.
        fallback: &'static str,
    },

    /// A number outside what its field allows.
    #[error("{value} is out of range; write a number from {lowest} to {highest}")]
    NumberOutOfRange {
        /// The number as written.
        value: i64,
        /// The lowest allowed.
        lowest: i64,
        /// The highest allowed.
        highest: i64,
    },

    /// A preferred lifetime longer than the valid one.
    #[error("preferredLifetime {preferred} is longer than validLifetime {valid}; write at most {valid}")]
    LifetimesReversed {
        /// The preferred lifetime in seconds.
        preferred: u32,
        /// The valid lifetime in seconds.
        valid: u32,
    },

    /// Local addresses that outlive the lease of their node.
    #[error(
        "validLifetime of local addresses is {written}, longer than the lease of {lease:?}: if the agent of this node is \
         killed or stands still, its addresses stay that long beside those of the node that takes them over; leave \
         validLifetime out, and an address goes before another node may take it"
    )]
    LifetimeBeyondLease {
        /// The lifetime as people say it.
        written: String,
        /// How long peers wait for a sign of life of this node.
        lease: std::time::Duration,
    },

    /// A node selector Kubernetes could not evaluate.
    #[error("nodeSelector matches nothing: {problem}")]
    SelectorInvalid {
        /// What is wrong with it, and what to write.
        problem: String,
    },

    /// A node selector that keeps its LBNodeAgent from every node; its own reason, for scripts wait for the word.
    #[error("nodeSelector could not be evaluated ({problem}); this LBNodeAgent applies to no node")]
    InvalidNodeSelector {
        /// What is wrong with it, and what to write.
        problem: String,
    },

    /// Another LBNodeAgent counts on a node that this one is for, too.
    #[error("LBNodeAgent {by} takes precedence on node {node}")]
    ConfigIgnored {
        /// The one that counts.
        by: String,
        /// The node.
        node: String,
    },

    /// Old and new name of one LBNodeAgent field, with different values.
    #[error("{old} {old_value:?} is ignored because {new} says {new_value:?}; delete {old}")]
    OldNameIgnored {
        /// The v1 name.
        old: &'static str,
        /// Its value.
        old_value: String,
        /// The v2 name.
        new: &'static str,
        /// Its value.
        new_value: String,
    },

    /// A BGPConfiguration in a namespace that nobody reads them from.
    #[error(
        "Ignored: BGPConfigurations are read only from the PureLB install namespace, {install_namespace}, and {namespace} \
         is not it; create the object there, and delete this one"
    )]
    BgpConfigurationOutOfScope {
        /// The object's namespace.
        namespace: String,
        /// The namespace PureLB runs in.
        install_namespace: String,
    },

    /// Another BGPConfiguration counts.
    #[error(
        "Ignored: BGPConfiguration {by} is in use, and a speaker has one configuration; write these neighbors there, \
         and delete this object"
    )]
    BgpConfigurationIgnored {
        /// Namespace and name of the one that counts.
        by: String,
    },

    /// Fields that are accepted and do nothing.
    #[error("without effect in this version: {fields}; delete what you do not need elsewhere")]
    UnsupportedFields {
        /// Their paths, separated by commas.
        fields: String,
    },

    /// A number that is no AS.
    #[error("{value} is not an AS number; write one from 1 to 4294967295, such as 64512")]
    AsnInvalid {
        /// The number as written.
        value: i64,
    },

    /// A `routerID` that can be no identifier.
    #[error(
        "routerID {text:?} is neither an IPv4 address that other routers may know nor a template; write an address such \
         as 10.0.0.1, ${{NODE_IP}}, ${{NODE_EXTERNAL_IP}} or ${{node.annotations['example.org/router-id']}}, or nothing"
    )]
    RouterIdSyntax {
        /// The text as it was written.
        text: String,
    },

    /// A template that a node has no answer to.
    #[error("no router ID: node {node} has {missing}; add it, or write another routerID (nothing is a good choice)")]
    RouterIdUnresolved {
        /// The node.
        node: String,
        /// What it has not.
        missing: String,
    },

    /// A Node whose addresses nobody has written, and that waits for its router ID.
    #[error(
        "no router ID, and so no session: the status of Node {node} has no address; check its kubelet and its cloud provider, \
         or write a routerID that does not hang on the node's addresses"
    )]
    NodeWithoutAddresses {
        /// The node.
        node: String,
    },

    /// A pool of router IDs that is no IPv4 network, or too small a one.
    #[error("routerIDPool {text:?} is not an IPv4 network of at most 24 bits; write one such as 10.255.0.0/16")]
    RouterIdPoolSyntax {
        /// The text as it was written.
        text: String,
    },

    /// Text where an address belongs.
    #[error("{text:?} is not {wanted}; write one such as {example}")]
    AddressSyntax {
        /// The text as it was written.
        text: String,
        /// What belongs there.
        wanted: &'static str,
        /// What could stand there.
        example: &'static str,
    },

    /// An address that cannot be at the other end of a session.
    #[error("{address} cannot be a neighbor: {why}; write the router's own address")]
    NeighborAddressUnusable {
        /// The address.
        address: IpAddr,
        /// Why not.
        why: &'static str,
    },

    /// A source address of another family than the neighbor's.
    #[error("localAddress {source_address} and neighborAddress {address} are of different families; write both of one")]
    SourceWrongFamily {
        /// Our address.
        source_address: IpAddr,
        /// The neighbor's.
        address: IpAddr,
    },

    /// A neighbor that is known by its interface only.
    #[error("neighborInterface is not supported yet; write the router's address as neighborAddress")]
    NeighborInterfaceUnsupported,

    /// A BGPConfiguration with a mistake.
    #[error("the BGPConfiguration has a mistake: {first}; its condition Ready names all, and what is in use")]
    BgpConfigurationMistaken {
        /// The first mistake, with its field.
        first: String,
    },

    /// Two neighbors with one address on one node.
    #[error("{address} is the address of {first} already, which counts; delete one, or let their nodeSelectors differ")]
    NeighborDuplicate {
        /// The address of both.
        address: IpAddr,
        /// Where the first one is written.
        first: String,
    },

    /// No neighbor is for this node.
    #[error(
        "no neighbor's nodeSelector selects node {node}, so that it has no session; label the node, or add a neighbor"
    )]
    NoMatchingNeighbors {
        /// The node.
        node: String,
    },

    /// A neighbor of a group that is not there.
    #[error("there is no peer group {group:?}; correct peerGroup, or add it to spec.peerGroups")]
    PeerGroupMissing {
        /// The group as written.
        group: String,
    },

    /// A neighbor whose families we do not speak.
    #[error(
        "no family of this neighbor is enabled; enable ipv4-unicast or ipv6-unicast in afiSafis, or delete afiSafis"
    )]
    NoFamilies,

    /// A hold time that RFC 4271 forbids.
    #[error("holdTime {value} is not allowed; write 0 (never give up) or a number of seconds from 3 to 65535")]
    HoldTimeInvalid {
        /// The number as written.
        value: i64,
    },

    /// A keepalive interval that would let the session die.
    #[error("keepaliveInterval {keepalive} is longer than holdTime {hold}, so that the session would end at once; write at most {}", hold / 3)]
    KeepaliveTooLong {
        /// The interval in seconds.
        keepalive: u64,
        /// The hold time in seconds.
        hold: u64,
    },

    /// Two limits on the distance of a neighbor that exclude each other.
    #[error("ttlSecurity is ignored because ebgpMultihop is enabled, too; delete one of them")]
    TtlSecurityAndMultihop,

    /// A community that is none.
    #[error("{text:?} is not a community; write two numbers up to 65535, such as 64512:100")]
    CommunitySyntax {
        /// The text as it was written.
        text: String,
    },

    /// A large community that is none.
    #[error("{text:?} is not a large community; write three numbers up to 4294967295, such as 64512:1:100")]
    LargeCommunitySyntax {
        /// The text as it was written.
        text: String,
    },

    /// An interface pattern that no shell could read.
    #[error(
        "{text:?} is neither an interface name nor a pattern; write kube-lb0, or a pattern such as eth* or eth[0-3]"
    )]
    GlobSyntax {
        /// The text as it was written.
        text: String,
    },

    /// A configuration that advertises nothing.
    #[error("no address is advertised: {why}; write netlinkImport: {{enabled: true, interfaceList: [kube-lb0]}}")]
    NothingImported {
        /// What is missing.
        why: &'static str,
    },

    /// A Secret that does not exist.
    #[error("Secret {secret} does not exist, so that there is no password and no session; create it")]
    SecretMissing {
        /// Namespace and name.
        secret: String,
    },

    /// A Secret of which nobody knows yet whether it exists.
    #[error(
        "Secret {secret} could not be read yet, so that nobody knows the password and there is no session; it is tried again, \
         and the agent's log has the API server's words: check that the Role of the agents may get Secrets"
    )]
    SecretUnread {
        /// Namespace and name.
        secret: String,
    },

    /// A Secret without the entry that is named.
    #[error(
        "Secret {secret} has no entry {key:?}, so that there is no password and no session; add it, or correct key"
    )]
    SecretKeyMissing {
        /// Namespace and name.
        secret: String,
        /// The entry.
        key: String,
    },

    /// A password that the kernel does not take.
    #[error("the password has {octets} octets, and the kernel takes 1 to 80; write another, on the router too")]
    PasswordUnusable {
        /// How long it is.
        octets: usize,
    },

    /// A password that everybody can read who can read the object.
    #[error(
        "authPassword can be read by all who can read this object; put it in a Secret and name it in authPasswordSecretRef"
    )]
    PasswordInline,

    /// A BGP session that is down.
    #[error("the BGP session with {peer} is down: {why}")]
    BgpSessionDown {
        /// The router.
        peer: IpAddr,
        /// What the speaker says, with what to do.
        why: String,
    },

    /// A BGP session that is up and does not do all it should.
    #[error("the BGP session with {peer} is up, but {why}")]
    BgpSessionLimited {
        /// The router.
        peer: IpAddr,
        /// What the speaker says, with what to do.
        why: String,
    },

    /// Routers cannot connect to this node.
    #[error("routers cannot open sessions to this node: {why}")]
    BgpNotListening {
        /// What the speaker says, with what to do.
        why: String,
    },

    /// A name that the API server refuses.
    #[error(
        "{name:?} is not a name Kubernetes accepts: lower-case letters, digits, '-' and '.' only, beginning and ending \
         with a letter or digit; write {instead:?} instead"
    )]
    NameInvalid {
        /// The name as written.
        name: String,
        /// A legal name close to it.
        instead: String,
    },
}

impl Reason {
    /// The word that stands for this reason everywhere, such as `RangeReversed`.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

/// A reason together with the field it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, such as `spec.local.v4pools[0].pool`.
    pub field: String,
    /// What is wrong there.
    pub reason: Reason,
}

impl Problem {
    /// A problem of one field.
    pub fn new(field: impl Into<String>, reason: Reason) -> Self {
        Self { field: field.into(), reason }
    }
}

/// The family as the reference writes it in events that scripts look for.
fn upper(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPV4",
        Family::V6 => "IPV6",
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantNames;

    use super::Reason;

    #[test]
    fn every_reason_is_explained_to_operators() {
        let guide = include_str!("../../../docs/troubleshooting.md");
        let missing: Vec<_> =
            Reason::VARIANTS.iter().filter(|name| !guide.contains(&format!("| `{name}` |"))).collect();
        assert!(missing.is_empty(), "docs/troubleshooting.md does not explain {missing:?}");
    }
}
