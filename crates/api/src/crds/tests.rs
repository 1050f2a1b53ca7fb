//! What operators and other programs rely on in the CRDs.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
use rstest::rstest;

use super::judge::Judge;
use super::*;

fn schema(crd: &CustomResourceDefinition, version: &str) -> JSONSchemaProps {
    let version = crd.spec.versions.iter().find(|served| served.name == version).unwrap();
    version.schema.clone().unwrap().open_api_v3_schema.unwrap()
}

fn groups(version: &str) -> JSONSchemaProps {
    schema(&crds()[0], version)
}

/// The kinds with two versions.
fn purelb_io() -> Vec<CustomResourceDefinition> {
    crds().into_iter().filter(|crd| crd.spec.group == "purelb.io").collect()
}

#[test]
fn deploy_crds_is_what_the_program_prints() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    for (name, text) in crd_files() {
        let committed = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert!(
            committed == text,
            "deploy/crds/{name} is not what the types say; run `cargo run -p purelb -- crds --dir deploy/crds` and commit the result"
        );
    }
}

#[test]
fn all_crds_are_one_stream_of_documents() {
    let stream = crds_yaml();
    let parts: Vec<_> = stream.split("---\n").collect();
    assert_eq!(parts, crd_files().iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>());
    assert!(stream.ends_with("status: {}\n"));
}

#[rstest]
#[case(0, "purelb.io_servicegroups.yaml", "ServiceGroup", "servicegroup", "servicegroups", ["sg", "sgs"])]
#[case(1, "purelb.io_lbnodeagents.yaml", "LBNodeAgent", "lbnodeagent", "lbnodeagents", ["lbna", "lbnas"])]
fn names_that_scripts_use(
    #[case] position: usize,
    #[case] file: &str,
    #[case] kind: &str,
    #[case] singular: &str,
    #[case] plural: &str,
    #[case] short: [&str; 2],
) {
    let crd = &crds()[position];
    let names = &crd.spec.names;
    assert_eq!(crd_files()[position].0, file);
    assert_eq!(crd.metadata.name.as_deref(), Some(format!("{plural}.purelb.io").as_str()));
    assert_eq!((names.kind.as_str(), names.singular.as_deref(), names.plural.as_str()), (kind, Some(singular), plural));
    assert_eq!(names.short_names.as_ref().unwrap(), &short);
    assert_eq!((crd.spec.group.as_str(), crd.spec.scope.as_str()), ("purelb.io", "Namespaced"));
    assert_eq!(crd.spec.conversion, None);
}

#[rstest]
#[case(2, "bgp.purelb.io_configs.yaml", "BGPConfiguration", "config", "configs", "bgpconfig", "Namespaced")]
#[case(
    3,
    "bgp.purelb.io_bgpnodestatuses.yaml",
    "BGPNodeStatus",
    "bgpnodestatus",
    "bgpnodestatuses",
    "bgpns",
    "Cluster"
)]
fn names_of_the_bgp_kinds(
    #[case] position: usize,
    #[case] file: &str,
    #[case] kind: &str,
    #[case] singular: &str,
    #[case] plural: &str,
    #[case] short: &str,
    #[case] scope: &str,
) {
    let crd = &crds()[position];
    let names = &crd.spec.names;
    assert_eq!(crd_files()[position].0, file);
    assert_eq!(crd.metadata.name.as_deref(), Some(format!("{plural}.bgp.purelb.io").as_str()));
    assert_eq!((names.kind.as_str(), names.singular.as_deref(), names.plural.as_str()), (kind, Some(singular), plural));
    assert_eq!(names.short_names.as_deref(), Some(&[short.to_owned()][..]));
    assert_eq!((crd.spec.group.as_str(), crd.spec.scope.as_str()), ("bgp.purelb.io", scope));
    let versions: Vec<_> = crd.spec.versions.iter().map(|v| (v.name.as_str(), v.served, v.storage)).collect();
    assert_eq!(versions, [("v1", true, true)]);
    assert!(crd.spec.versions[0].subresources.as_ref().unwrap().status.is_some());
}

