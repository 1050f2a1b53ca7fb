//! The wish for each address: what [`State::want`] decides.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::addr::Family;
use crate::agent::{AddressOptions, AgentConfig, Garp};
use crate::links::{Link, LinkKind, Links};
use crate::moment::Moment;
use crate::place::{Guard, Origin, Serving, Spot, Surroundings, place};
use crate::plan::{IPVS_LINK, Lifetime, WantedAddr, Why};
use crate::reason::Reason;
use crate::want::near::Preferred;
use crate::want::{AgentService, Around, Change, Leaving, PolicyWish, State, Verdict};

/// Lifetimes that a user wrote are at least this long, as they always were.
const SHORTEST_LIFETIME: u32 = 60;

/// An address to decide about, and what it is decided by.
#[derive(Clone, Copy)]
struct Case<'a> {
    addr: IpAddr,
    /// The Services that have it.
    holders: &'a [Arc<AgentService>],
    config: &'a AgentConfig,
    now: Moment,
}

impl State {
    /// Brings the wishes up to date; tells when to ask again although nothing happened.
    pub fn want(&mut self, now: Moment) -> Option<Moment> {
        self.work.looked = now;
        let changes = self.members.look(now);
        self.members_changed(changes);
        self.look_at_fence(now);
        self.look_at_joining(now);
        self.ring(now);
        if self.is_ready() {
            self.lease.started.get_or_insert(now);
            self.look_around();
            for addr in self.take_unwished() {
                self.wish(addr, now);
            }
            let changed = std::mem::take(&mut self.work.changed);
            let changed: Vec<_> = changed.iter().filter_map(|key| self.services.get(key).cloned()).collect();
            self.look_at_policies(&changed);
        }
        self.look_at_routes(now);
        self.next_wake()
    }

    /// When to ask again although nothing happened. Steps that were given meanwhile may have brought it forward.
    pub fn next_wake(&self) -> Option<Moment> {
        let fence = self.lease.fence.filter(|_| !self.work.mine.is_empty());
        let alarm = self.work.alarms.first().map(|(moment, _)| *moment);
        // What is due already was planned with the last look.
        let links = self.repairs.links_until().filter(|until| self.work.links && *until > self.work.looked);
        [self.members.next_wake(), fence, alarm, links, self.joins_at()].into_iter().flatten().min()
    }

    /// Marks addresses whose time has come.
    fn ring(&mut self, now: Moment) {
        while let Some((_, addr)) = self.work.alarms.first().copied().filter(|(moment, _)| *moment <= now) {
            self.work.alarms.pop_first();
            self.work.unwished.insert(addr);
            self.mark_unplanned(addr);
        }
    }

    fn take_unwished(&mut self) -> BTreeSet<IpAddr> {
        let mut unwished = std::mem::take(&mut self.work.unwished);
        if std::mem::take(&mut self.work.all) {
            unwished.extend(self.by_addr.keys());
            unwished.extend(self.verdicts.keys());
            let shown: Vec<_> = self.sight.by_addr.keys().copied().collect();
            shown.into_iter().for_each(|addr| self.mark_unplanned(addr));
        }
        unwished
    }

    /// Looks again at what surrounds the addresses; if it is different, every wish may be.
    fn look_around(&mut self) {
        if !std::mem::take(&mut self.around.stale) {
            return;
        }
        let Some(links) = &self.sight.links else { return };
        let before = self.served_before();
        let resolve = |choice| Serving::resolve(links, choice, &before, |link, held| self.is_ours(link, held));
        let serving = self.choice.as_ref().map(resolve).unwrap_or_default();
        let guarded = self.guarded_addresses();
        let node_subnets = self.members.subnets().collect();
        let around = Around { stale: false, known: true, serving, guarded, node_subnets };
        let same = (&around.serving, &around.guarded, &around.node_subnets)
            == (&self.around.serving, &self.around.guarded, &self.around.node_subnets);
        self.around = around;
        self.work.all |= !same;
    }

    /// The subnets this node served until now; at first those that its predecessor said in the lease.
    fn served_before(&self) -> BTreeSet<IpNet> {
        if self.around.known {
            return self.around.serving.subnets();
        }
        self.members.lease(&self.me).map(|own| own.subnets.clone()).unwrap_or_default()
    }

