//! Reading and writing the few fields that every Kubernetes object has, on plain JSON.

use serde_json::{Map, Value};

/// The text at a path below `metadata`, or the empty string.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    meta(object, "name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(crate) fn is_being_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The member of an object that must be a map itself, made so if it is absent or something else.
pub(crate) fn map_at<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let entry = map_of(object).entry(field).or_insert_with(|| Value::Object(Map::new()));
    map_of(entry)
}

/// The value as a map; whatever else it was gives way.
pub(crate) fn map_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("the line above made it a map")
}

/// Sets or, with an empty text, removes a field of `metadata`.
pub(crate) fn set_meta(object: &mut Value, field: &str, text: &str) {
    let metadata = map_at(object, "metadata");
    if text.is_empty() {
        metadata.remove(field);
    } else {
        metadata.insert(field.into(), Value::String(text.into()));
    }
}

/// Copies a top-level or metadata member from one map to another, absence included.
pub(crate) fn carry(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => map_of(to).insert(field.into(), value.clone()),
        None => map_of(to).remove(field),
    };
}

/// Leaves out the two type fields, as the API server does in lists of built-in kinds.
pub(crate) fn without_type(object: &Value) -> Value {
    let mut bare = object.clone();
    let members = map_of(&mut bare);
    members.remove("apiVersion");
    members.remove("kind");
    bare
}

/// Whole numbers are integers however they were written, as after Kubernetes' own decoding.
pub(crate) fn settle_numbers(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(settle_numbers),
        Value::Array(items) => items.iter_mut().for_each(settle_numbers),
        Value::Number(number) => {
            // Beyond 2^53 a float no longer says which integer was meant.
            const EXACT: f64 = 9_007_199_254_740_992.0;
            if let Some(float) = number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0 && it.abs() <= EXACT)
            {
                *number = (float as i64).into();
            }
        }
        _ => {}
    }
}
