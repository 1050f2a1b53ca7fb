//! What a BGPConfiguration says, and every way to get it wrong.

use purelb_core::addr::Family;
use purelb_core::bgp::{Distance, Neighbor, Operator, PasswordSource};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn read(spec: Value) -> BgpReading {
    let object = json!({"metadata": {"name": "default", "namespace": "purelb-system"}, "spec": spec});
    bgp(&serde_json::from_value(object).unwrap())
}

/// A configuration with one neighbor.
fn plain() -> Value {
    json!({
        "global": {"asn": 64512},
        "neighbors": [{"config": {"neighborAddress": "192.0.2.254", "peerAsn": 64513}}],
        "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb0"]},
    })
}

/// The same with one value more, at a JSON pointer whose parents exist or are made.
fn with(pointer: &str, value: Value) -> Value {
    let mut spec = plain();
    let place = pointer.split('/').skip(1).fold(&mut spec, |place, step| match step.parse::<usize>() {
        Ok(i) => &mut place[i],
        Err(_) => &mut place[step],
    });
    *place = value;
    spec
}

fn neighbor(spec: Value) -> Neighbor {
    let reading = read(spec).reading;
    assert_eq!(reading.problems, []);
    reading.value.unwrap().neighbors.remove(0)
}

fn named(problems: &[purelb_core::reason::Problem]) -> Vec<(&str, &'static str)> {
    problems.iter().map(|problem| (problem.field.as_str(), problem.reason.name())).collect()
}

#[test]
fn a_plain_configuration_means_what_it_always_meant() {
    let BgpReading { reading, unsupported } = read(plain());
    assert_eq!((reading.problems.len(), reading.warnings.len(), unsupported.len()), (0, 0, 0));
    let configuration = reading.value.unwrap();
    assert_eq!((configuration.namespace.as_str(), configuration.name.as_str()), ("purelb-system", "default"));
    assert_eq!((configuration.asn, &configuration.router_id), (64512, &RouterIdWish::Automatic));
    assert_eq!(configuration.router_id_pool.to_string(), "10.255.0.0/16");
    assert_eq!(configuration.listen, Some(Listen { port: 179, addresses: vec![] }));
    assert_eq!(configuration.node_status, NodeStatus { enabled: true, heartbeat: Duration::from_secs(60) });
    assert_eq!(configuration.import, Import { enabled: true, interfaces: vec!["kube-lb0".to_owned()] });
    let [neighbor] = &configuration.neighbors[..] else { panic!("{configuration:?}") };
    assert_eq!(
        (neighbor.address.to_string().as_str(), neighbor.peer_as, neighbor.local_as),
        ("192.0.2.254", 64513, None)
    );
    assert_eq!(neighbor.families, [Family::V4].into());
    assert_eq!((neighbor.timers.hold, neighbor.timers.keepalive), (Duration::from_secs(90), None));
    assert_eq!((neighbor.distance, neighbor.graceful_restart), (Distance::Usual, None));
}

