//! Addresses as an operator sees them with `ip addr`.

use std::time::Duration;

use anyhow::{Context, Result};
use purelb::agent::kernel::StepError;
use purelb_core::links::{OUR_LIFETIME, OUR_PROTOCOL};
use purelb_core::plan::Step;
use purelb_lab::net::{Lan, Namespace};
use rstest::rstest;
use serde_json::{Value, json};

use crate::marks::marks;
use crate::node::{LB, Node, drop_addr, put, put_local};

/// What `ip -j` prints for "for ever".
const FOREVER: u64 = u32::MAX as u64;

#[test]
fn a_virtual_host_address_has_no_broadcast_no_lifetime_and_no_flags() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.must(vec![put(link, "172.32.100.225/32"), put(link, "fc00:370:155:0:8000::/128")])?;
    let forever = json!({"valid_life_time": FOREVER, "preferred_life_time": FOREVER});
    let v4 = json!({"family": "inet", "local": "172.32.100.225", "prefixlen": 32, "scope": "global", "label": LB});
    let v6 = json!({"family": "inet6", "local": "fc00:370:155:0:8000::", "prefixlen": 128, "scope": "global"});
    assert_eq!(node.one(LB, "172.32.100.225/32")?, merged(v4, &forever));
    assert_eq!(node.one(LB, "fc00:370:155:0:8000::/128")?, merged(v6, &forever));
    Ok(())
}

/// Seed 001: `inet 172.22.0.11/24 brd 172.22.0.255 scope global kube-lb0`, and the route that routing software picks up.
#[test]
fn an_aggregate_has_its_broadcast_address_and_its_route() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.must(vec![put(link, "172.22.0.11/24"), put(link, "fd00:22::11/64")])?;
    assert_eq!(node.one(LB, "172.22.0.11/24")?["broadcast"], "172.22.0.255");
    assert_eq!(routes(&node, "-4")?, ["172.22.0.0/24"]);
    assert!(routes(&node, "-6")?.contains(&"fd00:22::/64".to_owned()));
    Ok(())
}

#[rstest]
#[case::pair("10.1.1.1/31", None)]
#[case::small("10.1.1.1/30", Some("10.1.1.3"))]
#[case::large("10.1.1.1/8", Some("10.255.255.255"))]
fn only_subnets_with_more_than_two_addresses_have_a_broadcast_address(
    #[case] pair: &str,
    #[case] broadcast: Option<&str>,
) -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.must(vec![put(link, pair)])?;
    assert_eq!(node.one(LB, pair)?["broadcast"].as_str(), broadcast);
    Ok(())
}

/// Spec 5.2: `secondary dynamic noprefixroute` with its lifetime, and IPv6 deprecated from the first moment.
#[test]
fn a_local_address_is_secondary_without_route_and_ends_by_itself() -> Result<()> {
    let (lan, namespace) = (Lan::new()?, Namespace::new("node")?);
    let _plug = lan.plug(&namespace, "eth0", &["192.168.1.11/24", "fd00:2::11/64"])?;
    let mut node = Node::inside(&namespace)?;
    let link = node.index("eth0")?;
    let before = (routes(&node, "-4")?, routes(&node, "-6")?);
    node.must(vec![put_local(link, "192.168.1.100/24", 300), put_local(link, "fd00:2::100/64", 300)])?;
    let v4 = node.one("eth0", "192.168.1.100/24")?;
    for flag in ["secondary", "dynamic", "noprefixroute"] {
        assert_eq!(v4[flag], true, "{flag}: {v4}");
    }
    assert_eq!((v4["broadcast"].clone(), lifetime(&v4)), (json!("192.168.1.255"), (true, true)));
    let v6 = node.one("eth0", "fd00:2::100/64")?;
    assert_eq!((v6["noprefixroute"].clone(), v6["dynamic"].clone()), (json!(true), json!(true)));
    assert_eq!(v6["preferred_life_time"], 0);
    assert_eq!((routes(&node, "-4")?, routes(&node, "-6")?), before);
    node.wait("the kernel to call it deprecated", |node| {
        node.one("eth0", "fd00:2::100/64").is_ok_and(|addr| addr["deprecated"] == true)
    })
}

