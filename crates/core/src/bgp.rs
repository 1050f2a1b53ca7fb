//! What a BGPConfiguration says once it is understood, and what it means for one node.
//!
//! - [`choose`](mod@choose): which of several objects counts
//! - [`node`]: which neighbors a node talks to, and with which passwords
//! - [`router_id`](mod@router_id): by which identifier a node goes
//! - [`import`]: which addresses are advertised, by the interface they are on
//! - [`status`]: what a node reports about its sessions
//! - [`selector`], [`password`]: nodes by their labels, and secrets that are never printed

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::addr::Family;

pub mod choose;
pub mod import;
pub mod node;
pub mod password;
pub mod router_id;
pub mod selector;
pub mod status;

pub use choose::{Candidate, Choice, choose};
pub use import::{import_matches, imported, imports};
pub use node::{NodeBgp, NodeFacts, Secrets, Session, for_node, wanted_secrets};
pub use password::Password;
pub use router_id::{RouterIdSource, RouterIdWish, awaits_addresses, router_id};
pub use selector::{Operator, Requirement, Selector};

/// The port of BGP.
pub const PORT: u16 = 179;

/// Everything a BGPConfiguration says that has an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Namespace of the object, in which its Secrets are, too.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Our AS, unless a neighbor says otherwise. Never 0.
    pub asn: u32,
    /// By which identifier each node goes.
    pub router_id: RouterIdWish,
    /// Where identifiers come from when a node has no IPv4 address. At most 24 bits long.
    pub router_id_pool: Ipv4Net,
    /// Where sessions are accepted; `None` is nowhere.
    pub listen: Option<Listen>,
    /// How nodes report.
    pub node_status: NodeStatus,
    /// Which addresses are advertised.
    pub import: Import,
    /// Whom nodes talk to, in the order in which they are written. Those with a mistake are not here.
    pub neighbors: Vec<Neighbor>,
}

/// Where sessions are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// The port.
    pub port: u16,
    /// The addresses; none means all of both families.
    pub addresses: Vec<IpAddr>,
}

/// How nodes report in their BGPNodeStatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Whether they do.
    pub enabled: bool,
    /// How often a report is written that has nothing new to say.
    pub heartbeat: Duration,
}

impl Default for NodeStatus {
    fn default() -> Self {
        Self { enabled: true, heartbeat: Duration::from_secs(60) }
    }
}

/// Which addresses are advertised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// Whether any are.
    pub enabled: bool,
    /// Names and globs of the interfaces whose addresses are advertised. All can be read.
    pub interfaces: Vec<String>,
}

/// One router that nodes talk to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbor {
    /// Where it is written, such as `spec.neighbors[2]`.
    pub path: String,
    /// Its address.
    pub address: IpAddr,
    /// Its AS. Equal to ours makes the session internal. Never 0.
    pub peer_as: u32,
    /// Our AS towards it, when not the global one. Never 0.
    pub local_as: Option<u32>,
    /// What its author says of it.
    pub description: String,
    /// Where the password of the session is.
    pub password: PasswordSource,
    /// The nodes that talk to it.
    pub nodes: Selector,
    /// What the session is about; never empty.
    pub families: BTreeSet<Family>,
    /// The session's timers.
    pub timers: Timers,
    /// Our address on the session; the kernel's choice when unset. Of the family of `address`.
    pub source: Option<IpAddr>,
    /// The interface of the session.
    pub interface: Option<String>,
    /// Wait for the neighbor to connect.
    pub passive: bool,
    /// How far away the neighbor may be.
    pub distance: Distance,
    /// Graceful restart with this restart time, at most 4095 s; off when unset.
    pub graceful_restart: Option<Duration>,
    /// Keep the session down.
    pub admin_down: bool,
    /// The next hop of routes, where it is not our address on the session.
    pub next_hop: NextHop,
    /// What the neighbor is told of our routes.
    pub advertise: Advertise,
}

impl Neighbor {
    /// Our AS on the session.
    pub fn our_as(&self, configuration: &Configuration) -> u32 {
        self.local_as.unwrap_or(configuration.asn)
    }
}

/// Where a password comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PasswordSource {
    /// There is none.
    #[default]
    None,
    /// It is written in the object itself.
    Inline(Password),
    /// A Secret in the namespace of the object has it.
    Secret {
        /// The Secret.
        name: String,
        /// The entry of its data.
        key: String,
        /// Whether the session goes without a password while there is no such Secret or entry.
        optional: bool,
    },
}

/// The timers of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers {
    /// How long silence is tolerated: 0 is for ever, else at least 3 s.
    pub hold: Duration,
    /// How often to say that we are alive; a third of the hold time when unset.
    pub keepalive: Option<Duration>,
    /// The longest pause between two attempts to connect, when not the speaker's own.
    pub connect_retry: Option<Duration>,
    /// The least time between two announcements of one prefix.
    pub advertisement_interval: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            hold: Duration::from_secs(90),
            keepalive: None,
            connect_retry: None,
            advertisement_interval: Duration::ZERO,
        }
    }
}

/// How far away a neighbor may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Distance {
    /// One hop to an external neighbor, any distance to an internal one.
    #[default]
    Usual,
    /// So many hops to an external neighbor.
    Multihop(u8),
    /// At most so many hops, and packets that came from further away are dropped (RFC 5082).
    Security(u8),
}

/// Next hops that were written by hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextHop {
    /// For IPv4 routes.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6 routes.
    pub v6: Option<Ipv6Addr>,
}

/// What a neighbor is told of our routes, besides that they exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advertise {
    /// Communities (RFC 1997), as `high << 16 | low`.
    pub communities: BTreeSet<u32>,
    /// Large communities (RFC 8092).
    pub large_communities: BTreeSet<[u32; 3]>,
    /// The metric between two entries into one AS.
    pub med: Option<u32>,
    /// The preference inside our AS.
    pub local_pref: Option<u32>,
    /// How often our AS is repeated in the path to an external neighbor.
    pub prepend: u8,
    /// Only the addresses of these ServiceGroups; everything when unset.
    pub service_groups: Option<BTreeSet<String>>,
}

#[cfg(test)]
pub(crate) mod samples;
