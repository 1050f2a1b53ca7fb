//! The one answer to "which subnets can this node serve, and on which interface", for lease and announcer alike.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use regex::Regex;

use crate::addr::Family;
use crate::agent::{AgentConfig, LocalInterface};
use crate::links::{HeldAddr, Link, LinkKind, Links};
use crate::reason::Reason;

/// Which interfaces an LBNodeAgent chooses, with its pattern compiled.
#[derive(Clone, Debug)]
pub struct LinkChoice {
    /// `None` is the interface of the default route.
    pattern: Option<Regex>,
    interfaces: Vec<String>,
    virtual_interface: String,
}

impl LinkChoice {
    /// The choice of an LBNodeAgent, or why its pattern cannot be read.
    pub fn new(config: &AgentConfig) -> Result<Self, Reason> {
        let pattern = match &config.local_interface {
            LocalInterface::DefaultRoute => None,
            LocalInterface::Matching(text) => Some(
                Regex::new(text)
                    .map_err(|error| Reason::InterfacePattern { text: text.clone(), problem: error.to_string() })?,
            ),
        };
        let (interfaces, virtual_interface) = (config.interfaces.clone(), config.virtual_interface.clone());
        Ok(Self { pattern, interfaces, virtual_interface })
    }

    /// The chosen interfaces, usable or not, best first, each with the family it is limited to.
    fn links<'a>(&'a self, links: &'a Links) -> Vec<(u32, &'a Link, Option<Family>)> {
        let mut chosen = match &self.pattern {
            Some(pattern) => self.matching(pattern, links),
            None => [Family::V4, Family::V6].into_iter().filter_map(|f| default_link(links, f)).collect(),
        };
        chosen.extend(self.interfaces.iter().filter_map(|name| {
            let (index, link) = links.named(name)?;
            Some((index, link, None))
        }));
        chosen.retain(|(_, link, _)| link.name != self.virtual_interface);
        chosen
    }

    /// The NICs of which nobody can tell whether they are chosen, each with the family: the default route chooses, and there
    /// is none.
    fn unsure<'a>(&'a self, links: &'a Links) -> Vec<(u32, &'a Link, Option<Family>)> {
        let lost = [Family::V4, Family::V6].into_iter().filter(|family| default_link(links, *family).is_none());
        let lost = lost.filter(|_| self.pattern.is_none());
        let nics = links.by_index.iter().filter(|(_, link)| link.kind == LinkKind::Other);
        let nics: Vec<_> = nics.filter(|(_, link)| link.name != self.virtual_interface).collect();
        lost.flat_map(|family| nics.iter().map(move |(index, link)| (**index, *link, Some(family)))).collect()
    }

    fn matching<'a>(&self, pattern: &Regex, links: &'a Links) -> Vec<(u32, &'a Link, Option<Family>)> {
        let found = links.by_index.iter().map(|(index, link)| (*index, link, None));
        let mut found: Vec<_> =
            found.filter(|(_, link, _)| link.kind != LinkKind::Loopback && pattern.is_match(&link.name)).collect();
        found.sort_by(|(_, a, _), (_, b, _)| a.name.cmp(&b.name));
        found
    }
}

/// The interface of the best default route: the lowest metric, then the first name.
fn default_link(links: &Links, family: Family) -> Option<(u32, &Link, Option<Family>)> {
    let routes = links.default_routes.iter().filter(|route| route.family == family);
    let leaving = routes.filter_map(|route| Some((route.metric, route.link, links.by_index.get(&route.link)?)));
    let (_, index, link) = leaving.min_by(|a, b| (a.0, &a.2.name).cmp(&(b.0, &b.2.name)))?;
    Some((index, link, Some(family)))
}

/// The subnets this node can take local addresses in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// By interface in order of preference; inside one, in the kernel's order.
    served: Vec<Served>,
    /// Subnets of interfaces that are, or may be, the chosen ones and cannot serve now. Their addresses are local ones, of
    /// other nodes for the time being.
    withheld: BTreeSet<IpNet>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Served {
    link: u32,
    net: IpNet,
}

impl Serving {
    /// What the chosen interfaces serve by the addresses that are not ours.
    ///
    /// Where the default route chooses and is lost, what was served before still is, for as long as its interface is usable: a
    /// route that is gone for a moment says nothing about the subnet.
    pub fn resolve(
        links: &Links,
        choice: &LinkChoice,
        before: &BTreeSet<IpNet>,
        is_ours: impl Fn(u32, &HeldAddr) -> bool,
    ) -> Self {
        let mut serving = Self::default();
        let nets = |index: u32, link: &Link, only: Option<Family>| -> Vec<IpNet> {
            let theirs = link.addrs.iter().filter(|held| only.is_none_or(|family| Family::of(held.addr) == family));
            let theirs = theirs.filter(|held| makes_subnet(held) && !is_ours(index, held));
            theirs.filter_map(|held| IpNet::new(held.addr, held.prefix).ok()).map(|net| net.trunc()).collect()
        };
        for (index, link, only) in choice.links(links) {
            nets(index, link, only).into_iter().for_each(|net| serving.enter(index, net, link.up && link.carrier));
        }
        for (index, link, only) in choice.unsure(links) {
            for net in nets(index, link, only).into_iter().filter(|net| !serving.serves(index, net)).collect::<Vec<_>>()
            {
                serving.enter(index, net, link.up && link.carrier && before.contains(&net));
            }
        }
        serving
    }

    fn enter(&mut self, link: u32, net: IpNet, usable: bool) {
        if usable {
            self.served.push(Served { link, net });
        } else {
            self.withheld.insert(net);
        }
    }

    fn serves(&self, link: u32, net: &IpNet) -> bool {
        self.served.contains(&Served { link, net: *net })
    }

    /// Every subnet once, for the lease.
    pub fn subnets(&self) -> BTreeSet<IpNet> {
        self.served.iter().map(|served| served.net).collect()
    }

    /// The interface that takes an address, and the prefix length it gets there.
    pub fn spot(&self, addr: IpAddr) -> Option<(u32, u8)> {
        let link = self.served.iter().find(|served| served.net.contains(&addr))?.link;
        // Of several subnets of one interface the last in the kernel's order counts, as it always did.
        let last = self.served.iter().rfind(|served| served.link == link && served.net.contains(&addr))?;
        Some((link, last.net.prefix_len()))
    }

    /// The subnet of this node that an address lies in and that cannot be served now.
    pub fn withheld(&self, addr: IpAddr) -> Option<IpNet> {
        self.withheld.iter().find(|net| net.contains(&addr)).copied()
    }
}

/// Whether an address says that its subnet is reachable over its interface.
fn makes_subnet(held: &HeldAddr) -> bool {
    match held.addr {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !(held.dad_failed || held.deprecated || held.tentative || v6.is_unicast_link_local()),
    }
}