#[test]
fn a_lifetime_is_refreshed_ended_and_given_again() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    for pair in ["10.2.0.1/32", "fd00:2::1/128"] {
        node.must(vec![with_lifetime(link, pair, Some(60), false)])?;
        assert_eq!(lifetime(&node.one(LB, pair)?), (false, false), "{pair}");
        node.must(vec![with_lifetime(link, pair, Some(300), true)])?;
        assert_eq!(lifetime(&node.one(LB, pair)?), (true, true), "{pair}");
        node.must(vec![with_lifetime(link, pair, None, true)])?;
        assert_eq!(node.one(LB, pair)?["valid_life_time"], FOREVER, "{pair}");
        let told =
            node.links.by_index[&link].addrs.iter().find(|held| format!("{}/{}", held.addr, held.prefix) == pair);
        assert_eq!(told.map(|held| held.valid_until), Some(None), "{pair}");
        node.must(vec![with_lifetime(link, pair, Some(300), true)])?;
        assert_eq!(lifetime(&node.one(LB, pair)?), (true, true), "{pair}");
    }
    Ok(())
}

#[test]
fn an_address_whose_time_is_over_is_told_as_gone() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.must(vec![
        with_lifetime(link, "10.2.0.1/32", Some(1), false),
        with_lifetime(link, "fd00:2::1/128", Some(1), false),
    ])?;
    assert_eq!(node.told(LB), ["10.2.0.1/32", "fd00:2::1/128"]);
    node.wait("both to go", |node| node.told(LB).is_empty())?;
    assert_eq!(node.pairs(LB)?, [""; 0]);
    Ok(())
}

/// What kernels before 5.18 get instead of a mark.
#[test]
fn a_lifetime_of_a_hundred_years_is_kept_and_told() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    let pairs = ["10.2.0.1/32", "fd00:2::1/128"];
    node.must(pairs.map(|pair| with_lifetime(link, pair, Some(OUR_LIFETIME), false)).to_vec())?;
    for pair in pairs {
        let shown = node.one(LB, pair)?;
        let left = shown["valid_life_time"].as_u64().context("a lifetime")?;
        assert!((u64::from(OUR_LIFETIME) - 60..=u64::from(OUR_LIFETIME)).contains(&left), "{shown}");
        assert_eq!(shown["deprecated"], Value::Null, "{shown}");
    }
    let told = &node.links.by_index[&link].addrs;
    assert_eq!(told.iter().filter(|held| held.has_our_lifetime()).count(), 2, "{told:?}");
    Ok(())
}

/// An agent that was stopped between deciding and doing: its lifetimes end when they were to end, or it does nothing.
#[test]
fn b22_a_step_that_comes_late_gives_no_longer_lifetime_than_was_decided() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    let late = Duration::from_secs(2);
    let steps = ["10.2.0.1/32", "fd00:2::1/128"].map(|pair| with_lifetime(link, pair, Some(60), false));
    for (step, result) in node.apply_late(steps.to_vec(), late)? {
        result.with_context(|| format!("{step:?}"))?;
    }
    for pair in ["10.2.0.1/32", "fd00:2::1/128"] {
        let left = node.one(LB, pair)?["valid_life_time"].as_u64();
        assert!(left.is_some_and(|left| left <= 58), "{pair}: {left:?}");
    }
    let over = node.apply_late(vec![with_lifetime(link, "10.2.0.2/32", Some(2), false)], late)?;
    assert!(matches!(over[..], [(_, Err(StepError::TooLate))]), "{over:?}");
    assert_eq!(node.pairs(LB)?, ["10.2.0.1/32", "fd00:2::1/128"]);
    Ok(())
}

