//! What the user of this crate wants: who we are, whom we talk to, and which prefixes we serve.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::Secret;

/// The port of BGP.
pub const PORT: u16 = 179;

/// The whole wish. Each one replaces the one before; the speaker finds the difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// Who we are.
    pub global: Global,
    /// Whom we talk to. Of two entries with one address the first counts.
    pub peers: Vec<Peer>,
    /// What we serve. It is shared and never copied: the owner's next wish may have the same one.
    pub routes: Arc<Routes>,
    /// Whether `routes` is all there is. Until then peers are not told that they have heard everything (End-of-RIB), so
    /// that a router that kept our routes across a restart keeps them a little longer.
    pub complete: bool,
}

/// Who we are, to all peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Our AS, unless a peer says otherwise.
    pub asn: u32,
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// Where to accept sessions; `None` is nowhere.
    pub listen: Option<Listen>,
    /// Our name, shown by some routers; empty is none.
    pub name: String,
    /// This process follows another that left without a word and within the restart time (RFC 4724 §3, the R bit).
    pub restarting: bool,
    /// Addresses that come and go, service addresses for example. They are never chosen as a next hop.
    pub fleeting: BTreeSet<IpAddr>,
}

/// Where to accept sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The port, [`PORT`] as a rule.
    pub port: u16,
    /// The addresses; none means all of both families.
    pub addresses: Vec<IpAddr>,
}

impl Default for Listen {
    fn default() -> Self {
        Self { port: PORT, addresses: Vec::new() }
    }
}

impl Global {
    /// A speaker that listens on the usual port.
    #[must_use]
    pub fn new(asn: u32, router_id: Ipv4Addr) -> Self {
        let listen = Some(Listen::default());
        Self { asn, router_id, listen, name: String::new(), restarting: false, fleeting: BTreeSet::new() }
    }
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4 unicast.
    V4,
    /// IPv6 unicast.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The family of a prefix.
    #[must_use]
    pub const fn of_net(net: &IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Some of the families.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// IPv4 unicast.
    pub v4: bool,
    /// IPv6 unicast.
    pub v6: bool,
}

impl Families {
    /// Both.
    pub const BOTH: Self = Self { v4: true, v6: true };

    /// One.
    #[must_use]
    pub const fn only(family: Family) -> Self {
        Self { v4: matches!(family, Family::V4), v6: matches!(family, Family::V6) }
    }

    /// Whether this one is among them.
    #[must_use]
    pub const fn has(self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// Adds one.
    pub fn add(&mut self, family: Family) {
        match family {
            Family::V4 => self.v4 = true,
            Family::V6 => self.v6 = true,
        }
    }

    /// Those in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { v4: self.v4 && other.v4, v6: self.v6 && other.v6 }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        !self.v4 && !self.v6
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = Family> {
        Family::ALL.into_iter().filter(move |family| self.has(*family))
    }
}

/// One router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address; this is also its name in reports.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its AS. Equal to ours makes the session internal.
    pub asn: u32,
    /// Our AS towards it, when not the global one.
    pub local_asn: Option<u32>,
    /// The password of the session (TCP MD5).
    pub password: Option<Secret>,
    /// What to talk about.
    pub families: Families,
    /// How long silence is tolerated: 0 is for ever, else at least 3 s.
    pub hold: Duration,
    /// How often to say that we are alive; a third of the hold time when unset.
    pub keepalive: Option<Duration>,
    /// The longest pause between two attempts. They begin a second apart.
    pub connect_retry: Duration,
    /// The least time between two announcements of one prefix (RFC 4271 §9.2.1.1). Withdrawals never wait.
    pub advertisement_interval: Duration,
    /// Our address on this session; the kernel's choice when unset.
    pub source: Option<IpAddr>,
    /// The interface of this session.
    pub interface: Option<String>,
    /// Wait for the peer to connect.
    pub passive: bool,
    /// Keep the session down.
    pub admin_down: bool,
    /// How far away the peer may be.
    pub ttl: Ttl,
    /// Graceful restart with this restart time (RFC 4724); off when unset.
    pub graceful_restart: Option<Duration>,
    /// The next hop of IPv4 routes, when not this session's own address.
    pub next_hop_v4: Option<Ipv4Addr>,
    /// The next hop of IPv6 routes, when not this session's own address.
    pub next_hop_v6: Option<Ipv6Addr>,
    /// What to say, and how.
    pub advertise: Advertise,
}

impl Peer {
    /// A peer with the usual settings, and the family of its address.
    #[must_use]
    pub fn new(address: IpAddr, asn: u32) -> Self {
        Self {
            address,
            port: PORT,
            asn,
            local_asn: None,
            password: None,
            families: Families::only(Family::of(address)),
            hold: Duration::from_secs(90),
            keepalive: None,
            connect_retry: Duration::from_secs(30),
            advertisement_interval: Duration::ZERO,
            source: None,
            interface: None,
            passive: false,
            admin_down: false,
            ttl: Ttl::default(),
            graceful_restart: None,
            next_hop_v4: None,
            next_hop_v6: None,
            advertise: Advertise::default(),
        }
    }

