//! The difference between wish and kernel, one address after the other, put in an order that loses no sibling.
//!
//! Two quirks of IPv4 decide the order. An address is keyed by its prefix length too, so a new length is added before the
//! old one goes. And where `promote_secondaries` is off, the first address of a subnet takes all others with it when it
//! goes, so those are put back in the same breath. IPv6 keys by the address alone: the old length goes first.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use crate::addr::Family;
use crate::links::{HeldAddr, Link, Links, OUR_LIFETIME, OUR_PROTOCOL};
use crate::moment::Moment;
use crate::plan::{Desired, IPVS_LINK, Lifetime, Ownership, Step, WantedAddr, Why, lasting, whole_seconds};

/// An address as it is shown on one interface.
pub(crate) type Shown = (u32, HeldAddr);

/// Collects the steps of one plan.
pub(crate) struct Planner<'a> {
    desired: &'a Desired,
    links: &'a Links,
    by_name: BTreeMap<&'a str, u32>,
    now: Moment,
    own: Ownership<'a>,
    /// Whether the kernel keeps our mark, so that it is worth writing.
    marks: bool,
    on_links: Vec<Step>,
    /// Addresses that are to be held by nobody here.
    drops: Vec<Step>,
    puts: Vec<Step>,
    /// Old forms of addresses that `puts` gives a new one.
    outdated: Vec<Step>,
    /// Drop, then put: where the kernel allows no other order.
    swaps: Vec<Step>,
    /// Addresses that would go if routers had forgotten them.
    waiting: Vec<IpAddr>,
}

impl<'a> Planner<'a> {
    /// A plan without steps yet.
    pub(crate) fn new(desired: &'a Desired, links: &'a Links, now: Moment, own: Ownership<'a>) -> Self {
        let by_name = links.by_index.iter().map(|(index, link)| (link.name.as_str(), *index)).collect();
        let marks = links.keeps_protocol();
        let (on_links, drops, puts, outdated, swaps, waiting) = Default::default();
        Self { desired, links, by_name, now, own, marks, on_links, drops, puts, outdated, swaps, waiting }
    }

    /// How many steps there are so far.
    pub(crate) fn len(&self) -> usize {
        self.on_links.len() + self.drops.len() + self.puts.len() + self.outdated.len() + self.swaps.len()
    }

    /// Makes, switches on and removes virtual interfaces.
    pub(crate) fn links(&mut self) {
        if let Some(name) = &self.desired.virtual_link {
            match self.by_name.get(&**name).and_then(|index| Some((*index, self.links.by_index.get(index)?))) {
                None => self.on_links.push(Step::MakeLink { name: name.to_string() }),
                Some((index, link)) if !link.up || link.promote_secondaries == Some(false) => {
                    self.on_links.push(Step::SetUp { link: index });
                }
                Some(_) => {}
            }
        }
        let former = self.desired.former_links.iter().filter_map(|name| self.by_name.get(&**name));
        let bare = former.filter(|index| self.links.by_index.get(index).is_some_and(is_bare));
        self.on_links.extend(bare.map(|index| Step::DropLink { link: *index }));
    }

    /// Removes interfaces with all that is on them.
    pub(crate) fn drop_links(&mut self, links: &BTreeSet<u32>) {
        let drops = links.iter().map(|link| Step::DropLink { link: *link });
        let new: Vec<_> = drops.filter(|drop| !self.on_links.contains(drop)).collect();
        self.on_links.extend(new);
    }

    /// What to do for one address that is shown like this.
    pub(crate) fn addr(&mut self, addr: IpAddr, shown: &[Shown]) {
        let Some(wanted) = self.desired.addrs.get(&addr) else {
            for on in shown {
                if self.is_ours(on) && !self.waits(on) {
                    self.drops.push(drop_of(on, (self.own.why)(addr)));
                }
            }
            return;
        };
        // Until its interface is there, an address stays where it is.
        let Some(&index) = self.by_name.get(&*wanted.link) else { return };
        let mut there = false;
        for on @ (link, held) in shown {
            if *link == index && held.prefix == wanted.prefix {
                there = true;
                self.adjust(on, wanted);
            } else if self.is_ours(on) {
                there |= self.replace_form(on, index, wanted);
            } else if *link == index && addr.is_ipv6() {
                // An operator's, with another prefix length. The kernel takes no second one, and theirs is kept.
                there = true;
            }
        }
        if !there {
            let put = self.put(addr, index, wanted, false);
            self.puts.extend(put);
        }
    }

    /// The right address in the right place, but perhaps with other flags or a lifetime that ends too soon.
    fn adjust(&mut self, on: &Shown, wanted: &WantedAddr) {
        let (link, held) = on;
        if !self.is_ours(on) {
            return;
        }
        let stuck = held.addr.is_ipv4() && held.no_prefix_route != wanted.no_prefix_route;
        if stuck || held.dad_failed {
            let put = self.put(held.addr, *link, wanted, false);
            if put.is_some() {
                self.swaps.push(drop_of(on, Why::Changed));
                self.swaps.extend(put);
            }
        } else if self.is_stale(held, wanted) {
            let put = self.put(held.addr, *link, wanted, true);
            self.puts.extend(put);
        }
    }

    /// Our address in another place or with another prefix length; tells whether its new form is seen to.
    fn replace_form(&mut self, on: &Shown, index: u32, wanted: &WantedAddr) -> bool {
        let (link, held) = on;
        let drop = drop_of(on, Why::Changed);
        let waits = self.waits(on);
        if *link != index || held.addr.is_ipv4() {
            self.outdated.extend((!waits).then_some(drop));
            return false;
        }
        if waits {
            return true;
        }
        self.swaps.push(drop);
        let put = self.put(held.addr, index, wanted, false);
        self.swaps.extend(put);
        true
    }

