//! Where an address goes on this node: on a NIC, on the virtual interface, or nowhere and why.
//!
//! The subnets of this node's interfaces are asked first, whatever the group says; the group is asked second.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::addr::{Aggregation, Family};
use crate::group::{Entry, Group, Placement, Source};
use crate::reason::Reason;
use crate::reserved::reserved;

pub use crate::reserved::Guard;
pub use origins::Origins;
pub use serving::{LinkChoice, Serving};

mod origins;
mod serving;

/// Where an address goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spot {
    /// On a NIC of the elected node.
    Local {
        /// The NIC's index.
        link: u32,
        /// The prefix length of its subnet.
        prefix: u8,
    },
    /// On the virtual interface.
    Virtual {
        /// The prefix length that its group asks for.
        prefix: u8,
    },
    /// Nowhere on this node.
    Nowhere(Reason),
}

/// Where an address came from, as far as the groups and the Service still tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// From a range that a group has now.
    Range(&'a Group, &'a Entry),
    /// From an IPAM that a group asks.
    Elsewhere(&'a Group),
    /// From a group that is gone or has other ranges by now. It stays announced.
    Orphan {
        /// Whether the Service says that its group was a local one.
        local: bool,
    },
}

/// What surrounds the addresses on this node.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The subnets this node can serve, by interface.
    pub serving: &'a Serving,
    /// Addresses that must not be announced or captured, this node's own and its gateways included.
    pub guarded: &'a BTreeMap<IpAddr, Guard>,
    /// The subnets of every live lease.
    pub node_subnets: &'a BTreeSet<IpNet>,
}

/// Decides where an address goes. `before` is the prefix length it has on the virtual interface, for an orphan to keep.
pub fn place(addr: IpAddr, origin: Origin<'_>, before: Option<u8>, around: &Surroundings<'_>) -> Spot {
    let nic = around.serving.spot(addr);
    let subnet = nic.and_then(|(_, prefix)| IpNet::new(addr, prefix).ok());
    if let Some(why) = reserved(addr, around.guarded, subnet) {
        return Spot::Nowhere(why.reason(addr));
    }
    if let Some((link, prefix)) = nic {
        return Spot::Local { link, prefix };
    }
    if let Some(net) = around.serving.withheld(addr) {
        return Spot::Nowhere(Reason::SubnetUnavailable { addr, net });
    }
    match virtual_prefix(addr, origin, before) {
        Ok(prefix) => captured(addr, prefix, around).map_or(Spot::Virtual { prefix }, Spot::Nowhere),
        Err(reason) => Spot::Nowhere(reason),
    }
}

/// The prefix length on the virtual interface, or why the address does not belong there.
fn virtual_prefix(addr: IpAddr, origin: Origin<'_>, before: Option<u8>) -> Result<u8, Reason> {
    let host = Family::of(addr).max_prefix();
    let not_here = |group: &Group| Reason::NoLocalSubnet { addr, group: group.name.clone() };
    match origin {
        Origin::Range(group, _) | Origin::Elsewhere(group) if group.placement == Placement::Local => {
            Err(not_here(group))
        }
        Origin::Range(_, entry) => Ok(entry.virtual_prefix()),
        Origin::Elsewhere(group) => Ok(written_prefix(group, addr).unwrap_or(host)),
        Origin::Orphan { local: true } => Err(Reason::NoLocalSubnet { addr, group: "(deleted or edited)".to_owned() }),
        Origin::Orphan { local: false } => Ok(before.unwrap_or(host)),
    }
}

/// The prefix a NetBox group asks for. There is no subnet that `default` could mean.
fn written_prefix(group: &Group, addr: IpAddr) -> Option<u8> {
    let Source::Netbox { aggregation, .. } = &group.source else { return None };
    match Aggregation::parse(aggregation, Family::of(addr)) {
        Ok(Aggregation::Prefix(length)) => Some(length),
        Ok(Aggregation::Subnet) | Err(_) => None,
    }
}

/// Why the route that comes with an aggregate must not be made: it would swallow traffic to somebody else.
fn captured(addr: IpAddr, prefix: u8, around: &Surroundings<'_>) -> Option<Reason> {
    if prefix >= Family::of(addr).max_prefix() {
        return None;
    }
    let net = IpNet::new(addr, prefix).ok()?.trunc();
    let refuse = |what: String| Reason::AggregateCaptures { addr, net, what };
    let guarded = around.guarded.range(net.network()..=net.broadcast()).next();
    if let Some((victim, guard)) = guarded {
        return Some(refuse(format!("{victim}, the {guard}")));
    }
    let overlaps = |subnet: &&IpNet| subnet.contains(&net) || net.contains(*subnet);
    around.node_subnets.iter().find(overlaps).map(|subnet| refuse(format!("{subnet}, a subnet of Nodes")))
}

#[cfg(test)]
mod tests;
