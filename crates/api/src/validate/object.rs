//! What is wrong with one object, by its schema, by the rules of its version and by what PureLB reads in it.

use std::rc::Rc;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use purelb_core::agent::AgentConfig;
use purelb_core::bgp::Configuration;
use purelb_core::group::Group;
use purelb_core::reason::Reason;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::document::{Document, objects};
use super::notes::Notes;
use super::{Counts, Fault, Finding, Report, Severity, rules, suggest};
use crate::bgp_configuration::BGPConfiguration;
use crate::read::{self, BgpObject, BgpReading};
use crate::schema::{self, Violation, ViolationKind, field};
use crate::{names, service_group::ServiceGroup};

/// One of our API groups.
struct ApiGroup {
    name: &'static str,
    /// What its kinds are, in words.
    kinds: &'static str,
    /// The version to write.
    version: &'static str,
    /// The versions there are, in words.
    versions: &'static str,
    /// The line to write where a kind stands under another group's version.
    line: &'static str,
}

/// ServiceGroup and LBNodeAgent, then BGPConfiguration.
static API_GROUPS: [ApiGroup; 2] = [
    ApiGroup {
        name: "purelb.io",
        kinds: "ServiceGroup or LBNodeAgent",
        version: "purelb.io/v2",
        versions: "purelb.io/v2 (or purelb.io/v1 for groups that decide by themselves where they announce)",
        line: "apiVersion: purelb.io/v2",
    },
    ApiGroup {
        name: "bgp.purelb.io",
        kinds: "BGPConfiguration (what nodes report, BGPNodeStatus, is not written by hand)",
        version: "bgp.purelb.io/v1",
        versions: "bgp.purelb.io/v1",
        line: "apiVersion: bgp.purelb.io/v1",
    },
];

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
    /// What it says, as far as it can be used.
    pub said: Said,
}

/// What an object of ours says.
pub enum Said {
    /// A group.
    Group(Group),
    /// How nodes announce.
    Agent(AgentConfig),
    /// How nodes talk BGP.
    Bgp(Configuration),
    /// Nothing that can be used.
    Nothing,
}

/// What an object is to us.
enum Sort {
    Ours { version: &'static str },
    Wrong { field: &'static str, fault: Fault },
    Other,
}

/// One version of one of our kinds. Making the schemas takes longer than checking an object by them.
struct KindVersion {
    group: String,
    kind: String,
    version: String,
    schema: JSONSchemaProps,
}

/// All versions of all our kinds.
static KINDS: LazyLock<Vec<KindVersion>> = LazyLock::new(|| {
    let versions = crate::crds().into_iter().flat_map(|crd| {
        let (group, kind) = (crd.spec.group, crd.spec.names.kind);
        crd.spec.versions.into_iter().map(move |version| KindVersion {
            group: group.clone(),
            kind: kind.clone(),
            version: version.name,
            schema: version.schema.and_then(|schema| schema.open_api_v3_schema).unwrap_or_default(),
        })
    });
    versions.collect()
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
                Sort::Ours { version } => self.ours(site, version, value, report),
                Sort::Wrong { field, fault } => report.findings.push(site.finding(Severity::Error, field, &fault)),
                Sort::Other => report.counts.others += 1,
            }
        }
    }

    fn ours(&mut self, site: Site, version: &str, value: &Value, report: &mut Report) {
        let known = KINDS.iter().find(|known| known.kind == site.kind && known.version == version);
        let Some(schema) = known.map(|known| &known.schema) else { return };
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
        let said = said(&site.kind, version, value, &violations, &mut notes, &mut report.counts);
        notes.violations(violations);
        let notes = notes.without_consequences();
        report.findings.extend(notes.iter().map(|note| site.finding(note.severity, &note.field, &note.fault)));
        self.found.push(Found { site, said });
    }
}

/// Reads an object of ours and notes what the reader says of it.
fn said(
    kind: &str,
    version: &str,
    value: Value,
    violations: &[Violation],
    notes: &mut Notes,
    counts: &mut Counts,
) -> Said {
    match kind {
        "ServiceGroup" => {
            counts.service_groups += 1;
            let Some(object) = typed::<ServiceGroup>(value, violations) else { return Said::Nothing };
            let group = notes.reading(read::group(&object));
            rules::check(&object.spec, version, notes);
            group.map_or(Said::Nothing, Said::Group)
        }
        "LBNodeAgent" => {
            counts.node_agents += 1;
            let Some(object) = typed(value, violations) else { return Said::Nothing };
            notes.reading(read::agent(&object)).map_or(Said::Nothing, Said::Agent)
        }
        "BGPConfiguration" => {
            counts.bgp_configurations += 1;
            let Some(object) = typed::<BGPConfiguration>(value, violations) else { return Said::Nothing };
            let BgpReading { reading, unsupported } = read::bgp(&BgpObject::from(object));
            for field in unsupported {
                let reason = Reason::UnsupportedFields { fields: field.clone() };
                // An unnumbered neighbor has a sentence of its own.
                if !reading.warnings.iter().any(|warning| warning.field == field) {
                    notes.warning(field, reason);
                }
            }
            notes.reading(reading).map_or(Said::Nothing, Said::Bgp)
        }
        _ => {
            counts.others += 1;
            Said::Nothing
        }
    }
}

fn sort(value: &Value) -> Sort {
    let written = value["apiVersion"].as_str().unwrap_or_default();
    let kind = value["kind"].as_str().unwrap_or_default();
    let home = KINDS.iter().find(|known| known.kind == kind).map(|known| known.group.as_str());
    let home = API_GROUPS.iter().find(|group| Some(group.name) == home);
    let (named, version) = written.split_once('/').unwrap_or(("", written));
    let wrong = |field, fault| Sort::Wrong { field, fault };
    let no_version = |group: &ApiGroup| {
        let unknown = Fault::VersionUnknown { written: written.to_owned(), instead: group.versions };
        let missing = Fault::VersionMissing { instead: group.version };
        wrong("apiVersion", if written.is_empty() { missing } else { unknown })
    };
    let Some(group) = API_GROUPS.iter().find(|group| group.name == named) else {
        // A kind of ours without a version, or with a slip in it, is ours; the same word in another API group is not.
        let meant = home.filter(|_| written.is_empty() || written.contains("purelb"));
        return meant.map_or(Sort::Other, no_version);
    };
    let version = KINDS.iter().find(|known| known.group == group.name && known.version == version);
    match (version, home) {
        (None, _) => no_version(home.unwrap_or(group)),
        (Some(known), Some(home)) if home.name == group.name => Sort::Ours { version: &known.version },
        (Some(_), home) => {
            let instead = home.map_or(group.kinds, |home| home.line);
            wrong("kind", Fault::KindUnknown { group: group.name, written: kind.to_owned(), instead })
        }
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
