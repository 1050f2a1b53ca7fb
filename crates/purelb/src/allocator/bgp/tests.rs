//! What the leader writes to BGPConfigurations.

use serde_json::{Value, json};

use super::*;

fn object(name: &str, version: u32, extra: Value) -> BgpObject {
    let (namespace, name) = name.split_once('/').unwrap();
    let mut metadata = json!({
        "namespace": namespace, "name": name, "resourceVersion": version.to_string(), "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    metadata.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap_or_default());
    let spec = json!({
        "global": {"asn": 64512},
        "neighbors": [{"config": {"neighborAddress": "192.0.2.254", "peerAsn": 64513}}],
        "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb0"]},
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn heard(objects: Vec<BgpObject>) -> Configurations {
    let mut known = Configurations::new("home");
    known.take(Change::Restarted);
    objects.into_iter().for_each(|object| known.take(Change::Here(Box::new(object))));
    known.take(Change::Complete);
    known
}

/// Name of each object with the reason of its condition Ready.
fn said(jobs: &[Job]) -> Vec<(String, String)> {
    let said = jobs.iter().map(|job| {
        let Job::PatchBgp { object, patch } = job else { panic!("{job:?}") };
        let ready = &patch["status"]["conditions"][0];
        assert_eq!(ready["type"], "Ready");
        (object.name.clone().unwrap(), ready["reason"].as_str().unwrap().to_owned())
    });
    said.collect()
}

fn now() -> (Timestamp, Instant) {
    (Timestamp::from_second(1000).unwrap(), Instant::now())
}

#[test]
fn one_object_counts_and_the_others_say_why_they_do_not() {
    let all =
        [object("home/spare", 1, json!({})), object("home/default", 2, json!({})), object("other/x", 3, json!({}))];
    let (now, at) = now();
    let jobs = heard(all.to_vec()).statuses(now, at);
    let pairs =
        [("default", "ReconcileSuccess"), ("spare", "BgpConfigurationIgnored"), ("x", "BgpConfigurationOutOfScope")];
    assert_eq!(said(&jobs), pairs.map(|(name, reason)| (name.to_owned(), reason.to_owned())));
}

#[test]
fn nothing_is_said_before_all_are_known_and_nothing_twice() {
    let (now, at) = now();
    let mut known = Configurations::new("home");
    known.take(Change::Restarted);
    known.take(Change::Here(Box::new(object("home/default", 1, json!({})))));
    assert!(known.statuses(now, at).is_empty(), "the one named default may be another");
    known.take(Change::Complete);
    assert_eq!(known.statuses(now, at).len(), 1);
    assert!(known.statuses(now, at).is_empty(), "it is being written");
    known.written(&("home".to_owned(), "default".to_owned()), StatusOutcome::Failed, at);
    assert!(known.statuses(now, at).is_empty(), "after trouble there is a pause");
    assert!(known.next_wake(at).is_some_and(|wake| wake > at));
    assert_eq!(known.statuses(now, known.next_wake(at).unwrap()).len(), 1);
}

#[test]
fn a_deleted_object_is_let_go_and_keeps_the_finalizers_of_others() {
    let deleted = json!({
        "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["example.org/hold", "bgp.purelb.io/finalizer"],
    });
    let (now, at) = now();
    let mut known = heard(vec![object("home/default", 7, deleted), object("home/next", 8, json!({}))]);
    let jobs = known.statuses(now, at);
    let Job::ReleaseBgp { object, patch } = &jobs[0] else { panic!("{jobs:?}") };
    assert_eq!(object.name.as_deref(), Some("default"));
    assert_eq!(patch["metadata"]["finalizers"], json!(["example.org/hold"]));
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    assert_eq!(said(&jobs[1..]), [("next".to_owned(), "ReconcileSuccess".to_owned())], "it makes room for the next");
}