#[test]
fn kubectl_get_bgpns_shows_the_columns_it_always_did() {
    let columns = |position: usize| {
        let columns = crds()[position].spec.versions[0].additional_printer_columns.clone().unwrap_or_default();
        columns.into_iter().map(|column| column.name).collect::<Vec<_>>()
    };
    assert_eq!(columns(3), ["Node", "RouterID", "Healthy", "Neighbors", "LastUpdated", "Age"]);
    assert_eq!(columns(2), [""; 0]);
}

#[test]
fn a_bgp_object_is_stored_as_it_is_written() {
    for crd in &crds()[2..] {
        each(&mut schema(crd, "v1"), &mut |schema| assert_eq!(schema.default, None));
    }
}

#[test]
fn both_versions_are_served_with_a_status_and_v2_is_stored() {
    for crd in purelb_io() {
        let versions: Vec<_> = crd.spec.versions.iter().map(|v| (v.name.as_str(), v.served, v.storage)).collect();
        assert_eq!(versions, [("v1", true, false), ("v2", true, true)]);
        for version in &crd.spec.versions {
            assert!(version.subresources.as_ref().unwrap().status.is_some());
            let mut schema = schema(&crd, &version.name);
            assert_eq!(schema.required.as_deref(), Some(&["spec".to_owned()][..]));
            let conditions = at(&mut schema, "status.conditions");
            assert_eq!(conditions.x_kubernetes_list_type.as_deref(), Some("map"));
            assert_eq!(conditions.x_kubernetes_list_map_keys.as_deref(), Some(&["type".to_owned()][..]));
        }
    }
}

#[test]
fn kubectl_get_shows_the_columns_it_always_did() {
    let crd = &crds()[0];
    for version in &crd.spec.versions {
        let columns = version.additional_printer_columns.as_ref().unwrap();
        let plain: Vec<_> = columns.iter().filter(|c| c.priority.is_none()).map(|c| c.name.as_str()).collect();
        assert_eq!(plain, ["Announce", "IPAM", "Allocated-V4", "Allocated-V6", "Age"]);
        let wide: Vec<_> = columns.iter().map(|c| c.name.as_str()).collect();
        let expected = [
            "Announce",
            "IPAM",
            "Allocated-V4",
            "Allocated-V6",
            "Addresses",
            "Available-V4",
            "Available-V6",
            "Namespaces",
            "Enforced",
            "Bound",
            "Age",
        ];
        assert_eq!(wide, expected);
    }
    assert!(crds()[1].spec.versions.iter().all(|version| version.additional_printer_columns.is_none()));
}

fn fields(schema: &JSONSchemaProps, path: &str, found: &mut BTreeSet<String>) {
    found.insert(format!("{path}: {}", schema.type_.as_deref().unwrap_or("any")));
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        fields(items, &format!("{path}[]"), found);
    }
    for (name, inner) in schema.properties.iter().flatten() {
        fields(inner, &format!("{path}.{name}"), found);
    }
}

/// Without a conversion webhook, a field that one version does not know would be lost on the way through it.
#[test]
fn both_versions_know_the_same_fields() {
    for crd in purelb_io() {
        let [v1, v2] = ["v1", "v2"].map(|version| {
            let mut found = BTreeSet::new();
            fields(&schema(&crd, version), "", &mut found);
            found
        });
        assert_eq!(v1, v2);
    }
}

#[test]
fn no_field_is_nullable_and_every_field_is_explained() {
    for crd in crds() {
        for version in crd.spec.versions.iter().map(|version| version.name.as_str()) {
            let mut silent = 0;
            each(&mut schema(&crd, version), &mut |schema| {
                assert_eq!(schema.nullable, None);
                let explains_itself = schema.description.as_ref().is_some_and(|text| !text.contains('\n'));
                // The items of a list of texts, and the values of a map, have nothing to add.
                silent += usize::from(!explains_itself && schema.type_.as_deref() != Some("string"));
            });
            assert_eq!(silent, 0, "{} {version}", crd.spec.names.kind);
        }
    }
}

