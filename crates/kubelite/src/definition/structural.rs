//! Whether a schema is structural, its defaults fit and its rules compile.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use purelb_api::schema;

use crate::cel;
use crate::status::Cause;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Everything wrong with the schema of one version.
pub(super) fn faults(field: &str, schema: &JSONSchemaProps) -> Vec<Cause> {
    let mut causes = Vec::new();
    match schema.type_.as_deref() {
        Some("object") => {}
        None | Some("") => causes.push(Cause::required(format!("{field}.type"), "must not be empty at the root")),
        Some(other) => causes.push(Cause::invalid(format!("{field}.type"), other, "must be object at the root")),
    }
    inspect(field, schema, true, &mut causes);
    let mut bad = Vec::new();
    cel::Rules::compile(schema, field, &mut bad);
    causes.extend(bad.into_iter().map(|it| Cause::invalid(it.field, it.rule, it.why)));
    causes
}

fn inspect(field: &str, schema: &JSONSchemaProps, root: bool, causes: &mut Vec<Cause>) {
    let free =
        schema.x_kubernetes_int_or_string == Some(true) || schema.x_kubernetes_preserve_unknown_fields == Some(true);
    match schema.type_.as_deref() {
        Some(word) if TYPES.contains(&word) => {}
        Some(word) if !word.is_empty() => causes.push(Cause::unsupported(format!("{field}.type"), word, &TYPES)),
        _ if !root && !free => {
            causes.push(Cause::required(format!("{field}.type"), "must not be empty for specified object fields"));
        }
        _ => {}
    }
    if let Some(default) = &schema.default {
        let mut value = default.0.clone();
        schema::fill(schema, &mut value);
        let misfits = schema::check(schema, &value);
        causes.extend(misfits.into_iter().map(|it| Cause::invalid(format!("{field}.default"), &value, it.sentence)));
    }
    for (name, inner) in schema.properties.iter().flatten() {
        // The type of metadata is given by the server.
        let known = root && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        inspect(&format!("{field}.properties[{name}]"), inner, known, causes);
    }
    match (&schema.items, schema.type_.as_deref()) {
        (Some(JSONSchemaPropsOrArray::Schema(inner)), _) => inspect(&format!("{field}.items"), inner, false, causes),
        (Some(JSONSchemaPropsOrArray::Schemas(_)), _) => {
            causes.push(Cause::forbidden(format!("{field}.items"), "items must be a schema object and not an array"));
        }
        (None, Some("array")) => causes.push(Cause::required(format!("{field}.items"), "must be specified")),
        (None, _) => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(inner)) = &schema.additional_properties {
        inspect(&format!("{field}.additionalProperties"), inner, false, causes);
    }
}
