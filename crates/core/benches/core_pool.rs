//! How fast a pool gives addresses out and takes them back, whatever its size and however full it is.
//!
//! `first_free` is what an allocation costs: the next free address is found, taken and given back. `pinned` asks for
//! addresses by name all over the pool. The held addresses are scattered, so that the pool has as many gaps.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use purelb_core::addr::{AddrRange, Aggregation, Family, parse_subnet};
use purelb_core::group::{Entry, Ranges};
use purelb_core::pool::{Claim, Pool, Port, Protocol};

const SIZES: [(&str, &[usize]); 3] =
    [("10.1.2.0/24", &[0, 200]), ("10.0.0.0/8", &[0, 1_000, 100_000]), ("2001:db8::/64", &[0, 1_000, 100_000])];

fn claim(service: &str) -> Claim {
    Claim { service: service.into(), key: None, ports: vec![Port { protocol: Protocol::Tcp, number: 80 }] }
}

/// The n-th of `count` addresses spread over the range, never its first one.
fn scattered(range: &AddrRange, n: usize, count: usize) -> IpAddr {
    let step = (range.size() / (count as u128 + 1)).max(1);
    let offset = step * (n as u128 + 1);
    match range.first() {
        IpAddr::V4(first) => IpAddr::V4((first.to_bits() + offset as u32).into()),
        IpAddr::V6(first) => IpAddr::V6((first.to_bits() + offset).into()),
    }
}

fn pool(range: &AddrRange, held: usize) -> Pool {
    let entry = Entry {
        field: "bench".into(),
        text: range.typed(),
        range: *range,
        subnet: parse_subnet(if range.family() == Family::V4 { "0.0.0.0/0" } else { "::/0" }).expect("constant"),
        aggregation: Aggregation::Subnet,
    };
    let mut ranges = Ranges::default();
    match range.family() {
        Family::V4 => ranges.v4.push(entry),
        Family::V6 => ranges.v6.push(entry),
    }
    let mut pool = Pool::new("bench", &ranges);
    for n in 0..held {
        pool.take(scattered(range, n, held), &claim(&format!("tenant-{}/web-{n}", n % 97)))
            .expect("scattered are free");
    }
    pool
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("core_pool");
    group
        .throughput(Throughput::Elements(1))
        .measurement_time(Duration::from_secs(2))
        .warm_up_time(Duration::from_secs(1));
    for (text, fills) in SIZES {
        let range = AddrRange::parse(text).expect("constant");
        for &held in fills {
            let mut pool = pool(&range, held);
            let asks = claim("default/asks");
            group.bench_function(BenchmarkId::new(format!("first_free {text}"), held), |b| {
                b.iter(|| {
                    let addr = pool.take_next(range.family(), black_box(&asks)).expect("the pool has room");
                    pool.release(addr, &asks.service)
                });
            });
            let mut n = 0;
            group.bench_function(BenchmarkId::new(format!("pinned {text}"), held), |b| {
                b.iter(|| {
                    n = (n + 7_919) % 199;
                    let addr = scattered(&range, n, 199);
                    pool.take(black_box(addr), &asks).is_ok() && pool.release(addr, &asks.service)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