#[test]
fn every_field_with_an_effect_is_read() {
    let text = include_str!("../../../tests/data/bgp-every-field.yaml");
    let object: BgpObject = serde_saphyr::from_str(text).unwrap();
    let BgpReading { reading, unsupported } = bgp(&object);
    assert_eq!(reading.problems, []);
    let configuration = reading.value.unwrap();
    assert_eq!(configuration.router_id, RouterIdWish::NodeIp);
    assert_eq!(configuration.router_id_pool.to_string(), "10.254.0.0/16");
    assert_eq!(
        configuration.listen,
        Some(Listen { port: 1790, addresses: vec![] }),
        "both wildcards are all addresses"
    );
    assert_eq!(configuration.node_status.heartbeat, Duration::from_secs(30));
    assert_eq!(configuration.import.interfaces, ["kube-lb0", "eth*"]);
    let [left, spine] = &configuration.neighbors[..] else { panic!("{configuration:?}") };
    assert_eq!(
        (left.peer_as, left.local_as, left.description.as_str()),
        (4_200_000_000, Some(64600), "the left spine")
    );
    let (name, key, optional) = ("bgp".to_owned(), "password".to_owned(), true);
    assert_eq!(left.password, PasswordSource::Secret { name, key, optional });
    assert_eq!((left.nodes.0.len(), &left.nodes.0[1].operator), (2, &Operator::DoesNotExist));
    assert_eq!(left.families, [Family::V4, Family::V6].into(), "the case of letters does not matter");
    assert_eq!((left.timers.hold, left.timers.keepalive), (Duration::from_secs(30), Some(Duration::from_secs(10))));
    assert_eq!(left.timers.connect_retry, Some(Duration::from_secs(10)));
    assert_eq!(left.timers.advertisement_interval, Duration::from_secs(5));
    assert_eq!((left.source.map(|it| it.to_string()), left.passive), (Some("192.0.2.10".to_owned()), true));
    assert_eq!((left.interface.as_deref(), left.admin_down), (Some("eth0"), true));
    assert_eq!(
        (left.distance, left.graceful_restart),
        (Distance::Multihop(3), None),
        "only helping is nothing to ask for"
    );
    assert_eq!((spine.peer_as, spine.local_as, spine.description.as_str()), (64513, Some(64512), "any spine"));
    assert!(matches!(&spine.password, PasswordSource::Secret { name, .. } if name == "spines"), "{:?}", spine.password);
    assert_eq!((spine.families.clone(), spine.timers.hold), ([Family::V6].into(), Duration::from_secs(9)));
    assert_eq!((spine.distance, spine.nodes.0.len()), (Distance::Security(2), 1));
    assert_eq!(spine.graceful_restart, Some(Duration::from_secs(120)), "as in global");
    assert_eq!(spine.next_hop.v6.map(|it| it.to_string()).as_deref(), Some("2001:db8::10"));
    assert_eq!(spine.advertise.communities, [64512 << 16 | 100, 0xffff_ff01].into());
    assert_eq!(spine.advertise.large_communities, [[4_200_000_000, 1, 2]].into());
    assert_eq!((spine.advertise.med, spine.advertise.local_pref, spine.advertise.prepend), (Some(50), Some(200), 2));
    assert_eq!(spine.advertise.service_groups, Some(["edge".to_owned()].into()));
    assert_eq!(unsupported.len(), 22, "{unsupported:#?}");
}

#[test]
fn what_has_no_effect_is_named_by_its_path_and_what_is_off_is_not() {
    let text = include_str!("../../../tests/data/bgp-every-field.yaml");
    let named = bgp(&serde_saphyr::from_str(text).unwrap()).unsupported;
    for path in [
        "spec.global.confederation",
        "spec.global.bindToDevice",
        "spec.neighbors[0].config.neighborInterface",
        "spec.neighbors[0].afiSafis[2].family",
        "spec.neighbors[0].gracefulRestart.helperOnly",
        "spec.peerGroups[0].applyPolicy",
        "spec.dynamicNeighbors",
        "spec.netlinkImport.vrf",
        "spec.netlinkExport",
        "spec.vrfs",
    ] {
        assert!(named.iter().any(|name| name == path), "{path} in {named:#?}");
    }
    let off = json!({
        "global": {"asn": 1, "useMultiplePaths": false, "confederation": {"enabled": false, "identifier": 9}, "bindToDevice": ""},
        "netlinkExport": {"enabled": false, "rules": [{"name": "x"}]}, "vrfs": [], "definedSets": null,
    });
    assert_eq!(read(off).unsupported, [""; 0]);
}

#[rstest]
#[case::asn("/global/asn", json!(0), "spec.global.asn", "AsnInvalid")]
#[case::long_asn("/global/asn", json!(4_294_967_296_i64), "spec.global.asn", "AsnInvalid")]
#[case::router_id("/global/routerID", json!("${NODE}"), "spec.global.routerID", "RouterIdSyntax")]
fn without_an_as_or_an_identifier_there_is_no_configuration(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] field: &str,
    #[case] reason: &str,
) {
    let reading = read(with(pointer, value)).reading;
    assert_eq!(named(&reading.problems), [(field, reason)]);
    assert_eq!(reading.value, None);
}

