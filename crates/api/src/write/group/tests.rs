//! What `kubectl get servicegroup -o yaml` shows, and when PureLB writes it. IDs are those of the behavioural specification.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use purelb_core::report::{Aspect, Finding, Level};
use serde_json::json;

use super::*;
use crate::crds;
use crate::schema;

fn report() -> GroupReport {
    let finding = |aspect, holds, reason| Finding { aspect, holds, reason, sentence: format!("{reason}.") };
    GroupReport {
        announce: "Local",
        ipam: "Cluster".into(),
        addresses: vec!["10.1.0.0/24".into()],
        v4: Level { allocated: 3, available: Some(251) },
        v6: Level { allocated: 0, available: Some(0) },
        bound_namespaces: vec!["shop".into()],
        findings: vec![
            finding(Aspect::Valid, Some(true), "Parsed"),
            finding(Aspect::Exhausted, None, "CapacityUnknown"),
            finding(Aspect::Orphans, Some(false), "NoOrphans"),
        ],
    }
}

fn form(spec: Value) -> Option<LastValid> {
    Some(LastValid { generation: 2, spec })
}

fn status(report: &GroupReport, previous: &[Condition], now: &str) -> ServiceGroupStatus {
    let spec = json!({"local": {"v4pools": [{"pool": "10.1.0.0/24", "subnet": "10.1.0.0/16"}]}});
    group_status(report, previous, Some(2), form(spec), now.parse().unwrap())
}

fn object(status: Option<ServiceGroupStatus>) -> ServiceGroup {
    let object = json!({
        "apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "spec": {"remote": {}},
        "metadata": {"name": "edge", "namespace": "purelb", "uid": "u-1", "resourceVersion": "42"},
    });
    let mut object: ServiceGroup = serde_json::from_value(object).unwrap();
    object.status = status;
    object
}

/// The object after the patch, as another reader gets it.
fn written(before: &ServiceGroup, patch: &Value) -> ServiceGroup {
    let mut value = serde_json::to_value(before).unwrap();
    json_patch::merge(&mut value, patch);
    serde_json::from_value(value).unwrap()
}

const START: &str = "2026-01-01T00:00:00.9Z";
const LATER: &str = "2026-01-02T00:00:00Z";

#[test]
fn the_status_is_as_kubectl_shows_it() {
    let expected = json!({
        "announce": "Local", "ipam": "Cluster", "addresses": ["10.1.0.0/24"], "boundNamespaces": ["shop"],
        "allocatedIPv4": 3, "allocatedIPv6": 0, "availableIPv4": 251, "availableIPv6": 0,
        "conditions": [
            {"type": "Valid", "status": "True", "reason": "Parsed", "message": "Parsed.",
             "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Exhausted", "status": "Unknown", "reason": "CapacityUnknown", "message": "CapacityUnknown.",
             "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Orphans", "status": "False", "reason": "NoOrphans", "message": "NoOrphans.",
             "observedGeneration": 2, "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ],
        "lastValid": {
            "generation": 2,
            "spec": {"local": {"v4pools": [{"pool": "10.1.0.0/24", "subnet": "10.1.0.0/16"}]}},
        },
    });
    assert_eq!(serde_json::to_value(status(&report(), &[], START)).unwrap(), expected);
}

#[test]
fn both_versions_of_the_crd_take_the_status_as_it_is() {
    let mut object = serde_json::to_value(object(Some(status(&report(), &[], START)))).unwrap();
    for version in &crds()[0].spec.versions {
        let schema = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
        assert_eq!(schema::check(schema, &object), vec![]);
        let before = object.clone();
        schema::prune(schema, &mut object);
        assert_eq!(object, before, "{} prunes nothing", version.name);
    }
}

#[test]
fn sts_2_and_4_an_unchanged_status_is_not_written() {
    let fresh = object(None);
    let first = status(&report(), &[], START);
    let after = written(&fresh, &group_patch(&fresh, &first).unwrap());
    let seen = after.status.as_ref().unwrap();
    assert_eq!(seen, &first, "what is read back is what was written");
    assert_eq!(group_patch(&after, &status(&report(), &seen.conditions, LATER)), None);
    let mut reordered = report();
    reordered.addresses = vec!["10.1.0.0/25".into(), "10.1.0.0/24".into()];
    assert!(group_patch(&after, &status(&reordered, &seen.conditions, LATER)).is_some());
}

#[test]
fn the_time_of_a_condition_moves_only_with_its_status() {
    let first = status(&report(), &[], START);
    let mut changed = report();
    changed.findings[0] =
        Finding { aspect: Aspect::Valid, holds: Some(false), reason: "NoRanges", sentence: "none".into() };
    changed.findings[2].sentence = "other words".into();
    let second = status(&changed, &first.conditions, LATER);
    let times: Vec<_> = second.conditions.iter().map(|c| c.last_transition_time.0.to_string()).collect();
    assert_eq!(times, ["2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"]);
    assert_eq!(second.conditions[2].message, "other words");
}

#[test]
fn a_patch_takes_away_what_is_not_so_any_more() {
    let before = object(Some(status(&report(), &[], START)));
    let mut external = report();
    (external.addresses, external.bound_namespaces) = (vec![], vec![]);
    external.v4 = Level { allocated: 1, available: None };
    let wanted =
        group_status(&external, &[], Some(3), form(json!({"external": {"provider": "x"}})), LATER.parse().unwrap());
    let patch = group_patch(&before, &wanted).unwrap();
    assert_eq!(patch["metadata"], json!({"resourceVersion": "42", "uid": "u-1"}));
    assert_eq!(patch["status"]["availableIPv4"], Value::Null);
    assert_eq!(patch["status"]["lastValid"]["spec"]["local"], Value::Null, "forms of two generations do not mix");
    assert_eq!(written(&before, &patch).status, Some(wanted));
}

#[test]
fn conditions_of_others_stay() {
    let foreign = Condition {
        type_: "somebody.else/Checked".into(),
        status: "True".into(),
        reason: "Checked".into(),
        message: String::new(),
        last_transition_time: Time("2025-01-01T00:00:00Z".parse().unwrap()),
        observed_generation: None,
    };
    let status = status(&report(), std::slice::from_ref(&foreign), START);
    assert_eq!((status.conditions.len(), status.conditions.last()), (4, Some(&foreign)));
}

#[test]
fn a_sentence_that_quotes_a_very_long_text_is_cut_so_that_the_api_server_takes_it() {
    let mut long = report();
    long.findings[0].sentence = "ä".repeat(40_000);
    let message = &status(&long, &[], START).conditions[0].message;
    assert_eq!(message.chars().count(), super::super::LONGEST_SENTENCE + 1);
}
