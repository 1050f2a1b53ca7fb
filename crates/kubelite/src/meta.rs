//! The rules for `metadata` that hold for every kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::kinds::Resource;
use crate::names::{finalizer_faults, label_value_faults, qualified_name_faults};
use crate::object;
use crate::status::Cause;

/// Brings `metadata` into canonical form: known fields only, no managed fields, no empty maps.
///
/// # Errors
/// A sentence if a field has the wrong type.
pub(crate) fn normalize(object: &mut Value) -> Result<(), String> {
    let metadata = object.get("metadata").cloned().unwrap_or(Value::Null);
    let metadata = if metadata.is_null() { json!({}) } else { metadata };
    let typed: ObjectMeta = serde_json::from_value(metadata).map_err(|error| format!("metadata: {error}"))?;
    let typed = ObjectMeta { managed_fields: None, self_link: None, ..typed };
    let mut metadata = json!(typed);
    object::map_of(&mut metadata).retain(|_, value| !is_empty(value));
    object::map_of(object).insert("metadata".into(), metadata);
    Ok(())
}

/// Empty in the sense of Go's `omitempty`.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Takes over what only the server decides when an object is created.
pub(crate) fn on_create(resource: &Resource, object: &mut Value, uid: &str, now: &str) {
    let metadata = object::map_at(object, "metadata");
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
        metadata.remove(field);
    }
    metadata.insert("uid".into(), json!(uid));
    metadata.insert("creationTimestamp".into(), json!(now));
    if resource.traits.counts_generations {
        metadata.insert("generation".into(), json!(1));
    }
}

/// Takes over from the old object what an update leaves out or may not decide.
pub(crate) fn on_update(old: &Value, new: &mut Value) {
    let (before, after) = (&old["metadata"], object::map_at(new, "metadata"));
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if !after.contains_key(field)
            && let Some(value) = before.get(field)
        {
            after.insert(field.into(), value.clone());
        }
    }
    for field in ["creationTimestamp", "generation"] {
        match before.get(field) {
            Some(value) => after.insert(field.into(), value.clone()),
            None => after.remove(field),
        };
    }
}

/// Counts the generation up if anything but metadata and status changed.
pub(crate) fn count_generation(resource: &Resource, has_status: bool, old: &Value, new: &mut Value) {
    if !resource.traits.counts_generations {
        return;
    }
    let ignored = |field: &str| field == "metadata" || field == "apiVersion" || (has_status && field == "status");
    let differs = |a: &Value, b: &Value| {
        a.as_object().is_some_and(|a| a.iter().any(|(key, value)| !ignored(key) && b.get(key) != Some(value)))
    };
    if differs(old, new) || differs(new, old) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0).saturating_add(1);
        object::map_at(new, "metadata").insert("generation".into(), json!(generation));
    }
}

/// What is wrong with the metadata of a new or changed object.
pub(crate) fn faults(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = name_faults(resource, object);
    let metadata = &object["metadata"];
    let entries = |field: &str| metadata[field].as_object().into_iter().flatten();
    for (key, value) in entries("labels") {
        let value = value.as_str().unwrap_or_default();
        let faults = qualified_name_faults(key);
        causes.extend(faults.into_iter().map(|fault| Cause::invalid("metadata.labels", key, fault)));
        let faults = label_value_faults(value);
        causes.extend(faults.into_iter().map(|fault| Cause::invalid("metadata.labels", value, fault)));
    }
    for (key, _) in entries("annotations") {
        let faults = qualified_name_faults(&key.to_lowercase());
        causes.extend(faults.into_iter().map(|fault| Cause::invalid("metadata.annotations", key, fault)));
    }
    for (i, finalizer) in object::finalizers(object).into_iter().enumerate() {
        let field = format!("metadata.finalizers[{i}]");
        let faults = finalizer_faults(finalizer);
        causes.extend(faults.into_iter().map(|fault| Cause::invalid(&field, finalizer, fault)));
    }
    causes.extend(owner_faults(metadata));
    causes
}

fn name_faults(resource: &Resource, object: &Value) -> Vec<Cause> {
    let (name, prefix) = (object::name(object), object::meta(object, "generateName"));
    let mut causes = Vec::new();
    if !prefix.is_empty() {
        let faults = resource.name_rule.prefix_faults(prefix);
        causes.extend(faults.into_iter().map(|fault| Cause::invalid("metadata.generateName", prefix, fault)));
    }
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
        return causes;
    }
    let faults = resource.name_rule.faults(name);
    causes.extend(faults.into_iter().map(|fault| Cause::invalid("metadata.name", name, fault)));
    causes
}

fn owner_faults(metadata: &Value) -> Vec<Cause> {
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let mut causes = Vec::new();
    for owner in owners {
        for (field, fault) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if is_empty(&owner[field]) {
                causes.push(Cause::invalid(format!("metadata.ownerReferences.{field}"), "", fault));
            }
        }
    }
    causes
}

/// What is wrong with a change of metadata.
pub(crate) fn update_faults(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if old["metadata"][field] != new["metadata"][field] {
            let value = &new["metadata"][field];
            causes.push(Cause::invalid(format!("metadata.{field}"), value, "field is immutable"));
        }
    }
    let known = object::finalizers(old);
    let added: Vec<&str> = object::finalizers(new).into_iter().filter(|it| !known.contains(it)).collect();
    if object::is_being_deleted(old) && !added.is_empty() {
        let list: Vec<String> = added.iter().map(|it| format!("{it:?}")).collect();
        let rule = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            list.join(", ")
        );
        causes.push(Cause::forbidden("metadata.finalizers", rule));
    }
    causes
}