    /// Our AS on this session.
    #[must_use]
    pub fn our_asn(&self, global: &Global) -> u32 {
        self.local_asn.unwrap_or(global.asn)
    }

    /// Whether the session stays inside one AS.
    #[must_use]
    pub fn is_internal(&self, global: &Global) -> bool {
        self.our_asn(global) == self.asn
    }

    /// Whether these two differ only in what is said, how often, and who dials, so that a session need not be closed to go
    /// from one to the other.
    #[must_use]
    pub(crate) fn same_session(&self, other: &Self) -> bool {
        let quiet = |peer: &Self| Self {
            connect_retry: Duration::ZERO,
            advertisement_interval: Duration::ZERO,
            keepalive: None,
            passive: false,
            next_hop_v4: None,
            next_hop_v6: None,
            advertise: Advertise::default(),
            ..peer.clone()
        };
        quiet(self) == quiet(other)
    }
}

/// How far away a peer may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ttl {
    /// One hop to an external peer, any distance to an internal one.
    #[default]
    Usual,
    /// So many hops to an external peer.
    Multihop(u8),
    /// At most so many hops, and packets that came from further away are dropped (RFC 5082).
    Security(u8),
}

/// What a peer is told about our routes, besides that they exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertise {
    /// Communities (RFC 1997), as `high << 16 | low`.
    pub communities: BTreeSet<u32>,
    /// Large communities (RFC 8092).
    pub large_communities: BTreeSet<[u32; 3]>,
    /// The metric between two entries into one AS.
    pub med: Option<u32>,
    /// The preference inside our AS; 100 when unset.
    pub local_pref: Option<u32>,
    /// How often to repeat our AS in the path to an external peer.
    pub prepend: u8,
    /// Only the routes of these groups; all when unset.
    pub groups: Option<Groups>,
}

/// The groups that the addresses of a route come from; none for an address that somebody else put there.
pub type Groups = BTreeSet<Arc<str>>;

/// What we serve: prefixes with their groups. Bits beyond a prefix's length are ignored.
pub type Routes = BTreeMap<IpNet, Arc<Groups>>;

/// Routes of no group.
#[must_use]
pub fn routes(prefixes: impl IntoIterator<Item = IpNet>) -> Arc<Routes> {
    Arc::new(prefixes.into_iter().map(|prefix| (prefix, Arc::default())).collect())
}

/// How to leave a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// With Cease and these words (RFC 9003): the peer forgets our routes at once.
    Cease(String),
    /// With Cease, because the peer is no longer in the configuration: it forgets our routes at once.
    Deconfigured,
    /// To come back soon: without a word to a peer that has agreed to graceful restart, which keeps our routes for the
    /// restart time, and as [`Farewell::Cease`] to others.
    Restart(String),
    /// Without a word to anybody.
    Silent,
}
