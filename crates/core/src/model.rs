//! A kernel's addresses in memory, quirks included: for tests and for agents that run without a network.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::addr::Family;
use crate::links::{HeldAddr, Link, LinkKind, LinkNews, Links, OUR_PROTOCOL};
use crate::moment::Moment;
use crate::plan::Step;

/// The mark of the link-local addresses that the kernel makes itself.
const KERNEL_LINK_LOCAL: u8 = 3;

/// A kernel that keeps nothing but interfaces, addresses and default routes.
///
/// It does to addresses what Linux does: IPv4 is keyed by address and prefix length, IPv6 by address; the first IPv4
/// address of a subnet takes the others with it unless `promote_secondaries` is on; `noprefixroute` of an IPv4 address
/// never changes; lifetimes end.
#[derive(Clone, Debug)]
pub struct ModelKernel {
    links: Links,
    /// Whether it keeps who put an address (5.18 and later).
    pub keeps_protocol: bool,
    /// Whether it has the dummy device; without one, virtual interfaces are ifb.
    pub has_dummy: bool,
    next_index: u32,
}

impl ModelKernel {
    /// A recent kernel that shows these links.
    pub fn new(links: Links) -> Self {
        let next_index = links.by_index.keys().max().map_or(1, |last| last + 1);
        Self { links, keeps_protocol: true, has_dummy: true, next_index }
    }

    /// What it shows.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Does one step; the news are what a listener on the kernel's notifications hears.
    pub fn apply(&mut self, step: &Step, now: Moment) -> (Result<(), String>, Vec<LinkNews>) {
        let done = match step {
            Step::MakeLink { name } => self.make_link(name),
            Step::SetUp { link } => self.set_up(*link),
            Step::DropLink { link } => self.remove_link(*link),
            Step::PutAddr { .. } => self.put_addr(step, now),
            Step::DropAddr { link, addr, prefix, .. } => self.drop_addr(*link, *addr, *prefix),
        };
        match done {
            Ok(news) => (Ok(()), self.enter(news)),
            Err(problem) => (Err(problem), Vec::new()),
        }
    }

    /// Removes addresses whose lifetime has ended.
    pub fn expire(&mut self, now: Moment) -> Vec<LinkNews> {
        let mut news = Vec::new();
        while let Some((link, addr, prefix)) = self.next_ending().filter(|(ends, ..)| *ends <= now).map(|found| found.1)
        {
            let gone = self.drop_addr(link, addr, prefix).unwrap_or_default();
            news.extend(self.enter(gone));
        }
        news
    }

    /// When the next lifetime ends.
    pub fn next_expiry(&self) -> Option<Moment> {
        self.next_ending().map(|(ends, _)| ends)
    }

    fn next_ending(&self) -> Option<(Moment, (u32, IpAddr, u8))> {
        let all = self.links.by_index.iter().flat_map(|(index, link)| link.addrs.iter().map(|held| (*index, held)));
        let ending = all.filter_map(|(link, held)| Some((held.valid_until?, (link, held.addr, held.prefix))));
        ending.min_by_key(|(ends, _)| *ends)
    }

    /// Somebody adds an address, or changes one that is there.
    pub fn add_addr(&mut self, link: &str, held: HeldAddr) -> Vec<LinkNews> {
        let protocol = if self.keeps_protocol { held.protocol } else { 0 };
        let held = HeldAddr { protocol, ..held };
        let found = self.links.named(link).map(|(index, _)| vec![LinkNews::Addr(index, held)]);
        self.enter(found.unwrap_or_default())
    }

    /// Somebody takes an address off an interface.
    pub fn delete_addr(&mut self, link: &str, addr: IpAddr, prefix: u8) -> Vec<LinkNews> {
        let index = self.links.named(link).map(|(index, _)| index);
        let news = index.and_then(|index| self.drop_addr(index, addr, prefix).ok()).unwrap_or_default();
        self.enter(news)
    }

    /// Somebody deletes an interface.
    pub fn delete_link(&mut self, link: &str) -> Vec<LinkNews> {
        let index = self.links.named(link).map(|(index, _)| index);
        let news = index.and_then(|index| self.remove_link(index).ok()).unwrap_or_default();
        self.enter(news)
    }

    /// Somebody pulls or plugs a cable.
    pub fn set_carrier(&mut self, link: &str, carrier: bool) -> Vec<LinkNews> {
        let index = self.links.named(link).map(|(index, _)| index);
        let news =
            index.and_then(|index| self.change_link(index, |link| link.carrier = carrier).ok()).unwrap_or_default();
        self.enter(news)
    }

    /// Somebody switches `promote_secondaries` of an interface.
    pub fn set_promotion(&mut self, link: &str, promote: bool) -> Vec<LinkNews> {
        let index = self.links.named(link).map(|(index, _)| index);
        let change = |link: &mut Link| link.promote_secondaries = Some(promote);
        let news = index.and_then(|index| self.change_link(index, change).ok()).unwrap_or_default();
        self.enter(news)
    }

