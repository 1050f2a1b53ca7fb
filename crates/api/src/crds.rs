//! The CustomResourceDefinitions that clusters install: of the kinds of `purelb.io` one union schema each, served as v1
//! and v2 and stored as v2, and the kinds of `bgp.purelb.io`, which have one version.
//!
//! There is no conversion webhook: the API server changes only the `apiVersion` of an object on its way between
//! versions. Therefore both versions know every field, and differ only in what is defaulted and demanded of an object
//! that is written through them:
//!
//! | | v1 | v2 |
//! | --- | --- | --- |
//! | ServiceGroup | `placement` becomes `Auto`; an object without it cannot be edited | patterns for `aggregation` |
//! | LBNodeAgent | `local` is required; defaults for `localint`, `extlbint`, `sendgarp` | defaults for `localInterface`, `dummyInterface` |

#[cfg(test)]
pub(crate) mod judge;
mod path;
mod rules;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion, JSON, JSONSchemaProps,
};
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::{BGPConfiguration, BGPNodeStatus, LBNodeAgent, ServiceGroup};
use path::{at, each};

/// `default` or a prefix length from /8 to /32.
const AGGREGATION_V4: &str = "^(default|/([89]|[12][0-9]|3[0-2]))$";
/// `default` or a prefix length from /8 to /128.
const AGGREGATION_V6: &str = "^(default|/([89]|[1-9][0-9]|1[01][0-9]|12[0-8]))$";

/// The columns of `kubectl get servicegroups`, in order: name, type, path and priority (those above 0 show with `-o
/// wide`).
const COLUMNS: [(&str, &str, &str, i32); 11] = [
    ("Announce", "string", ".status.announce", 0),
    ("IPAM", "string", ".status.ipam", 0),
    ("Allocated-V4", "integer", ".status.allocatedIPv4", 0),
    ("Allocated-V6", "integer", ".status.allocatedIPv6", 0),
    ("Addresses", "string", ".status.addresses", 1),
    ("Available-V4", "integer", ".status.availableIPv4", 1),
    ("Available-V6", "integer", ".status.availableIPv6", 1),
    ("Namespaces", "string", ".spec.namespaces", 1),
    ("Enforced", "boolean", ".spec.enforceNamespaces", 1),
    ("Bound", "string", ".status.boundNamespaces", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
];

/// The columns of `kubectl get bgpnodestatuses`.
const NODE_STATUS_COLUMNS: [(&str, &str, &str, i32); 6] = [
    ("Node", "string", ".status.nodeName", 0),
    ("RouterID", "string", ".status.routerID", 0),
    ("Healthy", "boolean", ".status.healthy", 0),
    ("Neighbors", "integer", ".status.neighborCount", 0),
    ("LastUpdated", "date", ".status.lastUpdated", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
];

/// The lines that open each file of `deploy/crds`.
const HEADER: &str = "# SPDX-License-Identifier: Apache-2.0\n# Written by `purelb crds`. Do not edit.\n";

/// The CustomResourceDefinitions of all kinds, in the form a cluster needs them.
///
/// The `crd()` of the kinds themselves lacks what the versions differ in.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut groups = served_twice(ServiceGroup::crd(), service_group_v1, service_group_v2);
    for version in &mut groups.spec.versions {
        version.additional_printer_columns = Some(COLUMNS.into_iter().map(column).collect());
    }
    let agents = served_twice(LBNodeAgent::crd(), node_agent_v1, node_agent_v2);
    let configurations = served_once(BGPConfiguration::crd(), bgp_configuration);
    let mut node_statuses = served_once(BGPNodeStatus::crd(), bgp_node_status);
    for version in &mut node_statuses.spec.versions {
        version.additional_printer_columns = Some(NODE_STATUS_COLUMNS.into_iter().map(column).collect());
    }
    vec![groups, agents, configurations, node_statuses]
}

fn column((name, type_, path, priority): (&str, &str, &str, i32)) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: path.to_owned(),
        priority: (priority > 0).then_some(priority),
        ..CustomResourceColumnDefinition::default()
    }
}

/// Name and text of each file in `deploy/crds`.
pub fn crd_files() -> Vec<(String, String)> {
    crds().iter().map(|crd| (format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural), yaml(crd))).collect()
}

/// All CustomResourceDefinitions as one YAML stream, for `kubectl apply -f -`.
pub fn crds_yaml() -> String {
    crd_files().into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("---\n")
}

fn yaml(crd: &CustomResourceDefinition) -> String {
    let mut value = serde_json::to_value(crd).expect("a CustomResourceDefinition is plain data");
    whole_numbers(&mut value);
    let text = serde_saphyr::to_string(&value).expect("JSON values have a YAML form");
    format!("{HEADER}{}\n", text.trim_end())
}

