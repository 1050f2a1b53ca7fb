//! Stories of one node: what it holds as Services, groups, leases and its kernel change.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use facts::Fact;

use super::*;
use crate::addr::{AddrRange, Aggregation, Family, parse_subnet};
use crate::agent::{AddressOptions, LocalInterface};
use crate::group::{Entry, Group, Placement, Ranges, Source};
use crate::links::{DefaultRoute, HeldAddr, Link, LinkKind, LinkNews};
use crate::members::LeaseView;
use crate::model::ModelKernel;
use crate::plan::{Lifetime, Ownership, Step, WantedAddr, Why, plan};
use crate::reason::Reason;

mod facts;
mod laws;
mod local;
mod repair;
mod routes;
mod shared;
mod virtuals;

const LEASE: Duration = Duration::from_secs(10);
const TIMING: Timing = Timing { duration: LEASE, renew_deadline: Duration::from_secs(8) };

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn config() -> AgentConfig {
    AgentConfig {
        namespace: "purelb-system".into(),
        name: "default".into(),
        local_interface: LocalInterface::DefaultRoute,
        interfaces: Vec::new(),
        virtual_interface: "kube-lb0".into(),
        garp: None,
        on_nic: AddressOptions::default(),
        on_virtual: AddressOptions::default(),
    }
}

fn link(name: &str, kind: LinkKind, addrs: &[&str]) -> Link {
    let held = |text: &&str| {
        let net: IpNet = text.parse().unwrap();
        HeldAddr::plain(net.addr(), net.prefix_len())
    };
    let addrs = addrs.iter().map(held).collect();
    Link { name: name.into(), kind, up: true, carrier: true, mac: None, promote_secondaries: None, addrs }
}

/// A node as installed: a loopback and one NIC in 192.168.1.0/24 and fd00:1::/64, with its gateways.
fn fresh_links() -> Links {
    let mut lo = link("lo", LinkKind::Loopback, &["127.0.0.1/8", "::1/128"]);
    lo.addrs.iter_mut().for_each(|held| held.protocol = 1);
    let eth0 = link("eth0", LinkKind::Other, &["192.168.1.10/24", "fd00:1::10/64"]);
    let route = |family, gateway| DefaultRoute { family, metric: 0, link: 2, gateway: Some(ip(gateway)) };
    let default_routes = vec![route(Family::V4, "192.168.1.1"), route(Family::V6, "fd00:1::1")];
    Links { by_index: [(1, lo), (2, eth0)].into(), default_routes }
}

fn entry(range: &str, subnet: &str, aggregation: &str) -> Entry {
    let range = AddrRange::parse(range).unwrap();
    let aggregation = Aggregation::parse(aggregation, range.family()).unwrap();
    Entry { field: "spec".into(), text: range.typed(), range, subnet: parse_subnet(subnet).unwrap(), aggregation }
}

fn group(name: &str, placement: Placement, entries: Vec<Entry>) -> Group {
    let (v4, v6) = entries.into_iter().partition(|entry| entry.range.family() == Family::V4);
    Group {
        namespace: "purelb-system".into(),
        name: name.into(),
        placement,
        source: Source::Ranges(Ranges { v4, v6, ..Ranges::default() }),
        skip_ipv6_dad: false,
        namespaces: Vec::new(),
        enforce_namespaces: false,
        namespace_default: false,
    }
}

/// A group for 10.9.0.0/24 and fd09::/64 whose addresses are virtual.
fn far(v4: &str, v6: &str) -> Group {
    group("far", Placement::Remote, vec![entry("10.9.0.0/24", "10.9.0.0/24", v4), entry("fd09::/120", "fd09::/64", v6)])
}

fn svc(name: &str, addrs: &[&str]) -> AgentService {
    AgentService {
        key: format!("test/{name}").into(),
        ours: true,
        addrs: addrs.iter().map(|addr| ip(addr)).collect(),
        policy_local: false,
        allow_local: false,
        shared: false,
        affinity: false,
        skip_ipv6_dad: false,
        pool_type: None,
        from: None,
        announcing: [None, None],
        policy_rewritten: false,
    }
}

/// One node with a pretended kernel and a lease that is renewed when the story says so.
struct Node {
    state: State,
    kernel: ModelKernel,
    now: Moment,
    version: u64,
    /// What it was told so far, and when.
    facts: Vec<(Moment, Fact)>,
    /// Every step so far.
    history: Vec<Step>,
    changes: Vec<Change>,
    /// Steps that the kernel refuses.
    refuse: fn(&Step) -> bool,
}

