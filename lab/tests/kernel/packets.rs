//! What neighbours hear of an address that was taken over, as `tcpdump` sees it on the wire.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb::agent::kernel::{KernelNews, Order, TellError};
use purelb_core::agent::Garp;
use purelb_core::plan::Telling;
use purelb_lab::net::{Capture, Lan, Namespace};

use crate::node::{Node, drop_addr, put_local};

const V4: &str = "192.168.1.100";
const V6: &str = "fd00:2::100";

/// A node on a LAN, and a `tcpdump` on the LAN's switch.
fn on_a_lan() -> Result<(Lan, Node, u32, Capture)> {
    let (lan, namespace) = (Lan::new()?, Namespace::new("node")?);
    lan.plug(&namespace, "eth0", &["192.168.1.11/24", "fd00:2::11/64"])?;
    let capture = Capture::start(lan.switch(), "lan0", "arp or icmp6[0] == 136")?;
    let node = Node::inside(&namespace)?;
    let link = node.index("eth0")?;
    Ok((lan, node, link, capture))
}

fn telling(link: u32, addr: &str, count: u8) -> Telling {
    let pause = Duration::from_millis(50);
    let how = Garp { enabled: true, initial_delay: pause, count, interval: pause, verify_before_send: true };
    Telling { link, addr: addr.parse().expect("an address"), how }
}

/// The results of the next rounds of telling.
fn told(node: &mut Node, rounds: usize) -> Result<Vec<(IpAddr, Result<(), TellError>)>> {
    let of = |news: &KernelNews| match news {
        KernelNews::Told { addr, result } => Some((*addr, result.clone())),
        _ => None,
    };
    node.wait("neighbours to be told", |node| node.others.iter().filter_map(of).count() >= rounds)?;
    let all = node.others.iter().filter_map(of).collect();
    node.others.clear();
    Ok(all)
}

