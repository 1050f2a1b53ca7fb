//! Which routes routers are to be told, and which addresses wait until theirs are taken back.
//!
//! A route is told only while the kernel shows an address that makes it, and an address leaves after its route: a router
//! must never send traffic to a node that does not answer for it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::bgp::{import_matches, imported};
use crate::links::{HeldAddr, Link};
use crate::moment::Moment;
use crate::place::Origin;
use crate::want::State;

/// How long an address waits for routers to forget its route. One that does not answer must not keep it for ever.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an address stays once they were told: a router that has heard it still has to change its own kernel, and
/// sends traffic until then.
const AFTERGLOW: Duration = Duration::from_millis(200);

/// The groups that the addresses of a route come from; none for an address that somebody else put there.
pub type Groups = BTreeSet<Arc<str>>;

/// Each route with its groups. Whoever tells routers holds the same one: a new route copies no other.
pub type Routes = BTreeMap<IpNet, Arc<Groups>>;

/// What routers are to be told.
#[derive(Default)]
pub(super) struct Routing {
    /// The interfaces whose addresses make routes, as names or patterns.
    interfaces: Vec<String>,
    /// Each route with the addresses that make it.
    makers: BTreeMap<IpNet, BTreeMap<IpAddr, Arc<Groups>>>,
    /// Each route with the groups of all of them.
    routes: Arc<Routes>,
    /// The routes that each address makes.
    made: BTreeMap<IpAddr, BTreeSet<IpNet>>,
    /// Addresses on this node's NICs that are not its own.
    fleeting: BTreeSet<IpAddr>,
    /// Routes that routers are to forget.
    going: BTreeMap<IpNet, Going>,
    /// Addresses that wait for that, and until when.
    waiting: BTreeMap<IpAddr, Moment>,
    /// How often anything of this has changed.
    version: u64,
    /// Addresses to look at again.
    unlooked: BTreeSet<IpAddr>,
    /// All of them.
    all: bool,
}

/// A route that is told no longer.
#[derive(Clone, Copy)]
struct Going {
    /// Since this version.
    version: u64,
    /// Until when its addresses wait.
    until: Moment,
    /// No router has it any more.
    forgotten: bool,
}

impl Routing {
    /// Has an address looked at again.
    pub fn mark(&mut self, addr: IpAddr) {
        self.unlooked.insert(addr);
    }

    /// Has all addresses looked at again.
    pub fn mark_all(&mut self) {
        self.all = true;
    }

    fn imports(&self, link: &str) -> bool {
        self.interfaces.iter().any(|pattern| import_matches(pattern, link))
    }

    /// An address makes these routes now.
    fn enter(&mut self, addr: IpAddr, nets: BTreeSet<IpNet>, groups: &Arc<Groups>, now: Moment) {
        let before = self.made.remove(&addr).unwrap_or_default();
        let gone: Vec<_> = before.difference(&nets).copied().collect();
        let news = nets.iter().any(|net| self.makers.get(net).and_then(|made| made.get(&addr)) != Some(groups));
        if gone.is_empty() && !news {
            self.made.extend((!nets.is_empty()).then_some((addr, nets)));
            return;
        }
        self.version += 1;
        for net in gone {
            let made = self.makers.entry(net).or_default();
            made.remove(&addr);
            if made.is_empty() {
                self.makers.remove(&net);
                let until = now + PATIENCE;
                self.going.insert(net, Going { version: self.version, until, forgotten: false });
            }
            self.sum_up(net);
        }
        for net in &nets {
            self.going.remove(net);
            self.makers.entry(*net).or_default().insert(addr, groups.clone());
            self.sum_up(*net);
        }
        self.made.extend((!nets.is_empty()).then_some((addr, nets)));
    }

    /// Other addresses make a route than before, or none.
    fn sum_up(&mut self, net: IpNet) {
        let routes = Arc::make_mut(&mut self.routes);
        let Some(made) = self.makers.get(&net) else { return drop(routes.remove(&net)) };
        let mut groups = made.values();
        let groups = match (groups.next(), groups.len()) {
            (Some(only), 0) => only.clone(),
            _ => Arc::new(made.values().flat_map(|groups| groups.iter()).cloned().collect()),
        };
        routes.insert(net, groups);
    }

    fn set_fleeting(&mut self, addr: IpAddr, fleeting: bool) {
        let news = if fleeting { self.fleeting.insert(addr) } else { self.fleeting.remove(&addr) };
        self.version += u64::from(news);
    }

    /// Until when an address of this route waits, if it does.
    fn waits(&self, addr: IpAddr, prefix: u8, now: Moment) -> Option<Moment> {
        if self.going.is_empty() {
            return None;
        }
        let net = IpNet::new(addr, prefix).ok()?.trunc();
        self.going.get(&net).map(|going| going.until).filter(|until| now < *until)
    }
}

impl State {
    /// The interfaces whose addresses make routes, as names or patterns; none while no router is to be told anything.
    pub fn set_imported(&mut self, interfaces: Vec<String>) {
        if interfaces != self.routing.interfaces {
            self.routing.interfaces = interfaces;
            self.routing.mark_all();
        }
    }

    /// What routers are to be told, as of the last [`State::want`].
    pub fn routes(&self) -> &Arc<Routes> {
        &self.routing.routes
    }