impl Node {
    /// A node that knows its kernel and nothing else.
    fn starting(kernel: ModelKernel) -> Self {
        let state = State::new("node-a", TIMING);
        let now = Moment(seconds(1000));
        let (facts, history, changes) = Default::default();
        let mut node = Self { state, kernel, now, version: 100, facts, history, changes, refuse: |_| false };
        node.state.hear_links(LinkNews::Everything(node.kernel.links().clone()), now);
        node
    }

    /// A node in full service.
    fn up() -> Self {
        let mut node = Self::starting(ModelKernel::new(fresh_links()));
        node.sync(Setup::Config(config()));
        node
    }

    fn sync(&mut self, setup: Setup) {
        self.tell(Fact::Setup(setup));
        self.tell(Fact::Groups(vec![far("/32", "/128")]));
        self.tell(Fact::Leases(Vec::new()));
        self.tell(Fact::Synced(true));
        self.rest();
        self.renew();
    }

    /// Something is told, and remembered to have been.
    fn tell(&mut self, fact: Fact) {
        self.facts.push((self.now, fact.clone()));
        fact.tell(&mut self.state, self.now);
    }

    /// Does what is to be done until there is nothing more.
    fn rest(&mut self) {
        for _ in 0..1000 {
            self.state.want(self.now);
            let steps = self.state.steps(self.now, 128);
            self.changes.extend(self.state.take_changes());
            if steps.is_empty() {
                return;
            }
            self.apply(steps);
        }
        panic!("the node finds no rest: {:?}", &self.history[self.history.len() - 8..]);
    }

    fn apply(&mut self, steps: Vec<Step>) {
        let mut results = Vec::new();
        for step in steps {
            if (self.refuse)(&step) {
                results.push((step, Err("Operation not permitted (os error 1)".to_owned())));
                continue;
            }
            let (result, news) = self.kernel.apply(&step, self.now);
            self.hear(news);
            results.push((step, result));
        }
        for (step, result) in results {
            self.state.applied(&step, result, self.now);
            self.history.push(step);
        }
    }

    fn hear(&mut self, news: Vec<LinkNews>) {
        news.into_iter().for_each(|news| self.state.hear_links(news, self.now));
    }

    /// Lets time pass, with everything that comes due meanwhile.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let wake = self.state.want(self.now);
            let next = [wake, self.kernel.next_expiry()].into_iter().flatten().filter(|next| *next > self.now).min();
            self.now = next.unwrap_or(end).min(end);
            let news = self.kernel.expire(self.now);
            self.hear(news);
            self.rest();
            if self.now >= end {
                return;
            }
        }
    }

    /// Renews the own lease, and the watch shows it at once.
    fn renew(&mut self) {
        let wish = self.state.lease_wish();
        let text = format!("{:?}", self.now);
        self.tell(Fact::Renewing(text.clone(), wish.clone()));
        self.version += 1;
        let lease = self.lease("node-a", &wish.subnets, Some(wish.saw));
        self.tell(Fact::Lease(LeaseView { renewed: Some(text), claims: wish.claims, ..lease }));
        self.rest();
    }

    fn lease(&self, node: &str, subnets: &BTreeSet<IpNet>, saw: Option<u64>) -> LeaseView {
        LeaseView {
            node: node.into(),
            renewed: Some(format!("{node} {}", self.version)),
            age: Duration::ZERO,
            duration: Some(LEASE),
            subnets: subnets.clone(),
            claims: BTreeSet::new(),
            instance: "x".into(),
            version: Some(self.version),
            // Nobody has seen its own renewal when it writes it.
            saw: saw.map(|saw| saw.min(self.version.saturating_sub(1))),
            ..LeaseView::default()
        }
    }

    /// Another node renews its lease.
    fn peer(&mut self, node: &str, subnets: &[&str], saw: Option<u64>) {
        self.version += 1;
        let subnets = subnets.iter().map(|net| net.parse().unwrap()).collect();
        let lease = self.lease(node, &subnets, saw);
        self.tell(Fact::Lease(lease));
    }

    fn serve(&mut self, service: AgentService) {
        self.tell(Fact::Service(service));
        self.rest();
    }

    /// The addresses on an interface as an outsider sees them, without the kernel's own.
    fn on(&self, link: &str) -> Vec<String> {
        let Some((_, link)) = self.kernel.links().named(link) else { return vec!["no such interface".into()] };
        let held = link.addrs.iter().filter(|held| !held.addr.to_string().starts_with("fe80"));
        let mut all: Vec<_> = held.map(|held| format!("{}/{}", held.addr, held.prefix)).collect();
        all.sort();
        all
    }

    fn held(&self, link: &str, addr: &str) -> HeldAddr {
        let (_, link) = self.kernel.links().named(link).unwrap();
        *link.addrs.iter().find(|held| held.addr == ip(addr)).unwrap()
    }

    /// What a plan from scratch would do.
    fn plan_from_scratch(&self) -> Vec<Step> {
        let state = &self.state;
        let own = Ownership {
            is_ours: &|link, held| state.is_ours(link, held),
            why: &|addr| state.why(addr),
            waits: &|link, held| state.waits(link, held, self.now),
        };
        plan(state.desired(), self.kernel.links(), self.now, own)
    }
}