    /// What must not be announced: as told, the gateways, and this node's own addresses.
    fn guarded_addresses(&self) -> BTreeMap<IpAddr, Guard> {
        let mut guarded = self.told_guarded.clone();
        // A DNS server, an API server or a peer that is a Service of ours is not captured but announced.
        guarded.retain(|addr, guard| guard.forbids() || !self.by_addr.contains_key(addr));
        let Some(links) = &self.sight.links else { return guarded };
        // Who is a gateway or a Node beside something else must not be announced all the same.
        for gateway in self.gateways().chain(self.lost_gateways(links)) {
            let known = guarded.entry(gateway).or_insert(Guard::Gateway);
            *known = if known.forbids() { *known } else { Guard::Gateway };
        }
        let own = links.by_index.iter().filter(|(_, link)| link.name != IPVS_LINK && !self.is_virtual_name(&link.name));
        for (index, link) in own {
            let theirs = link.addrs.iter().filter(|held| !self.is_ours(*index, held));
            for held in theirs.filter(|held| !is_link_local(held.addr) && !self.is_doubled(link, held.addr)) {
                let known = guarded.entry(held.addr).or_insert(Guard::Node);
                *known = if known.forbids() { *known } else { Guard::Node };
            }
        }
        guarded
    }

    /// The gateways of a family whose default routes are all gone: they are still somebody else's addresses.
    fn lost_gateways(&self, links: &Links) -> impl Iterator<Item = IpAddr> {
        let known = self.around.guarded.iter().filter(|(_, guard)| **guard == Guard::Gateway).map(|(addr, _)| *addr);
        let has_route = |addr: IpAddr| links.default_routes.iter().any(|route| route.family == Family::of(addr));
        known.filter(move |addr| !has_route(*addr))
    }

    /// Whether a Service's address is also where no neighbour can ask for it: somebody else serves it there too, such as
    /// a proxy. A Node's own address is known from its status.
    fn is_doubled(&self, link: &Link, addr: IpAddr) -> bool {
        matches!(link.kind, LinkKind::Dummy | LinkKind::Ifb | LinkKind::Loopback) && self.by_addr.contains_key(&addr)
    }

    /// Brings the wish for one address up to date.
    fn wish(&mut self, addr: IpAddr, now: Moment) {
        self.remember(addr);
        self.work.mine.remove(&addr);
        self.work.waiting.remove(&addr);
        self.work.claims.remove(&addr);
        self.work.astray.remove(&addr);
        let holders = self.by_addr.get(&addr).cloned();
        let judged = holders.as_deref().map(|holders| self.judge(addr, holders, now));
        if !self.work.mine.contains(&addr) {
            self.work.holding.remove(&addr);
        }
        let (verdict, wanted) = judged.map_or((None, None), |(verdict, wanted)| (Some(verdict), wanted));
        match verdict {
            Some(verdict) => drop(self.verdicts.insert(addr, verdict)),
            None => {
                self.elections.forget(addr);
                self.work.awaited.remove(&addr);
                self.verdicts.remove(&addr);
            }
        }
        // What is neither here nor wanted here needs no comparison; on most nodes that is most local addresses.
        if wanted.is_some() || !self.sight.shown(addr).is_empty() {
            self.mark_unplanned_for(addr, self.turn(addr, wanted.as_ref()));
        }
        match wanted {
            Some(wanted) => drop(self.desired.addrs.insert(addr, wanted)),
            None => {
                self.desired.addrs.remove(&addr);
                self.work.ends.remove(&addr);
            }
        }
        self.work.unsettled.insert(addr);
        self.routing.mark(addr);
        self.look_at_policies(holders.as_deref().unwrap_or_default());
    }

