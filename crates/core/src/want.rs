//! What this node should hold: every input in one place, and the wish for each address that follows from them.
//!
//! Inputs are level-triggered: each call states the whole of one thing and marks only the addresses it touches.
//! [`State::want`] brings their wishes up to date, [`State::steps`] gives the difference to what the kernel shows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::agent::AgentConfig;
use crate::elect::Elections;
use crate::links::Links;
use crate::members::{Members, Said, Timing};
use crate::moment::Moment;
use crate::place::{Guard, LinkChoice, Origins, Serving};
use crate::plan::Desired;
use crate::pool::ServiceKey;

use repair::Repairs;
use routes::Routing;
use sight::Sight;

pub use outcome::{Change, LeaseWish, PolicyWish, Verdict};
pub use routes::{Groups, Routes};

mod inputs;
mod lease;
mod near;
mod news;
mod outcome;
mod repair;
mod routes;
mod sight;
mod steps;
mod wish;

/// A Service of type LoadBalancer, reduced to what an agent needs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AgentService {
    /// `namespace/name`.
    pub key: ServiceKey,
    /// Whether it is of type LoadBalancer and PureLB gave it its addresses; others are as good as absent.
    pub ours: bool,
    /// The addresses in its status, each once, in order.
    pub addrs: Vec<IpAddr>,
    /// externalTrafficPolicy is Local.
    pub policy_local: bool,
    /// `purelb.io/allow-local` is there.
    pub allow_local: bool,
    /// `purelb.io/allow-shared-ip` is there.
    pub shared: bool,
    /// `purelb.io/node-affinity: service-endpoints`.
    pub affinity: bool,
    /// `purelb.io/skip-ipv6-dad: "true"`.
    pub skip_ipv6_dad: bool,
    /// `purelb.io/pool-type`.
    pub pool_type: Option<String>,
    /// `purelb.io/allocated-from`.
    pub from: Option<String>,
    /// `purelb.io/announcing-IPv4` and `-IPv6` as they are written.
    pub announcing: [Option<String>; 2],
    /// `purelb.io/traffic-policy-rewritten` is there: PureLB has set the policy to Cluster before.
    pub policy_rewritten: bool,
}

/// What the LBNodeAgents say to this node.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Setup {
    /// Nothing yet: everything stays as it is.
    #[default]
    Unknown,
    /// This one counts.
    Config(AgentConfig),
    /// There is none, or none with `local`: nothing is announced.
    None,
    /// There are some, but none is for this node: nothing is announced.
    Deselected,
}

/// How the agent leaves when it is told to stop. Local addresses always go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Leaving {
    /// Virtual addresses and the virtual interface go too.
    Go,
    /// Virtual addresses stay for a successor, for this long at most.
    Stay(Duration),
}

/// Everything a node's agent knows, and what follows from it.
pub struct State {
    me: Arc<str>,
    setup: Setup,
    config: Option<Arc<AgentConfig>>,
    choice: Option<LinkChoice>,
    groups: Origins,
    services: BTreeMap<ServiceKey, Arc<AgentService>>,
    /// The same Services by address, in order of their keys.
    by_addr: BTreeMap<IpAddr, Arc<[Arc<AgentService>]>>,
    endpoints: BTreeMap<ServiceKey, BTreeSet<String>>,
    /// As told from outside.
    told_guarded: BTreeMap<IpAddr, Guard>,
    members: Members,
    elections: Elections,
    synced: bool,
    leaving: Option<Leaving>,
    sight: Sight,

    around: Around,
    desired: Desired,
    verdicts: BTreeMap<IpAddr, Verdict>,
    policies: BTreeMap<ServiceKey, PolicyWish>,
    work: Work,
    repairs: Repairs,
    routing: Routing,
    lease: LeaseState,
    taken: BTreeMap<IpAddr, Taken>,
    changes: Vec<Change>,
}

/// What surrounds all addresses; derived, and looked at again when it may have changed.
#[derive(Default)]
struct Around {
    stale: bool,
    /// It was looked at once.
    known: bool,
    serving: Serving,
    guarded: BTreeMap<IpAddr, Guard>,
    node_subnets: BTreeSet<IpNet>,
}

/// What is to be looked at again.
#[derive(Default)]
struct Work {
    /// When wishes were last brought up to date.
    looked: Moment,
    /// Every address of a Service.
    all: bool,
    /// Addresses whose wish may have changed.
    unwished: BTreeSet<IpAddr>,
    /// Services whose traffic policy is to be looked at again, whatever addresses they have now.
    changed: BTreeSet<ServiceKey>,
    /// Addresses to compare with the kernel: those to be dropped, those for a NIC, those for the virtual interface.
    unplanned: [BTreeSet<IpAddr>; 3],
    /// Interfaces are to be compared with the kernel.
    links: bool,
    /// Addresses that may have been taken or lost.
    unsettled: BTreeSet<IpAddr>,
    /// Addresses to look at again at a certain time although nothing happened.
    alarms: BTreeSet<(Moment, IpAddr)>,
    /// Addresses this node is elected for.
    mine: BTreeSet<IpAddr>,
    /// Those of them that a former holder must let go first.
    waiting: BTreeSet<IpAddr>,
    /// Those of them that are ours to hold as long as the fence is open.
    holding: BTreeSet<IpAddr>,
    /// Addresses that this node should come first for.
    claims: BTreeSet<IpAddr>,
    /// Addresses that some node should claim, and until when that is waited for.
    awaited: BTreeMap<IpAddr, Moment>,
    /// Addresses of Services whose endpoints are all on nodes that cannot serve them.
    astray: BTreeSet<IpAddr>,
    /// Ends of lifetimes that a user wrote; kept until half of them has passed.
    ends: BTreeMap<IpAddr, Moment>,
}

