//! What the kernel shows, by address, and which of it is ours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::links::{HeldAddr, Link, Links, OUR_PROTOCOL};
use crate::place::Guard;
use crate::plan::{IPVS_LINK, Shown};
use crate::slots::Slots;
use crate::want::{AgentService, State};

/// What the kernel shows.
#[derive(Default)]
pub(super) struct Sight {
    /// As the kernel tells it; `None` before the first complete dump.
    pub links: Option<Links>,
    /// The same addresses by address.
    pub by_addr: BTreeMap<IpAddr, Vec<Shown>>,
    /// Addresses that we put or adopted, for kernels that do not keep our mark.
    pub ours: BTreeSet<(u32, IpAddr, u8)>,
    /// Our addresses on NICs.
    pub on_nics: BTreeSet<IpAddr>,
}

impl Sight {
    /// Where an address is shown.
    pub fn shown(&self, addr: IpAddr) -> &[Shown] {
        self.by_addr.get(&addr).map_or(&[], Vec::as_slice)
    }

    /// Enters an address in place of what was shown of it on that interface.
    pub fn show(&mut self, link: u32, held: HeldAddr) {
        let shown = self.by_addr.entry(held.addr).or_default();
        match shown.iter_mut().find(|(on, there)| *on == link && there.is(held.addr, held.prefix)) {
            Some(there) => there.1 = held,
            None => shown.push((link, held)),
        }
    }

    /// Takes out an address and gives back what was shown of it.
    pub fn hide(&mut self, link: u32, addr: IpAddr, prefix: u8) -> Option<HeldAddr> {
        let shown = self.by_addr.get_mut(&addr)?;
        let at = shown.iter().position(|(on, held)| *on == link && held.is(addr, prefix))?;
        let (_, held) = shown.remove(at);
        if shown.is_empty() {
            self.by_addr.remove(&addr);
        }
        self.ours.remove(&(link, addr, prefix));
        Some(held)
    }

    /// Begins anew with everything that is there.
    pub fn show_all(&mut self, links: &Links) {
        self.by_addr.clear();
        for (index, link) in &links.by_index {
            for held in &link.addrs {
                self.by_addr.entry(held.addr).or_default().push((*index, *held));
            }
        }
        let shown = &self.by_addr;
        self.ours.retain(|(link, addr, prefix)| {
            shown.get(addr).is_some_and(|on| on.iter().any(|(index, held)| index == link && held.prefix == *prefix))
        });
    }

    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.as_ref()?.by_index.get(&index)
    }
}

impl State {
    /// Whether an address was put on an interface by us, in this process or before.
    ///
    /// Our mark says so. Where the kernel keeps none, or where an earlier release left the address: on the virtual
    /// interface, what a Service or the range of a group explains; on a NIC, what the Service says that this node
    /// announces there. Anything else is the operator's.
    pub(super) fn is_ours(&self, link: u32, held: &HeldAddr) -> bool {
        let Some(on) = self.sight.link(link) else { return false };
        if on.name == IPVS_LINK {
            return false;
        }
        let known = || self.sight.ours.contains(&(link, held.addr, held.prefix)) || self.is_explained(on, held.addr);
        held.is_marked() || held.protocol == 0 && known()
    }

    fn is_explained(&self, on: &Link, addr: IpAddr) -> bool {
        if self.told_guarded.get(&addr) == Some(&Guard::Node) {
            return false;
        }
        if on.is_virtual() && self.is_virtual_name(&on.name) {
            return self.by_addr.contains_key(&addr) || self.groups.explain(addr);
        }
        self.holders(addr).iter().any(|service| says_announcing(service, &self.me, &on.name, addr))
    }

    /// Whether a name is or was the one of our virtual interface.
    pub(super) fn is_virtual_name(&self, name: &str) -> bool {
        self.desired.virtual_link.as_deref() == Some(name) || self.desired.former_links.contains(name)
    }

    /// Remembers what is ours of an address, for when its explanation is gone.
    pub(super) fn remember(&mut self, addr: IpAddr) {
        let shown = self.sight.shown(addr);
        if shown.is_empty() {
            self.sight.on_nics.remove(&addr);
            return;
        }
        let ours: Vec<_> = shown.iter().filter(|(link, held)| self.is_ours(*link, held)).copied().collect();
        let on_nic = ours.iter().any(|(link, _)| self.sight.link(*link).is_some_and(|on| !on.is_virtual()));
        if on_nic {
            self.sight.on_nics.insert(addr);
        } else {
            self.sight.on_nics.remove(&addr);
        }
        let unmarked = ours.into_iter().filter(|(_, held)| held.protocol != OUR_PROTOCOL);
        self.sight.ours.extend(unmarked.map(|(link, held)| (link, held.addr, held.prefix)));
    }
}

/// Whether a Service's annotation names this node and interface for an address.
fn says_announcing(service: &AgentService, me: &str, link: &str, addr: IpAddr) -> bool {
    let text = service.announcing[usize::from(addr.is_ipv6())].as_deref().unwrap_or_default();
    let family = || service.addrs.iter().copied().filter(|other| other.is_ipv6() == addr.is_ipv6());
    [Slots::parse(text), Slots::parse_old(text, family())]
        .iter()
        .filter_map(|slots| slots.announcer(addr))
        .any(|slot| slot.node == me && slot.interface == link)
}