#[rstest]
#[case::v1_placement(0, "v1", "spec.placement", json!("Auto"))]
#[case::v1_enforce(0, "v1", "spec.enforceNamespaces", json!(false))]
#[case::v2_enforce(0, "v2", "spec.enforceNamespaces", json!(false))]
#[case::v2_default(0, "v2", "spec.namespaceDefault", json!(false))]
#[case::v2_dad(0, "v2", "spec.local.skipIPv6DAD", json!(false))]
#[case::v2_multi(0, "v2", "spec.remote.multiPool", json!(false))]
#[case::v2_balance(0, "v2", "spec.remote.balancePools", json!(false))]
#[case::v2_socket(0, "v2", "spec.external.socket", json!("/var/run/purelb/ipam.sock"))]
#[case::v1_localint(1, "v1", "spec.local.localint", json!("default"))]
#[case::v1_extlbint(1, "v1", "spec.local.extlbint", json!("kube-lb0"))]
#[case::v1_sendgarp(1, "v1", "spec.local.sendgarp", json!(false))]
#[case::v2_local(1, "v2", "spec.local.localInterface", json!("default"))]
#[case::v2_dummy(1, "v2", "spec.local.dummyInterface", json!("kube-lb0"))]
#[case::v2_garp(1, "v2", "spec.local.garpConfig.enabled", json!(true))]
#[case::v2_delay(1, "v2", "spec.local.garpConfig.initialDelay", json!("100ms"))]
#[case::v2_count(1, "v2", "spec.local.garpConfig.count", json!(3))]
#[case::v2_interval(1, "v2", "spec.local.garpConfig.interval", json!("500ms"))]
#[case::v2_verify(1, "v2", "spec.local.garpConfig.verifyBeforeSend", json!(true))]
fn defaults(#[case] crd: usize, #[case] version: &str, #[case] field: &str, #[case] value: Value) {
    let mut schema = schema(&crds()[crd], version);
    assert_eq!(at(&mut schema, field).default, Some(JSON(value)));
}

#[test]
fn what_only_the_other_version_defaults_is_not_defaulted() {
    for (crd, version, field) in [
        (0, "v2", "spec.placement"),
        (1, "v2", "spec.local.localint"),
        (1, "v2", "spec.local.sendgarp"),
        (1, "v1", "spec.local.localInterface"),
        (1, "v2", "spec.local.garpConfig"),
    ] {
        assert_eq!(at(&mut schema(&crds()[crd], version), field).default, None, "{field} in {version}");
    }
}

/// B46: the longest prefix is the family's; and PureLB's own pattern for what it always accepted.
#[rstest]
#[case("default", true, true)]
#[case("/8", true, true)]
#[case("/32", true, true)]
#[case("/33", false, true)]
#[case("/64", false, true)]
#[case("/128", false, true)]
#[case("/129", false, false)]
#[case("/7", false, false)]
#[case("/08", false, false)]
#[case("32", false, false)]
#[case("", false, false)]
#[case("Default", false, false)]
fn v2_aggregations_by_family(#[case] text: &str, #[case] v4: bool, #[case] v6: bool) {
    let mut schema = groups("v2");
    for source in ["local", "remote"] {
        for (pool, accepted) in [("v4pool", v4), ("v4pools[]", v4), ("v6pool", v6), ("v6pools[]", v6)] {
            let field = at(&mut schema, &format!("spec.{source}.{pool}.aggregation"));
            let pattern = regex::Regex::new(field.pattern.as_ref().unwrap()).unwrap();
            assert_eq!(pattern.is_match(text), accepted, "{text} in {source}.{pool}");
        }
    }
}

#[test]
fn v1_stores_any_aggregation_as_0_13_did() {
    let mut schema = groups("v1");
    for pool in ["v4pool", "v4pools[]", "v6pool", "v6pools[]"] {
        assert_eq!(at(&mut schema, &format!("spec.local.{pool}.aggregation")).pattern, None);
        let required = at(&mut schema, &format!("spec.local.{pool}")).required.clone();
        assert_eq!(required.unwrap(), ["pool", "subnet"]);
    }
    assert_eq!(at(&mut schema, "spec.netbox").required.as_deref(), Some(&["url".to_owned()][..]));
}

