//! The table of built-in kinds.

mod apps;
mod cluster;
mod config;
mod discovery;
mod event;

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::definition::DefinitionRules;
use crate::kinds::{Field, Resource, Served, Traits};
use crate::meta;
use crate::names::NameRule::{self, Label, Subdomain};
use crate::rules::Rules;
use crate::service::ServiceRules;
use crate::table;

/// A built-in kind in one line.
struct Row {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    status: bool,
    name_rule: NameRule,
    traits: Traits,
    fields: &'static [(&'static str, &'static [&'static str])],
    rules: fn() -> Arc<dyn Rules>,
}

const PLAIN: Traits = Traits {
    create_on_update: false,
    versioned_update: false,
    returns_deleted: false,
    counts_generations: false,
    custom: false,
};

/// What `kubectl get all` shows.
const ALL: &[&str] = &["all"];

const EVENT_FIELDS: &[(&str, &[&str])] = &[
    ("involvedObject.kind", &["/involvedObject/kind"]),
    ("involvedObject.namespace", &["/involvedObject/namespace"]),
    ("involvedObject.name", &["/involvedObject/name"]),
    ("involvedObject.uid", &["/involvedObject/uid"]),
    ("involvedObject.apiVersion", &["/involvedObject/apiVersion"]),
    ("involvedObject.resourceVersion", &["/involvedObject/resourceVersion"]),
    ("involvedObject.fieldPath", &["/involvedObject/fieldPath"]),
    ("reason", &["/reason"]),
    ("reportingComponent", &["/reportingComponent"]),
    ("source", &["/source/component", "/reportingComponent"]),
    ("type", &["/type"]),
];

/// What the newer group calls the same fields; the stored form is that of the core group.
const REGARDING_FIELDS: &[(&str, &[&str])] = &[
    ("regarding.kind", &["/involvedObject/kind"]),
    ("regarding.namespace", &["/involvedObject/namespace"]),
    ("regarding.name", &["/involvedObject/name"]),
    ("regarding.uid", &["/involvedObject/uid"]),
    ("regarding.apiVersion", &["/involvedObject/apiVersion"]),
    ("regarding.resourceVersion", &["/involvedObject/resourceVersion"]),
    ("regarding.fieldPath", &["/involvedObject/fieldPath"]),
    ("reason", &["/reason"]),
    ("reportingController", &["/reportingComponent"]),
    ("type", &["/type"]),
];

const POD_FIELDS: &[(&str, &[&str])] = &[
    ("spec.nodeName", &["/spec/nodeName"]),
    ("spec.restartPolicy", &["/spec/restartPolicy"]),
    ("spec.schedulerName", &["/spec/schedulerName"]),
    ("spec.serviceAccountName", &["/spec/serviceAccountName"]),
    ("spec.hostNetwork", &["/spec/hostNetwork"]),
    ("status.phase", &["/status/phase"]),
    ("status.podIP", &["/status/podIP"]),
    ("status.nominatedNodeName", &["/status/nominatedNodeName"]),
];

