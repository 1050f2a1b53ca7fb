//! What a BGPConfiguration is told about itself.

use super::*;
use crate::read::BgpObject;

fn object(spec: Value, status: Value) -> BgpObject {
    let metadata = json!({
        "name": "default", "namespace": "purelb-system", "generation": 3, "resourceVersion": "7", "uid": "u",
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

fn spec() -> Value {
    json!({
        "global": {"asn": 64512},
        "neighbors": [{"config": {"neighborAddress": "192.0.2.254", "peerAsn": 64513}}],
        "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb0"]},
    })
}

fn status(read: &BgpObject, ignored: Option<&Reason>, second: i64) -> BGPConfigurationStatus {
    bgp_status(read, ignored, Timestamp::from_second(second).unwrap())
}

/// Type, status and reason of each condition.
fn told(status: &BGPConfigurationStatus) -> Vec<(&str, &str, &str)> {
    let conditions = status.conditions.iter();
    conditions.map(|it| (it.type_.as_str(), it.status.as_str(), it.reason.as_str())).collect()
}

#[test]
fn an_object_that_is_understood_is_ready_and_says_so_once() {
    let mut read = object(spec(), json!(null));
    let first = status(&read, None, 100);
    assert_eq!(told(&first), [("Ready", "True", "ReconcileSuccess")]);
    assert_eq!((first.observed_generation, first.neighbor_count), (Some(3), Some(1)));
    let patch = bgp_patch(&read.object, &first).unwrap();
    assert_eq!(patch["metadata"], json!({"resourceVersion": "7", "uid": "u"}));
    read.object.status = Some(first);
    assert_eq!(bgp_patch(&read.object, &status(&read, None, 200)), None, "nothing has changed but the time");
}

#[test]
fn each_wrong_neighbor_is_in_the_sentence_and_the_rest_is_in_use() {
    let mut spec = spec();
    let neighbors = spec["neighbors"].as_array_mut().unwrap();
    neighbors.push(json!({"config": {"neighborAddress": "router", "peerAsn": 1}}));
    neighbors.push(json!({"config": {"neighborAddress": "192.0.2.1", "peerAsn": 0}}));
    let status = status(&object(spec, json!(null)), None, 1);
    assert_eq!((told(&status), status.neighbor_count), (vec![("Ready", "False", "AddressSyntax")], Some(1)));
    let sentence = status.message.unwrap();
    assert!(sentence.contains("spec.neighbors[1].config.neighborAddress: \"router\""), "{sentence}");
    assert!(sentence.contains("spec.neighbors[2].config.peerAsn: 0 is not"), "{sentence}");
    assert!(sentence.ends_with("the rest is in use"), "{sentence}");
}

#[test]
fn a_configuration_without_a_base_leaves_nodes_as_they_are() {
    let mut spec = spec();
    spec["global"]["asn"] = json!(0);
    let status = status(&object(spec, json!(null)), None, 1);
    assert_eq!((told(&status), status.neighbor_count), (vec![("Ready", "False", "AsnInvalid")], Some(0)));
    assert!(status.message.unwrap().ends_with("nodes keep the configuration they had, if any"));
}

#[test]
fn an_edit_that_breaks_the_object_leaves_its_last_valid_form_in_use_and_in_the_status() {
    let mut read = object(spec(), json!(null));
    let valid = status(&read, None, 1);
    assert_eq!(valid.last_valid.as_ref().map(|form| form.generation), Some(3));
    let mut broken = spec();
    broken["global"]["asn"] = json!(0);
    read = object(broken, serde_json::to_value(&valid).unwrap());
    read.object.metadata.generation = Some(4);
    let status = status(&read, None, 2);
    assert_eq!((told(&status), status.neighbor_count), (vec![("Ready", "False", "AsnInvalid")], Some(1)));
    assert!(status.message.unwrap().ends_with("; the last valid form of the object is in use"));
    assert_eq!(status.last_valid, valid.last_valid);
}

#[test]
fn an_object_that_does_not_count_says_which_one_does() {
    let reason = Reason::BgpConfigurationIgnored { by: "purelb-system/default".to_owned() };
    let status = status(&object(spec(), json!(null)), Some(&reason), 1);
    assert_eq!((told(&status), status.neighbor_count), (vec![("Ready", "False", "BgpConfigurationIgnored")], Some(0)));
    assert!(status.message.unwrap().contains("purelb-system/default"));
}

#[test]
fn what_has_no_effect_is_listed_until_it_is_deleted() {
    let mut extended = spec();
    extended["netlinkExport"] = json!({"enabled": true});
    let mut read = object(extended, json!(null));
    let with = status(&read, None, 1);
    assert_eq!(
        told(&with),
        [("Ready", "True", "ReconcileSuccess"), ("UnsupportedFields", "True", "UnsupportedFields")]
    );
    assert!(with.conditions[1].message.contains("spec.netlinkExport"), "{with:?}");
    read.object.status = Some(with);
    read.object.spec.netlink_export = None;
    assert_eq!(told(&status(&read, None, 2)), [("Ready", "True", "ReconcileSuccess")]);
}

#[test]
fn an_identifier_is_told_only_if_it_is_the_same_on_all_nodes() {
    let mut spec = spec();
    spec["global"]["routerID"] = json!("10.0.0.1");
    let explicit = status(&object(spec.clone(), json!(null)), None, 1);
    assert_eq!(told(&explicit)[1], ("RouterIDResolved", "True", "Explicit"));
    assert_eq!(explicit.router_id_source.as_deref(), Some("explicit"));
    spec["global"]["routerID"] = json!("${NODE_IP}");
    assert_eq!(told(&status(&object(spec, json!(null)), None, 1)).len(), 1);
}

#[test]
fn what_earlier_versions_wrote_goes_and_what_others_wrote_stays() {
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let old = json!({
        "establishedNeighbors": 0, "lastReconcileTime": "2026-01-01T00:00:00Z", "routerIDSource": "node-ipv4",
        "conditions": [condition("RouterIDResolved"), condition("Ready"), condition("example.org/Seen")],
    });
    let read = object(spec(), old);
    let now = status(&read, None, 2_000_000_000);
    assert_eq!(told(&now), [("Ready", "True", "ReconcileSuccess"), ("example.org/Seen", "True", "R")]);
    assert_eq!(now.conditions[0].last_transition_time.0.as_second(), 1_767_225_600, "it was ready before");
    let patch = bgp_patch(&read.object, &now).unwrap();
    for field in ["establishedNeighbors", "lastReconcileTime", "routerIDSource"] {
        assert!(patch["status"].get(field).is_some_and(Value::is_null), "{field} in {patch}");
    }
}

#[test]
fn only_a_deleted_object_is_let_go() {
    let mut read = object(spec(), json!(null));
    read.object.metadata.finalizers = Some(vec![FINALIZER.to_owned(), "example.org/hold".to_owned()]);
    assert_eq!(bgp_release(&read.object), None);
    read.object.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
    assert_eq!(bgp_release(&read.object).unwrap()["metadata"]["finalizers"], json!(["example.org/hold"]));
    read.object.metadata.finalizers = Some(vec!["example.org/hold".to_owned()]);
    assert_eq!(bgp_release(&read.object), None);
}
