//! What is wrong with one object, by its schema, by the rules of its version and by what PureLB reads in it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use purelb_core::group::Group;
use purelb_core::reason::Reason;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::document::{Document, objects};
use super::notes::Notes;
use super::{Fault, Finding, Report, Severity, rules, suggest};
use crate::read;
use crate::schema::{self, Violation, ViolationKind, field};
use crate::{names, service_group::ServiceGroup};

/// The API group of ServiceGroup and LBNodeAgent.
const API_GROUP: &str = "purelb.io";

/// Where an object stands and what it is called.
pub struct Site {
    document: Rc<Document>,
    /// The object's path in its document; empty unless it is an item of a List.
    path: String,
    /// The object's kind.
    pub kind: String,
    /// The object's namespace; empty where none is written.
    pub namespace: String,
    /// The object's name; empty where none is written.
    pub name: String,
}

impl Site {
    fn new(document: &Rc<Document>, path: String, value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Site {
            document: Rc::clone(document),
            path,
            kind: text(&value["kind"]),
            namespace: text(&value["metadata"]["namespace"]),
            name: text(&value["metadata"]["name"]),
        }
    }

    /// File and line of the object.
    pub fn place(&self) -> String {
        format!("{}:{}", self.document.file, self.document.line(&self.path))
    }

    /// A finding about a field of the object.
    pub fn finding(&self, severity: Severity, path: &str, fault: &Fault) -> Finding {
        Finding {
            severity,
            file: self.document.file.clone(),
            line: self.document.line(&field(&self.path, path)),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            field: path.to_owned(),
            reason: fault.name().to_owned(),
            sentence: fault.to_string(),
        }
    }
}

/// An object of ours, for the questions that take several of them.
pub struct Found {
    /// Where it stands.
    pub site: Site,
    /// What it says, if it is a group and usable.
    pub group: Option<Group>,
}

/// What an object is to us.
enum Sort {
    Ours { version: String },
    Wrong { field: &'static str, fault: Fault },
    Other,
}

/// The schemas of our CRDs by kind and version; making them takes longer than checking an object by them.
static SCHEMAS: LazyLock<BTreeMap<(String, String), JSONSchemaProps>> = LazyLock::new(|| {
    let mut schemas = BTreeMap::new();
    for crd in crate::crds() {
        for version in crd.spec.versions {
            let schema = version.schema.and_then(|schema| schema.open_api_v3_schema).unwrap_or_default();
            schemas.insert((crd.spec.names.kind.clone(), version.name), schema);
        }
    }
    schemas
});

/// Checks objects one by one and remembers those that are ours.
#[derive(Default)]
pub struct Checker {
    found: Vec<Found>,
}

impl Checker {
    /// The objects of ours that were seen.
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// Checks every object of a document.
    pub fn document(&mut self, document: Document, report: &mut Report) {
        let document = Rc::new(document);
        for (path, value) in objects(&document) {
            let site = Site::new(&document, path, value);
            match sort(value) {
                Sort::Ours { version } => self.ours(site, &version, value, report),
                Sort::Wrong { field, fault } => report.findings.push(site.finding(Severity::Error, field, &fault)),
                Sort::Other => report.counts.others += 1,
            }
        }
    }

    fn ours(&mut self, site: Site, version: &str, value: &Value, report: &mut Report) {
        let Some(schema) = SCHEMAS.get(&(site.kind.clone(), version.to_owned())) else { return };
        let mut notes = Notes::default();
        check_name(&value["metadata"], &mut notes);
        for path in schema::unknown(schema, value) {
            let hint = suggest::hint(schema, &path);
            notes.error(path, Fault::FieldUnknown { hint });
        }
        let mut value = value.clone();
        schema::prune(schema, &mut value);
        schema::fill(schema, &mut value);
        let violations = schema::check(schema, &value);
        let mut group = None;
        if site.kind == "ServiceGroup" {
            report.counts.service_groups += 1;
            if let Some(object) = typed::<ServiceGroup>(value, &violations) {
                group = notes.reading(read::group(&object));
                rules::check(&object.spec, version, &mut notes);
            }
        } else {
            report.counts.node_agents += 1;
            if let Some(object) = typed(value, &violations) {
                notes.reading(read::agent(&object));
            }
        }
        notes.violations(violations);
        let notes = notes.without_consequences();
        report.findings.extend(notes.iter().map(|note| site.finding(note.severity, &note.field, &note.fault)));
        self.found.push(Found { site, group });
    }
}

fn sort(value: &Value) -> Sort {
    let written = value["apiVersion"].as_str().unwrap_or_default();
    let kind = value["kind"].as_str().unwrap_or_default();
    let our_kind = SCHEMAS.keys().any(|(known, _)| known == kind);
    // A kind of ours without a version, or with a slip in it, is ours; the same word in another API group is not.
    let meant = our_kind && (written.is_empty() || written.contains("purelb"));
    match written.split_once('/') {
        Some((API_GROUP, version)) if SCHEMAS.keys().any(|(_, known)| known == version) => {
            let fault = Fault::KindUnknown { written: kind.to_owned() };
            if our_kind { Sort::Ours { version: version.to_owned() } } else { Sort::Wrong { field: "kind", fault } }
        }
        other if meant || other.is_some_and(|(group, _)| group == API_GROUP) => {
            let unknown = Fault::VersionUnknown { written: written.to_owned() };
            let fault = if written.is_empty() { Fault::VersionMissing } else { unknown };
            Sort::Wrong { field: "apiVersion", fault }
        }
        _ => Sort::Other,
    }
}

/// The object as its Rust type, without what has a wrong type, so that the rest of it is read all the same.
///
/// `None` if it cannot be had even so; the schema has said why.
fn typed<T: DeserializeOwned>(mut value: Value, violations: &[Violation]) -> Option<T> {
    for violation in violations.iter().filter(|violation| violation.kind == ViolationKind::TypeInvalid) {
        let (parent, name) = violation.field.rsplit_once('.')?;
        let pointer = parent.replace(['.', '['], "/").replace(']', "");
        value.pointer_mut(&format!("/{pointer}"))?.as_object_mut()?.remove(name);
    }
    // Of the metadata only these two are read, and whatever else is written there is Kubernetes' to judge.
    let text = |name: &str| value["metadata"][name].as_str();
    value["metadata"] = json!({"name": text("name"), "namespace": text("namespace")});
    serde_json::from_value(value).ok()
}

fn check_name(metadata: &Value, notes: &mut Notes) {
    match &metadata["name"] {
        Value::String(name) if names::is_subdomain(name) => {}
        Value::String(name) => {
            let reason = Reason::NameInvalid { name: name.clone(), instead: names::legal_name(name) };
            notes.error("metadata.name", reason);
        }
        Value::Null if metadata["generateName"].is_string() => {}
        Value::Null => notes.error("metadata.name", Fault::NameMissing),
        _ => {
            let answer = "metadata.name must be of type string".to_owned();
            notes.error("metadata.name", Fault::SchemaViolated { answer, hint: "; put the value in quotes" });
        }
    }
}