#[rstest]
#[case::none(json!({}), Some("exactly one of local, remote, or external must be specified"))]
#[case::two(json!({"local": {}, "remote": {}}), Some("exactly one of local, remote, or external must be specified"))]
#[case::one(json!({"remote": {}}), None)]
#[case::auto(json!({"placement": "Auto", "local": {}}), None)]
#[case::auto_flat(json!({"placement": "Auto", "pool": "x"}), None)]
#[case::auto_netbox(json!({"placement": "Auto", "netbox": {"url": "x"}}), None)]
#[case::auto_remote(json!({"placement": "Auto", "remote": {}}), Some("placement: Auto goes with local only"))]
#[case::auto_external(json!({"placement": "Auto", "external": {}}), Some("placement: Auto goes with local only"))]
#[case::single_range(json!({"local": {"pool": "x"}}), Some("belong to purelb.io/v1"))]
#[case::auto_single_range(json!({"placement": "Auto", "local": {"pool": "x"}}), None)]
#[case::enforce(json!({"remote": {}, "enforceNamespaces": true}), Some("enforceNamespaces requires a non-empty namespaces list"))]
#[case::enforce_none(
    json!({"remote": {}, "enforceNamespaces": true, "namespaces": []}), Some("otherwise it silently enforces nothing")
)]
#[case::enforce_one(json!({"remote": {}, "enforceNamespaces": true, "namespaces": ["a"]}), None)]
#[case::default(json!({"remote": {}, "namespaceDefault": true}), Some("otherwise it defaults nothing"))]
#[case::both_ways(json!({"remote": {"multiPool": true, "balancePools": true}}), Some("mutually exclusive"))]
#[case::both_ways_local(json!({"local": {"multiPool": true, "balancePools": true}}), Some("mutually exclusive"))]
#[case::one_way(json!({"local": {"multiPool": true}}), None)]
fn what_v2_refuses(#[case] spec: Value, #[case] words: Option<&str>) {
    let said = Judge::of("v2").refusals(&spec, None);
    assert_eq!(said.len(), words.iter().count(), "{said:?}");
    assert!(said.iter().zip(words).all(|(said, words)| said.contains(words)), "{said:?}");
}

/// Every shape that PureLB 0.13 stored, and the flat one of the oldest document, which no release understood.
#[rstest]
#[case::nothing(json!({}))]
#[case::pools(json!({"local": {"v4pools": [{"pool": "x", "subnet": "y", "aggregation": "32"}]}}))]
#[case::single_range(json!({"local": {"pool": "x", "subnet": "y", "aggregation": ""}}))]
#[case::netbox(json!({"netbox": {"url": "x", "tenant": "y", "aggregation": "default"}}))]
#[case::local_and_netbox(json!({"local": {}, "netbox": {"url": "x"}}))]
#[case::flat(json!({"name": "n", "subnet": "y", "pool": "x", "aggregation": "default"}))]
fn v1_shapes_pass_the_rules_of_both_versions(#[case] spec: Value) {
    assert_eq!(Judge::of("v1").refusals(&spec, None), [""; 0]);
    let mut stored = json!({"spec": spec});
    crate::schema::fill(&groups("v1"), &mut stored);
    assert_eq!(Judge::of("v2").refusals(&stored["spec"], None), [""; 0]);
}

#[test]
fn a_v2_group_is_edited_as_v2() {
    let (v1, v2) = (Judge::of("v1"), Judge::of("v2"));
    let v2_group = json!({"local": {}});
    let words = "this group was written as purelb.io/v2: edit it as v2 (kubectl edit servicegroups.v2.purelb.io NAME)";
    assert_eq!(v1.refusals(&v2_group, Some(&v2_group)), [words]);
    assert_eq!(v2.refusals(&v2_group, Some(&v2_group)), [""; 0]);
    let v1_group = json!({"placement": "Auto", "local": {}});
    assert_eq!(v1.refusals(&v2_group, Some(&v1_group)), [""; 0]);
}