/// Every built-in kind. A new one is one more entry here, and its rules where it has any beside its type.
fn rows() -> Vec<Row> {
    vec![
        Row {
            group: "",
            kind: "Service",
            plural: "services",
            short: &["svc"],
            categories: ALL,
            namespaced: true,
            status: true,
            name_rule: Label,
            traits: Traits { create_on_update: true, returns_deleted: true, ..PLAIN },
            fields: &[("spec.clusterIP", &["/spec/clusterIP"]), ("spec.type", &["/spec/type"])],
            rules: || Arc::new(ServiceRules),
        },
        Row {
            fields: &[("spec.unschedulable", &["/spec/unschedulable"])],
            status: true,
            short: &["no"],
            ..row("", "Node", "nodes", false, || Arc::new(cluster::NodeRules))
        },
        Row {
            fields: &[("status.phase", &["/status/phase"])],
            status: true,
            short: &["ns"],
            name_rule: Label,
            ..row("", "Namespace", "namespaces", false, || Arc::new(cluster::NamespaceRules))
        },
        Row {
            fields: POD_FIELDS,
            status: true,
            short: &["po"],
            categories: ALL,
            traits: Traits { returns_deleted: true, counts_generations: true, ..PLAIN },
            ..row("", "Pod", "pods", true, || Arc::new(cluster::PodRules))
        },
        Row { fields: &[("type", &["/type"])], ..row("", "Secret", "secrets", true, || Arc::new(config::SecretRules)) },
        Row { short: &["cm"], ..row("", "ConfigMap", "configmaps", true, || Arc::new(config::ConfigMapRules)) },
        Row {
            fields: EVENT_FIELDS,
            short: &["ev"],
            traits: Traits { create_on_update: true, ..PLAIN },
            ..row("", "Event", "events", true, || Arc::new(event::EventRules))
        },
        Row {
            traits: Traits { counts_generations: true, ..PLAIN },
            ..row("discovery.k8s.io", "EndpointSlice", "endpointslices", true, || Arc::new(discovery::SliceRules))
        },
        Row {
            traits: Traits { create_on_update: true, versioned_update: true, ..PLAIN },
            ..row("coordination.k8s.io", "Lease", "leases", true, || Arc::new(discovery::LeaseRules))
        },
        Row {
            status: true,
            short: &["ds"],
            categories: ALL,
            traits: Traits { counts_generations: true, ..PLAIN },
            ..row("apps", "DaemonSet", "daemonsets", true, || Arc::new(apps::DaemonSetRules))
        },
        Row {
            status: true,
            short: &["deploy"],
            categories: ALL,
            traits: Traits { counts_generations: true, ..PLAIN },
            ..row("apps", "Deployment", "deployments", true, || Arc::new(apps::DeploymentRules))
        },
        Row {
            status: true,
            categories: &["api-extensions"],
            short: &["crd", "crds"],
            traits: Traits { versioned_update: true, counts_generations: true, ..PLAIN },
            ..row("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", false, || {
                Arc::new(DefinitionRules)
            })
        },
    ]
}

fn row(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    rules: fn() -> Arc<dyn Rules>,
) -> Row {
    Row {
        group,
        kind,
        plural,
        short: &[],
        categories: &[],
        namespaced,
        status: false,
        name_rule: Subdomain,
        traits: PLAIN,
        fields: &[],
        rules,
    }
}

/// The built-in kinds as the registry holds them.
pub(crate) fn resources() -> Vec<Resource> {
    rows().into_iter().map(resource).collect()
}

fn resource(row: Row) -> Resource {
    let served = |group: &str, fields| Served {
        group: group.into(),
        version: "v1".into(),
        status: row.status,
        fields: selectable(fields),
        columns: table::columns(row.kind).into(),
    };
    let mut versions = vec![served(row.group, row.fields)];
    if row.kind == "Event" {
        versions.push(served("events.k8s.io", REGARDING_FIELDS));
    }
    let dot = if row.group.is_empty() { "" } else { "." };
    Resource {
        bucket: format!("{}{dot}{}", row.plural, row.group),
        kind: row.kind.into(),
        plural: row.plural.into(),
        singular: row.kind.to_lowercase(),
        list_kind: format!("{}List", row.kind),
        short_names: row.short.iter().map(|it| (*it).into()).collect(),
        categories: row.categories.iter().map(|it| (*it).into()).collect(),
        namespaced: row.namespaced,
        name_rule: row.name_rule,
        traits: row.traits,
        served: versions,
        rules: (row.rules)(),
    }
}

fn selectable(fields: &[(&str, &[&str])]) -> Vec<Field> {
    let field = |(label, pointers): &(&str, &[&str])| Field {
        label: (*label).into(),
        pointers: pointers.iter().map(|it| (*it).into()).collect(),
        default: if matches!(*label, "spec.unschedulable" | "spec.hostNetwork") { "false" } else { "" },
    };
    fields.iter().map(field).collect()
}

/// Reads JSON into the type of a built-in kind and back, which drops what the kind does not have.
///
/// # Errors
/// A sentence if a field has the wrong type.
pub(crate) fn typed<T: DeserializeOwned + Serialize>(body: Value) -> Result<Value, String> {
    let object: T = serde_json::from_value(body).map_err(|error| error.to_string())?;
    let mut value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    drop_empty(&mut value);
    meta::normalize(&mut value)?;
    Ok(value)
}

/// Absent, null and the empty list are the same to Kubernetes' built-in kinds, and absent is how they are kept.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(drop_empty);
            members.retain(|_, it| !it.is_null() && !it.as_array().is_some_and(Vec::is_empty));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}
