//! What arrives in the API: the patch is merged into the Service as the API server does it, and read again.

use std::net::IpAddr;

use proptest::prelude::*;
use purelb_core::alloc::Way;

use super::*;
use crate::read;

const FOREIGN: &str = "somebody.else/Ready";

fn moment(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A Service in JSON, with somebody else's annotation and condition on it.
fn web(annotations: Value, ingress: Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u-1", "resourceVersion": "42",
            "annotations": {"purelb.io/service-group": "edge", "somebody.else/annotation": "x"},
        },
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.7", "ipFamilies": ["IPv4"]},
        "status": {"loadBalancer": {"ingress": ingress}, "conditions": [{
            "type": FOREIGN, "status": "True", "reason": "Fine", "message": "as ever", "observedGeneration": 3,
            "lastTransitionTime": "2025-05-05T05:05:05Z",
        }]},
    });
    json_patch::merge(&mut object["metadata"]["annotations"], &annotations);
    object
}

fn record(object: &Value) -> ServiceRecord {
    let service: read::ServiceObject = serde_json::from_value(object.clone()).unwrap();
    read::service(&service)
}

fn merged(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    json_patch::merge(&mut object, patch);
    object
}

fn assigned(addrs: &[&str]) -> Wish {
    Wish {
        addrs: addrs.iter().map(|addr| addr.parse().unwrap()).collect(),
        brand: Brand { ours: true, from: Some("edge".into()), pool_type: Some("local".into()), skip_ipv6_dad: false },
        condition: Condition { assigned: true, reason: "Assigned".into(), message: "assigned from edge".into() },
        reason: None,
        way: Way::Group,
        group: None,
        notices: vec![],
    }
}

fn waiting() -> Wish {
    let condition = Condition { assigned: false, reason: "Exhausted".into(), message: "pool exhausted".into() };
    Wish {
        addrs: vec![],
        brand: Brand::default(),
        condition,
        reason: None,
        way: Way::Group,
        group: None,
        notices: vec![],
    }
}

fn own(object: &Value) -> &Value {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == ADDRESS_ASSIGNED).unwrap()
}

const NOW: &str = "2026-01-01T00:00:00.75Z";

#[test]
fn ctl_2_one_patch_carries_address_brand_and_condition() {
    let before = web(json!({"purelb.io/re-evaluate": "true"}), json!(null));
    let patch = service_patch(&record(&before), &assigned(&["192.0.2.1", "2001:db8::1"]), 7, moment(NOW));
    let expected = json!({
        "metadata": {"uid": "u-1", "resourceVersion": "42", "annotations": {
            "purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "edge", "purelb.io/pool-type": "local",
            "purelb.io/re-evaluate": null,
        }},
        "status": {
            "loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}, {"ip": "2001:db8::1", "ipMode": "VIP"}]},
            "conditions": [before["status"]["conditions"][0], {
                "type": "purelb.io/AddressAssigned", "status": "True", "reason": "Assigned",
                "message": "assigned from edge", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    });
    assert_eq!(patch, expected);
}

#[test]
fn an_address_that_goes_takes_everything_of_ours_with_it_and_nothing_else() {
    let mark = json!({"purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "edge", "purelb.io/skip-ipv6-dad": "false"});
    let before = web(mark, json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]));
    let patch = service_patch(&record(&before), &waiting(), 7, moment(NOW));
    let annotations = patch["metadata"]["annotations"].as_object().unwrap();
    assert!(!annotations.contains_key("purelb.io/pool-type"), "it was not there");
    let after = merged(&before, &patch);
    let kept = json!({"purelb.io/service-group": "edge", "somebody.else/annotation": "x"});
    assert_eq!(after["metadata"]["annotations"], kept);
    assert_eq!(after["status"]["loadBalancer"], json!({}));
    assert_eq!(after["spec"], before["spec"]);
}

#[test]
fn the_time_of_a_condition_moves_only_with_its_status() {
    let start = web(json!({}), json!(null));
    let first = merged(&start, &service_patch(&record(&start), &waiting(), 1, moment(NOW)));
    assert_eq!(own(&first)["lastTransitionTime"], "2026-01-01T00:00:00Z");
    let mut wish = waiting();
    wish.condition.reason = "UnknownPool".into();
    let second = merged(&first, &service_patch(&record(&first), &wish, 1, moment("2026-01-01T01:00:00Z")));
    assert_eq!(own(&second)["lastTransitionTime"], "2026-01-01T00:00:00Z", "it still waits");
    let later = moment("2026-01-01T02:00:00Z");
    let third = merged(&second, &service_patch(&record(&second), &assigned(&["192.0.2.1"]), 1, later));
    assert_eq!(own(&third)["lastTransitionTime"], "2026-01-01T02:00:00Z");
}

#[test]
fn a_new_term_changes_a_service_that_waits_and_the_wish_stays_fulfilled() {
    let start = web(json!({}), json!(null));
    let first = merged(&start, &service_patch(&record(&start), &waiting(), 1, moment(NOW)));
    assert_eq!(own(&first)["message"], "pool exhausted (allocator term 1)");
    assert!(waiting().is_fulfilled_by(&record(&first).view));
    assert_eq!(record(&first).term, Some(1));
    let same = merged(&first, &service_patch(&record(&first), &waiting(), 1, moment(NOW)));
    assert_eq!(same, first, "the same term again is no write");
    for patch in
        [service_patch(&record(&first), &waiting(), 2, moment(NOW)), touch_patch(&record(&first), 2, moment(NOW))]
    {
        let second = merged(&first, &patch);
        assert_eq!(own(&second)["message"], "pool exhausted (allocator term 2)");
        assert!(waiting().is_fulfilled_by(&record(&second).view));
    }
}

#[test]
fn a_touch_changes_a_service_that_nobody_has_looked_at_and_nothing_but_its_condition() {
    let ingress = json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]);
    for (before, status) in [(web(json!({}), json!(null)), "False"), (web(json!({}), ingress), "True")] {
        let after = merged(&before, &touch_patch(&record(&before), 3, moment(NOW)));
        assert_eq!((own(&after)["status"].as_str(), own(&after)["reason"].as_str()), (Some(status), Some("Pending")));
        assert_eq!(record(&after).term, Some(3));
        assert_eq!(after["metadata"], before["metadata"]);
        assert_eq!(after["status"]["loadBalancer"], before["status"]["loadBalancer"]);
        assert_eq!(after["status"]["conditions"][0], before["status"]["conditions"][0]);
    }
}

#[test]
fn bug_7_a_retyped_service_loses_everything_of_ours() {
    let start = web(json!({"purelb.io/skip-ipv6-dad": "true"}), json!(null));
    let mut given = merged(&start, &service_patch(&record(&start), &assigned(&["192.0.2.1"]), 1, moment(NOW)));
    for key in ["announcing", "announcing-IPv4", "announcing-IPv6", "announcing-unknown", "traffic-policy-rewritten"] {
        given["metadata"]["annotations"][format!("purelb.io/{key}")] = json!("by an agent");
    }
    let patch = released_patch(&record(&given)).unwrap();
    let after = merged(&given, &patch);
    assert_eq!(after["metadata"]["annotations"], web(json!({}), json!(null))["metadata"]["annotations"]);
    assert_eq!(after["status"], json!({"loadBalancer": {}, "conditions": start["status"]["conditions"]}));
    assert_eq!(patch["metadata"]["resourceVersion"], "42");
    assert_eq!(released_patch(&record(&after)), None, "bug_15: nothing of ours, no write");
}

#[test]
fn a_retyped_service_keeps_an_ingress_that_was_never_ours() {
    let foreign = web(json!({"purelb.io/pool-type": "local"}), json!([{"hostname": "a.example"}]));
    let after = merged(&foreign, &released_patch(&record(&foreign)).unwrap());
    assert_eq!(after["status"]["loadBalancer"], foreign["status"]["loadBalancer"]);
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z, ]{1,8}", Just("true".to_owned()), Just("PureLB".to_owned())]
}

