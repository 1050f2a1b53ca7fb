//! Addresses put on the virtual interface by the agent's kernel thread, beside a bare netlink loop in the same run.
//!
//! The loop sends the same requests, as many at a time, and reads nothing but the acknowledgements: it does not hear what
//! the kernel tells of the addresses, which is what the agent's thread must do as well. Each round has a fresh namespace,
//! because the kernel takes the longer for an address the more there are.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use purelb::agent::clock::Clock;
use purelb::agent::kernel::{self, Kernel, KernelNews, Order};
use purelb_core::links::{LinkNews, OUR_PROTOCOL};
use purelb_core::plan::Step;
use purelb_lab::net::Namespace;

const MOST: f64 = 1.5;
const BATCH: usize = 64;

fn main() -> Result<()> {
    println!("| addresses | kernel thread | bare loop | ratio (at most {MOST}) |\n| --- | ---: | ---: | ---: |");
    let mut worst: f64 = 0.0;
    for (count, rounds) in [(1_000, 9), (10_000, 3)] {
        for v6 in [false, true] {
            let addrs: Vec<IpAddr> = (0..count).map(|n| addr(n, v6)).collect();
            let mut pairs = Vec::new();
            for _ in 0..rounds {
                pairs.push((ours(&addrs)?, bare(&addrs)?));
            }
            pairs.sort_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
            let middle = pairs[pairs.len() / 2];
            let family = if v6 { "IPv6" } else { "IPv4" };
            println!("| {count} {family} | {:.1?} | {:.1?} | {:.2} |", middle.0, middle.1, ratio(middle));
            worst = worst.max(ratio(middle));
        }
    }
    ensure!(worst <= MOST, "{worst:.2} times the bare loop; at most {MOST} is promised");
    Ok(())
}

fn ratio((ours, floor): (Duration, Duration)) -> f64 {
    ours.as_secs_f64() / floor.as_secs_f64()
}

fn addr(n: u32, v6: bool) -> IpAddr {
    if v6 {
        Ipv6Addr::new(0xfc00, 0x370, 0x155, 0, 0x8000, 0, (n >> 16) as u16, n as u16).into()
    } else {
        Ipv4Addr::from_bits(0xac20_0000 + n).into()
    }
}

fn node() -> Result<(Namespace, u32)> {
    let namespace = Namespace::new("node")?;
    namespace.batch("link add kube-lb0 type ifb\nlink set kube-lb0 up\n")?;
    let shown = namespace.ip(&["-j", "link", "show", "dev", "kube-lb0"])?;
    let link = shown[0]["ifindex"].as_u64().context("no index")?;
    Ok((namespace, u32::try_from(link)?))
}

/// From the order until all of it is told as done, with every notification passed on.
fn ours(addrs: &[IpAddr]) -> Result<Duration> {
    let (namespace, link) = node()?;
    let clock = Clock::new();
    let mut kernel = namespace.run(|| kernel::start(clock))?;
    let first = kernel.news.blocking_recv();
    ensure!(matches!(first, Some(KernelNews::Links(LinkNews::Everything(_)))), "{first:?}");
    let steps: Vec<_> = addrs.iter().map(|addr| put(link, *addr)).collect();
    let start = Instant::now();
    kernel.orders.give(Order::Apply { steps, decided: clock.now() });
    let told = until_done(&mut kernel, addrs.len())?;
    let lasted = start.elapsed();
    ensure!(told >= addrs.len(), "only {told} of {} addresses were told", addrs.len());
    Ok(lasted)
}

fn until_done(kernel: &mut Kernel, count: usize) -> Result<usize> {
    let (mut done, mut told) = (0, 0);
    while done < count {
        match kernel.news.blocking_recv().context("the kernel thread has ended")? {
            KernelNews::Links(LinkNews::Addr(..)) => told += 1,
            KernelNews::Applied(results) => {
                done += results.len();
                results.into_iter().try_for_each(|(_, result)| result)?;
            }
            _ => {}
        }
    }
    Ok(told)
}

fn put(link: u32, addr: IpAddr) -> Step {
    let (prefix, no_prefix_route, no_dad, refresh) = (if addr.is_ipv4() { 32 } else { 128 }, false, false, false);
    Step::PutAddr { link, addr, prefix, no_prefix_route, no_dad, valid: None, preferred: 0, refresh }
}

/// The same requests without anything around them.
fn bare(addrs: &[IpAddr]) -> Result<Duration> {
    let (namespace, link) = node()?;
    let mut socket = namespace.run(|| Socket::new(NETLINK_ROUTE))?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.set_cap_ack(true)?;
    let start = Instant::now();
    let mut buffer = vec![0_u8; 64 * 1024];
    for some in addrs.chunks(BATCH) {
        let bytes: Vec<u8> = some.iter().flat_map(|addr| request(link, *addr)).collect();
        socket.send(&bytes, 0)?;
        for _ in some {
            let length = socket.recv(&mut &mut buffer[..], 0)?;
            let error = buffer.get(16..20).filter(|_| length >= 20).context("a short answer")?;
            ensure!(error == [0; 4], "the kernel refused: {error:?}");
        }
    }
    Ok(start.elapsed())
}

/// RTM_NEWADDR with IFA_LOCAL, IFA_ADDRESS and IFA_PROTO; created, and not there before or (IPv4) replaced.
fn request(link: u32, addr: IpAddr) -> Vec<u8> {
    let (family, prefix, mode, octets) = match addr {
        IpAddr::V4(v4) => (2, 32, 0x500_u16, v4.octets().to_vec()),
        IpAddr::V6(v6) => (10, 128, 0x600, v6.octets().to_vec()),
    };
    let mut body = vec![family, prefix, 0, 0];
    body.extend(link.to_ne_bytes());
    for (kind, value) in [(2_u16, octets.as_slice()), (1, &octets), (11, &[OUR_PROTOCOL])] {
        body.extend((4 + value.len() as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(20_u16.to_ne_bytes());
    message.extend((0x5 | mode).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}