    /// Decides about an address that Services have.
    fn judge(&mut self, addr: IpAddr, holders: &[Arc<AgentService>], now: Moment) -> (Verdict, Option<WantedAddr>) {
        let Some(config) = self.config.clone() else { return (Verdict::NoConfig, None) };
        let case = Case { addr, holders, config: &config, now };
        let spot = self.spot(addr, holders);
        if !matches!(spot, Spot::Local { .. }) {
            self.elections.forget(addr);
            self.work.awaited.remove(&addr);
        }
        match (spot, self.leaving) {
            (Spot::Nowhere(reason), _) => (Verdict::Nowhere(reason), None),
            (Spot::Local { .. }, Some(_)) | (Spot::Virtual { .. }, Some(Leaving::Go)) => (Verdict::Leaving, None),
            (Spot::Virtual { prefix }, _) => self.judge_virtual(case, prefix),
            (Spot::Local { link, prefix }, None) => self.judge_local(case, link, prefix),
        }
    }

    fn spot(&self, addr: IpAddr, holders: &[Arc<AgentService>]) -> Spot {
        let origins =
            holders.iter().map(|service| self.groups.of(addr, service.from.as_deref(), service.pool_type.as_deref()));
        // Of Services that share the address one may know more than another.
        let origin = origins.min_by_key(|origin| matches!(origin, Origin::Orphan { .. }));
        let origin = origin.unwrap_or(Origin::Orphan { local: false });
        let before = if matches!(origin, Origin::Orphan { .. }) { self.virtual_prefix(addr) } else { None };
        let Around { serving, guarded, node_subnets, .. } = &self.around;
        place(addr, origin, before, &Surroundings { serving, guarded, node_subnets })
    }

    /// The prefix length an address has on the virtual interface, or should have there if somebody has just deleted it.
    fn virtual_prefix(&self, addr: IpAddr) -> Option<u8> {
        let name = self.desired.virtual_link.as_ref()?;
        let on_virtual = |link| self.sight.link(link).is_some_and(|link| *link.name == **name);
        let shown = self.sight.shown(addr).iter().find(|(link, _)| on_virtual(*link)).map(|(_, held)| held.prefix);
        let wished = || self.desired.addrs.get(&addr).filter(|wanted| wanted.link == *name).map(|wanted| wanted.prefix);
        shown.or_else(wished)
    }

    /// The Services that have an address.
    pub(super) fn holders(&self, addr: IpAddr) -> &[Arc<AgentService>] {
        self.by_addr.get(&addr).map_or(&[], |holders| holders)
    }

    fn judge_virtual(&mut self, case: Case<'_>, prefix: u8) -> (Verdict, Option<WantedAddr>) {
        let Case { addr, holders, config, now } = case;
        let has_endpoint =
            |service: &AgentService| self.endpoints.get(&service.key).is_some_and(|nodes| nodes.contains(&*self.me));
        if !holders.iter().any(|service| !service.policy_local || has_endpoint(service)) {
            return (Verdict::NoEndpoints, None);
        }
        let Some(link) = self.desired.virtual_link.clone() else { return (Verdict::NoConfig, None) };
        let options = &config.on_virtual;
        let lifetime = match (self.leaving, options.valid_lifetime) {
            (Some(Leaving::Stay(span)), _) => self.stay(addr, span, now),
            (_, None | Some(0)) => Lifetime::Forever,
            (_, Some(valid)) => self.written_lifetime(addr, valid, options.preferred_lifetime, now),
        };
        if let (None, Lifetime::Until { valid, .. }) = (self.leaving, lifetime) {
            let half = Duration::from_secs(u64::from(options.valid_lifetime.unwrap_or(0).max(SHORTEST_LIFETIME))) / 2;
            self.work.alarms.insert((valid - half, addr));
        }
        let no_prefix_route = options.no_prefix_route.unwrap_or(false);
        let verdict = Verdict::Virtual { link: link.clone() };
        (verdict, Some(WantedAddr { link, prefix, no_prefix_route, no_dad: false, lifetime, tell: None }))
    }

    /// An end that is decided once, when the agent is told to stop.
    fn stay(&mut self, addr: IpAddr, span: Duration, now: Moment) -> Lifetime {
        let valid = *self.work.ends.entry(addr).or_insert(now + span);
        Lifetime::Until { valid, preferred: valid }
    }

