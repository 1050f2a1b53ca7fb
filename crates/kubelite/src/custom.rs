//! Objects of custom resources: versions, pruning, defaults and validation by the schemas of their definition.

mod ratchet;

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
};
use purelb_api::schema::{self, Violation, ViolationKind};
use serde_json::{Value, json};

use crate::cel;
use crate::kinds::{Field, Resource, Served, Traits};
use crate::meta;
use crate::names::NameRule;
use crate::object::{carry, map_of, settle_numbers};
use crate::openapi::Schemas;
use crate::rules::{Ground, Rules};
use crate::status::Cause;
use crate::table;

/// One version of a custom resource.
struct Version {
    api_version: String,
    /// Definitions without a schema are refused, so there is always one.
    schema: JSONSchemaProps,
    rules: cel::Rules,
    status: bool,
}

/// The rules of one custom resource.
struct CustomRules {
    kind: String,
    versions: Vec<Version>,
    storage: usize,
}

/// The kind that a definition (in stored form) defines.
pub(crate) fn resource(definition: &Value) -> Option<Resource> {
    let definition: CustomResourceDefinition = serde_json::from_value(definition.clone()).ok()?;
    let spec = definition.spec;
    let storage = spec.versions.iter().position(|version| version.storage)?;
    let served = spec.versions.iter().filter(|version| version.served).map(|it| served(&spec.group, it)).collect();
    let names = spec.names;
    let versions = spec.versions.iter().map(|it| version(&spec.group, it)).collect();
    Some(Resource {
        bucket: format!("{}.{}", names.plural, spec.group),
        singular: names.singular.unwrap_or_else(|| names.kind.to_lowercase()),
        list_kind: names.list_kind.unwrap_or_else(|| format!("{}List", names.kind)),
        kind: names.kind.clone(),
        plural: names.plural,
        short_names: names.short_names.unwrap_or_default(),
        categories: names.categories.unwrap_or_default(),
        namespaced: spec.scope == "Namespaced",
        name_rule: NameRule::Subdomain,
        traits: Traits { versioned_update: true, counts_generations: true, custom: true, ..Traits::default() },
        served,
        rules: Arc::new(CustomRules { kind: names.kind, versions, storage }),
    })
}

fn has_status(version: &CustomResourceDefinitionVersion) -> bool {
    version.subresources.as_ref().is_some_and(|it| it.status.is_some())
}

fn served(group: &str, version: &CustomResourceDefinitionVersion) -> Served {
    let field = |path: &str| Field {
        label: path.trim_start_matches('.').into(),
        pointers: vec![path.replace('.', "/")],
        default: "",
    };
    let fields = version.selectable_fields.iter().flatten().map(|it| field(&it.json_path)).collect();
    let columns = table::custom_columns(version.additional_printer_columns.as_deref().unwrap_or_default());
    Served {
        group: group.into(),
        version: version.name.clone(),
        status: has_status(version),
        fields,
        columns: columns.into(),
    }
}

fn version(group: &str, version: &CustomResourceDefinitionVersion) -> Version {
    let schema = version.schema.as_ref().and_then(|it| it.open_api_v3_schema.clone()).unwrap_or_default();
    Version {
        api_version: format!("{group}/{}", version.name),
        // Rules that do not compile were refused together with their definition.
        rules: cel::Rules::compile(&schema, "", &mut Vec::new()),
        schema,
        status: has_status(version),
    }
}

impl CustomRules {
    fn version(&self, api_version: &str) -> &Version {
        let found = self.versions.iter().find(|it| it.api_version == api_version);
        found.unwrap_or(&self.versions[self.storage])
    }

    /// From one version to another: only `apiVersion` changes, and what the other does not know goes.
    fn convert(&self, object: &mut Value, api_version: &str) {
        map_of(object).insert("apiVersion".into(), json!(api_version));
        schema::prune(&self.version(api_version).schema, object);
    }

    fn type_faults(&self, version: &Version, new: &Value) -> Vec<Cause> {
        let fault = |field: &str, wanted: &str| {
            let given = new[field].as_str().unwrap_or_default();
            (given != wanted).then(|| Cause::invalid(field, given, format!("must be {wanted}")))
        };
        fault("kind", &self.kind).into_iter().chain(fault("apiVersion", &version.api_version)).collect()
    }

    fn faults(&self, served: &Served, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let version = self.version(&served.api_version());
        let mut causes = self.type_faults(version, new);
        let mut violations = schema::check(&version.schema, new);
        if let Some(old) = old {
            violations.retain(|violation| !ratchet::is_excused(&version.schema, violation, old, new));
        }
        let blocking = violations.iter().any(blocks_rules);
        causes.extend(violations.into_iter().map(cause));
        if blocking {
            let rule = "some validation rules were not checked because the object was invalid; correct the existing errors \
                        to complete validation";
            causes.push(Cause::invalid("<nil>", Value::Null, rule));
        } else {
            causes.extend(version.rules.faults(old, new));
        }
        causes
    }
}

/// Rules may rely on the shape of the object, so they are not asked about a misshapen one.
fn blocks_rules(violation: &Violation) -> bool {
    !matches!(violation.kind, ViolationKind::Invalid | ViolationKind::Duplicate)
}

fn cause(violation: Violation) -> Cause {
    let colon = if violation.sentence.is_empty() { "" } else { ": " };
    let message = format!("{}{colon}{}", violation.kind.phrase(), violation.sentence);
    Cause { reason: violation.kind.reason(), message, field: violation.field }
}

impl Rules for CustomRules {
    fn decode(&self, served: &Served, mut body: Value) -> Result<Value, String> {
        let version = self.version(&served.api_version());
        meta::normalize(&mut body)?;
        settle_numbers(&mut body);
        schema::prune(&version.schema, &mut body);
        schema::fill(&version.schema, &mut body);
        Ok(body)
    }

    fn describe(&self, served: &Served, schemas: &mut Schemas) -> String {
        schemas.custom(&self.kind, served, json!(self.version(&served.api_version()).schema))
    }

    /// Stored objects take the defaults of the version they were stored in, so a new default reaches old objects.
    fn show<'a>(&self, served: &Served, stored: &'a Value) -> Cow<'a, Value> {
        let mut object = stored.clone();
        let stored_as = self.version(stored["apiVersion"].as_str().unwrap_or_default());
        schema::prune(&stored_as.schema, &mut object);
        schema::fill(&stored_as.schema, &mut object);
        self.convert(&mut object, &served.api_version());
        Cow::Owned(object)
    }

    fn recall<'a>(&self, served: &Served, stored: &'a Value) -> Cow<'a, Value> {
        self.show(served, stored)
    }

    fn save(&self, mut working: Value) -> Value {
        self.convert(&mut working, &self.versions[self.storage].api_version);
        working
    }

    fn create(&self, _ground: &Ground<'_>, served: &Served, new: &mut Value) -> Vec<Cause> {
        if self.version(&served.api_version()).status {
            map_of(new).remove("status");
        }
        self.faults(served, None, new)
    }

    fn update(&self, _ground: &Ground<'_>, served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        if self.version(&served.api_version()).status {
            carry(old, new, "status");
        }
        self.faults(served, Some(old), new)
    }

    /// Only the status travels: metadata and everything else stay as they were.
    fn update_status(&self, _ground: &Ground<'_>, served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        let mut object = old.clone();
        carry(new, &mut object, "status");
        *new = object;
        self.faults(served, Some(old), new)
    }
}