    /// The addresses that make a route.
    pub fn makers(&self, net: &IpNet) -> impl Iterator<Item = IpAddr> {
        self.routing.makers.get(net).into_iter().flat_map(|made| made.keys().copied())
    }

    /// Addresses that come and go beside this node's own, so that nobody may use them as such. Those on a virtual
    /// interface are not among them: no session begins there, and each Service would be news to all of them.
    pub fn fleeting(&self) -> &BTreeSet<IpAddr> {
        &self.routing.fleeting
    }

    /// A number that is another whenever [`State::routes`] or [`State::fleeting`] are.
    pub fn routes_version(&self) -> u64 {
        self.routing.version
    }

    /// Whether an address waits for routers to forget its route.
    pub fn waits_for_routers(&self) -> bool {
        !self.routing.waiting.is_empty()
    }

    /// Whoever tells routers acts on this version of the routes by now; whether some router listens, and has a route.
    pub fn hear_routers(&mut self, acts_on: u64, listening: bool, is_told: impl Fn(&IpNet) -> bool, now: Moment) {
        let rest = if listening { AFTERGLOW } else { Duration::ZERO };
        self.routing.going.retain(|_, going| !going.forgotten || now < going.until);
        let mut news = false;
        for (net, going) in &mut self.routing.going {
            if !going.forgotten && acts_on >= going.version && !is_told(net) {
                (going.forgotten, going.until, news) = (true, going.until.min(now + rest), true);
            }
        }
        if news {
            let waiting = std::mem::take(&mut self.routing.waiting);
            waiting.into_keys().for_each(|addr| self.mark_unplanned(addr));
        }
    }

    /// Finds out anew which routes the addresses that may have changed make.
    pub(super) fn look_at_routes(&mut self, now: Moment) {
        // Also of addresses that nobody plans for, because not enough is known.
        self.routing.waiting.retain(|_, until| now < *until);
        let mut unlooked = std::mem::take(&mut self.routing.unlooked);
        if std::mem::take(&mut self.routing.all) {
            unlooked.extend(self.routing.made.keys());
            unlooked.extend(self.sight.by_addr.keys());
        }
        for addr in unlooked {
            let shown = self.sight.shown(addr);
            let made = shown.iter().filter(|(link, held)| self.makes_route(*link, held));
            let nets: BTreeSet<_> =
                made.filter_map(|(_, held)| imported(IpNet::new(addr, held.prefix).ok()?)).collect();
            let groups = if nets.is_empty() { Groups::new() } else { self.groups_of(addr) };
            let fleets = |(link, held): &(u32, HeldAddr)| {
                self.is_beside_own(*link) && (self.by_addr.contains_key(&addr) || self.is_ours(*link, held))
            };
            let fleeting = shown.iter().any(fleets);
            self.routing.set_fleeting(addr, fleeting);
            self.routing.enter(addr, nets, &Arc::new(groups), now);
        }
    }

    /// Whether an interface may have addresses of the node itself.
    fn is_beside_own(&self, link: u32) -> bool {
        self.sight.link(link).is_none_or(|on| !on.is_virtual())
    }

    /// Whether an address on an interface makes a route. While not enough is known, what is there stays told.
    fn makes_route(&self, link: u32, held: &HeldAddr) -> bool {
        let Some(on) = self.sight.link(link).filter(|on| self.routing.imports(&on.name)) else { return false };
        let usable = !held.tentative && !held.dad_failed;
        usable && (!self.is_ready() || self.is_wanted(on, held) || !self.is_ours(link, held))
    }

    fn is_wanted(&self, on: &Link, held: &HeldAddr) -> bool {
        let wanted = self.desired.addrs.get(&held.addr);
        wanted.is_some_and(|wanted| *wanted.link == *on.name && wanted.prefix == held.prefix)
    }

    /// The groups an address comes from, as its Services say, or else the ranges.
    fn groups_of(&self, addr: IpAddr) -> Groups {
        let holders = self.holders(addr);
        let said: Groups = holders.iter().filter_map(|service| Some(service.from.as_deref()?.into())).collect();
        if !said.is_empty() || holders.is_empty() {
            return said;
        }
        match self.groups.of(addr, None, None) {
            Origin::Range(group, _) | Origin::Elsewhere(group) => [group.name.as_str().into()].into(),
            Origin::Orphan { .. } => Groups::new(),
        }
    }

    /// Whether an address must stay for a moment, because routers may still have the route to it.
    ///
    /// A NIC's never does: another node may be about to take it.
    pub(super) fn waits(&self, link: u32, held: &HeldAddr, now: Moment) -> bool {
        let until = self.routing.waits(held.addr, held.prefix, now);
        until.is_some() && self.sight.link(link).is_some_and(Link::is_virtual)
    }

    /// Has an address that waits looked at again when its time is over, if not before.
    pub(super) fn wait(&mut self, addr: IpAddr, now: Moment) {
        let shown = self.sight.shown(addr).iter();
        let until = shown.filter_map(|(_, held)| self.routing.waits(addr, held.prefix, now)).max();
        if let Some(until) = until {
            self.routing.waiting.insert(addr, until);
            self.work.alarms.insert((until, addr));
        }
    }

    /// An address is looked at, and may wait no longer.
    pub(super) fn waits_no_longer(&mut self, addr: IpAddr) {
        self.routing.waiting.remove(&addr);
    }
}
