//! Stories of where addresses go, by the spec's scenario IDs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use rstest::rstest;

use super::*;
use crate::addr::{AddrRange, parse_subnet};
use crate::agent::{AddressOptions, AgentConfig, LocalInterface};
use crate::group::Ranges;
use crate::links::{DefaultRoute, HeldAddr, Link, LinkKind, Links};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn config(local: &str, interfaces: &[&str]) -> AgentConfig {
    AgentConfig {
        namespace: "purelb-system".into(),
        name: "default".into(),
        local_interface: match local {
            "default" => LocalInterface::DefaultRoute,
            pattern => LocalInterface::Matching(pattern.into()),
        },
        interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
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

fn links(all: Vec<Link>) -> Links {
    Links { by_index: (1..).zip(all).collect(), default_routes: Vec::new() }
}

fn route(family: Family, metric: u32, link: u32) -> DefaultRoute {
    DefaultRoute { family, metric, link, gateway: None }
}

fn serving(links: &Links, config: &AgentConfig) -> Serving {
    serving_after(links, config, "")
}

/// The same on a node that served these subnets before.
fn serving_after(links: &Links, config: &AgentConfig, before: &str) -> Serving {
    let before = before.split_whitespace().map(|net| net.parse().unwrap()).collect();
    let is_ours = |_, held: &HeldAddr| held.protocol == crate::links::OUR_PROTOCOL;
    Serving::resolve(links, &LinkChoice::new(config).unwrap(), &before, is_ours)
}

fn subnets(links: &Links, config: &AgentConfig) -> Vec<String> {
    serving(links, config).subnets().iter().map(ToString::to_string).collect()
}

#[test]
fn s01_every_address_of_a_chosen_interface_serves_its_network() {
    let addrs =
        ["192.168.1.50/24", "10.0.5.100/16", "192.168.1.1/32", "fd53:9ef0:8683::50/64", "fd53:9ef0:8683::ab/120"];
    let all = links(vec![link("eth0", LinkKind::Other, &[&addrs[..], &["2001:db8::1/128"]].concat())]);
    let expected: BTreeSet<IpNet> =
        "192.168.1.0/24 10.0.0.0/16 192.168.1.1/32 fd53:9ef0:8683::/64 fd53:9ef0:8683::/120 2001:db8::1/128"
            .split(' ')
            .map(|net| net.parse().unwrap())
            .collect();
    assert_eq!(serving(&all, &config("eth0", &[])).subnets(), expected);
}

#[test]
fn s05_s07_the_loopback_serves_only_where_it_is_named() {
    let all = links(vec![link("lo", LinkKind::Loopback, &["127.0.0.1/8", "::1/128"])]);
    assert_eq!(subnets(&all, &config("default", &["lo", "lo"])), ["127.0.0.0/8", "::1/128"]);
    assert!(subnets(&all, &config("^lo$", &[])).is_empty(), "a pattern never means the loopback");
    let virtual_lo = AgentConfig { virtual_interface: "lo".into(), ..config("default", &["lo"]) };
    assert!(subnets(&all, &virtual_lo).is_empty());
}

#[test]
fn s06_a16_a_missing_interface_is_passed_over_and_the_virtual_one_never_counts() {
    let all = links(vec![
        link("eth1", LinkKind::Other, &["10.1.0.5/24", "fd01::5/64"]),
        link("kube-lb0", LinkKind::Dummy, &["10.9.0.1/24"]),
    ]);
    assert!(subnets(&all, &config("default", &["nope"])).is_empty());
    let found = serving(&all, &config("default", &["kube-lb0", "nope", "eth1"]));
    assert_eq!(found.spot(ip("10.1.0.77")), Some((1, 24)));
    assert_eq!(found.spot(ip("fd01::77")), Some((1, 64)));
    assert_eq!(found.spot(ip("10.9.0.77")), None);
}

#[rstest]
#[case::unanchored("eth", "eth1 eth2 veth0abc")]
#[case::anchored("^eth", "eth1 eth2")]
#[case::any(".", "docker0 eth1 eth2 veth0abc")]
fn s11_a_pattern_chooses_by_name(#[case] pattern: &str, #[case] expected: &str) {
    let names = ["eth1", "eth2", "veth0abc", "kube-lb0", "docker0"];
    let all = names.iter().enumerate().map(|(i, name)| link(name, LinkKind::Other, &[&format!("10.{i}.0.1/24")]));
    let all = links(all.collect());
    let found = serving(&all, &config(pattern, &[]));
    let spots =
        (0..5).filter_map(|i| found.spot(ip(&format!("10.{i}.0.9")))).map(|(index, _)| &all.by_index[&index].name);
    let mut chosen: Vec<_> = spots.cloned().collect();
    chosen.sort();
    assert_eq!(chosen.join(" "), expected);
}

#[test]
fn a14_s09_a_pattern_that_cannot_be_read_is_refused() {
    assert!(matches!(LinkChoice::new(&config("[", &[])), Err(Reason::InterfacePattern { .. })));
    assert!(LinkChoice::new(&config("default", &[])).is_ok());
}

#[test]
fn a15_nothing_matches_nothing_served() {
    let all = links(vec![link("eth0", LinkKind::Other, &["10.1.0.5/24"])]);
    assert_eq!(serving(&all, &config("^wlan", &[])), Serving::default());
}

#[test]
fn b20_each_family_is_served_by_the_interface_of_its_own_default_route() {
    let mut all = links(vec![
        link("eth0", LinkKind::Other, &["192.168.1.10/24", "fd00:1::10/64"]),
        link("eth1", LinkKind::Other, &["192.168.2.10/24", "fd00:2::10/64"]),
    ]);
    all.default_routes = vec![route(Family::V4, 0, 1), route(Family::V6, 0, 2)];
    assert_eq!(subnets(&all, &config("default", &[])), ["192.168.1.0/24", "fd00:2::/64"]);
    all.default_routes = vec![route(Family::V4, 0, 1)];
    assert_eq!(subnets(&all, &config("default", &[])), ["192.168.1.0/24"], "no IPv6 default route, no IPv6 subnet");
}

#[test]
fn a_default_route_that_is_lost_leaves_the_interface_that_it_chose_in_service() {
    let eth0 = link("eth0", LinkKind::Other, &["192.168.1.10/24", "fd00:1::10/64"]);
    let mut all = links(vec![eth0, link("eth1", LinkKind::Other, &["192.168.2.10/24"])]);
    all.default_routes = vec![route(Family::V6, 0, 1)];
    let found = serving_after(&all, &config("default", &[]), "192.168.1.0/24 10.0.0.0/8");
    let subnets: Vec<_> = found.subnets().iter().map(ToString::to_string).collect();
    assert_eq!(subnets, ["192.168.1.0/24", "fd00:1::/64"]);
    assert_eq!(found.withheld(ip("192.168.2.9")), Some("192.168.2.0/24".parse().unwrap()), "it may have been this one");
    all.default_routes.push(route(Family::V4, 0, 2));
    let found = serving_after(&all, &config("default", &[]), "192.168.1.0/24");
    assert_eq!(found.spot(ip("192.168.1.9")), None, "the default route chose another one");
    assert_eq!((found.withheld(ip("192.168.1.9")), found.withheld(ip("192.168.2.9"))), (None, None));
}

#[test]
fn b25_the_lowest_metric_wins_then_the_name_and_several_next_hops_are_no_trouble() {
    let mut all = links(vec![
        link("eth1", LinkKind::Other, &["10.1.0.1/24"]),
        link("eth0", LinkKind::Other, &["10.2.0.1/24"]),
        link("eth2", LinkKind::Other, &["10.3.0.1/24"]),
    ]);
    all.default_routes = vec![route(Family::V4, 100, 1), route(Family::V4, 100, 2), route(Family::V4, 200, 3)];
    assert_eq!(subnets(&all, &config("default", &[])), ["10.2.0.0/24"]);
    all.default_routes.push(route(Family::V4, 50, 3));
    assert_eq!(subnets(&all, &config("default", &[])), ["10.3.0.0/24"]);
}

#[test]
fn an_interface_without_carrier_or_switched_off_serves_nothing() {
    let mut all = links(vec![link("eth0", LinkKind::Other, &["10.1.0.1/24"])]);
    all.by_index.get_mut(&1).unwrap().carrier = false;
    assert!(subnets(&all, &config("eth0", &[])).is_empty());
    let eth0 = all.by_index.get_mut(&1).unwrap();
    (eth0.carrier, eth0.up) = (true, false);
    assert!(subnets(&all, &config("eth0", &[])).is_empty());
    let held_back = serving_after(&all, &config("default", &[]), "10.1.0.0/24");
    assert_eq!((held_back.spot(ip("10.1.0.9")), held_back.withheld(ip("10.1.0.9")).is_some()), (None, true));
}

#[test]
fn b21_our_own_addresses_and_unusable_ones_make_no_subnet() {
    let mut all =
        links(vec![link("eth0", LinkKind::Other, &["10.1.0.1/24", "10.2.0.1/24", "fd00::1/64", "fe80::1/64"])]);
    let addrs = &mut all.by_index.get_mut(&1).unwrap().addrs;
    addrs[1].protocol = crate::links::OUR_PROTOCOL;
    assert_eq!(subnets(&all, &config("eth0", &[])), ["10.1.0.0/24", "fd00::/64"]);
    for flag in 0..3 {
        let mut all = all.clone();
        let held = &mut all.by_index.get_mut(&1).unwrap().addrs[2];
        (held.deprecated, held.tentative, held.dad_failed) = (flag == 0, flag == 1, flag == 2);
        assert_eq!(subnets(&all, &config("eth0", &[])), ["10.1.0.0/24"]);
    }
}

#[test]
fn the_last_subnet_in_the_kernels_order_gives_the_mask() {
    let all = links(vec![link("eth0", LinkKind::Other, &["10.1.0.1/16", "10.1.0.2/24"])]);
    assert_eq!(serving(&all, &config("eth0", &[])).spot(ip("10.1.0.9")), Some((1, 24)));
    assert_eq!(serving(&all, &config("eth0", &[])).spot(ip("10.1.9.9")), Some((1, 16)));
}

fn entry(range: &str, subnet: &str, aggregation: &str) -> Entry {
    let range = AddrRange::parse(range).unwrap();
    Entry {
        field: "spec".into(),
        text: range.typed(),
        range,
        subnet: parse_subnet(subnet).unwrap(),
        aggregation: Aggregation::parse(aggregation, range.family()).unwrap(),
    }
}

fn group(name: &str, placement: Placement, entries: Vec<Entry>) -> Group {
    let (v4, v6) = entries.into_iter().partition(|entry| entry.range.family() == Family::V4);
    sourced(name, placement, Source::Ranges(Ranges { v4, v6, ..Ranges::default() }))
}

fn sourced(name: &str, placement: Placement, source: Source) -> Group {
    Group {
        namespace: "purelb-system".into(),
        name: name.into(),
        placement,
        source,
        skip_ipv6_dad: false,
        namespaces: Vec::new(),
        enforce_namespaces: false,
        namespace_default: false,
    }
}

/// A node with `192.168.1.10/24` whose gateway is `192.168.1.1`.
fn spot(addr: &str, groups: Vec<Group>, from: Option<&str>, pool_type: Option<&str>, shown: Option<u8>) -> Spot {
    let mut all = links(vec![link("eth0", LinkKind::Other, &["192.168.1.10/24", "fd00:1::10/64"])]);
    all.default_routes = vec![route(Family::V4, 0, 1), route(Family::V6, 0, 1)];
    let serving = serving(&all, &config("default", &[]));
    let guarded = BTreeMap::from([
        (ip("192.168.1.10"), Guard::Node),
        (ip("192.168.1.1"), Guard::Gateway),
        (ip("10.8.0.53"), Guard::DnsServer),
        (ip("10.7.0.6"), Guard::ApiServer),
    ]);
    let node_subnets = BTreeSet::from(["192.168.1.0/24".parse().unwrap(), "172.20.5.0/24".parse().unwrap()]);
    let groups = Origins::new(groups);
    let origin = groups.of(ip(addr), from, pool_type);
    place(ip(addr), origin, shown, &Surroundings { serving: &serving, guarded: &guarded, node_subnets: &node_subnets })
}

fn remote(range: &str, subnet: &str, aggregation: &str) -> Vec<Group> {
    vec![group("far", Placement::Remote, vec![entry(range, subnet, aggregation)])]
}

#[test]
fn an_address_in_the_nodes_subnet_is_local_whatever_its_group_says() {
    let groups = remote("192.168.1.100-192.168.1.110", "192.168.1.0/24", "/32");
    assert_eq!(spot("192.168.1.100", groups, None, None, None), Spot::Local { link: 1, prefix: 24 });
    assert_eq!(spot("192.168.1.100", vec![], None, None, None), Spot::Local { link: 1, prefix: 24 });
}

#[rstest]
#[case("/32", 32)]
#[case("default", 24)]
#[case("/16", 16)]
fn a_virtual_address_gets_the_prefix_its_group_asks_for(#[case] aggregation: &str, #[case] prefix: u8) {
    let groups = remote("10.9.0.10-10.9.0.20", "10.9.0.0/24", aggregation);
    assert_eq!(spot("10.9.0.10", groups, None, None, None), Spot::Virtual { prefix });
}

#[test]
fn an_automatic_group_is_virtual_where_the_node_is_not_in_the_subnet_and_a_local_one_nowhere() {
    let of = |placement| vec![group("g", placement, vec![entry("10.9.0.0/28", "10.9.0.0/24", "default")])];
    assert_eq!(spot("10.9.0.1", of(Placement::Auto), None, None, None), Spot::Virtual { prefix: 24 });
    let nowhere = spot("10.9.0.1", of(Placement::Local), None, None, None);
    assert_eq!(nowhere, Spot::Nowhere(Reason::NoLocalSubnet { addr: ip("10.9.0.1"), group: "g".into() }));
}

#[test]
fn i15_b6_external_groups_that_announce_remotely_are_virtual_with_a_host_prefix() {
    let external = || Source::External { provider: "ipam".into(), socket: "/run/ipam.sock".into() };
    let groups = || vec![sourced("ext", Placement::Remote, external())];
    assert_eq!(spot("10.9.0.1", groups(), Some("ext"), Some("remote"), None), Spot::Virtual { prefix: 32 });
    assert_eq!(spot("fd09::1", groups(), Some("ext"), Some("remote"), None), Spot::Virtual { prefix: 128 });
    let local = vec![sourced("ext", Placement::Local, external())];
    assert!(matches!(spot("10.9.0.1", local, Some("ext"), Some("local"), None), Spot::Nowhere(_)));
}

#[test]
fn an_address_that_no_group_explains_any_more_stays_as_it_is() {
    assert_eq!(spot("10.9.0.1", vec![], Some("gone"), Some("remote"), Some(24)), Spot::Virtual { prefix: 24 });
    assert_eq!(spot("10.9.0.1", vec![], Some("gone"), None, None), Spot::Virtual { prefix: 32 });
    assert!(matches!(spot("10.9.0.1", vec![], Some("gone"), Some("local"), None), Spot::Nowhere(_)));
}

#[rstest]
#[case::own("192.168.1.10", "address of a Node")]
#[case::gateway("192.168.1.1", "address of a default gateway")]
#[case::api_server("10.7.0.6", "address of the API server")]
#[case::network("192.168.1.0", "network or broadcast address of 192.168.1.0/24")]
#[case::broadcast("192.168.1.255", "network or broadcast address of 192.168.1.0/24")]
#[case::anycast("fd00:1::", "network or broadcast address of fd00:1::/64")]
fn i16_b11_what_belongs_to_somebody_else_is_refused(#[case] addr: &str, #[case] what: &str) {
    let refused = Spot::Nowhere(Reason::AddressReserved { addr: ip(addr), what: what.into() });
    assert_eq!(spot(addr, vec![], None, None, None), refused);
}

#[test]
fn b11_a_dns_server_may_be_a_service_of_ours() {
    let groups = remote("10.8.0.53-10.8.0.53", "10.8.0.0/24", "/32");
    assert_eq!(spot("10.8.0.53", groups, None, None, None), Spot::Virtual { prefix: 32 });
}

#[rstest]
#[case::api_server("10.7.0.9", "/24", "10.7.0.6, the address of the API server")]
#[case::dns_server("10.8.0.7", "/24", "10.8.0.53, the address of a DNS server")]
#[case::nodes("172.20.9.7", "/16", "172.20.5.0/24, a subnet of Nodes")]
#[case::inside_a_node_subnet("172.20.5.7", "/28", "172.20.5.0/24, a subnet of Nodes")]
fn an_aggregate_that_would_capture_traffic_is_refused(#[case] addr: &str, #[case] length: &str, #[case] what: &str) {
    let groups = |length| remote(&format!("{addr}-{addr}"), &format!("{addr}/24"), length);
    match spot(addr, groups(length), None, None, None) {
        Spot::Nowhere(Reason::AggregateCaptures { what: found, .. }) => assert_eq!(found, what),
        other => panic!("{other:?}"),
    }
    assert_eq!(spot(addr, groups("/32"), None, None, None), Spot::Virtual { prefix: 32 }, "alone it captures nothing");
}

#[test]
fn a24_an_address_finds_the_entry_it_came_from() {
    let groups = vec![
        group(
            "a",
            Placement::Remote,
            vec![entry("10.0.0.0/24", "10.0.0.0/24", "/32"), entry("10.2.0.5-10.2.0.9", "10.2.0.0/24", "/32")],
        ),
        group(
            "b",
            Placement::Remote,
            vec![entry("10.1.0.0/24", "10.1.0.0/24", "/32"), entry("fd00::/120", "fd00::/64", "/128")],
        ),
        group("c", Placement::Remote, vec![entry("10.0.0.0/8", "10.0.0.0/8", "default")]),
    ];
    let origins = Origins::new(groups);
    let name = |addr: &str| match origins.of(ip(addr), None, None) {
        Origin::Range(group, entry) => format!("{} {}", group.name, entry.range.first()),
        _ => "-".into(),
    };
    assert_eq!(name("10.2.0.6"), "a 10.2.0.5");
    assert_eq!(name("10.1.0.200"), "b 10.1.0.0");
    assert_eq!(name("fd00::7"), "b fd00::");
    assert_eq!(name("10.2.0.4"), "c 10.0.0.0", "the wide range is found behind the narrow ones");
    assert_eq!(name("10.0.0.255"), "a 10.0.0.0", "of two ranges the first group's counts");
    assert_eq!(name("11.0.0.1"), "-");
    assert_eq!(name("fd00::1:0"), "-");
}
