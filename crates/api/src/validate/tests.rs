//! Offline validation says of a group what the rules in the CRD say of it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::crds::judge::Judge;

/// The reasons that stand for rules of the CRD; the others come from reading.
const RULES: [&str; 6] = [
    "SourceCount",
    "SourceInV1",
    "PlacementContradicted",
    "SingleRangeInV2",
    "NamespacesMissing",
    "MultiPoolAndBalancePools",
];

/// Every combination of the fields that the rules speak of.
fn specs() -> Vec<Value> {
    let pool = json!({"pool": "10.0.0.1", "subnet": "10.0.0.0/24"});
    let other = json!({"pool": "fd00::1", "subnet": "fd00::/64"});
    let pools = json!({"v6pool": other});
    let choices: [(&str, Vec<Value>); 8] = [
        ("placement", vec![json!("Auto")]),
        ("local", vec![pools.clone(), pool.clone(), json!({"v6pool": other, "multiPool": true, "balancePools": true})]),
        ("remote", vec![pools]),
        ("external", vec![json!({"provider": "x", "announce": "local"})]),
        ("netbox", vec![json!({"url": "http://netbox"})]),
        ("pool", vec![json!("10.0.0.1")]),
        ("enforceNamespaces", vec![json!(true)]),
        ("namespaces", vec![json!([]), json!(["a"])]),
    ];
    choices.into_iter().fold(vec![json!({"subnet": "10.0.0.0/24"})], |specs, (field, values)| {
        let with = |spec: &Value| {
            let mut variants: Vec<_> = values.iter().map(|value| (spec.clone(), value)).collect();
            variants.iter_mut().for_each(|(spec, value)| spec[field] = (*value).clone());
            variants.into_iter().map(|(spec, _)| spec).collect::<Vec<_>>()
        };
        specs.iter().flat_map(|spec| with(spec).into_iter().chain([spec.clone()])).collect()
    })
}

#[test]
fn the_rules_mean_the_same_offline_and_in_the_cluster() {
    for version in ["v1", "v2"] {
        let judge = Judge::of(version);
        let manifests: Vec<_> = specs().iter().map(|spec| (spec.to_string(), manifest(version, spec))).collect();
        let report = validate(manifests.iter().map(|(spec, text)| (spec.as_str(), text.as_str())));
        let rules = report.findings.iter().filter(|finding| RULES.contains(&finding.reason.as_str()));
        let refused: BTreeSet<_> = rules.map(|finding| finding.file.as_str()).collect();
        for (spec, (file, _)) in specs().iter().zip(&manifests) {
            let said = judge.refusals(spec, None);
            assert_eq!(refused.contains(file.as_str()), !said.is_empty(), "{version} {spec}: {said:?}");
        }
    }
}

fn manifest(version: &str, spec: &Value) -> String {
    let version = format!("purelb.io/{version}");
    json!({"apiVersion": version, "kind": "ServiceGroup", "metadata": {"name": "x"}, "spec": spec}).to_string()
}

#[test]
fn b42_single_pools_are_checked_like_those_in_lists() {
    let single = |pool: &str| json!({"local": {"v4pool": {"pool": pool, "subnet": "10.0.0.0/24"}}});
    let listed = json!({"local": {"v4pools": [{"pool": "10.0.0.8/29", "subnet": "10.0.0.0/24"}]}});
    let texts = [("a", listed), ("inside", single("10.0.0.12/32")), ("outside", single("10.1.0.0/28"))];
    let texts = texts.map(|(name, spec)| (name, manifest("v2", &spec).replace(r#""x""#, &format!("{name:?}"))));
    let report = validate(texts.iter().map(|(name, text)| (*name, text.as_str())));
    let said: Vec<_> = report.findings.iter().map(|found| (found.file.as_str(), found.reason.as_str())).collect();
    assert!(said.contains(&("inside", "GroupsOverlap")), "{said:?}");
    assert!(said.contains(&("outside", "RangeOutsideSubnet")), "{said:?}");
}
