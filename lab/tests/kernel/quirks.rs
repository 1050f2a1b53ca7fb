//! What kernels do that one would not guess. The plan leans on each of these; a kernel that differs must be seen here.

use anyhow::Result;
use purelb::agent::kernel::StepError;
use purelb_core::plan::Step;
use purelb_lab::net::{Lan, Namespace};

use crate::node::{LB, Node, drop_addr, put, put_local};

/// Without `promote_secondaries` the siblings go with their primary, and the kernel tells of each.
#[test]
fn deleting_a_primary_deletes_its_secondaries_and_we_hear_of_each() -> Result<()> {
    let namespace = Namespace::new("node")?;
    namespace.batch("link add kube-lb0 type ifb\nlink set kube-lb0 up\n")?;
    namespace.sysctl("net.ipv4.conf.kube-lb0.promote_secondaries", "0")?;
    let mut node = Node::inside(&namespace)?;
    let link = node.index(LB)?;
    node.must(vec![
        put(link, "10.1.0.1/24"),
        put(link, "10.1.0.2/24"),
        put(link, "10.1.0.3/24"),
        put(link, "10.1.0.4/32"),
    ])?;
    node.must(vec![drop_addr(link, "10.1.0.1/24")])?;
    assert_eq!(node.pairs(LB)?, ["10.1.0.4/32"]);
    assert_eq!(node.told(LB), ["10.1.0.4/32"], "as of the result, not later");
    Ok(())
}

#[test]
fn b36_on_our_interface_the_siblings_stay_and_so_does_their_route() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.must(vec![put(link, "10.1.0.1/24"), put(link, "10.1.0.2/24"), put(link, "10.1.0.3/24")])?;
    node.must(vec![drop_addr(link, "10.1.0.1/24")])?;
    assert_eq!(node.pairs(LB)?, ["10.1.0.2/24", "10.1.0.3/24"]);
    assert_eq!(node.told(LB), node.pairs(LB)?);
    let routes = node.namespace.ip(&["-j", "route", "show", "10.1.0.0/24"])?;
    assert_eq!((routes[0]["dev"].as_str(), routes[0]["prefsrc"].as_str()), (Some(LB), Some("10.1.0.2")));
    Ok(())
}

/// B12: so the plan must delete and add.
#[test]
fn b12_a_replacement_changes_noprefixroute_of_ipv6_only() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    let pairs = ["10.2.0.1/24", "fd00:2::1/64"];
    node.must(pairs.map(|pair| put(link, pair)).to_vec())?;
    let changed = pairs.map(|pair| match put(link, pair) {
        Step::PutAddr { link, addr, prefix, no_dad, valid, preferred, .. } => {
            Step::PutAddr { link, addr, prefix, no_prefix_route: true, no_dad, valid, preferred, refresh: true }
        }
        other => other,
    });
    node.must(changed.to_vec())?;
    assert_eq!(node.one(LB, pairs[0])?["noprefixroute"], serde_json::Value::Null);
    assert_eq!(node.one(LB, pairs[1])?["noprefixroute"], true);
    Ok(())
}

#[test]
fn b13_a_second_prefix_length_is_a_second_ipv4_address_and_refused_for_ipv6() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.must(vec![put(link, "10.3.0.1/32"), put(link, "fd00:3::1/128")])?;
    let results = node.apply(vec![put(link, "10.3.0.1/24"), put(link, "fd00:3::1/64")])?;
    assert_eq!(results[0].1, Ok(()));
    assert!(matches!(results[1].1, Err(StepError::OtherPrefix { has: 128, wanted: 64, .. })), "{results:?}");
    assert_eq!(node.pairs(LB)?, ["10.3.0.1/24", "10.3.0.1/32", "fd00:3::1/128"]);
    assert_eq!(node.told(LB), node.pairs(LB)?);
    node.must(vec![drop_addr(link, "fd00:3::1/128"), put(link, "fd00:3::1/64"), drop_addr(link, "10.3.0.1/32")])?;
    assert_eq!(node.pairs(LB)?, ["10.3.0.1/24", "fd00:3::1/64"]);
    Ok(())
}