fn brand() -> impl Strategy<Value = Brand> {
    let option = || proptest::option::of(text());
    (any::<bool>(), option(), option(), any::<bool>()).prop_map(|(ours, from, pool_type, skip_ipv6_dad)| Brand {
        ours,
        from,
        pool_type,
        skip_ipv6_dad,
    })
}

prop_compose! {
    fn wish()(
        addrs in proptest::collection::vec(any::<IpAddr>(), 0..4),
        brand in brand(),
        assigned in any::<bool>(),
        message in any::<String>(),
    ) -> Wish {
        // Decisions know canonical addresses only.
        let addrs = addrs.into_iter().map(|addr| addr.to_canonical()).collect();
        let condition = Condition { assigned, reason: "Reason".into(), message };
        Wish { addrs, brand, condition, reason: None, way: Way::Group, group: None, notices: vec![] }
    }
}

prop_compose! {
    /// A Service with any of our annotations, any status, and perhaps a condition of ours.
    fn any_web()(
        annotations in proptest::collection::btree_map(
            proptest::sample::select(OWN.into_iter().chain([RE_EVALUATE]).collect::<Vec<_>>()), text(), 0..5),
        ingress in proptest::collection::vec(proptest::option::of(any::<IpAddr>()), 0..3),
        before in proptest::option::of((wish(), any::<u64>())),
    ) -> Value {
        let ingress: Vec<_> = ingress
            .into_iter()
            .map(|addr| addr.map_or(json!({"hostname": "a.example"}), |addr| json!({"ip": addr.to_string()})))
            .collect();
        let object = web(json!(annotations), json!(ingress));
        match before {
            Some((wish, term)) => merged(&object, &service_patch(&record(&object), &wish, term, moment(NOW))),
            None => object,
        }
    }
}

proptest! {
    #[test]
    fn whatever_was_there_the_patch_fulfils_the_wish_and_touches_nothing_of_others(
        before in any_web(),
        wish in wish(),
        term in any::<u64>(),
    ) {
        let after = merged(&before, &service_patch(&record(&before), &wish, term, moment(NOW)));
        let seen = record(&after);
        prop_assert!(wish.is_fulfilled_by(&seen.view), "{after}");
        prop_assert_eq!(seen.term, wish.addrs.is_empty().then_some(term));
        prop_assert_eq!(&after["spec"], &before["spec"]);
        prop_assert_eq!(&seen.other_conditions, &record(&before).other_conditions);
        prop_assert_eq!(&after["metadata"]["annotations"]["somebody.else/annotation"], "x");
        let again = service_patch(&seen, &wish, term, moment("2027-01-01T00:00:00Z"));
        prop_assert_eq!(merged(&after, &again), after, "a second write changes nothing");
    }
}
