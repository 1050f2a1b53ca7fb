//! Whether an object fits its schema: types, required fields, limits, patterns and listed values.

use std::cell::RefCell;
use std::collections::HashMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use regex::Regex;
use serde_json::{Map, Value};

use super::fields::{Known, field, items, known};
use super::{Violation, ViolationKind};

/// Everything in an object that its schema does not allow, in the order of the fields' names.
///
/// Unknown fields are no violation: the API server prunes them first; see [`super::prune`]. Formats are not checked.
pub fn check(schema: &JSONSchemaProps, value: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    inspect(schema, value, true, "", &mut found);
    found
}

fn inspect(schema: &JSONSchemaProps, value: &Value, resource: bool, path: &str, found: &mut Vec<Violation>) {
    if value.is_null() && schema.nullable == Some(true) {
        return;
    }
    if let Some(violation) = wrong_type(schema, value, path) {
        found.push(violation);
        return;
    }
    if let Some(violation) = not_listed(schema, value, path) {
        found.push(violation);
    }
    match value {
        Value::Object(members) => inspect_object(schema, members, resource, path, found),
        Value::Array(list) => inspect_list(schema, list, path, found),
        Value::String(text) => inspect_text(schema, text, path, found),
        Value::Number(number) => inspect_number(schema, number.as_f64().unwrap_or_default(), value, path, found),
        Value::Null | Value::Bool(_) => {}
    }
}

fn inspect_object(
    schema: &JSONSchemaProps,
    members: &Map<String, Value>,
    resource: bool,
    path: &str,
    found: &mut Vec<Violation>,
) {
    for name in schema.required.iter().flatten().filter(|name| !members.contains_key(*name)) {
        found.push(Violation { field: field(path, name), kind: ViolationKind::Required, sentence: String::new() });
    }
    for (name, member) in members {
        if let Known::As(inner) = known(schema, name, resource) {
            inspect(inner, member, inner.x_kubernetes_embedded_resource == Some(true), &field(path, name), found);
        }
    }
}

fn inspect_list(schema: &JSONSchemaProps, list: &[Value], path: &str, found: &mut Vec<Violation>) {
    let length = list.len() as i64;
    if let Some(most) = schema.max_items.filter(|most| length > *most) {
        let sentence = format!("{length}: must have at most {most} items");
        found.push(Violation { field: path.to_owned(), kind: ViolationKind::TooMany, sentence });
    }
    if let Some(fewest) = schema.min_items.filter(|fewest| length < *fewest) {
        found.push(invalid(path, format!("{length}: {path} in body should have at least {fewest} items")));
    }
    repeated(schema, list, path, found);
    let Some(inner) = items(schema) else { return };
    for (i, item) in list.iter().enumerate() {
        inspect(inner, item, inner.x_kubernetes_embedded_resource == Some(true), &format!("{path}[{i}]"), found);
    }
}

/// Items that a list of type `map` or `set` has twice.
fn repeated(schema: &JSONSchemaProps, list: &[Value], path: &str, found: &mut Vec<Violation>) {
    let keys = schema.x_kubernetes_list_map_keys.as_deref().unwrap_or_default();
    let identity = |item: &Value| match schema.x_kubernetes_list_type.as_deref() {
        Some("map") => Some(Value::from_iter(keys.iter().map(|key| (key.clone(), item[key].clone())))),
        Some("set") => Some(item.clone()),
        _ => None,
    };
    let identities: Vec<_> = list.iter().map(identity).collect();
    for (i, one) in identities.iter().enumerate() {
        if let Some(one) = one.as_ref().filter(|_| identities[..i].contains(one)) {
            let (field, kind) = (format!("{path}[{i}]"), ViolationKind::Duplicate);
            found.push(Violation { field, kind, sentence: one.to_string() });
        }
    }
}

fn inspect_text(schema: &JSONSchemaProps, text: &str, path: &str, found: &mut Vec<Violation>) {
    let length = text.chars().count() as i64;
    if let Some(most) = schema.max_length.filter(|most| length > *most) {
        let sentence = format!("may not be more than {most} bytes");
        found.push(Violation { field: path.to_owned(), kind: ViolationKind::TooLong, sentence });
    }
    if let Some(fewest) = schema.min_length.filter(|fewest| length < *fewest) {
        found.push(invalid(path, format!("{text:?}: {path} in body should be at least {fewest} chars long")));
    }
    if let Some(pattern) = schema.pattern.as_ref().filter(|pattern| !matches(pattern, text)) {
        found.push(invalid(path, format!("{text:?}: {path} in body should match '{pattern}'")));
    }
}

fn inspect_number(schema: &JSONSchemaProps, number: f64, value: &Value, path: &str, found: &mut Vec<Violation>) {
    let too_small = |limit: &f64| number < *limit || (schema.exclusive_minimum == Some(true) && number == *limit);
    if let Some(limit) = schema.minimum.filter(too_small) {
        let relation = if schema.exclusive_minimum == Some(true) { "greater than" } else { "greater than or equal to" };
        found.push(invalid(path, format!("{value}: {path} in body should be {relation} {limit}")));
    }
    let too_large = |limit: &f64| number > *limit || (schema.exclusive_maximum == Some(true) && number == *limit);
    if let Some(limit) = schema.maximum.filter(too_large) {
        let relation = if schema.exclusive_maximum == Some(true) { "less than" } else { "less than or equal to" };
        found.push(invalid(path, format!("{value}: {path} in body should be {relation} {limit}")));
    }
}

fn wrong_type(schema: &JSONSchemaProps, value: &Value, path: &str) -> Option<Violation> {
    let fits = |wanted: &str| match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => true,
    };
    let wanted = if schema.x_kubernetes_int_or_string == Some(true) {
        if fits("integer") || fits("string") {
            return None;
        }
        "integer,string"
    } else {
        schema.type_.as_deref().filter(|wanted| !fits(wanted))?
    };
    let actual = type_name(value);
    let sentence = format!("{actual:?}: {path} in body must be of type {wanted}: {actual:?}");
    Some(Violation { field: path.to_owned(), kind: ViolationKind::TypeInvalid, sentence })
}

fn not_listed(schema: &JSONSchemaProps, value: &Value, path: &str) -> Option<Violation> {
    let listed = schema.enum_.as_ref().filter(|listed| listed.iter().all(|one| one.0 != *value))?;
    let listed: Vec<_> = listed.iter().map(|one| one.0.to_string()).collect();
    let sentence = format!("{value}: supported values: {}", listed.join(", "));
    Some(Violation { field: path.to_owned(), kind: ViolationKind::NotSupported, sentence })
}

fn invalid(path: &str, sentence: String) -> Violation {
    Violation { field: path.to_owned(), kind: ViolationKind::Invalid, sentence }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

thread_local! {
    /// A schema has a handful of patterns, and a list of namespaces asks for the same one a thousand times.
    static PATTERNS: RefCell<HashMap<String, Option<Regex>>> = RefCell::default();
}

/// Whether a text matches a pattern. One that cannot be read matches everything: the API server refuses it in the CRD.
fn matches(pattern: &str, text: &str) -> bool {
    PATTERNS.with_borrow_mut(|patterns| {
        let known = patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
        known.as_ref().is_none_or(|regex| regex.is_match(text))
    })
}