    fn is_ours(&self, (link, held): &Shown) -> bool {
        let name = self.links.by_index.get(link).map(|link| link.name.as_str());
        name != Some(IPVS_LINK) && (self.own.is_ours)(*link, held)
    }

    /// Whether an address cannot go yet; remembered, so that it is looked at again.
    fn waits(&mut self, (link, held): &Shown) -> bool {
        let waits = (self.own.waits)(*link, held);
        self.waiting.extend(waits.then_some(held.addr));
        waits
    }

    /// Addresses that would go if routers had forgotten them.
    pub(crate) fn waiting(&self) -> &[IpAddr] {
        &self.waiting
    }

    fn is_stale(&self, held: &HeldAddr, wanted: &WantedAddr) -> bool {
        let unmarked = self.marks && held.protocol != OUR_PROTOCOL;
        let flags = held.no_prefix_route != wanted.no_prefix_route;
        let deprecated = match wanted.lifetime {
            Lifetime::Forever => false,
            Lifetime::Until { preferred, .. } => whole_seconds(self.now, preferred) == 0,
        };
        unmarked || flags || held.deprecated != deprecated || self.ends_otherwise(held, wanted.lifetime)
    }

    /// Whether the kernel removes an address at another time than wished. It counts in whole seconds.
    fn ends_otherwise(&self, held: &HeldAddr, wanted: Lifetime) -> bool {
        match (held.valid_until, wanted) {
            (None, Lifetime::Forever) => !self.marks,
            (Some(_), Lifetime::Forever) => self.marks || !held.has_our_lifetime(),
            (None, Lifetime::Until { .. }) => true,
            (Some(ends), Lifetime::Until { valid, .. }) => {
                // What the kernel shows is rounded up while it counts down, so it may seem up to a second late.
                valid.since(ends) >= Duration::from_secs(1) || ends.since(valid) > Duration::from_millis(1500)
            }
        }
    }

    /// The step that puts an address; none if it would end within a second.
    fn put(&self, addr: IpAddr, link: u32, wanted: &WantedAddr, refresh: bool) -> Option<Step> {
        let (valid, preferred) = match wanted.lifetime {
            Lifetime::Forever => (lasting(self.marks), OUR_LIFETIME),
            Lifetime::Until { valid, preferred } => {
                let valid = whole_seconds(self.now, valid);
                (Some(valid), whole_seconds(self.now, preferred).min(valid))
            }
        };
        let WantedAddr { prefix, no_prefix_route, no_dad, .. } = *wanted;
        let step = Step::PutAddr { link, addr, prefix, no_prefix_route, no_dad, valid, preferred, refresh };
        (valid != Some(0)).then_some(step)
    }

    /// All steps in their order.
    pub(crate) fn finish(self) -> Vec<Step> {
        let (rescue, reassert) = self.siblings();
        let parts = [self.on_links, rescue, self.drops, self.puts, self.outdated, self.swaps, reassert];
        parts.into_iter().flatten().collect()
    }

    /// Addresses that the kernel would take away together with one that goes: those that get another form anyway are
    /// given it before, the others are put back after.
    fn siblings(&self) -> (Vec<Step>, Vec<Step>) {
        let all_drops = self.drops.iter().chain(&self.outdated).chain(&self.swaps);
        let nets: BTreeSet<(u32, IpNet)> = all_drops.filter_map(|step| self.takes_others(step)).collect();
        if nets.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let put: BTreeSet<(u32, IpAddr)> = self.puts.iter().chain(&self.swaps).filter_map(put_on).collect();
        let (mut rescue, mut reassert) = (Vec::new(), Vec::new());
        for (index, net) in nets {
            let Some(link) = self.links.by_index.get(&index) else { continue };
            for held in link.addrs.iter().filter(|held| subnet(held) == Some(net)) {
                let wanted = self.desired.addrs.get(&held.addr);
                let Some(wanted) = wanted.filter(|wanted| *wanted.link == *link.name) else { continue };
                if wanted.prefix == held.prefix {
                    reassert.extend(self.put(held.addr, index, wanted, false));
                } else if !put.contains(&(index, held.addr)) {
                    rescue.extend(self.put(held.addr, index, wanted, false));
                }
            }
        }
        (rescue, reassert)
    }

    /// The subnet whose other addresses go with an address that is dropped.
    fn takes_others(&self, step: &Step) -> Option<(u32, IpNet)> {
        let Step::DropAddr { link: index, addr, prefix, .. } = step else { return None };
        let link = self.links.by_index.get(index)?;
        if link.promote_secondaries == Some(true) || *prefix == Family::of(*addr).max_prefix() {
            return None;
        }
        let net = IpNet::new(*addr, *prefix).ok()?.trunc();
        let primary = link.addrs.iter().find(|held| subnet(held) == Some(net))?;
        (addr.is_ipv4() && primary.addr == *addr).then_some((*index, net))
    }
}

/// Whether a virtual interface has nothing on it but what the kernel puts there itself.
fn is_bare(link: &Link) -> bool {
    link.is_virtual() && link.addrs.iter().all(HeldAddr::is_kernels)
}

fn subnet(held: &HeldAddr) -> Option<IpNet> {
    IpNet::new(held.addr, held.prefix).ok().map(|net| net.trunc())
}

fn drop_of((link, held): &Shown, why: Why) -> Step {
    Step::DropAddr { link: *link, addr: held.addr, prefix: held.prefix, why }
}

fn put_on(step: &Step) -> Option<(u32, IpAddr)> {
    match step {
        Step::PutAddr { link, addr, .. } => Some((*link, *addr)),
        _ => None,
    }
}
