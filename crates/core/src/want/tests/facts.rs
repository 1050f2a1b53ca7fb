//! What a node was told, so that one that knows nothing can be told the same in another order.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::*;

/// One thing that a node is told.
#[derive(Clone)]
pub(super) enum Fact {
    Service(AgentService),
    NoService(ServiceKey),
    Endpoints(ServiceKey, BTreeSet<String>),
    Groups(Vec<Group>),
    Setup(Setup),
    Synced(bool),
    Kernel(Links),
    Leases(Vec<LeaseView>),
    Renewing(String, LeaseWish),
    Lease(LeaseView),
    LeaseGone(String),
}

impl Fact {
    pub(super) fn tell(self, state: &mut State, now: Moment) {
        match self {
            Self::Service(service) => state.set_service(service),
            Self::NoService(key) => state.drop_service(&key),
            Self::Endpoints(key, nodes) => state.set_endpoints(&key, nodes),
            Self::Groups(groups) => state.set_groups(groups),
            Self::Setup(setup) => state.set_setup(setup).unwrap(),
            Self::Synced(synced) => state.set_synced(synced),
            Self::Kernel(links) => state.hear_links(LinkNews::Everything(links), now),
            Self::Leases(leases) => state.hear_leases(leases, now),
            Self::Renewing(text, wish) => state.renewing(text, &wish, now),
            Self::Lease(lease) => state.hear_lease(lease, now),
            Self::LeaseGone(node) => state.lease_gone(&node, now),
        }
    }

    /// What it is about.
    fn about(&self) -> String {
        match self {
            Self::Service(AgentService { key, .. }) | Self::NoService(key) => format!("service {key}"),
            Self::Endpoints(key, _) => format!("endpoints {key}"),
            Self::Groups(_) => "groups".to_owned(),
            Self::Setup(_) => "setup".to_owned(),
            Self::Synced(_) => "synced".to_owned(),
            Self::Kernel(_) => "kernel".to_owned(),
            Self::Leases(_) | Self::Renewing(..) | Self::Lease(_) | Self::LeaseGone(_) => "leases".to_owned(),
        }
    }

    /// Whether what was told before of the same thing still counts: when leases came and went, and which interfaces an
    /// earlier configuration made.
    fn has_past(&self) -> bool {
        matches!(self.about().as_str(), "leases" | "setup")
    }
}

/// Facts about one thing in their order, each with its time.
type Past = Vec<(Moment, Fact)>;

/// An agent that starts on this node now and is told all that counts, in an order that the dice decide.
pub(super) fn retold(node: &Node, dice: u64) -> State {
    let mut pasts: BTreeMap<String, Past> = BTreeMap::new();
    let kernel = (node.now, Fact::Kernel(node.kernel.links().clone()));
    for (at, fact) in node.facts.iter().chain([&kernel]) {
        let past = pasts.entry(fact.about()).or_default();
        if !fact.has_past() {
            past.clear();
        }
        past.push((*at, annotated(node, fact.clone())));
    }
    let mut pasts: Vec<(String, Past)> = pasts.into_iter().collect();
    pasts.sort_by_key(|(about, _)| {
        let mut hasher = DefaultHasher::new();
        (dice, about).hash(&mut hasher);
        hasher.finish()
    });
    let mut state = State::new("node-a", TIMING);
    let mut up_to_date = false;
    for (about, past) in pasts {
        up_to_date |= about == "leases";
        past.into_iter().for_each(|(at, fact)| fact.tell(&mut state, at));
        // Time goes forward only, so that nothing is decided before the past of the leases is told.
        if up_to_date {
            state.want(node.now);
        }
    }
    state
}

/// A Service as agents write it: it says which of its addresses are on this node's NIC.
fn annotated(node: &Node, fact: Fact) -> Fact {
    let Fact::Service(mut service) = fact else { return fact };
    let on_nic = |addr: &IpAddr| {
        let nic = node.kernel.links().named("eth0");
        nic.is_some_and(|(_, link)| link.addrs.iter().any(|held| held.addr == *addr))
    };
    for addr in service.addrs.iter().filter(|addr| on_nic(addr)) {
        let text = service.announcing[usize::from(addr.is_ipv6())].get_or_insert_default();
        let blank = if text.is_empty() { "" } else { " " };
        text.push_str(&format!("{blank}node-a,eth0,{addr}"));
    }
    Fact::Service(service)
}

/// Fails if an agent that was told all at once wishes otherwise than the one that lived through it.
pub(super) fn compare(node: &Node, fresh: &State) {
    let state = &node.state;
    assert_eq!(state.desired.virtual_link, fresh.desired.virtual_link);
    let addrs: BTreeSet<IpAddr> = state.verdicts.keys().chain(fresh.verdicts.keys()).copied().collect();
    // Somebody takes these off again and again: only who has seen that knows where they were.
    let settled = addrs.into_iter().filter(|addr| state.repairs.paused(*addr, || true, node.now).is_none());
    let mut same = true;
    for addr in settled {
        let verdicts = [state, fresh].map(|state| state.verdicts.get(&addr));
        let wanted = [state, fresh].map(|state| state.desired.addrs.get(&addr));
        let asks_anew = is_prolonged_later(verdicts) && wanted[1].is_some();
        assert!(verdicts[0] == verdicts[1] || asks_anew, "{addr}: {verdicts:?}");
        let exact = !asks_anew && !has_written_lifetimes(state);
        assert_eq!(essence(wanted[0], exact), essence(wanted[1], exact), "{addr}");
        same &= !asks_anew;
    }
    if same {
        assert_eq!(state.policies, fresh.policies);
    }
}

/// A successor keeps a local address that it finds, and asks the others once more before it prolongs it.
fn is_prolonged_later(verdicts: [Option<&Verdict>; 2]) -> bool {
    matches!(verdicts, [Some(Verdict::Local { .. }), Some(Verdict::Waiting { .. })])
}

/// A lifetime that a user wrote counts from when it was last given.
fn has_written_lifetimes(state: &State) -> bool {
    let written = |config: &Arc<AgentConfig>| config.on_nic.valid_lifetime.or(config.on_virtual.valid_lifetime);
    state.config.as_ref().and_then(written).is_some()
}

/// A wish, with the exact end of its lifetime or only whether it has one.
fn essence(wanted: Option<&WantedAddr>, exact: bool) -> Option<(WantedAddr, bool)> {
    wanted.map(|wanted| {
        let ends = wanted.lifetime != Lifetime::Forever;
        let lifetime = if exact { wanted.lifetime } else { Lifetime::Forever };
        (WantedAddr { lifetime, ..wanted.clone() }, ends)
    })
}