fn mac(node: &Node) -> Result<String> {
    Ok(node.namespace.ip(&["-j", "link", "show", "dev", "eth0"])?[0]["address"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a21_each_round_of_ipv4_is_a_gratuitous_request_and_a_reply() -> Result<()> {
    let (_lan, mut node, link, capture) = on_a_lan()?;
    node.must(vec![put_local(link, &format!("{V4}/24"), 300)])?;
    let start = Instant::now();
    node.give(Order::Tell(telling(link, V4, 3)));
    assert!(told(&mut node, 3)?.iter().all(|(addr, result)| addr.to_string() == V4 && result.is_ok()));
    ensure!(start.elapsed() >= Duration::from_millis(150), "a first pause and one between each two");
    let mac = mac(&node)?;
    let ours = |line: &str| line.contains(&format!("{mac} > ff:ff:ff:ff:ff:ff, ethertype ARP"));
    let request =
        |line: &str| ours(line) && line.contains(&format!("Request who-has {V4} (ff:ff:ff:ff:ff:ff) tell {V4}"));
    let reply = |line: &str| ours(line) && line.contains(&format!("Reply {V4} is-at {mac}"));
    capture.wait_for("the request", request)?;
    capture.wait_for("the third reply", |_| capture.lines().iter().filter(|line| reply(line)).count() == 3)?;
    assert_eq!(capture.lines().iter().filter(|line| request(line)).count(), 3);
    Ok(())
}

#[test]
fn each_round_of_ipv6_is_an_unsolicited_advertisement_that_overrides() -> Result<()> {
    let (_lan, mut node, link, capture) = on_a_lan()?;
    node.must(vec![put_local(link, &format!("{V6}/64"), 300)])?;
    let Some(IpAddr::V6(addr)) = V6.parse().ok() else { unreachable!() };
    let usable = |node: &Node| node.links.by_index[&link].addrs.iter().any(|held| held.addr == addr && !held.tentative);
    assert!(!usable(&node), "duplicate address detection has not ended, and nothing may be sent before");
    node.give(Order::Tell(telling(link, V6, 2)));
    assert!(told(&mut node, 2)?.iter().all(|(_, result)| result.is_ok()));
    assert!(usable(&node), "it was told of an address that may not be used yet");
    let mac = mac(&node)?;
    let target = format!("tgt is {V6}, Flags [override]");
    capture.wait_for("the advertisement", |line| line.contains("neighbor advertisement") && line.contains(&target))?;
    let lines = capture.lines().join("\n");
    assert!(lines.contains(&format!("{mac} > 33:33:00:00:00:01")), "{lines}");
    assert!(lines.contains("hlim 255") && lines.contains("> ff02::1: [icmp6 sum ok]"), "{lines}");
    assert!(lines.contains(&format!("destination link-address option (2), length 8 (1): {mac}")), "{lines}");
    Ok(())
}

/// The neighbours' tables are what it is all for.
#[test]
fn a_neighbour_that_knew_another_node_now_knows_this_one() -> Result<()> {
    let (lan, mut node, link, _capture) = on_a_lan()?;
    let client = Namespace::new("client")?;
    lan.plug(&client, "eth0", &["192.168.1.50/24", "fd00:2::50/64"])?;
    client.batch(&format!(
        "neigh replace {V4} lladdr 02:00:00:00:00:99 dev eth0 nud stale\n\
         neigh replace {V6} lladdr 02:00:00:00:00:99 dev eth0 nud stale\n"
    ))?;
    node.must(vec![put_local(link, &format!("{V4}/24"), 300), put_local(link, &format!("{V6}/64"), 300)])?;
    node.give(Order::Tell(telling(link, V4, 1)));
    node.give(Order::Tell(telling(link, V6, 1)));
    told(&mut node, 2)?;
    let mac = mac(&node)?;
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let table = client.ip(&["-j", "neigh", "show", "dev", "eth0"])?;
        let known = |addr: &str| {
            let mut entries = table.as_array().into_iter().flatten();
            entries.any(|entry| entry["dst"] == addr && entry["lladdr"] == mac.as_str())
        };
        if known(V4) && known(V6) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{table:#}");
        std::thread::yield_now();
    }
}

#[test]
fn telling_stops_when_asked_to_and_starts_anew_instead_of_twice() -> Result<()> {
    let (_lan, mut node, link, _capture) = on_a_lan()?;
    node.must(vec![put_local(link, &format!("{V4}/24"), 300)])?;
    node.give(Order::Tell(telling(link, V4, 200)));
    told(&mut node, 1)?;
    node.give(Order::Tell(telling(link, V4, 2)));
    told(&mut node, 2)?;
    node.give(Order::Tell(telling(link, V4, 200)));
    told(&mut node, 1)?;
    node.give(Order::StopTelling(V4.parse()?));
    // What another address says comes later than anything the stopped one could still have said.
    node.must(vec![put_local(link, "192.168.1.101/24", 300)])?;
    node.give(Order::Tell(telling(link, "192.168.1.101", 5)));
    let mut after = Vec::new();
    while after.iter().filter(|(addr, _): &&(IpAddr, _)| addr.to_string() == "192.168.1.101").count() < 5 {
        after.extend(told(&mut node, 1)?);
    }
    let late = after.iter().filter(|(addr, _)| addr.to_string() == V4).count();
    ensure!(late <= 1, "{late} rounds after the stop: {after:?}");
    Ok(())
}

#[test]
fn an_address_that_left_is_not_told_of() -> Result<()> {
    let (_lan, mut node, link, capture) = on_a_lan()?;
    node.must(vec![put_local(link, &format!("{V4}/24"), 300)])?;
    node.must(vec![drop_addr(link, &format!("{V4}/24"))])?;
    node.give(Order::Tell(telling(link, V4, 3)));
    let results = told(&mut node, 1)?;
    assert!(matches!(results[0].1, Err(TellError::NotHeld { .. })), "{results:?}");
    assert!(!capture.lines().iter().any(|line| line.contains(V4)));
    Ok(())
}

#[test]
fn what_cannot_be_told_is_said_with_a_reason() -> Result<()> {
    let (_lan, mut node, link, _capture) = on_a_lan()?;
    node.give(Order::Tell(telling(link + 1000, V4, 3)));
    let results = told(&mut node, 1)?;
    assert_eq!(results[0].1, Err(TellError::NoLink { addr: V4.parse()? }));
    let shown = node.namespace.ip(&["-j", "addr", "show", "dev", "eth0"])?;
    let mut local = shown[0]["addr_info"].as_array().into_iter().flatten().filter(|addr| addr["scope"] == "link");
    let local = local.next().and_then(|addr| addr["local"].as_str()).context("no link-local address to take away")?;
    node.namespace.batch(&format!("addr del {local}/64 dev eth0\naddr add {V6}/64 dev eth0 nodad\n"))?;
    node.give(Order::Tell(telling(link, V6, 2)));
    let results = told(&mut node, 2)?;
    assert!(matches!(results[1].1, Err(TellError::NoLinkLocal { .. })), "tried again, and said again: {results:?}");
    node.namespace.batch("link set eth0 down\n")?;
    node.namespace.batch(&format!("addr add {V4}/24 dev eth0\n"))?;
    node.give(Order::Tell(telling(link, V4, 1)));
    let results = told(&mut node, 1)?;
    assert!(matches!(&results[0].1, Err(TellError::NotSent { why, .. }) if why.contains("down")), "{results:?}");
    Ok(())
}
