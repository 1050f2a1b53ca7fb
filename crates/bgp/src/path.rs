//! What is said of a route besides its prefix: its attributes, and the next hop above all.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::fault::Fault;
use crate::fsm::Session;
use crate::wish::{Family, Global, Peer};

/// The preference of routes inside an AS, when nobody asks for another.
const USUAL_LOCAL_PREF: u32 = 100;

/// The two ends of a connection, as far as next hops need them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Our address on this connection.
    pub local: IpAddr,
    /// Other addresses of the interface that has it, in the kernel's order.
    pub beside: Vec<IpAddr>,
}

impl Ends {
    /// Without the addresses that are gone from the interface.
    #[must_use]
    pub fn without_gone(&self, seen: &Self) -> Self {
        let still = |address: &&IpAddr| seen.beside.contains(address);
        Self { local: self.local, beside: self.beside.iter().filter(still).copied().collect() }
    }

    /// What is seen now. What was there before stays in front, so that a next hop changes only when it must.
    #[must_use]
    pub fn refreshed(&self, seen: &Self) -> Self {
        let mut ends = self.without_gone(seen);
        ends.beside.extend(seen.beside.iter().filter(|address| !self.beside.contains(address)));
        ends
    }
}

/// Where a router sends the packets of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, and perhaps a link-local one beside it (RFC 2545 §3).
    V6(Ipv6Addr, Option<Ipv6Addr>),
}

/// The attributes of all routes of one family to one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The family of the routes.
    pub family: Family,
    /// Where to.
    pub next_hop: NextHop,
    /// Our AS, so often; empty to an internal peer.
    pub as_path: Vec<u32>,
    /// Whether the peer reads AS numbers of four octets.
    pub four_octets: bool,
    /// The metric.
    pub med: Option<u32>,
    /// The preference; to internal peers only, and always there.
    pub local_pref: Option<u32>,
    /// Communities, sorted.
    pub communities: BTreeSet<u32>,
    /// Large communities, sorted.
    pub large_communities: BTreeSet<[u32; 3]>,
}

impl Path {
    /// The attributes for this family on this session.
    ///
    /// # Errors
    /// When there is no next hop that the peer could use.
    pub fn choose(family: Family, session: &Session, global: &Global, peer: &Peer) -> Result<Self, Fault> {
        let next_hop = match family {
            Family::V4 => next_hop_v4(session, global, peer),
            Family::V6 => next_hop_v6(session, global, peer),
        };
        let next_hop = next_hop.ok_or(Fault::NoNextHop { family })?;
        let internal = peer.is_internal(global);
        let repeat = if internal { 0 } else { 1 + usize::from(peer.advertise.prepend) };
        let preference = peer.advertise.local_pref.unwrap_or(USUAL_LOCAL_PREF);
        Ok(Self {
            family,
            next_hop,
            as_path: vec![peer.our_asn(global); repeat],
            four_octets: session.four_octets,
            med: peer.advertise.med,
            local_pref: internal.then_some(preference),
            communities: peer.advertise.communities.clone(),
            large_communities: peer.advertise.large_communities.clone(),
        })
    }

    /// Whether routes with this path travel in MP_REACH_NLRI.
    #[must_use]
    pub fn is_multiprotocol(&self) -> bool {
        matches!(self.next_hop, NextHop::V6(..))
    }
}

fn next_hop_v4(session: &Session, global: &Global, peer: &Peer) -> Option<NextHop> {
    if let Some(asked) = peer.next_hop_v4 {
        return Some(NextHop::V4(asked));
    }
    match session.ends.local {
        IpAddr::V4(own) => Some(NextHop::V4(own)),
        IpAddr::V6(own) if session.extended_next_hop => Some(NextHop::V6(own, None)),
        IpAddr::V6(_) => beside(session, global).find_map(|address| match address {
            IpAddr::V4(address) => Some(NextHop::V4(address)),
            IpAddr::V6(_) => None,
        }),
    }
}

fn next_hop_v6(session: &Session, global: &Global, peer: &Peer) -> Option<NextHop> {
    if let Some(asked) = peer.next_hop_v6 {
        return Some(NextHop::V6(asked, None));
    }
    let mut wide = beside(session, global).filter_map(|address| match address {
        IpAddr::V6(address) if !address.is_unicast_link_local() => Some(address),
        _ => None,
    });
    match session.ends.local {
        IpAddr::V6(own) if own.is_unicast_link_local() => Some(NextHop::V6(wide.next().unwrap_or(own), Some(own))),
        IpAddr::V6(own) => Some(NextHop::V6(own, None)),
        // Never an IPv4-mapped address: routers take it and then cannot resolve it.
        IpAddr::V4(_) => wide.next().map(|address| NextHop::V6(address, None)),
    }
}

/// Addresses of the session's interface that stay.
fn beside<'a>(session: &'a Session, global: &'a Global) -> impl Iterator<Item = IpAddr> + 'a {
    let stays = |address: &IpAddr| !address.is_loopback() && !global.fleeting.contains(address);
    session.ends.beside.iter().copied().filter(stays)
}

#[cfg(test)]
mod tests;
