//! What a node's kernel shows of its interfaces, addresses and default routes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::addr::Family;
use crate::moment::Moment;

/// The `IFA_PROTO` value that marks an address as ours, on kernels that keep it (5.18 and later).
pub const OUR_PROTOCOL: u8 = 0x7c;

/// On kernels that keep no such value, addresses that are to stay for ever get this lifetime in seconds, a hundred years.
/// Nobody else gives it, so that it is as good as a mark.
pub const OUR_LIFETIME: u32 = 100 * 365 * 24 * 3600;

/// Everything the kernel shows that decisions depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Links {
    /// Interfaces by index.
    pub by_index: BTreeMap<u32, Link>,
    /// Default routes of the main table, one entry for each next hop.
    pub default_routes: Vec<DefaultRoute>,
}

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Link {
    /// The name, such as `eth0`.
    pub name: String,
    /// What kind of device it is, as far as it matters.
    pub kind: LinkKind,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether a cable or its like is connected.
    pub carrier: bool,
    /// The Ethernet address, where it has one.
    pub mac: Option<[u8; 6]>,
    /// Whether deleting a primary IPv4 address keeps its secondaries; `None` where the kernel does not say.
    pub promote_secondaries: Option<bool>,
    /// Its addresses in the order the kernel lists them.
    pub addrs: Vec<HeldAddr>,
}

/// What kind of device an interface is, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LinkKind {
    /// The loopback.
    Loopback,
    /// A dummy, what a virtual interface should be.
    Dummy,
    /// An intermediate functional block, what a virtual interface is where the kernel has no dummy.
    Ifb,
    /// Anything else.
    Other,
}

/// An address as the kernel holds it. The kernel keys IPv4 by address and prefix length, IPv6 by address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HeldAddr {
    /// The address.
    pub addr: IpAddr,
    /// Its prefix length.
    pub prefix: u8,
    /// `noprefixroute`: the kernel made no route for its subnet.
    pub no_prefix_route: bool,
    /// `nodad`: no duplicate address detection.
    pub no_dad: bool,
    /// IPv6: duplicate address detection has not ended yet.
    pub tentative: bool,
    /// IPv6: somebody else has the address.
    pub dad_failed: bool,
    /// The kernel does not choose it as a source any more.
    pub deprecated: bool,
    /// When the kernel removes it; `None` is never.
    pub valid_until: Option<Moment>,
    /// Who put it there, on kernels that keep it: [`OUR_PROTOCOL`] is us, 0 is unknown.
    pub protocol: u8,
}

/// One next hop of a default route in the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct DefaultRoute {
    /// The family.
    pub family: Family,
    /// The metric; lower is better.
    pub metric: u32,
    /// The interface it leaves by.
    pub link: u32,
    /// The router.
    pub gateway: Option<IpAddr>,
}

/// One thing the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LinkNews {
    /// This is everything: the answer to a complete dump, at the start and after notifications were lost.
    Everything(Links),
    /// An interface is there and looks like this; its addresses are told apart and are to be kept.
    Link(u32, Link),
    /// An interface is gone, with its addresses.
    LinkGone(u32),
    /// An address is on an interface and looks like this.
    Addr(u32, HeldAddr),
    /// An address with this prefix length is gone from an interface.
    AddrGone(u32, IpAddr, u8),
    /// The default routes are these; told whenever one changes.
    DefaultRoutes(Vec<DefaultRoute>),
}

impl Links {
    /// The interface of this name.
    pub fn named(&self, name: &str) -> Option<(u32, &Link)> {
        self.by_index.iter().find(|(_, link)| link.name == name).map(|(index, link)| (*index, link))
    }

    /// Whether the kernel keeps who put an address there. One that does marks its own, such as the loopback's.
    pub fn keeps_protocol(&self) -> bool {
        self.by_index.values().flat_map(|link| &link.addrs).any(|held| held.protocol != 0)
    }

    /// Enters what the kernel tells.
    pub fn hear(&mut self, news: LinkNews) {
        match news {
            LinkNews::Everything(links) => *self = links,
            LinkNews::Link(index, link) => {
                let addrs = self.by_index.remove(&index).map_or(Vec::new(), |before| before.addrs);
                self.by_index.insert(index, Link { addrs, ..link });
            }
            LinkNews::LinkGone(index) => drop(self.by_index.remove(&index)),
            LinkNews::Addr(index, held) => {
                if let Some(link) = self.by_index.get_mut(&index) {
                    link.hold(held);
                }
            }
            LinkNews::AddrGone(index, addr, prefix) => {
                if let Some(link) = self.by_index.get_mut(&index) {
                    link.addrs.retain(|held| !held.is(addr, prefix));
                }
            }
            LinkNews::DefaultRoutes(routes) => self.default_routes = routes,
        }
    }
}

impl Link {
    /// Enters an address where the kernel will list it: a changed one in its place, a new IPv4 one at the end, a new
    /// IPv6 one before the others.
    fn hold(&mut self, held: HeldAddr) {
        match self.addrs.iter_mut().find(|there| there.is(held.addr, held.prefix)) {
            Some(there) => *there = held,
            None if held.addr.is_ipv4() => self.addrs.push(held),
            None => {
                let first = self.addrs.iter().position(|there| there.addr.is_ipv6()).unwrap_or(self.addrs.len());
                self.addrs.insert(first, held);
            }
        }
    }
}

impl HeldAddr {
    /// Whether the kernel would call this the same address.
    pub fn is(&self, addr: IpAddr, prefix: u8) -> bool {
        self.addr == addr && (addr.is_ipv6() || self.prefix == prefix)
    }

    /// Whether it carries our mark.
    pub fn is_marked(&self) -> bool {
        self.protocol == OUR_PROTOCOL || self.protocol == 0 && self.has_our_lifetime()
    }

    /// Whether its lifetime is one that only we give, however much of it has passed.
    pub fn has_our_lifetime(&self) -> bool {
        self.valid_until.is_some_and(|until| until.0.as_secs() > u64::from(OUR_LIFETIME) / 2)
    }

    /// Whether the kernel puts it on every interface by itself.
    pub fn is_kernels(&self) -> bool {
        matches!(self.addr, IpAddr::V6(v6) if v6.is_unicast_link_local())
    }

    /// An address that is simply there, for ever and put by nobody in particular.
    pub fn plain(addr: IpAddr, prefix: u8) -> Self {
        Self {
            addr,
            prefix,
            no_prefix_route: false,
            no_dad: false,
            tentative: false,
            dad_failed: false,
            deprecated: false,
            valid_until: None,
            protocol: 0,
        }
    }
}
