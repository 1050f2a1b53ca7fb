//! Whatever people feed to `purelb validate`, it answers.

use proptest::prelude::*;
use purelb_api::validate;
use serde_json::{Value, json};

/// Any JSON value, with the words of our own kinds where they hurt most.
fn anything() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("local"),
        Just("remote"),
        Just("external"),
        Just("netbox"),
        Just("placement"),
        Just("Auto"),
        Just("v4pools"),
        Just("v6pool"),
        Just("pool"),
        Just("subnet"),
        Just("aggregation"),
        Just("namespaces"),
        Just("nodeSelector"),
        Just("matchLabels"),
        Just("matchExpressions"),
        Just("operator"),
        Just("garpConfig"),
        Just("count"),
        Just("interval"),
        Just("addressConfig"),
        Just("localInterface"),
        Just("validLifetime"),
        Just("10.0.0.1-10.0.0.9"),
        Just("10.0.0.0/24"),
        Just("fd00::/120"),
        Just("/32"),
        Just("a.b[0]"),
        Just("global"),
        Just("asn"),
        Just("routerID"),
        Just("neighbors"),
        Just("config"),
        Just("neighborAddress"),
        Just("peerGroups"),
        Just("timers"),
        Just("advertise"),
        Just("netlinkImport"),
        Just("netlinkExport"),
    ]
    .prop_map(str::to_owned);
    let text = prop_oneof![word.clone(), ".*"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(text.clone(), inner, 0..6).prop_map(Value::from_iter),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "(.|\n|---|: |- |kind|List|items){0,80}") {
        validate([("any.yaml", text.as_str())]);
    }

    #[test]
    fn any_object_of_our_kinds_is_answered(
        (version, kind) in prop_oneof![
            Just(("purelb.io/v1", "ServiceGroup")),
            Just(("purelb.io/v2", "ServiceGroup")),
            Just(("purelb.io/v1", "LBNodeAgent")),
            Just(("purelb.io/v2", "LBNodeAgent")),
            Just(("bgp.purelb.io/v1", "BGPConfiguration")),
            Just(("bgp.purelb.io/v1", "BGPNodeStatus")),
        ],
        metadata in anything(),
        spec in anything(),
    ) {
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
        let list = json!({"kind": "List", "items": [object, metadata, spec]});
        let report = validate([("object", object.to_string().as_str()), ("list", list.to_string().as_str())]);
        prop_assert!(report.findings.iter().all(|finding| finding.line == 1), "{}", report);
    }
}