    fn judge_local(&mut self, case: Case<'_>, link: u32, prefix: u8) -> (Verdict, Option<WantedAddr>) {
        let Case { addr, holders, config, now } = case;
        let Preferred { nodes, expected } = self.prefer(addr, holders, now);
        self.elections.watch(addr, Some(nodes).filter(|nodes| !nodes.is_empty()), &self.members);
        match self.elections.winning(addr) {
            None => return (Verdict::NoWinner, None),
            Some(node) if *node != self.me => return (Verdict::Elsewhere { node: node.clone() }, None),
            Some(_) => self.work.mine.insert(addr),
        };
        if expected && !self.elections.fell_back(addr) {
            return (Verdict::Waiting { until: self.work.awaited.get(&addr).copied().unwrap_or(now) }, None);
        }
        let Some(name) = self.sight.link(link).map(|link| Arc::<str>::from(link.name.as_str())) else {
            return (Verdict::NoWinner, None);
        };
        let adopted = self.adopted(addr, link, prefix);
        let allowed = self.allowed(case, adopted);
        let lifetime = match (&allowed, adopted) {
            (Ok(fence), _) => self.nic_lifetime(addr, *fence, config),
            // A predecessor left it with a lifetime: it neither grows nor ends before time.
            (Err(_), Some(left)) if now < self.keep_until(left) => left,
            (Err(wait), _) => return (not_yet(*wait), None),
        };
        if let (Err(_), Some(left)) = (&allowed, adopted) {
            self.work.alarms.insert((self.keep_until(left), addr));
        }
        let no_dad = addr.is_ipv6() && holders.iter().any(|service| service.skip_ipv6_dad);
        let no_prefix_route = config.on_nic.no_prefix_route.unwrap_or(true);
        let tell = Some(config.garp.clone().unwrap_or(DEFAULT_GARP)).filter(|garp| garp.enabled);
        let verdict = allowed.err().map_or_else(|| Verdict::Local { link: name.clone() }, not_yet);
        (verdict, Some(WantedAddr { link: name, prefix, no_prefix_route, no_dad, lifetime, tell }))
    }

    /// The lifetime of an address that a predecessor left here and that this process has not held yet.
    fn adopted(&self, addr: IpAddr, link: u32, prefix: u8) -> Option<Lifetime> {
        if self.work.holding.contains(&addr) || self.repairs.has_put(addr) {
            return None;
        }
        let mut here = self.sight.shown(addr).iter().filter(|(on, held)| *on == link && held.prefix == prefix);
        let (_, held) = here.find(|(on, held)| self.is_ours(*on, held))?;
        Some(held.valid_until.map_or(Lifetime::Forever, |until| kept_lifetime(addr, until)))
    }

    /// Until when what a predecessor left is kept without a lease of our own.
    fn keep_until(&self, left: Lifetime) -> Moment {
        let most = self.lease.started.unwrap_or_default() + self.lease.hold;
        match left {
            Lifetime::Forever => most,
            Lifetime::Until { valid, .. } => most.min(valid),
        }
    }

    /// Until when this node may hold an address it is elected for; if not at all, when it may take it.
    fn allowed(&mut self, case: Case<'_>, adopted: Option<Lifetime>) -> Result<Moment, Option<Moment>> {
        let Case { addr, config, now, .. } = case;
        let fence = self.lease.fence.ok_or(None)?;
        // A lifetime up to a predecessor's fence says that nobody can have taken it since: holding goes on.
        let unbroken = config.on_nic.valid_lifetime.is_none()
            && !self.members.has_twin(now)
            && matches!(adopted, Some(Lifetime::Until { valid, .. }) if now < valid && valid <= now + self.lease.hold);
        if !unbroken && !self.work.holding.contains(&addr) {
            let claimed = self.is_by_claim(addr);
            let free =
                if claimed { self.members.may_take_claimed(addr, now) } else { self.members.may_take(addr, now) };
            free.map_err(|until| {
                self.work.waiting.insert(addr);
                self.work.alarms.insert((until, addr));
                Some(until)
            })?;
        }
        self.work.holding.insert(addr);
        Ok(fence)
    }

