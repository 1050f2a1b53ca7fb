//! What PureLB understands of a Service, and that nothing a user writes can make it stumble.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn read(metadata: Value, spec: Value, status: Value) -> ServiceRecord {
    let mut object =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec, "status": status});
    object["metadata"]["name"] = json!("web");
    object["metadata"]["namespace"] = json!("shop");
    service(&serde_json::from_value(object).unwrap())
}

fn annotated(annotations: Value) -> ServiceRecord {
    read(json!({"annotations": annotations}), json!({}), json!({}))
}

fn with_ingress(ingress: Value) -> Vec<Ingress> {
    read(json!({}), json!({}), json!({"loadBalancer": {"ingress": ingress}})).view.ingress
}

#[test]
fn everything_that_decisions_need_is_read() {
    let record = read(
        json!({"uid": "u-1", "resourceVersion": "42", "labels": {"app": "web"}, "annotations": {
            "purelb.io/service-group": "edge", "purelb.io/addresses": "192.0.2.9", "purelb.io/allow-shared-ip": "key",
            "purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "edge", "purelb.io/pool-type": "local",
            "purelb.io/skip-ipv6-dad": "true", "somebody.else/annotation": "x",
        }}),
        json!({
            "type": "LoadBalancer", "clusterIP": "10.96.0.7", "loadBalancerClass": "purelb.io/purelb",
            "ipFamilies": ["IPv6", "IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack", "loadBalancerIP": "192.0.2.8",
            "externalTrafficPolicy": "Local",
            "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}, {"port": 9, "protocol": "SCTP"}],
        }),
        json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.9", "ipMode": "VIP"}]}}),
    );
    let port = |protocol, number| Port { protocol, number };
    let expected = ServiceView {
        key: "shop/web".into(),
        uid: "u-1".into(),
        class: Some("purelb.io/purelb".into()),
        has_cluster_ip: true,
        is_leaving: false,
        families: vec![Family::V6, Family::V4],
        prefers_dual_stack: true,
        ports: vec![port(Protocol::Tcp, 80), port(Protocol::Udp, 53), port(Protocol::Sctp, 9)],
        load_balancer_ip: Some("192.0.2.8".into()),
        asks: Asks {
            group: Some("edge".into()),
            addresses: Some("192.0.2.9".into()),
            sharing_key: Some("key".into()),
            multi_pool: None,
            re_evaluate: false,
        },
        brand: Brand { ours: true, from: Some("edge".into()), pool_type: Some("local".into()), skip_ipv6_dad: true },
        ingress: vec![Ingress::of("192.0.2.9".parse().unwrap())],
        condition: None,
    };
    assert_eq!(record.view, expected);
    assert_eq!(record.resource_version, "42");
    assert!(record.external_traffic_policy_local);
    assert_eq!((record.since, record.term, record.other_conditions.len()), (None, None, 0));
}

#[rstest]
#[case(json!("10.96.0.7"), true)]
#[case(json!("fd00::7"), true)]
#[case(json!("None"), false)]
#[case(json!(""), false)]
#[case(json!(null), false)]
fn a_service_without_a_cluster_address_has_nothing_to_balance(#[case] addr: Value, #[case] has: bool) {
    assert_eq!(read(json!({}), json!({"clusterIP": addr}), json!({})).view.has_cluster_ip, has);
}

#[rstest]
#[case::absent(json!({}), None)]
#[case::on(json!({"purelb.io/multi-pool": "true"}), Some(true))]
#[case::off(json!({"purelb.io/multi-pool": "false"}), Some(false))]
#[case::anything_else_is_off(json!({"purelb.io/multi-pool": "True"}), Some(false))]
fn multi_pool_is_true_or_not(#[case] annotations: Value, #[case] expected: Option<bool>) {
    assert_eq!(annotated(annotations).view.asks.multi_pool, expected);
}

#[test]
fn annotations_that_are_there_but_empty() {
    let record = annotated(json!({
        "purelb.io/allow-shared-ip": "", "purelb.io/addresses": "", "purelb.io/service-group": "",
        "purelb.io/re-evaluate": "yes", "purelb.io/allocated-by": "somebody", "purelb.io/skip-ipv6-dad": "false",
    }));
    let asks = &record.view.asks;
    assert_eq!((asks.sharing_key.as_deref(), asks.re_evaluate), (None, false));
    assert_eq!((asks.addresses.as_deref(), asks.group.as_deref()), (Some(""), Some("")), "asked for, and wrong");
    assert_eq!(record.view.brand, Brand::default());
}

#[rstest]
#[case::ours(json!({"ip": "192.0.2.1", "ipMode": "VIP"}), Some("192.0.2.1"), true)]
#[case::mapped(json!({"ip": "::ffff:192.0.2.1", "ipMode": "VIP"}), Some("192.0.2.1"), true)]
#[case::without_mode(json!({"ip": "192.0.2.1"}), Some("192.0.2.1"), true)]
#[case::proxy(json!({"ip": "192.0.2.1", "ipMode": "Proxy"}), Some("192.0.2.1"), false)]
#[case::with_ports(json!({"ip": "192.0.2.1", "ipMode": "VIP", "ports": [{"port": 80, "protocol": "TCP"}]}), Some("192.0.2.1"), false)]
#[case::host_and_address(json!({"ip": "192.0.2.1", "ipMode": "VIP", "hostname": "a.example"}), Some("192.0.2.1"), false)]
#[case::host(json!({"hostname": "a.example"}), None, false)]
#[case::junk(json!({"ip": "192.0.2.1/24", "ipMode": "VIP"}), None, true)]
fn an_entry_of_the_status(#[case] entry: Value, #[case] addr: Option<&str>, #[case] plain: bool) {
    let addr = addr.map(|addr| addr.parse().unwrap());
    assert_eq!(with_ingress(json!([entry])), [Ingress { addr, plain }]);
}

#[rstest]
#[case("no address (allocator term 7)", "no address", Some(7))]
#[case("no address", "no address", None)]
#[case("no address (allocator term )", "no address (allocator term )", None)]
#[case("no address (allocator term x)", "no address (allocator term x)", None)]
#[case("a (allocator term 1) (allocator term 2)", "a (allocator term 1)", Some(2))]
#[case(" (allocator term 18446744073709551615)", "", Some(u64::MAX))]
fn the_term_is_no_part_of_the_sentence(#[case] message: &str, #[case] sentence: &str, #[case] term: Option<u64>) {
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "False", "reason": "Exhausted", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let conditions = json!([condition("somebody.else/Ready"), condition("purelb.io/AddressAssigned")]);
    let record = read(json!({}), json!({}), json!({"conditions": conditions}));
    let expected = Condition { assigned: false, reason: "Exhausted".into(), message: sentence.into() };
    assert_eq!((record.view.condition, record.term), (Some(expected), term));
    assert_eq!(record.since, Some("2026-01-01T00:00:00Z".parse().unwrap()));
    assert_eq!(serde_json::to_value(&record.other_conditions).unwrap(), json!([condition("somebody.else/Ready")]));
}

#[test]
fn conditions_that_nobody_checked_are_kept_as_they_are() {
    let odd = json!([{"type": "somebody.else/Ready", "status": "True", "lastTransitionTime": null}, {"x": 1}, "text"]);
    let record = read(json!({}), json!({}), json!({"conditions": odd}));
    assert_eq!(json!(record.other_conditions), odd);
    let own = json!([{"type": "purelb.io/AddressAssigned", "status": "True", "lastTransitionTime": null}]);
    let record = read(json!({}), json!({}), json!({"conditions": own}));
    assert_eq!((record.view.condition.map(|own| own.assigned), record.since), (Some(true), None));
}

#[rstest]
#[case("default/kubernetes", true)]
#[case("kube-system/kube-dns", true)]
#[case("kube-system/kube-controller-manager", true)]
#[case("kube-system/kube-scheduler", true)]
#[case("shop/kubernetes", false)]
#[case("default/kubernetes2", false)]
fn the_clusters_own_services_are_never_touched(#[case] key: &str, #[case] ignored: bool) {
    assert_eq!(is_ignored(key), ignored);
}

#[test]
fn a_type_that_is_not_written_is_cluster_ip() {
    assert_eq!(service_type(&ServiceObject::default()), "ClusterIP");
    assert_eq!(service(&ServiceObject::default()).view.namespace(), "");
}

/// Texts that look like something and are not, among texts that look like nothing.
fn junk() -> impl Strategy<Value = String> {
    let near = [
        "",
        " ",
        ",",
        "true",
        "TRUE",
        "1.2.3.4.5",
        "::",
        "::ffff:1.2.3.4/120",
        "(allocator term ",
        ")",
        "IPv5",
        "None",
    ];
    prop_oneof![proptest::sample::select(near.to_vec()).prop_map(str::to_owned), any::<String>()]
}

proptest! {
    #[test]
    fn nothing_a_user_writes_makes_it_stumble(
        texts in proptest::collection::vec(junk(), 12),
        number in any::<i32>(),
    ) {
        let t = |i: usize| texts[i].clone();
        let record = read(
            json!({"annotations": {
                SERVICE_GROUP: t(0), ADDRESSES: t(1), ALLOW_SHARED_IP: t(2), MULTI_POOL: t(3), RE_EVALUATE: t(4),
                ALLOCATED_BY: t(5), ALLOCATED_FROM: t(6), POOL_TYPE: t(7), SKIP_IPV6_DAD: t(8),
            }}),
            json!({"clusterIP": t(9), "ipFamilies": [t(10), t(11)], "ports": [{"port": number, "protocol": t(0)}]}),
            json!({
                "loadBalancer": {"ingress": [{"ip": t(1), "ipMode": t(2)}, {"hostname": t(3)}]},
                "conditions": [{
                    "type": ADDRESS_ASSIGNED, "status": t(4), "reason": t(5), "message": t(6),
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            }),
        );
        prop_assert_eq!(record.view.ingress.len(), 2);
        prop_assert_eq!(record.own, [true; 4]);
    }
}