/// Writes `minimum: 0` where the types hold 0.0.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0) {
                *value = json!(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Makes the derived definition, which has one version, into one that serves v1 beside v2.
fn served_twice(
    mut crd: CustomResourceDefinition,
    v1: fn(&mut JSONSchemaProps),
    v2: fn(&mut JSONSchemaProps),
) -> CustomResourceDefinition {
    let union = crd.spec.versions.pop().expect("the derived definition has one version");
    crd.spec.versions = vec![version(&union, "v1", false, v1), version(&union, "v2", true, v2)];
    crd
}

/// Completes the derived definition of a kind with one version.
fn served_once(mut crd: CustomResourceDefinition, adapt: fn(&mut JSONSchemaProps)) -> CustomResourceDefinition {
    let derived = crd.spec.versions.pop().expect("the derived definition has one version");
    crd.spec.versions = vec![version(&derived, &derived.name, true, adapt)];
    crd
}

fn version(
    union: &CustomResourceDefinitionVersion,
    name: &str,
    storage: bool,
    adapt: fn(&mut JSONSchemaProps),
) -> CustomResourceDefinitionVersion {
    let mut version = CustomResourceDefinitionVersion { name: name.to_owned(), storage, served: true, ..union.clone() };
    let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
    let schema = schema.expect("the derived definition has a schema");
    each(schema, &mut tidy);
    adapt(schema);
    version
}

/// Removes what Rust's types add to a schema and an operator has no use for.
///
/// Without `nullable`, a field is either there or not, as in PureLB's own CRDs; the rules would otherwise have to speak
/// of null.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    if let Some(description) = &mut schema.description {
        *description = description.replace('\n', " ");
    }
}

fn service_group_v1(schema: &mut JSONSchemaProps) {
    default(schema, "spec.placement", json!("Auto"));
    service_group_rules(schema);
    rules::add(at(schema, "spec"), &[rules::EDIT_AS_V2]);
}

/// v1 gets no patterns: PureLB 0.13 stored any text as `aggregation`, and these objects must stay editable.
fn service_group_v2(schema: &mut JSONSchemaProps) {
    for source in ["local", "remote"] {
        for (pool, pattern) in [
            ("v4pool", AGGREGATION_V4),
            ("v4pools[]", AGGREGATION_V4),
            ("v6pool", AGGREGATION_V6),
            ("v6pools[]", AGGREGATION_V6),
        ] {
            at(schema, &format!("spec.{source}.{pool}.aggregation")).pattern = Some(pattern.to_owned());
        }
    }
    service_group_rules(schema);
}

fn service_group_rules(schema: &mut JSONSchemaProps) {
    let spec =
        [rules::ONE_SOURCE, rules::AUTO_IS_LOCAL, rules::V1_RANGE, rules::ENFORCE_NAMESPACES, rules::NAMESPACE_DEFAULT];
    rules::add(at(schema, "spec"), &spec);
    rules::add(at(schema, "spec.local"), &[rules::ONE_WAY_TO_CHOOSE]);
    rules::add(at(schema, "spec.remote"), &[rules::ONE_WAY_TO_CHOOSE]);
}

fn node_agent_v1(schema: &mut JSONSchemaProps) {
    at(schema, "spec").required = Some(vec!["local".to_owned()]);
    default(schema, "spec.local.localint", json!("default"));
    default(schema, "spec.local.extlbint", json!("kube-lb0"));
    default(schema, "spec.local.sendgarp", json!(false));
}

fn node_agent_v2(schema: &mut JSONSchemaProps) {
    default(schema, "spec.local.localInterface", json!("default"));
    default(schema, "spec.local.dummyInterface", json!("kube-lb0"));
}

/// What the daemons assume where nothing is written is not stored: an object stays as its author wrote it.
fn bgp_configuration(schema: &mut JSONSchemaProps) {
    each(schema, &mut |schema| schema.default = None);
    require(schema, "spec", &["global"]);
    require(schema, "spec.global", &["asn"]);
    require(schema, "spec.neighbors[]", &["config"]);
    require(schema, "spec.neighbors[].config", &["peerAsn"]);
    require(schema, "spec.peerGroups[]", &["config"]);
    require(schema, "spec.peerGroups[].config", &["peerGroupName"]);
}

fn bgp_node_status(schema: &mut JSONSchemaProps) {
    each(schema, &mut |schema| schema.default = None);
    // There is nothing in it, so that nobody has to write it.
    schema.required = None;
    require(schema, "status", &["neighborCount", "nodeName"]);
    require(schema, "status.netlinkImport", &["enabled", "totalImported"]);
}

fn require(schema: &mut JSONSchemaProps, path: &str, fields: &[&str]) {
    at(schema, path).required = Some(fields.iter().map(|field| (*field).to_owned()).collect());
}

fn default(schema: &mut JSONSchemaProps, path: &str, value: Value) {
    at(schema, path).default = Some(JSON(value));
}

#[cfg(test)]
mod tests;
