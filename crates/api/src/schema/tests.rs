//! Objects are pruned, defaulted and judged as the API server does it; the expected words were taken from a 1.36
//! server.

use rstest::rstest;
use serde_json::json;

use super::*;

fn schema(value: Value) -> JSONSchemaProps {
    serde_json::from_value(value).unwrap()
}

fn group_schema(version: &str) -> JSONSchemaProps {
    let crd = crate::crds().remove(0);
    let version = crd.spec.versions.into_iter().find(|served| served.name == version).unwrap();
    version.schema.unwrap().open_api_v3_schema.unwrap()
}

fn spoken(schema: &JSONSchemaProps, value: &Value) -> Vec<String> {
    check(schema, value).iter().map(ToString::to_string).collect()
}

#[test]
fn unknown_fields_are_named_and_pruned_and_metadata_is_left_alone() {
    let mut group = json!({
        "apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": {"name": "x", "labels": {"a": "b"}},
        "spec": {"local": {"v4Pool": {}, "v4pools": [{"pool": "a", "netmask": "b"}]}},
        "extra": 1,
    });
    let schema = group_schema("v2");
    assert_eq!(unknown(&schema, &group), ["extra", "spec.local.v4Pool", "spec.local.v4pools[0].netmask"]);
    prune(&schema, &mut group);
    assert_eq!(unknown(&schema, &group), [""; 0]);
    assert_eq!(group["spec"], json!({"local": {"v4pools": [{"pool": "a"}]}}));
    assert_eq!(group["metadata"]["labels"]["a"], "b");
}

#[test]
fn pruning_stops_where_the_schema_preserves_unknown_fields_and_goes_on_below_known_ones() {
    let schema = schema(json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "known": {"type": "object", "properties": {"a": {"type": "string"}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {}}}},
            "free": {"type": "object", "additionalProperties": true},
        },
    }));
    let mut value =
        json!({"x": {"y": 1}, "known": {"a": "", "b": 1}, "map": {"k": {"a": 1, "b": 2}}, "free": {"z": 1}});
    assert_eq!(unknown(&schema, &value), ["known.b", "map.k.b"]);
    prune(&schema, &mut value);
    assert_eq!(value, json!({"x": {"y": 1}, "known": {"a": ""}, "map": {"k": {"a": 1}}, "free": {"z": 1}}));
}

#[test]
fn an_embedded_object_keeps_its_own_metadata() {
    let embedded =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}});
    let schema = schema(json!({"type": "object", "properties": {"template": embedded}}));
    let mut value = json!({"template": {"metadata": {"name": "x"}, "kind": "Y", "spec": {}, "other": 1}});
    prune(&schema, &mut value);
    assert_eq!(value, json!({"template": {"metadata": {"name": "x"}, "kind": "Y", "spec": {}}}));
}

#[test]
fn defaults_reach_into_objects_that_exist_and_create_none() {
    let mut group = json!({"spec": {"local": {"v4pools": []}}});
    fill(&group_schema("v2"), &mut group);
    let pools = json!({"v4pools": [], "multiPool": false, "balancePools": false, "skipIPv6DAD": false});
    assert_eq!(group["spec"], json!({"local": pools, "enforceNamespaces": false, "namespaceDefault": false}));
}

#[test]
fn only_v1_defaults_the_placement() {
    for (version, placement) in [("v1", json!("Auto")), ("v2", Value::Null)] {
        let mut group = json!({"spec": {}});
        fill(&group_schema(version), &mut group);
        assert_eq!(group["spec"]["placement"], placement, "through {version}");
    }
}

#[test]
fn an_explicit_null_counts_as_absent_unless_the_field_may_be_null() {
    let schema = schema(json!({
        "type": "object",
        "properties": {"a": {"default": 1}, "b": {"default": 1, "nullable": true}, "e": {}, "c": {"default": {}, "properties": {"d": {"default": 2}}}},
    }));
    let mut value = json!({"a": null, "b": null, "e": null, "unknown": null, "list": [null]});
    fill(&schema, &mut value);
    assert_eq!(value, json!({"a": 1, "b": null, "c": {"d": 2}, "unknown": null, "list": [null]}));
}

