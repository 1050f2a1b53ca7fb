//! What one node's agent decides: everything from cold, and one changed Service.
//!
//! Of several rounds the best counts, because whatever else the machine does only adds to them; the bench fails where one
//! is above its limit.

#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use purelb_core::addr::{AddrRange, Aggregation, Family};
use purelb_core::agent::{AddressOptions, AgentConfig, LocalInterface};
use purelb_core::group::{Entry, Group, Placement, Ranges, Source};
use purelb_core::links::{DefaultRoute, HeldAddr, Link, LinkKind, LinkNews, Links};
use purelb_core::members::{LeaseView, Timing};
use purelb_core::model::ModelKernel;
use purelb_core::moment::Moment;
use purelb_core::want::{AgentService, Setup, State};

const SERVICES: u32 = 10_000;
const ROUNDS: usize = 15;
/// How often one Service changes in a round.
const CHANGES: u32 = 1000;
const NOW: Moment = Moment(Duration::from_secs(1000));

/// A Service with a virtual or a local address; the local ones are spread over ten nodes.
fn service(number: u32, local: bool) -> AgentService {
    let base: u32 = if local { 0xac10_0100 } else { 0x0a09_0000 };
    AgentService {
        key: format!("test/service-{number}").into(),
        ours: true,
        addrs: vec![IpAddr::V4(Ipv4Addr::from_bits(base + number))],
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

fn links() -> Links {
    let link = |name: &str, kind, addr: [u8; 4], prefix| Link {
        name: name.into(),
        kind,
        up: true,
        carrier: true,
        mac: None,
        promote_secondaries: Some(true),
        addrs: vec![HeldAddr { protocol: 1, ..HeldAddr::plain(IpAddr::V4(addr.into()), prefix) }],
    };
    let lo = link("lo", LinkKind::Loopback, [127, 0, 0, 1], 8);
    let eth0 = link("eth0", LinkKind::Other, [172, 16, 0, 10], 16);
    let lb = Link { addrs: Vec::new(), ..link("kube-lb0", LinkKind::Dummy, [0; 4], 32) };
    let route = DefaultRoute { family: Family::V4, metric: 0, link: 2, gateway: None };
    Links { by_index: [(1, lo), (2, eth0), (3, lb)].into(), default_routes: vec![route] }
}

fn group() -> Group {
    let range = AddrRange::parse("10.9.0.0/16").expect("a range");
    let (text, subnet) = (range.typed(), "10.9.0.0/16".parse().expect("a subnet"));
    let entry = Entry { field: "spec".into(), text, range, subnet, aggregation: Aggregation::Prefix(32) };
    Group {
        namespace: "purelb-system".into(),
        name: "far".into(),
        placement: Placement::Remote,
        source: Source::Ranges(Ranges { v4: vec![entry], ..Ranges::default() }),
        skip_ipv6_dad: false,
        namespaces: Vec::new(),
        enforce_namespaces: false,
        namespace_default: false,
    }
}

fn lease(node: &str, renewed: &str) -> LeaseView {
    LeaseView {
        node: node.into(),
        renewed: Some(renewed.into()),
        duration: Some(Duration::from_secs(10)),
        subnets: BTreeSet::from(["172.16.0.0/16".parse().expect("a subnet")]),
        version: Some(1),
        saw: Some(u64::MAX),
        ..LeaseView::default()
    }
}

/// A node that knows all but the Services.
fn node() -> State {
    let timing = Timing { duration: Duration::from_secs(10), renew_deadline: Duration::from_secs(8) };
    let mut state = State::new("node-0", timing);
    let config = AgentConfig {
        namespace: "purelb-system".into(),
        name: "default".into(),
        local_interface: LocalInterface::DefaultRoute,
        interfaces: Vec::new(),
        virtual_interface: "kube-lb0".into(),
        garp: None,
        on_nic: AddressOptions::default(),
        on_virtual: AddressOptions::default(),
    };
    state.hear_links(LinkNews::Everything(links()), NOW);
    state.set_setup(Setup::Config(config)).expect("a good configuration");
    state.set_groups(vec![group()]);
    state.set_synced(true);
    state.hear_leases((1..10).map(|i| lease(&format!("node-{i}"), "then")).collect(), NOW);
    state.want(NOW);
    let wish = state.lease_wish();
    state.renewing("now".into(), &wish, NOW);
    state.hear_lease(lease("node-0", "now"), NOW);
    state.want(NOW);
    state
}

/// A node that knows 10,000 Services, every `nth` of them with a local address, and has decided nothing yet.
fn full(nth: u32) -> State {
    let mut state = node();
    (0..SERVICES).for_each(|number| state.set_service(service(number, number % nth == 1)));
    state
}

/// A node whose kernel shows everything it should.
fn settled() -> State {
    let (mut state, mut kernel) = (full(2), ModelKernel::new(links()));
    loop {
        state.want(NOW);
        let steps = state.steps(NOW, usize::MAX);
        if steps.is_empty() {
            state.take_changes();
            return state;
        }
        for step in &steps {
            let (result, news) = kernel.apply(step, NOW);
            news.into_iter().for_each(|news| state.hear_links(news, NOW));
            state.applied(step, result, NOW);
        }
    }
}

/// The times of several rounds, in order; what a round needs beforehand is made outside the measure.
fn rounds<T>(mut prepare: impl FnMut() -> T, mut round: impl FnMut(&mut T)) -> Vec<Duration> {
    let once = |_| {
        let mut prepared = prepare();
        let start = Instant::now();
        round(black_box(&mut prepared));
        start.elapsed()
    };
    let mut all: Vec<_> = (0..ROUNDS).map(once).collect();
    all.sort_unstable();
    all
}

/// Decides what to hold and what to do, for 10,000 Services never seen before.
fn cold(nth: u32) -> Vec<Duration> {
    let decide = |state: &mut State| {
        state.want(NOW);
        black_box(state.steps(NOW, usize::MAX));
    };
    rounds(|| full(nth), decide)
}

/// Decides about one Service that changed among 10,000, again and again.
fn changed() -> Vec<Duration> {
    let mut state = settled();
    let mut policy_local = false;
    let mut change = || {
        policy_local = !policy_local;
        state.set_service(AgentService { policy_local, ..service(4000, false) });
        state.want(NOW);
        let steps = state.steps(NOW, 128);
        steps.iter().for_each(|step| state.applied(step, Ok(()), NOW));
        black_box(state.take_changes().len() + steps.len());
    };
    let all = rounds(|| (), |()| (0..CHANGES).for_each(|_| change()));
    all.into_iter().map(|spent| spent / CHANGES).collect()
}

/// Prints a measure, and says whether it is within its limit.
fn report(what: &str, rounds: &[Duration], limit: Duration) -> bool {
    let (best, median) = (rounds[0], rounds[rounds.len() / 2]);
    println!("{what:<46} best {best:>9.1?}  median {median:>9.1?}  at most {limit:?}");
    best <= limit
}

fn main() {
    let (cold_limit, change_limit) = (Duration::from_millis(20), Duration::from_millis(1));
    let mut within = report("10,000 virtual Services from cold", &cold(u32::MAX), cold_limit);
    // Half of them elected among ten nodes: 50,000 hashes more.
    within &= report("10,000 Services from cold, half of them local", &cold(2), cold_limit);
    within &= report("one changed Service among 10,000", &changed(), change_limit);
    assert!(within, "a decision takes longer than it may");
}