/// On a NIC the kernel first asks whether somebody has the address. It tells of the address only after that; our news
/// have it before the result all the same, marked as tentative.
#[test]
fn on_a_nic_an_ipv6_address_is_tentative_at_first_and_told_at_once() -> Result<()> {
    let (_lan, mut node, link) = on_a_lan()?;
    node.must(vec![put_local(link, "fd00:4::100/64", 300)])?;
    let held = held(&node, link, "fd00:4::100").expect("told before the result");
    assert!(held.0, "tentative");
    assert_eq!(node.one("eth0", "fd00:4::100/64")?["tentative"], true);
    node.wait("duplicate address detection to end", |node| {
        self::held(node, link, "fd00:4::100") == Some((false, false))
    })?;
    assert_eq!(node.one("eth0", "fd00:4::100/64")?["tentative"], serde_json::Value::Null);
    Ok(())
}

#[test]
fn skipping_duplicate_address_detection_makes_it_usable_at_once() -> Result<()> {
    let (_lan, mut node, link) = on_a_lan()?;
    let Step::PutAddr { link, addr, prefix, no_prefix_route, valid, preferred, refresh, .. } =
        put_local(link, "fd00:4::100/64", 300)
    else {
        unreachable!()
    };
    node.must(vec![Step::PutAddr { link, addr, prefix, no_prefix_route, no_dad: true, valid, preferred, refresh }])?;
    let shown = node.one("eth0", "fd00:4::100/64")?;
    assert_eq!((shown["tentative"].as_bool(), shown["nodad"].as_bool()), (None, Some(true)));
    assert_eq!(held(&node, link, "fd00:4::100"), Some((false, false)));
    Ok(())
}

/// Where somebody else has the address, one that was to stay for ever stays as failed, and one with a lifetime is deleted.
#[test]
fn an_address_that_somebody_else_has_is_told_as_failed_or_gone() -> Result<()> {
    let (lan, mut node, link) = on_a_lan()?;
    let other = Namespace::new("other")?;
    let _plug = lan.plug(&other, "eth0", &["fd00:4::100/64", "fd00:4::200/64"])?;
    node.must(vec![put_local(link, "fd00:4::100/64", 300), put(link, "fd00:4::200/64")])?;
    assert_eq!(held(&node, link, "fd00:4::100"), Some((true, false)));
    node.wait("one to go", |node| held(node, link, "fd00:4::100").is_none())?;
    node.wait("the other to fail", |node| held(node, link, "fd00:4::200").is_some_and(|held| held.1))?;
    assert_eq!(node.one("eth0", "fd00:4::200/64")?["dadfailed"], true);
    assert_eq!(node.pairs("eth0")?, ["fd00:4::11/64", "fd00:4::200/64"]);
    Ok(())
}

/// `kube-lb0` has no neighbours: its addresses work at once, and `ip addr` shows no `nodad` that the seeds do not show.
#[test]
fn on_the_virtual_interface_a_plain_ipv6_address_is_not_tentative() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.must(vec![put(link, "fc00:370:155:0:8000::/128")])?;
    node.wait("the kernel's last word", |node| held(node, link, "fc00:370:155:0:8000::") == Some((false, false)))?;
    let shown = node.one(LB, "fc00:370:155:0:8000::/128")?;
    assert_eq!((shown["tentative"].as_bool(), shown["nodad"].as_bool()), (None, None));
    Ok(())
}

/// A preferred one could become the source of the node's own connections, which its loss would kill.
#[test]
fn a_deprecated_address_is_not_chosen_as_a_source() -> Result<()> {
    let (_lan, mut node, link) = on_a_lan()?;
    let source = |node: &Node| -> Result<Option<String>> {
        let route = node.namespace.ip(&["-j", "route", "get", "fd00:4::99"])?;
        Ok(route[0]["prefsrc"].as_str().map(str::to_owned))
    };
    assert_eq!(source(&node)?.as_deref(), Some("fd00:4::11"));
    node.must(vec![put_local(link, "fd00:4::98/64", 300)])?;
    node.wait("duplicate address detection to end", |node| held(node, link, "fd00:4::98") == Some((false, false)))?;
    assert_eq!(source(&node)?.as_deref(), Some("fd00:4::11"));
    Ok(())
}

fn on_a_lan() -> Result<(Lan, Node, u32)> {
    let (lan, namespace) = (Lan::new()?, Namespace::new("node")?);
    lan.plug(&namespace, "eth0", &["fd00:4::11/64"])?;
    let node = Node::inside(&namespace)?;
    let link = node.index("eth0")?;
    Ok((lan, node, link))
}

/// Whether an address is told as tentative and as failed; `None` where it is not told at all.
fn held(node: &Node, link: u32, addr: &str) -> Option<(bool, bool)> {
    let addrs = &node.links.by_index.get(&link)?.addrs;
    addrs.iter().find(|held| held.addr.to_string() == addr).map(|held| (held.tentative, held.dad_failed))
}