#[rstest]
#[case::required(json!({"v4pools": [{"pool": "x"}]}), "spec.remote.v4pools[0].subnet: Required value")]
#[case::wrong_type(
    json!({"v4pool": 7}),
    r#"spec.remote.v4pool: Invalid value: "integer": spec.remote.v4pool in body must be of type object: "integer""#
)]
#[case::null(
    json!({"v4pools": [null]}),
    r#"spec.remote.v4pools[0]: Invalid value: "null": spec.remote.v4pools[0] in body must be of type object: "null""#
)]
#[case::pattern(
    json!({"v4pool": {"pool": "x", "subnet": "y", "aggregation": "/64"}}),
    r#"spec.remote.v4pool.aggregation: Invalid value: "/64": spec.remote.v4pool.aggregation in body should match '^(default|/([89]|[12][0-9]|3[0-2]))$'"#
)]
fn the_api_servers_words_for_a_group(#[case] remote: Value, #[case] words: &str) {
    assert_eq!(spoken(&group_schema("v2"), &json!({"spec": {"remote": remote}})), [words]);
}

#[rstest]
#[case::enumeration(json!({"enum": ["a", "b"]}), json!("c"), r#"x: Unsupported value: "c": supported values: "a", "b""#)]
#[case::too_short(json!({"minLength": 1}), json!(""), r#"x: Invalid value: "": x in body should be at least 1 chars long"#)]
#[case::too_long(json!({"maxLength": 2}), json!("äöü"), "x: Too long: may not be more than 2 bytes")]
#[case::too_many(json!({"maxItems": 1}), json!([1, 2]), "x: Too many: 2: must have at most 1 items")]
#[case::too_few(json!({"minItems": 1}), json!([]), "x: Invalid value: 0: x in body should have at least 1 items")]
#[case::too_small(json!({"minimum": 0}), json!(-1), "x: Invalid value: -1: x in body should be greater than or equal to 0")]
#[case::too_large(json!({"maximum": 10}), json!(11), "x: Invalid value: 11: x in body should be less than or equal to 10")]
#[case::exclusive(
    json!({"minimum": 0, "exclusiveMinimum": true}), json!(0), "x: Invalid value: 0: x in body should be greater than 0"
)]
#[case::int_or_string(
    json!({"x-kubernetes-int-or-string": true}),
    json!(true),
    r#"x: Invalid value: "boolean": x in body must be of type integer,string: "boolean""#
)]
#[case::fraction(
    json!({"type": "integer"}), json!(1.5), r#"x: Invalid value: "number": x in body must be of type integer: "number""#
)]
#[case::same_key(
    json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
    json!([{"type": "Valid", "status": "True"}, {"type": "Valid", "status": "False"}]),
    r#"x[1]: Duplicate value: {"type":"Valid"}"#
)]
#[case::same_item(json!({"x-kubernetes-list-type": "set"}), json!(["a", "a"]), r#"x[1]: Duplicate value: "a""#)]
#[case::in_a_map(
    json!({"additionalProperties": {"type": "string"}}),
    json!({"k": 1}),
    r#"x.k: Invalid value: "integer": x.k in body must be of type string: "integer""#
)]
fn the_api_servers_words_for_a_field(#[case] field: Value, #[case] value: Value, #[case] words: &str) {
    let schema = schema(json!({"type": "object", "properties": {"x": field}}));
    assert_eq!(spoken(&schema, &json!({"x": value})), [words]);
}

#[rstest]
#[case::whole_float(json!({"type": "integer"}), json!(3.0))]
#[case::int_or_string(json!({"x-kubernetes-int-or-string": true}), json!("80%"))]
#[case::nullable(json!({"type": "string", "nullable": true, "enum": ["a"]}), json!(null))]
#[case::anything(json!({"x-kubernetes-preserve-unknown-fields": true}), json!([{"a": 1}]))]
#[case::length_in_characters(json!({"maxLength": 3}), json!("äöü"))]
#[case::unreadable_pattern(json!({"pattern": "("}), json!("x"))]
fn what_the_api_server_lets_pass(#[case] field: Value, #[case] value: Value) {
    let schema = schema(json!({"type": "object", "properties": {"x": field}}));
    assert_eq!(spoken(&schema, &json!({"x": value})), [""; 0]);
}
