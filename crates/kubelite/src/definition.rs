//! Custom resource definitions: what makes one acceptable, and the status that says so.

mod structural;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec,
};
use serde_json::{Value, json};

use crate::kinds::Served;
use crate::meta;
use crate::names::{label_name_faults, subdomain_faults};
use crate::object::{carry, map_at, map_of, name, settle_numbers};
use crate::openapi::Schemas;
use crate::rules::{Ground, Rules};
use crate::status::Cause;

/// The rules for definitions. There is no controller behind them: names are accepted at once.
pub(crate) struct DefinitionRules;

impl Rules for DefinitionRules {
    fn decode(&self, _served: &Served, body: Value) -> Result<Value, String> {
        let mut definition: CustomResourceDefinition =
            serde_json::from_value(body).map_err(|error| error.to_string())?;
        let names = &mut definition.spec.names;
        names.singular.get_or_insert_with(|| names.kind.to_lowercase());
        names.list_kind.get_or_insert_with(|| format!("{}List", names.kind));
        let conversion = definition.spec.conversion.get_or_insert_default();
        if conversion.strategy.is_empty() {
            conversion.strategy = "None".into();
        }
        let mut value = json!(definition);
        meta::normalize(&mut value)?;
        settle_numbers(&mut value);
        Ok(value)
    }

    fn describe(&self, _served: &Served, schemas: &mut Schemas) -> String {
        schemas.typed::<CustomResourceDefinition>()
    }

    fn create(&self, ground: &Ground<'_>, _served: &Served, new: &mut Value) -> Vec<Cause> {
        let condition = |kind: &str, reason: &str, message: &str| {
            json!({"type": kind, "status": "True", "reason": reason, "message": message,
                   "lastTransitionTime": ground.now})
        };
        let status = json!({
            "conditions": [
                condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            ],
            "acceptedNames": new["spec"]["names"],
            "storedVersions": [],
        });
        map_of(new).insert("status".into(), status);
        remember_storage(new);
        faults(new)
    }

    fn update(&self, _ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        carry(old, new, "status");
        let names = new["spec"]["names"].clone();
        map_at(new, "status").insert("acceptedNames".into(), names);
        remember_storage(new);
        let mut causes = Vec::new();
        for pointer in ["/spec/group", "/spec/scope", "/spec/names/plural", "/spec/names/kind"] {
            if old.pointer(pointer) != new.pointer(pointer) {
                let field = pointer.trim_start_matches('/').replace('/', ".");
                causes.push(Cause::invalid(field, new.pointer(pointer), "field is immutable"));
            }
        }
        causes.extend(faults(new));
        causes.extend(stored_version_faults(new));
        causes
    }

    fn update_status(&self, _ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        carry(old, new, "spec");
        stored_version_faults(new)
    }
}

/// Adds the storage version to the versions in which objects may be stored.
fn remember_storage(definition: &mut Value) {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let Some(storage) = versions.into_iter().find(|it| it["storage"] == true).map(|it| it["name"].clone()) else {
        return;
    };
    let stored = map_at(definition, "status").entry("storedVersions").or_insert_with(|| json!([]));
    if let Some(stored) = stored.as_array_mut()
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
}

fn stored_version_faults(definition: &Value) -> Vec<Cause> {
    let names: Vec<&Value> =
        definition["spec"]["versions"].as_array().into_iter().flatten().map(|it| &it["name"]).collect();
    let stored = definition["status"]["storedVersions"].as_array().into_iter().flatten().enumerate();
    let missing = stored.filter(|(_, version)| !names.contains(version));
    missing
        .map(|(i, version)| {
            let text = version.as_str().unwrap_or_default();
            let rule = format!(
                "missing from spec.versions; {text} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {text} and removes {text} from \
                 status.storedVersions"
            );
            Cause::invalid(format!("status.storedVersions[{i}]"), text, rule)
        })
        .collect()
}

fn faults(definition: &Value) -> Vec<Cause> {
    let spec: CustomResourceDefinitionSpec = serde_json::from_value(definition["spec"].clone()).unwrap_or_default();
    let mut causes = name_faults(name(definition), &spec);
    causes.extend(approval_fault(definition, &spec.group));
    if !matches!(spec.scope.as_str(), "Cluster" | "Namespaced") {
        causes.push(Cause::unsupported("spec.scope", &spec.scope, &["Cluster", "Namespaced"]));
    }
    let strategy = spec.conversion.as_ref().map_or("None", |it| it.strategy.as_str());
    if strategy != "None" {
        // Nobody would answer the webhook.
        causes.push(Cause::unsupported("spec.conversion.strategy", strategy, &["None"]));
    }
    causes.extend(version_faults(&spec));
    for (i, version) in spec.versions.iter().enumerate() {
        let field = format!("spec.versions[{i}].schema.openAPIV3Schema");
        match version.schema.as_ref().and_then(|it| it.open_api_v3_schema.as_ref()) {
            Some(schema) => causes.extend(structural::faults(&field, schema)),
            None => causes.push(Cause::required(field, "schemas are required")),
        }
    }
    causes
}

/// Kubernetes' own groups are protected.
fn approval_fault(definition: &Value, group: &str) -> Option<Cause> {
    let key = "api-approved.kubernetes.io";
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    let approved = definition["metadata"]["annotations"][key].is_string();
    let rule = "protected groups must have approval annotation \"api-approved.kubernetes.io\"";
    (protected && !approved).then(|| Cause::required(format!("metadata.annotations[{key}]"), rule))
}

fn name_faults(own_name: &str, spec: &CustomResourceDefinitionSpec) -> Vec<Cause> {
    let mut causes = Vec::new();
    let plural = &spec.names.plural;
    if own_name != format!("{plural}.{}", spec.group) {
        causes.push(Cause::invalid("metadata.name", own_name, "must be spec.names.plural+\".\"+spec.group"));
    }
    if spec.group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !spec.group.contains('.') {
        causes.push(Cause::invalid("spec.group", &spec.group, "should be a domain with at least one dot"));
    } else {
        let faults = subdomain_faults(&spec.group);
        causes.extend(faults.into_iter().map(|fault| Cause::invalid("spec.group", &spec.group, fault)));
    }
    let kind = spec.names.kind.to_lowercase();
    for (field, word) in [("plural", plural), ("kind", &kind)] {
        let field = format!("spec.names.{field}");
        if word.is_empty() {
            causes.push(Cause::required(field, ""));
        } else {
            let faults = label_name_faults(word);
            causes.extend(faults.into_iter().map(|fault| Cause::invalid(&field, word, fault)));
        }
    }
    causes
}

fn version_faults(spec: &CustomResourceDefinitionSpec) -> Vec<Cause> {
    let mut causes = Vec::new();
    let names: Vec<&str> = spec.versions.iter().map(|it| it.name.as_str()).collect();
    for (i, version) in names.iter().enumerate() {
        let field = format!("spec.versions[{i}].name");
        let faults = label_name_faults(version);
        causes.extend(faults.into_iter().map(|fault| Cause::invalid(&field, version, fault)));
        if names[..i].contains(version) {
            causes.push(Cause::invalid("spec.versions", &names, "must contain unique version names"));
        }
    }
    if spec.versions.iter().filter(|it| it.storage).count() != 1 {
        let rule = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &names, rule));
    }
    causes
}
