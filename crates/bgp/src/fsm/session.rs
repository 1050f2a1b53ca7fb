//! What both sides agree on when they open a session.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crate::fault::Fault;
use crate::message::{Capabilities, Graceful, Open};
use crate::notification::Notification;
use crate::path::Ends;
use crate::wish::{Families, Global, Peer};

/// The shortest hold time that is not none (RFC 4271 §4.2).
const SHORTEST_HOLD: u16 = 3;

/// Restart times have 12 bits (RFC 4724 §3).
const LONGEST_RESTART: u16 = 0xfff;

/// Names longer than this are cut: all capabilities must fit into 255 octets.
const LONGEST_NAME: usize = 63;

/// What both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Our end of the connection.
    pub ends: Ends,
    /// The peer's BGP identifier.
    pub peer_id: Ipv4Addr,
    /// What both speak.
    pub families: Families,
    /// AS numbers have four octets.
    pub four_octets: bool,
    /// IPv4 routes may have an IPv6 next hop.
    pub extended_next_hop: bool,
    /// How long silence is tolerated; `None` is for ever.
    pub hold: Option<Duration>,
    /// How long the peer keeps our routes if we go without a word, in seconds.
    pub restart_time: u16,
}

/// Our OPEN on a connection. Only a process that has met the peer, or follows one that has, forwards what it was told.
pub(super) fn hello(global: &Global, peer: &Peer, ends: &Ends, met: bool) -> Open {
    let restart = |time: Duration| Graceful {
        restarting: global.restarting && !met,
        time: seconds(time).min(LONGEST_RESTART),
        families: peer.families,
        preserved: global.restarting || met,
    };
    let can = Capabilities {
        families: Some(peer.families),
        refresh: true,
        four_octets: true,
        extended_next_hop: peer.families.v4 && matches!(ends.local, IpAddr::V6(_)),
        graceful: peer.graceful_restart.map(restart),
        name: global.name.chars().filter(char::is_ascii_graphic).take(LONGEST_NAME).collect(),
    };
    Open { asn: peer.our_asn(global), hold: our_hold(peer), id: global.router_id, can }
}

/// Whether the peer's OPEN is one we can live with, and what follows from it.
pub(super) fn agree(
    global: &Global,
    peer: &Peer,
    ends: &Ends,
    open: &Open,
) -> Result<Session, Box<(Fault, Notification)>> {
    if open.asn != peer.asn || open.asn == 0 {
        let fault = Fault::WrongAs { expected: peer.asn, heard: open.asn };
        return Err(Box::new((fault, Notification::new(2, 2))));
    }
    if peer.is_internal(global) && open.id == global.router_id {
        let answer = Notification::new(2, 3).with(open.id.octets());
        return Err(Box::new((Fault::SameRouterId(open.id), answer)));
    }
    let families = peer.families.and(open.can.spoken());
    if families.is_empty() {
        return Err(Box::new((no_common_family(peer), Notification::new(2, 7).with(wanted(peer.families)))));
    }
    let hold = our_hold(peer).min(open.hold);
    let ours = peer.graceful_restart.map_or(0, |time| seconds(time).min(LONGEST_RESTART));
    Ok(Session {
        ends: ends.clone(),
        peer_id: open.id,
        families,
        four_octets: open.can.four_octets,
        extended_next_hop: open.can.extended_next_hop && matches!(ends.local, IpAddr::V6(_)),
        hold: (hold > 0).then(|| Duration::from_secs(hold.into())),
        restart_time: if open.can.graceful.is_some() { ours } else { 0 },
    })
}

fn no_common_family(peer: &Peer) -> Fault {
    let names: Vec<_> = peer.families.iter().map(|family| family.to_string()).collect();
    Fault::NoCommonFamily { wanted: names.join(" and ") }
}

/// The capabilities that we miss, as the notification wants them (RFC 5492 §5).
fn wanted(families: Families) -> Vec<u8> {
    let one = |v6| [1, 4, 0, if v6 { 2 } else { 1 }, 0, 1];
    families.iter().flat_map(|family| one(family == crate::wish::Family::V6)).collect()
}

/// The hold time of our OPEN: 0, or at least 3.
fn our_hold(peer: &Peer) -> u16 {
    match seconds(peer.hold) {
        0 if peer.hold.is_zero() => 0,
        hold => hold.max(SHORTEST_HOLD),
    }
}

fn seconds(time: Duration) -> u16 {
    u16::try_from(time.as_secs()).unwrap_or(u16::MAX)
}