    fn enter(&mut self, news: Vec<LinkNews>) -> Vec<LinkNews> {
        for news in &news {
            self.links.hear(news.clone());
        }
        news
    }

    fn make_link(&mut self, name: &str) -> Result<Vec<LinkNews>, String> {
        if self.links.named(name).is_some() {
            // Another was quicker, and one is as good as the other.
            return Ok(Vec::new());
        }
        let index = self.next_index;
        self.next_index += 1;
        let link = Link {
            name: name.to_owned(),
            kind: if self.has_dummy { LinkKind::Dummy } else { LinkKind::Ifb },
            up: false,
            carrier: false,
            mac: Some([2, 0, 0, 0, 0, index.to_le_bytes()[0]]),
            promote_secondaries: Some(false),
            addrs: Vec::new(),
        };
        Ok(vec![LinkNews::Link(index, link)])
    }

    fn change_link(&mut self, index: u32, change: impl FnOnce(&mut Link)) -> Result<Vec<LinkNews>, String> {
        let mut link = Link { addrs: Vec::new(), ..self.link(index)?.clone() };
        change(&mut link);
        Ok(vec![LinkNews::Link(index, link)])
    }

    /// An interface that is switched on gets an address of the kernel's own.
    fn set_up(&mut self, index: u32) -> Result<Vec<LinkNews>, String> {
        let mut news = self.change_link(index, |link| {
            (link.up, link.carrier, link.promote_secondaries) = (true, true, Some(true));
        })?;
        let link_local = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
        if !self.link(index)?.addrs.iter().any(|held| held.is(link_local, 64)) {
            let protocol = if self.keeps_protocol { KERNEL_LINK_LOCAL } else { 0 };
            news.push(LinkNews::Addr(index, HeldAddr { protocol, ..HeldAddr::plain(link_local, 64) }));
        }
        Ok(news)
    }

    fn remove_link(&mut self, index: u32) -> Result<Vec<LinkNews>, String> {
        let gone = self.link(index)?.addrs.iter().map(|held| LinkNews::AddrGone(index, held.addr, held.prefix));
        let mut news: Vec<_> = gone.collect();
        let routes = &self.links.default_routes;
        if routes.iter().any(|route| route.link == index) {
            let left = routes.iter().filter(|route| route.link != index).copied().collect();
            news.push(LinkNews::DefaultRoutes(left));
        }
        news.push(LinkNews::LinkGone(index));
        Ok(news)
    }

    fn put_addr(&mut self, step: &Step, now: Moment) -> Result<Vec<LinkNews>, String> {
        let Step::PutAddr { link, addr, prefix, no_prefix_route, no_dad, valid, preferred, .. } = step else {
            return Err("not an address".to_owned());
        };
        let there = self.link(*link)?.addrs.iter().find(|held| held.is(*addr, *prefix));
        if there.is_some_and(|held| held.prefix != *prefix) {
            return Err("File exists (os error 17)".to_owned());
        }
        if *valid == Some(0) {
            return Err("Invalid argument (os error 22)".to_owned());
        }
        let kept = there.filter(|_| addr.is_ipv4()).map(|held| held.no_prefix_route);
        let valid_until = valid.map(|seconds| now + std::time::Duration::from_secs(u64::from(seconds)));
        let held = HeldAddr {
            no_prefix_route: kept.unwrap_or(*no_prefix_route),
            no_dad: *no_dad,
            deprecated: valid.is_some() && *preferred == 0,
            valid_until,
            protocol: if self.keeps_protocol { OUR_PROTOCOL } else { 0 },
            ..HeldAddr::plain(*addr, *prefix)
        };
        Ok(vec![LinkNews::Addr(*link, held)])
    }

    fn drop_addr(&mut self, index: u32, addr: IpAddr, prefix: u8) -> Result<Vec<LinkNews>, String> {
        let link = self.link(index)?;
        let held = link.addrs.iter().find(|held| held.is(addr, prefix)).filter(|held| held.prefix == prefix);
        let held = held.ok_or("Cannot assign requested address (os error 99)")?;
        let mut news = vec![LinkNews::AddrGone(index, addr, prefix)];
        if Family::of(addr) == Family::V4 && link.promote_secondaries != Some(true) {
            let mut of_subnet = link.addrs.iter().filter(|other| subnet(other) == subnet(held));
            if of_subnet.next() == Some(held) {
                news.extend(of_subnet.map(|other| LinkNews::AddrGone(index, other.addr, other.prefix)));
            }
        }
        Ok(news)
    }

    fn link(&self, index: u32) -> Result<&Link, String> {
        self.links.by_index.get(&index).ok_or_else(|| "No such device (os error 19)".to_owned())
    }
}

fn subnet(held: &HeldAddr) -> Option<IpNet> {
    IpNet::new(held.addr, held.prefix).ok().map(|net| net.trunc())
}