#[test]
fn only_the_pair_that_was_named_goes_and_going_twice_does_no_harm() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.must(vec![
        put(link, "10.3.0.1/32"),
        put(link, "10.3.0.1/24"),
        put(link, "fd00:3::1/128"),
        put(link, "fd00:3::2/128"),
    ])?;
    let drops = vec![drop_addr(link, "10.3.0.1/32"), drop_addr(link, "fd00:3::1/128")];
    for _ in 0..2 {
        node.must(drops.clone())?;
        assert_eq!(node.pairs(LB)?, ["10.3.0.1/24", "fd00:3::2/128"]);
        assert_eq!(node.told(LB), ["10.3.0.1/24", "fd00:3::2/128"]);
    }
    node.must(vec![drop_addr(link + 1000, "10.3.0.1/24")])
}

/// Putting what is there changes nothing but lifetime and mark: no sibling goes, no news of a loss.
#[test]
fn putting_an_address_twice_does_no_harm() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    let pairs = ["10.4.0.1/24", "10.4.0.2/24", "fd00:4::1/64", "fd00:4::2/64"];
    for _ in 0..2 {
        node.must(pairs.map(|pair| put(link, pair)).to_vec())?;
        assert_eq!(node.pairs(LB)?, pairs);
    }
    Ok(())
}

#[test]
fn what_the_reference_left_gets_our_mark_without_leaving() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.namespace.batch("addr add 10.5.0.1/32 dev kube-lb0\naddr add fd00:5::1/128 dev kube-lb0\n")?;
    node.wait("both", |node| node.told(LB).len() == 2)?;
    assert_eq!(marks(&node, LB)?, [0, 0]);
    node.must(vec![with_lifetime(link, "10.5.0.1/32", None, true), with_lifetime(link, "fd00:5::1/128", None, true)])?;
    assert_eq!(marks(&node, LB)?, [OUR_PROTOCOL; 2]);
    let told: Vec<_> = node.links.by_index[&link].addrs.iter().filter(|held| held.protocol == OUR_PROTOCOL).collect();
    assert_eq!(told.len(), 2);
    Ok(())
}

#[test]
fn b11_the_same_address_on_kube_ipvs0_is_never_touched() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.namespace.batch(
        "link add kube-ipvs0 type ifb\nlink set kube-ipvs0 up\n\
         addr add 10.6.0.1/32 dev kube-ipvs0\naddr add fd00:6::1/128 dev kube-ipvs0\n",
    )?;
    let before = node.shown("kube-ipvs0")?;
    node.must(vec![put(link, "10.6.0.1/32"), put(link, "fd00:6::1/128")])?;
    assert_eq!(node.pairs(LB)?, ["10.6.0.1/32", "fd00:6::1/128"]);
    node.must(vec![drop_addr(link, "10.6.0.1/32"), drop_addr(link, "fd00:6::1/128")])?;
    assert_eq!(node.pairs(LB)?, [""; 0]);
    assert_eq!(node.shown("kube-ipvs0")?, before);
    Ok(())
}

fn with_lifetime(link: u32, pair: &str, seconds: Option<u32>, again: bool) -> Step {
    match put(link, pair) {
        Step::PutAddr { link, addr, prefix, no_prefix_route, no_dad, .. } => Step::PutAddr {
            link,
            addr,
            prefix,
            no_prefix_route,
            no_dad,
            valid: seconds,
            preferred: seconds.unwrap_or(0),
            refresh: again,
        },
        other => other,
    }
}

/// Whether the address lives, and is preferred, for about 300 seconds.
fn lifetime(addr: &Value) -> (bool, bool) {
    let near = |field: &str| addr[field].as_u64().is_some_and(|seconds| (290..=300).contains(&seconds));
    (near("valid_life_time"), near("preferred_life_time"))
}

/// The connected routes, multicast and link-local ones left out.
fn routes(node: &Node, family: &str) -> Result<Vec<String>> {
    let shown = node.namespace.ip(&[family, "-j", "route", "show", "proto", "kernel"])?;
    let to = |route: &Value| route["dst"].as_str().unwrap_or_default().to_owned();
    Ok(shown.as_array().into_iter().flatten().map(to).filter(|to| to != "fe80::/64").collect())
}

fn merged(mut one: Value, other: &Value) -> Value {
    for (key, value) in other.as_object().into_iter().flatten() {
        one[key] = value.clone();
    }
    one
}
