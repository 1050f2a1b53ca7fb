//! What an election costs beside the hashes it cannot do without: 10,000 addresses, 50 candidates.
//!
//! Each measure is compared with bare SHA-256 over the same texts, made before, in the same run. The limits are those
//! of `LIMIT`; the bench fails where one is exceeded. Times are the best of several rounds, because whatever else the
//! machine does only adds to them.

#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use purelb_core::elect::Elections;
use purelb_core::members::{LeaseView, MemberChange, Members, Timing};
use purelb_core::moment::Moment;
use sha2::{Digest, Sha256};

const ADDRESSES: u32 = 10_000;
const NODES: usize = 50;
const ROUNDS: usize = 15;
/// How much more than the bare hashes an election may cost.
const LIMIT: f64 = 1.3;

fn node(i: usize) -> String {
    format!("worker-{i:02}.example.net")
}

fn addrs() -> impl Iterator<Item = IpAddr> {
    (0..ADDRESSES).map(|i| Ipv4Addr::from_bits(0x0a00_0001 + i).into())
}

fn lease(node: &str) -> LeaseView {
    LeaseView {
        node: node.to_owned(),
        renewed: Some("now".to_owned()),
        duration: Some(Duration::from_secs(10)),
        subnets: ["10.0.0.0/16".parse().expect("constant")].into(),
        version: Some(1),
        ..LeaseView::default()
    }
}

fn members() -> Members {
    let timing = Timing { duration: Duration::from_secs(10), renew_deadline: Duration::from_secs(7) };
    let mut members = Members::new("worker-00", timing);
    members.hear_all((0..NODES).map(|i| lease(&node(i))).collect(), Moment::default());
    members
}

fn elections(members: &Members) -> Elections {
    let mut elections = Elections::new();
    for addr in addrs() {
        elections.watch(addr, None, members);
    }
    elections
}

/// The best time of several rounds; what a round needs beforehand is made outside the measure.
fn best<T>(mut prepare: impl FnMut() -> T, mut round: impl FnMut(&mut T)) -> Duration {
    let once = |_| {
        let mut prepared = prepare();
        let start = Instant::now();
        round(black_box(&mut prepared));
        start.elapsed()
    };
    (0..ROUNDS).map(once).min().unwrap_or_default()
}

/// Bare SHA-256 over texts that are made before.
fn bare(texts: &[String]) -> Duration {
    best(
        || (),
        |()| {
            texts.iter().for_each(|text| {
                black_box(Sha256::digest(text));
            })
        },
    )
}

fn change(elections: &mut Elections, changes: &[MemberChange], members: &Members) {
    for change in changes {
        black_box(elections.changed(change, members));
    }
}

/// Prints a measure beside the bare hashes, and says whether it is within the limit.
fn report(what: &str, hashes: usize, bare: Duration, took: Duration) -> bool {
    let ratio = took.as_secs_f64() / bare.as_secs_f64();
    println!("{what:<22} {hashes:>7} hashes  bare {bare:>10.1?}  election {took:>10.1?}  ratio {ratio:.2}");
    ratio <= LIMIT
}

fn main() {
    let all = members();
    let texts: Vec<_> = addrs().flat_map(|addr| (0..NODES).map(move |i| format!("{}#{addr}", node(i)))).collect();
    let cold = best(|| (), |()| drop(black_box(elections(&all))));
    let mut within = report("from cold", texts.len(), bare(&texts), cold);

    let last = node(NODES - 1);
    let mut without = members();
    let left = without.gone(&last);
    let full = elections(&all);
    let held: Vec<_> = full.won_by(&last).collect();
    let texts: Vec<_> =
        held.iter().flat_map(|addr| (0..NODES - 1).map(move |i| format!("{}#{addr}", node(i)))).collect();
    let lost = best(|| full.clone(), |elections| change(elections, &left, &without));
    within &= report("one member lost", texts.len(), bare(&texts), lost);

    let before = elections(&without);
    let joined = without.hear(lease(&last), Moment::default());
    let texts: Vec<_> = addrs().map(|addr| format!("{last}#{addr}")).collect();
    let joins = best(|| before.clone(), |elections| change(elections, &joined, &without));
    within &= report("one member joined", texts.len(), bare(&texts), joins);

    assert!(within, "an election costs more than {LIMIT} times its hashes");
}
