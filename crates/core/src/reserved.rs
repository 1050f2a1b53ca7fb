//! Which addresses no Service may have: one rule for the allocator, which gives addresses out, and for agents, which announce
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::addr::Family;
use crate::reason::Reason;

/// What an address is that must never be announced or captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, strum::Display)]
pub enum Guard {
    /// An address of the Kubernetes API server.
    #[strum(to_string = "address of the API server")]
    ApiServer,
    /// A DNS server of this node.
    #[strum(to_string = "address of a DNS server")]
    DnsServer,
    /// An address of a Node.
    #[strum(to_string = "address of a Node")]
    Node,
    /// A router that a default route goes through.
    #[strum(to_string = "address of a default gateway")]
    Gateway,
    /// A BGP peer.
    #[strum(to_string = "address of a BGP peer")]
    Peer,
}

impl Guard {
    /// Whether no Service may have the address itself; of the others only no aggregate may capture the traffic.
    pub fn forbids(self) -> bool {
        matches!(self, Self::Node | Self::Gateway | Self::ApiServer)
    }
}

/// Why no Service may have an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// It is somebody's.
    Guarded(Guard),
    /// It is the network or broadcast address of this subnet.
    Edge(IpNet),
}

impl Reserved {
    /// The reason as a sentence.
    pub fn reason(self, addr: IpAddr) -> Reason {
        Reason::AddressReserved { addr, what: self.to_string() }
    }
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guarded(guard) => guard.fmt(f),
            Self::Edge(subnet) => write!(f, "network or broadcast address of {subnet}"),
        }
    }
}

/// Whether an address is somebody's, or an edge of a subnet that nodes announce addresses in.
pub fn reserved(
    addr: IpAddr,
    guarded: &BTreeMap<IpAddr, Guard>,
    subnets: impl IntoIterator<Item = IpNet>,
) -> Option<Reserved> {
    let guard = guarded.get(&addr).copied().filter(|guard| guard.forbids());
    let edge = || subnets.into_iter().find(|subnet| edges(*subnet).any(|edge| edge == addr));
    guard.map(Reserved::Guarded).or_else(|| edge().map(|subnet| Reserved::Edge(subnet.trunc())))
}

/// Network and broadcast address of a subnet.
///
/// A subnet of one or two addresses has neither (RFC 3021, RFC 6164); IPv6 has no broadcast.
pub fn edges(subnet: IpNet) -> impl Iterator<Item = IpAddr> {
    let family = Family::of(subnet.addr());
    let has_edges = subnet.prefix_len() + 1 < family.max_prefix();
    let network = has_edges.then(|| subnet.network());
    let broadcast = (has_edges && family == Family::V4).then(|| subnet.broadcast());
    network.into_iter().chain(broadcast)
}
