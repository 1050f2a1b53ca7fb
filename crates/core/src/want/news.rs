//! What the kernel tells, and what it means for the addresses.

use std::net::IpAddr;

use crate::links::{HeldAddr, Link, LinkNews, Links, OUR_PROTOCOL};
use crate::moment::Moment;
use crate::plan::{IPVS_LINK, left_behind};
use crate::reason::Reason;
use crate::want::{Change, State};

impl State {
    /// News from the kernel. Before the first complete dump nothing counts.
    pub fn hear_links(&mut self, news: LinkNews, now: Moment) {
        match news {
            LinkNews::Everything(links) => self.hear_everything(links, now),
            _ if self.sight.links.is_none() => {}
            LinkNews::Link(index, link) => self.hear_link(index, link),
            LinkNews::LinkGone(index) => self.hear_link_gone(index, now),
            LinkNews::Addr(index, held) => self.hear_addr(index, held, now),
            LinkNews::AddrGone(index, addr, prefix) => {
                self.hear_addr_gone(index, addr, prefix, now);
                self.enter(LinkNews::AddrGone(index, addr, prefix));
            }
            LinkNews::DefaultRoutes(routes) => {
                self.around.stale = true;
                self.enter(LinkNews::DefaultRoutes(routes));
            }
        }
    }

    fn enter(&mut self, news: LinkNews) {
        if let Some(links) = &mut self.sight.links {
            links.hear(news);
        }
    }

    fn hear_everything(&mut self, links: Links, now: Moment) {
        let before: Vec<_> = self.taken.keys().copied().collect();
        self.work.unsettled.extend(&before);
        self.work.unsettled.extend(self.sight.by_addr.keys());
        self.sight.show_all(&links);
        if self.sight.links.is_none() {
            // Made permanent at the start, nothing else would tell them from an operator's.
            let unmarked = left_behind(&links).filter(|(_, held)| held.protocol != OUR_PROTOCOL);
            self.sight.ours.extend(unmarked.map(|(link, held)| (link, held.addr, held.prefix)));
        }
        self.sight.links = Some(links);
        self.touch_all();
        self.sight.on_nics.clear();
        let shown: Vec<_> = self.sight.by_addr.keys().copied().collect();
        for addr in shown {
            self.remember(addr);
        }
        for addr in before {
            let lost = self.sight.shown(addr).is_empty() && !self.repairs.is_in_flight(addr);
            if lost && self.desired.addrs.contains_key(&addr) {
                self.undone(addr, 0, now);
            }
        }
        self.adopt_former_links();
    }

    /// Virtual interfaces of a configuration that ended before this process began still carry our mark.
    fn adopt_former_links(&mut self) {
        let Some(links) = &self.sight.links else { return };
        let marked = |link: &&Link| link.is_virtual() && link.addrs.iter().any(HeldAddr::is_marked);
        let names = links.by_index.values().filter(marked).map(|link| link.name.as_str());
        let former: Vec<_> =
            names.filter(|name| self.desired.virtual_link.as_deref() != Some(name)).map(Into::into).collect();
        self.desired.former_links.extend(former);
    }

    fn hear_link(&mut self, index: u32, link: Link) {
        let before = self.sight.link(index);
        let renamed = before.is_none_or(|before| before.name != link.name || before.kind != link.kind);
        self.enter(LinkNews::Link(index, link));
        self.around.stale = true;
        self.work.links = true;
        if renamed {
            // Addresses that waited for the interface can go on it now.
            self.work.all = true;
            self.routing.mark_all();
        }
    }

    fn hear_link_gone(&mut self, index: u32, now: Moment) {
        let addrs: Vec<_> = self.sight.link(index).map_or(Vec::new(), |link| link.addrs.clone());
        for held in addrs {
            self.hear_addr_gone(index, held.addr, held.prefix, now);
        }
        let name = self.link_name(index);
        if self.desired.virtual_link.as_deref() == Some(&*name) && self.repairs.link_undone(now) {
            self.changes.push(Change::LinkMeddled { reason: Reason::InterfaceKeepsDisappearing { link: name } });
        }
        self.enter(LinkNews::LinkGone(index));
        self.around.stale = true;
        self.work.links = true;
    }

    fn hear_addr(&mut self, index: u32, held: HeldAddr, now: Moment) {
        let addr = held.addr;
        self.enter(LinkNews::Addr(index, held));
        self.sight.show(index, held);
        self.touch_shown(index, &held);
        if held.dad_failed && self.desired.addrs.contains_key(&addr) && self.is_ours(index, &held) {
            let reason = Reason::AddressDuplicate { addr, link: self.link_name(index) };
            if self.repairs.refused(addr, reason.to_string(), false, now) {
                self.changes.push(Change::Meddled { addr, reason });
            }
        }
    }

    fn hear_addr_gone(&mut self, index: u32, addr: IpAddr, prefix: u8, now: Moment) {
        let Some(held) = self.sight.by_addr.get(&addr).and_then(|shown| {
            shown.iter().find(|(link, held)| *link == index && held.is(addr, prefix)).map(|(_, held)| *held)
        }) else {
            return;
        };
        let wanted = self.desired.addrs.get(&addr).is_some_and(|wanted| {
            wanted.prefix == prefix && self.sight.link(index).is_some_and(|link| *link.name == *wanted.link)
        });
        let expired = held.valid_until.is_some_and(|until| until <= now + std::time::Duration::from_secs(1));
        let ours_to_drop = self.repairs.is_in_flight(addr) || self.repairs.is_dropping(index, addr);
        if wanted && !expired && !ours_to_drop {
            self.undone(addr, index, now);
        }
        self.touch_shown(index, &held);
        self.sight.hide(index, addr, prefix);
        self.remember(addr);
        let former = self.sight.link(index).is_some_and(|link| self.desired.former_links.contains(link.name.as_str()));
        self.work.links |= former;
    }

    /// Has an address looked at again that looks different now.
    fn touch_shown(&mut self, index: u32, held: &HeldAddr) {
        let beside = |link: &Link| link.name == IPVS_LINK || self.is_virtual_name(&link.name);
        let theirs = !self.is_ours(index, held) && !self.sight.link(index).is_some_and(beside);
        self.around.stale |= theirs;
        self.remember(held.addr);
        self.mark_unplanned(held.addr);
        self.work.unsettled.insert(held.addr);
        self.routing.mark(held.addr);
    }
}
