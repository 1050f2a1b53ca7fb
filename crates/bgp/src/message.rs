//! Messages as the state machine sees them: what we say, and what we hear.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::notification::Notification;
use crate::path::Path;
use crate::wish::{Families, Family};

/// What we say.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Who we are and what we can do.
    Open(Open),
    /// What became reachable, or stopped being so.
    Update(Update),
    /// Why we close.
    Notification(Notification),
    /// That we are alive.
    Keepalive,
}

/// What we hear. A peer's routes are counted and forgotten, so an UPDATE is only numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Who the peer is and what it can do.
    Open(Open),
    /// How many routes came and went.
    Update(Tally),
    /// Why the peer closes.
    Notification(Notification),
    /// That the peer is alive.
    Keepalive,
    /// That the peer wants to hear all routes of a family again; `None` is a family or an operation we do not serve.
    Refresh(Option<Family>),
}

/// An OPEN message (RFC 4271 §4.2) with the capabilities (RFC 5492) that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The AS, from the capability when there is one.
    pub asn: u32,
    /// The hold time in seconds.
    pub hold: u16,
    /// The BGP identifier.
    pub id: Ipv4Addr,
    /// What can be done.
    pub can: Capabilities,
}

/// Capabilities; unknown ones are not an error and not here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Families (RFC 4760); `None` from a peer without this capability, which means IPv4.
    pub families: Option<Families>,
    /// Route refresh (RFC 2918).
    pub refresh: bool,
    /// AS numbers of four octets (RFC 6793).
    pub four_octets: bool,
    /// IPv4 routes with an IPv6 next hop (RFC 8950).
    pub extended_next_hop: bool,
    /// Graceful restart (RFC 4724).
    pub graceful: Option<Graceful>,
    /// The name of the speaker; empty is none.
    pub name: String,
}

impl Capabilities {
    /// What can be talked about: without a word about families it is IPv4 (RFC 4760 §8).
    #[must_use]
    pub fn spoken(&self) -> Families {
        self.families.unwrap_or(Families::only(Family::V4))
    }
}

/// The capability of graceful restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graceful {
    /// The R bit: the speaker has just restarted.
    pub restarting: bool,
    /// The restart time in seconds, of 12 bits.
    pub time: u16,
    /// Families that it restarts gracefully with.
    pub families: Families,
    /// The F bit: what was told before is still forwarded, in all of them.
    pub preserved: bool,
}

/// An UPDATE message that we send. Each holds one family and fits into one message.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// These are reachable through us.
    Announce(Arc<Path>, Vec<IpNet>),
    /// These no longer are. With `true`, in MP_UNREACH_NLRI although they are IPv4.
    Withdraw(Vec<IpNet>, bool),
    /// All has been said about a family (RFC 4724 §2).
    EndOfRib(Family),
}

/// What an UPDATE message of a peer amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Routes announced.
    pub announced: u64,
    /// Routes withdrawn.
    pub withdrawn: u64,
    /// The end of a family's first telling.
    pub end_of_rib: Option<Family>,
    /// An attribute made no sense; the message counts as nothing (RFC 7606).
    pub malformed: bool,
}