const NIC: [&str; 2] = ["192.168.1.10/24", "fd00:1::10/64"];

/// What the NIC shows when it has these addresses beside its own.
fn nic_and(more: &[&str]) -> Vec<String> {
    let mut all: Vec<_> = NIC.iter().chain(more).map(|text| (*text).to_owned()).collect();
    all.sort();
    all
}

#[test]
fn a_node_makes_the_virtual_interface_before_any_service_needs_it() {
    let node = Node::up();
    let (_, link) = node.kernel.links().named("kube-lb0").unwrap();
    assert_eq!((link.kind, link.up, link.promote_secondaries), (LinkKind::Dummy, true, Some(true)));
    assert!(node.on("kube-lb0").is_empty());
    assert_eq!(node.on("eth0"), nic_and(&[]));
}

#[test]
fn nothing_is_touched_before_every_list_is_complete() {
    let mut links = fresh_links();
    let left = HeldAddr { protocol: crate::links::OUR_PROTOCOL, ..HeldAddr::plain(ip("10.9.0.1"), 32) };
    links.by_index.insert(3, Link { addrs: vec![left], ..link("kube-lb0", LinkKind::Dummy, &[]) });
    let mut node = Node::starting(ModelKernel::new(links));
    node.rest();
    node.state.set_setup(Setup::Config(config())).unwrap();
    node.rest();
    node.pass(seconds(600));
    assert_eq!((node.on("kube-lb0"), node.history.len()), (vec!["10.9.0.1/32".to_owned()], 0));
}

#[test]
fn the_lease_is_published_when_the_node_is_ready_and_says_what_it_serves() {
    let mut node = Node::starting(ModelKernel::new(fresh_links()));
    node.state.want(node.now);
    assert!(!node.state.lease_wish().publish);
    node.sync(Setup::Config(config()));
    let wish = node.state.lease_wish();
    let subnets: Vec<_> = wish.subnets.iter().map(ToString::to_string).collect();
    assert_eq!((wish.publish, subnets.join(" ").as_str()), (true, "192.168.1.0/24 fd00:1::/64"));
}

#[test]
fn s08_an_unusable_lbnodeagent_leaves_the_subnets_in_the_lease_and_without_any_there_are_none() {
    let mut node = Node::up();
    let served = node.state.lease_wish().subnets.clone();
    assert_eq!(served.len(), 2);
    let bad = AgentConfig { local_interface: LocalInterface::Matching("[".into()), ..config() };
    assert!(node.state.set_setup(Setup::Config(bad)).is_err());
    node.rest();
    assert_eq!(node.state.lease_wish().subnets, served);
    node.state.set_setup(Setup::None).unwrap();
    node.rest();
    assert!(node.state.lease_wish().subnets.is_empty());
}

#[test]
fn a_node_that_no_lbnodeagent_selects_publishes_nothing_and_gives_everything_up() {
    let mut node = Node::up();
    node.serve(svc("web", &["10.9.0.1", "192.168.1.100"]));
    assert_eq!(node.on("eth0"), nic_and(&["192.168.1.100/24"]));
    node.state.set_setup(Setup::Deselected).unwrap();
    node.rest();
    assert_eq!((node.on("kube-lb0"), node.on("eth0")), (vec!["no such interface".to_owned()], nic_and(&[])));
    assert!(!node.state.lease_wish().publish);
    assert_eq!(node.state.verdict(ip("10.9.0.1")), Some(&Verdict::NoConfig));
}