#[rstest]
#[case("/global/routerIDPool", json!("10.0.0.0/25"), "spec.global.routerIDPool", "RouterIdPoolSyntax")]
#[case("/global/routerIDPool", json!("2001:db8::/32"), "spec.global.routerIDPool", "RouterIdPoolSyntax")]
#[case("/global/listenPort", json!(70000), "spec.global.listenPort", "NumberOutOfRange")]
#[case("/global/listenAddresses", json!(["eth0"]), "spec.global.listenAddresses[0]", "AddressSyntax")]
#[case("/netlinkImport/interfaceList", json!(["eth["]), "spec.netlinkImport.interfaceList[0]", "GlobSyntax")]
fn a_wrong_setting_costs_no_session(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] field: &str,
    #[case] reason: &str,
) {
    let reading = read(with(pointer, value)).reading;
    assert_eq!(named(&reading.problems), [(field, reason)]);
    assert_eq!(reading.value.unwrap().neighbors.len(), 1);
}

#[rstest]
#[case("/config/neighborAddress", json!("router"), "config.neighborAddress", "AddressSyntax")]
#[case("/config/neighborAddress", json!(null), "config.neighborAddress", "FieldMissing")]
#[case("/config/neighborAddress", json!("0.0.0.0"), "config.neighborAddress", "NeighborAddressUnusable")]
#[case("/config/neighborAddress", json!("224.0.0.1"), "config.neighborAddress", "NeighborAddressUnusable")]
#[case("/config/neighborAddress", json!("fe80::1"), "config.neighborAddress", "NeighborAddressUnusable")]
#[case("/config/neighborAddress", json!("192.0.2.1%eth 1"), "config.neighborAddress", "InterfaceName")]
#[case("/config/peerAsn", json!(0), "config.peerAsn", "AsnInvalid")]
#[case("/config/localAsn", json!(-1), "config.localAsn", "AsnInvalid")]
#[case("/config/peerGroup", json!("spines"), "config.peerGroup", "PeerGroupMissing")]
#[case("/config/authPassword", json!("x".repeat(81)), "config.authPassword", "PasswordUnusable")]
#[case("/config/authPasswordSecretRef", json!({"name": "bgp", "key": ""}), "config.authPasswordSecretRef.key", "FieldMissing")]
#[case("/config/authPasswordSecretRef", json!({"name": "", "key": "x"}), "config.authPasswordSecretRef.name", "FieldMissing")]
#[case("/nodeSelector", json!({"matchLabels": {"no key!": ""}}), "nodeSelector.matchLabels", "SelectorInvalid")]
#[case("/afiSafis", json!([{"family": "l2vpn-evpn"}]), "afiSafis", "NoFamilies")]
#[case("/afiSafis", json!([{"family": "ipv4-unicast", "enabled": false}]), "afiSafis", "NoFamilies")]
#[case("/timers", json!({"config": {"holdTime": 2}}), "timers.config.holdTime", "HoldTimeInvalid")]
#[case("/timers", json!({"config": {"holdTime": 65536}}), "timers.config.holdTime", "HoldTimeInvalid")]
#[case("/timers", json!({"config": {"holdTime": 9, "keepaliveInterval": 10}}), "timers.config.keepaliveInterval", "KeepaliveTooLong")]
#[case("/timers", json!({"config": {"connectRetry": -1}}), "timers.config.connectRetry", "NumberOutOfRange")]
#[case("/transport", json!({"localAddress": "eth0"}), "transport.localAddress", "AddressSyntax")]
#[case("/transport", json!({"localAddress": "2001:db8::1"}), "transport.localAddress", "SourceWrongFamily")]
#[case("/transport", json!({"bindInterface": "eth 0"}), "transport.bindInterface", "InterfaceName")]
#[case("/gracefulRestart", json!({"enabled": true, "restartTime": 4096}), "gracefulRestart.restartTime", "NumberOutOfRange")]
#[case("/ebgpMultihop", json!({"enabled": true, "multihopTtl": 256}), "ebgpMultihop.multihopTtl", "NumberOutOfRange")]
#[case("/ttlSecurity", json!({"enabled": true, "hops": 255}), "ttlSecurity.hops", "NumberOutOfRange")]
#[case("/nextHop", json!({"ipv4": "2001:db8::1"}), "nextHop.ipv4", "AddressSyntax")]
#[case("/nextHop", json!({"ipv6": "192.0.2.1"}), "nextHop.ipv6", "AddressSyntax")]
#[case("/advertise", json!({"communities": ["64512"]}), "advertise.communities[0]", "CommunitySyntax")]
#[case("/advertise", json!({"communities": ["1:1", "65536:1"]}), "advertise.communities[1]", "CommunitySyntax")]
#[case("/advertise", json!({"largeCommunities": ["1:2"]}), "advertise.largeCommunities[0]", "LargeCommunitySyntax")]
#[case("/advertise", json!({"med": -1}), "advertise.med", "NumberOutOfRange")]
#[case("/advertise", json!({"prepend": 33}), "advertise.prepend", "NumberOutOfRange")]
fn a_wrong_neighbor_is_named_and_costs_no_other_its_session(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] field: &str,
    #[case] reason: &str,
) {
    let mut spec = with(&format!("/neighbors/0{pointer}"), value);
    let sound = json!({"config": {"neighborAddress": "198.51.100.1", "peerAsn": 64514}});
    spec["neighbors"].as_array_mut().unwrap().push(sound);
    let reading = read(spec).reading;
    assert_eq!(named(&reading.problems), [(format!("spec.neighbors[0].{field}").as_str(), reason)]);
    let left: Vec<_> = reading.value.unwrap().neighbors.into_iter().map(|neighbor| neighbor.path).collect();
    assert_eq!(left, ["spec.neighbors[1]"]);
}

