//! Default routes, in every way that a node can have one.

use anyhow::Result;
use purelb::agent::clock::Clock;
use purelb::agent::kernel;
use purelb_core::addr::Family;
use purelb_lab::net::Namespace;
use rstest::rstest;

use crate::node::Node;

/// Two NICs with both families.
fn two_nics() -> Result<Namespace> {
    let namespace = Namespace::new("node")?;
    for (nic, net) in [("eth0", 1), ("eth1", 2)] {
        namespace.batch(&format!(
            "link add {nic} type veth peer name peer{net}\nlink set {nic} up\nlink set peer{net} up\n\
             addr add 192.168.{net}.11/24 dev {nic}\naddr add fd00:{net}::11/64 dev {nic} nodad\n"
        ))?;
    }
    Ok(namespace)
}

/// Family, metric, interface and router, as told.
fn told(node: &Node) -> Vec<(Family, u32, String, String)> {
    let name = |index| node.links.by_index.get(&index).map_or_else(|| format!("#{index}"), |link| link.name.clone());
    let router =
        |gateway: Option<std::net::IpAddr>| gateway.map_or_else(|| "-".to_owned(), |gateway| gateway.to_string());
    let routes = node.links.default_routes.iter();
    routes.map(|route| (route.family, route.metric, name(route.link), router(route.gateway))).collect()
}

fn hop(family: Family, metric: u32, link: &str, router: &str) -> (Family, u32, String, String) {
    (family, metric, link.to_owned(), router.to_owned())
}

#[test]
fn s12_both_families_with_their_metrics_and_only_of_the_main_table() -> Result<()> {
    let namespace = two_nics()?;
    namespace.batch(
        "route add default via 192.168.1.1 metric 100\nroute add default via 192.168.2.1 metric 50\n\
         route add default via fd00:1::1\nroute add default via 192.168.1.9 table 77\nroute add 10.0.0.0/8 via 192.168.1.1\n\
         route add ::/64 via fd00:1::1\n\
         route add blackhole default metric 9999\n",
    )?;
    let node = Node::inside(&namespace)?;
    let expected = [
        hop(Family::V4, 50, "eth1", "192.168.2.1"),
        hop(Family::V4, 100, "eth0", "192.168.1.1"),
        hop(Family::V6, 1024, "eth0", "fd00:1::1"),
    ];
    assert_eq!(told(&node), expected);
    Ok(())
}

#[test]
fn b25_each_next_hop_of_an_ecmp_route_is_told() -> Result<()> {
    let namespace = two_nics()?;
    namespace.batch(
        "route add default nexthop via 192.168.1.1 nexthop via 192.168.2.1\n\
         route add default nexthop via fd00:1::1 nexthop via fd00:2::1\n",
    )?;
    let node = Node::inside(&namespace)?;
    let expected = [
        hop(Family::V4, 0, "eth0", "192.168.1.1"),
        hop(Family::V4, 0, "eth1", "192.168.2.1"),
        hop(Family::V6, 1024, "eth0", "fd00:1::1"),
        hop(Family::V6, 1024, "eth1", "fd00:2::1"),
    ];
    assert_eq!(told(&node), expected);
    Ok(())
}

/// With the compatible way off the kernel names only the object.
#[rstest]
fn next_hop_objects_are_followed(#[values("0", "1")] compatible: &str) -> Result<()> {
    let namespace = two_nics()?;
    namespace.sysctl("net.ipv4.nexthop_compat_mode", compatible)?;
    namespace.batch(
        "nexthop add id 1 via 192.168.1.1 dev eth0\nnexthop add id 2 via 192.168.2.1 dev eth1\nnexthop add id 3 group 1/2\n\
         route add default nhid 3\nnexthop add id 4 via fd00:1::1 dev eth0\nroute add ::/0 nhid 4\n",
    )?;
    let mut node = Node::inside(&namespace)?;
    let both = [hop(Family::V4, 0, "eth0", "192.168.1.1"), hop(Family::V4, 0, "eth1", "192.168.2.1")];
    let v6 = hop(Family::V6, 1024, "eth0", "fd00:1::1");
    assert_eq!(told(&node), [&both[..], std::slice::from_ref(&v6)].concat());
    namespace.batch("nexthop replace id 3 group 2\n")?;
    node.wait("the group to shrink", |node| told(node) == [both[1].clone(), v6.clone()])
}

#[test]
fn a_router_of_the_other_family_is_told() -> Result<()> {
    let namespace = two_nics()?;
    namespace.batch("route add 0.0.0.0/0 via inet6 fd00:1::1 dev eth0\n")?;
    assert_eq!(told(&Node::inside(&namespace)?), [hop(Family::V4, 0, "eth0", "fd00:1::1")]);
    Ok(())
}

#[test]
fn routes_that_come_change_and_go_are_told() -> Result<()> {
    let namespace = two_nics()?;
    let mut node = Node::inside(&namespace)?;
    assert_eq!(told(&node), []);
    namespace.batch("route add default via 192.168.1.1\n")?;
    node.wait("the route", |node| told(node) == [hop(Family::V4, 0, "eth0", "192.168.1.1")])?;
    namespace.batch("route replace default via 192.168.2.1\n")?;
    node.wait("the other route", |node| told(node) == [hop(Family::V4, 0, "eth1", "192.168.2.1")])?;
    namespace.batch("route del default\n")?;
    node.wait("no route", |node| told(node).is_empty())
}

/// A router on the node may have many routes that change all the time. With so little room that a few notifications would
/// overrun it, none of theirs may arrive.
#[test]
fn other_routes_are_not_even_heard_of() -> Result<()> {
    let namespace = two_nics()?;
    let clock = Clock::new();
    let kernel = namespace.run(|| kernel::start_with_room(clock, 1))?;
    let mut node = Node::of(&namespace, kernel, clock)?;
    let before = node.dumps;
    let many = |verb: &str| -> String {
        let v4 = (0..2000).map(|n| format!("route {verb} 10.{}.{}.0/24 via 192.168.1.1\n", n / 250, n % 250));
        v4.chain((0..2000).map(|n| format!("route {verb} fd09:{n:x}::/64 via fd00:1::1\n"))).collect()
    };
    namespace.batch(&many("add"))?;
    namespace.batch(&many("del"))?;
    namespace.batch("route add default via 192.168.1.1\n")?;
    node.wait("the route", |node| told(node) == [hop(Family::V4, 0, "eth0", "192.168.1.1")])?;
    assert_eq!(node.dumps, before, "notifications were lost");
    Ok(())
}

/// The kernel says nothing of the IPv4 routes that it removes with an interface or a subnet.
#[rstest]
#[case::switched_off("link set eth0 down\n")]
#[case::deleted("link del eth0\n")]
#[case::last_address("addr del 192.168.1.11/24 dev eth0\n")]
fn routes_that_end_without_a_word_are_told(#[case] what_happens: &str) -> Result<()> {
    let namespace = two_nics()?;
    namespace.batch("route add default via 192.168.1.1\n")?;
    let mut node = Node::inside(&namespace)?;
    assert_eq!(told(&node).len(), 1);
    namespace.batch(what_happens)?;
    node.wait("no route", |node| told(node).is_empty())
}

/// A node without any route at all has no main table yet.
#[test]
fn no_route_is_an_empty_list() -> Result<()> {
    assert_eq!(told(&Node::new()?), []);
    Ok(())
}