    fn nic_lifetime(&mut self, addr: IpAddr, fence: Moment, config: &AgentConfig) -> Lifetime {
        let AddressOptions { valid_lifetime, preferred_lifetime, .. } = config.on_nic;
        let lifetime = match valid_lifetime {
            None if preferred_lifetime == Some(0) => Lifetime::Until { valid: fence, preferred: Moment::default() },
            None => Lifetime::Until { valid: fence, preferred: fence },
            Some(0) => Lifetime::Forever,
            Some(valid) => self.written_lifetime(addr, valid, preferred_lifetime, self.lease.renewed),
        };
        match lifetime {
            // Never preferred, so that nobody takes it for the node's address or uses it as a source.
            Lifetime::Until { valid, .. } if addr.is_ipv6() => Lifetime::Until { valid, preferred: Moment::default() },
            other => other,
        }
    }

    /// A lifetime in seconds from `from` on, which moves on only when half of it has passed.
    fn written_lifetime(&mut self, addr: IpAddr, valid: u32, preferred: Option<u32>, from: Moment) -> Lifetime {
        let seconds = |number: u32| Duration::from_secs(u64::from(number));
        let valid = valid.max(SHORTEST_LIFETIME);
        let preferred = preferred.unwrap_or(valid).min(valid);
        let full = from + seconds(valid);
        let end = self.work.ends.get(&addr).copied().filter(|end| full.since(*end) < seconds(valid) / 2);
        let end = end.unwrap_or(full);
        self.work.ends.insert(addr, end);
        let preferred = if preferred == 0 { Moment::default() } else { end - seconds(valid - preferred) };
        Lifetime::Until { valid: end, preferred }
    }

    /// Why this node does not hold an address.
    pub(super) fn why(&self, addr: IpAddr) -> Why {
        match self.verdicts.get(&addr) {
            None => Why::NoService,
            Some(Verdict::Elsewhere { .. } | Verdict::Waiting { .. }) => Why::LostElection,
            Some(Verdict::NoWinner) => Why::NoEligibleNodes,
            Some(Verdict::NoEndpoints) => Why::NoEndpoints,
            Some(Verdict::Nowhere(Reason::NoLocalSubnet { .. } | Reason::SubnetUnavailable { .. })) => {
                Why::NoLocalInterface
            }
            Some(Verdict::Nowhere(_)) => Why::Refused,
            Some(Verdict::Fenced) => Why::Fenced,
            Some(Verdict::NoConfig) => Why::NoConfig,
            Some(Verdict::Leaving) => Why::Shutdown,
            Some(Verdict::Local { .. } | Verdict::Virtual { .. }) => Why::Changed,
        }
    }

    /// Says what to do about the traffic policies of these Services, where that changed.
    fn look_at_policies(&mut self, holders: &[Arc<AgentService>]) {
        for service in holders {
            let say = self.policy_wish(service);
            let before = match say {
                Some(say) => self.policies.insert(service.key.clone(), say),
                None => self.policies.remove(&service.key),
            };
            if before != say {
                self.changes.push(Change::Policy { service: service.key.clone(), say });
            }
        }
    }

    fn policy_wish(&self, service: &AgentService) -> Option<PolicyWish> {
        let local = |addr: &IpAddr| matches!(self.verdicts.get(addr), Some(Verdict::Local { .. }));
        if !service.policy_local || !service.addrs.iter().any(local) {
            return None;
        }
        Some(match (service.allow_local, service.policy_rewritten) {
            (true, _) => PolicyWish::Allowed,
            (false, true) => PolicyWish::SetBack,
            (false, false) => PolicyWish::Rewrite,
        })
    }
}

/// How neighbours are told where the LBNodeAgent says nothing: at once, and twice more for those that missed it.
const DEFAULT_GARP: Garp = Garp {
    enabled: true,
    initial_delay: Duration::ZERO,
    count: 3,
    interval: Duration::from_millis(500),
    verify_before_send: true,
};

fn not_yet(wait: Option<Moment>) -> Verdict {
    wait.map_or(Verdict::Fenced, |until| Verdict::Waiting { until })
}

fn kept_lifetime(addr: IpAddr, until: Moment) -> Lifetime {
    let preferred = if addr.is_ipv6() { Moment::default() } else { until };
    Lifetime::Until { valid: until, preferred }
}

fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local())
}