#[rstest]
#[case::not_enabled("/netlinkImport", json!({"interfaceList": ["kube-lb0"]}), "spec.netlinkImport", "NothingImported")]
#[case::no_interface("/netlinkImport", json!({"enabled": true}), "spec.netlinkImport.interfaceList", "NothingImported")]
#[case::heartbeat("/global/nodeStatus", json!({"heartbeatSeconds": 1}), "spec.global.nodeStatus.heartbeatSeconds", "NumberOutOfRange")]
#[case::inline("/neighbors/0/config/authPassword", json!("hunter2"), "spec.neighbors[0].config.authPassword", "PasswordInline")]
fn what_works_but_was_hardly_meant_is_a_warning(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] field: &str,
    #[case] reason: &str,
) {
    let reading = read(with(pointer, value)).reading;
    assert_eq!((named(&reading.warnings), reading.problems.len()), (vec![(field, reason)], 0));
}

#[test]
fn a_neighbor_that_is_only_an_interface_is_accepted_and_said_to_have_no_effect() {
    let mut spec = plain();
    spec["neighbors"].as_array_mut().unwrap().push(json!({"config": {"neighborInterface": "eth1", "peerAsn": 1}}));
    let BgpReading { reading, unsupported } = read(spec);
    let field = "spec.neighbors[1].config.neighborInterface";
    assert_eq!(named(&reading.warnings), [(field, "NeighborInterfaceUnsupported")]);
    assert_eq!((reading.problems.len(), unsupported), (0, vec![field.to_owned()]));
    assert_eq!(reading.value.unwrap().neighbors.len(), 1);
}

#[test]
fn of_multihop_and_ttl_security_multihop_counts() {
    let mut spec = with("/neighbors/0/ebgpMultihop", json!({"enabled": true}));
    spec["neighbors"][0]["ttlSecurity"] = json!({"enabled": true});
    assert_eq!(
        named(&read(spec.clone()).reading.warnings),
        [("spec.neighbors[0].ttlSecurity", "TtlSecurityAndMultihop")]
    );
    assert_eq!(neighbor(spec.clone()).distance, Distance::Multihop(255));
    spec["neighbors"][0]["ebgpMultihop"]["enabled"] = json!(false);
    assert_eq!(neighbor(spec).distance, Distance::Security(1));
}