/// What this node's own lease means for the addresses.
#[derive(Default)]
struct LeaseState {
    /// How long after a renewal addresses may be held.
    hold: Duration,
    /// When wishes were first computed.
    started: Option<Moment>,
    /// Until when local addresses may be held, as of the last look; `None` is not at all.
    fence: Option<Moment>,
    /// When the fence last moved.
    renewed: Moment,
    /// The version of the lease that made this node let something go, and the one it last told of.
    asked: u64,
    told: u64,
    /// The highest version all of whose consequences are done.
    saw: u64,
    /// What the last renewal said.
    published: Said,
    /// Whether this node says which subnets it serves.
    joined: bool,
}

/// An address as it was told to be taken.
struct Taken {
    link: Arc<str>,
    local: bool,
}

impl State {
    /// An agent on this node that knows nothing yet.
    pub fn new(me: &str, timing: Timing) -> Self {
        Self {
            me: me.into(),
            setup: Setup::Unknown,
            config: None,
            choice: None,
            groups: Origins::default(),
            services: BTreeMap::new(),
            by_addr: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            told_guarded: BTreeMap::new(),
            members: Members::new(me, timing),
            elections: Elections::new(),
            synced: false,
            leaving: None,
            sight: Sight::default(),
            around: Around { stale: true, ..Around::default() },
            desired: Desired::default(),
            verdicts: BTreeMap::new(),
            policies: BTreeMap::new(),
            work: Work { all: true, links: true, ..Work::default() },
            repairs: Repairs::default(),
            routing: Routing::default(),
            lease: LeaseState { hold: timing.hold(), joined: true, ..LeaseState::default() },
            taken: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    /// The whole wish, as of the last [`State::want`].
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// What became of an address; `None` if no Service has it.
    pub fn verdict(&self, addr: IpAddr) -> Option<&Verdict> {
        self.verdicts.get(&addr)
    }

    /// All addresses of Services with what became of them.
    pub fn verdicts(&self) -> impl Iterator<Item = (IpAddr, &Verdict)> {
        self.verdicts.iter().map(|(addr, verdict)| (*addr, verdict))
    }

    /// The Services that have an address.
    pub fn services_of(&self, addr: IpAddr) -> impl Iterator<Item = &ServiceKey> {
        self.holders(addr).iter().map(|service| &service.key)
    }

    /// A Service, as it was last told.
    pub fn service(&self, key: &str) -> Option<&AgentService> {
        self.services.get(key).map(|service| &**service)
    }

    /// The interface on which the kernel shows an address as it should be.
    pub fn held(&self, addr: IpAddr) -> Option<&str> {
        self.taken.get(&addr).map(|taken| &*taken.link)
    }

    /// What the kernel last said of an address that it refuses to hold or to let go.
    pub fn problem(&self, addr: IpAddr) -> Option<&str> {
        self.repairs.problem(addr)
    }

    /// What the kernel last said of the virtual interface, while it refuses to make it or to switch it on.
    pub fn link_problem(&self) -> Option<&str> {
        let name = self.desired.virtual_link.as_deref()?;
        let (_, link) = self.sight.links.as_ref()?.named(name).unzip();
        self.repairs.link_problem().filter(|_| link.is_none_or(|link| !link.up))
    }

    /// Whether any local address is on a NIC of this node, wished or not.
    pub fn holds_local(&self) -> bool {
        !self.sight.on_nics.is_empty()
    }

    /// How many local addresses are on NICs of this node, wished or not.
    pub fn on_nics(&self) -> usize {
        self.sight.on_nics.len()
    }

    /// Whether no local address is on a NIC of this node, nor on its way to one.
    pub fn has_let_go(&self) -> bool {
        self.sight.on_nics.is_empty() && !self.repairs.puts_on_nics() && !self.members.has_twin(self.work.looked)
    }

    /// Whether an address of ours is on a NIC of this node, wished or not.
    pub fn is_on_nic(&self, addr: IpAddr) -> bool {
        self.sight.on_nics.contains(&addr)
    }

    /// What to do about a Service's externalTrafficPolicy.
    pub fn policy(&self, service: &str) -> Option<PolicyWish> {
        self.policies.get(service).copied()
    }

    /// Whether an address should be on a node with an endpoint, and none of them could be elected.
    pub fn fell_back(&self, addr: IpAddr) -> bool {
        self.elections.fell_back(addr) || self.work.astray.contains(&addr)
    }

    /// Who is alive.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// What the kernel shows, once it is known.
    pub fn links(&self) -> Option<&Links> {
        self.sight.links.as_ref()
    }

    /// The routers that this node's default routes go through.
    pub fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        self.sight.links.iter().flat_map(|links| &links.default_routes).filter_map(|route| route.gateway)
    }

    /// Whether enough is known to change anything.
    pub fn is_ready(&self) -> bool {
        self.synced && self.setup != Setup::Unknown && self.sight.links.is_some()
    }
}

#[cfg(test)]
mod tests;