#[test]
fn a_link_local_neighbor_is_on_its_interface() {
    let found = neighbor(with("/neighbors/0/config/neighborAddress", json!("fe80::1%eth1")));
    assert_eq!((found.address.to_string().as_str(), found.interface.as_deref()), ("fe80::1", Some("eth1")));
}

#[rstest]
#[case::never(json!({"holdTime": 0}), 0, None)]
#[case::zero_keepalive(json!({"holdTime": 9, "keepaliveInterval": 0}), 9, None)]
#[case::keepalive_without_hold(json!({"holdTime": 0, "keepaliveInterval": 10}), 0, Some(10))]
fn timers_of_zero(#[case] config: Value, #[case] hold: u64, #[case] keepalive: Option<u64>) {
    let timers = neighbor(with("/neighbors/0/timers", json!({"config": config}))).timers;
    assert_eq!((timers.hold.as_secs(), timers.keepalive.map(|it| it.as_secs())), (hold, keepalive));
}

#[rstest]
#[case::as_long_as_the_hold_time(json!({"enabled": true}), json!(null), Some(90))]
#[case::as_all_others(json!(null), json!({"enabled": true, "restartTime": 30}), Some(30))]
#[case::unlike_all_others(json!({"enabled": false}), json!({"enabled": true}), None)]
fn graceful_restart_is_each_neighbors_own_or_everybodys(
    #[case] own: Value,
    #[case] everybodys: Value,
    #[case] seconds: Option<u64>,
) {
    let mut spec = with("/neighbors/0/gracefulRestart", own);
    spec["global"]["gracefulRestart"] = everybodys;
    assert_eq!(neighbor(spec).graceful_restart.map(|it| it.as_secs()), seconds);
}

#[rstest]
#[case(json!(-1), None)]
#[case(json!(0), Some(179))]
#[case(json!(1790), Some(1790))]
fn a_port_of_minus_one_listens_nowhere(#[case] written: Value, #[case] port: Option<u16>) {
    let configuration = read(with("/global/listenPort", written)).reading.value.unwrap();
    assert_eq!(configuration.listen.map(|listen| listen.port), port);
}

#[test]
fn a_selector_of_a_neighbor_and_that_of_its_group_must_both_hold() {
    let mut spec = with("/neighbors/0/nodeSelector", json!({"matchLabels": {"rack": "1"}}));
    spec["neighbors"][0]["config"]["peerGroup"] = json!("spines");
    let expressions = json!([{"key": "zone", "operator": "In", "values": ["a", "b"]}]);
    spec["peerGroups"] =
        json!([{"config": {"peerGroupName": "spines"}, "nodeSelector": {"matchExpressions": expressions}}]);
    let nodes = neighbor(spec).nodes;
    let labels =
        |rack: &str, zone: &str| [("rack", rack), ("zone", zone)].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    assert!(nodes.matches(&labels("1", "b")));
    assert!(!nodes.matches(&labels("1", "c")) && !nodes.matches(&labels("2", "a")));
}

#[test]
fn a_field_of_the_wrong_type_hides_no_other() {
    let mut spec = plain();
    spec["peerGroups"] = json!("none");
    spec["neighbors"].as_array_mut().unwrap().push(json!({"config": {"neighborAddress": 5}}));
    let reading = read(spec).reading;
    assert_eq!(
        named(&reading.problems),
        [("spec.neighbors", "FieldUnreadable"), ("spec.peerGroups", "FieldUnreadable")]
    );
    assert_eq!(reading.value.unwrap().neighbors.len(), 1);
}

#[test]
fn no_password_is_ever_printed() {
    let spec = with("/neighbors/0/config/authPassword", json!("hunter2"));
    let object = json!({"metadata": {"name": "default"}, "spec": spec});
    let object: BgpObject = serde_json::from_value(object).unwrap();
    let printed = format!("{object:?} {:?}", bgp(&object));
    assert!(!printed.contains("hunter2"), "{printed}");
}
