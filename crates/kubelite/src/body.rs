//! From request bytes to an object in working form, with a word about what was dropped on the way.

use serde_json::{Value, json};

use crate::call::Call;
use crate::object::map_of;
use crate::query::{FieldValidation, WriteOptions};
use crate::status::{Cause, Refusal, Subject};

/// Reads the body of a create or an update.
pub(crate) fn decode(call: &Call, options: &WriteOptions, body: &[u8]) -> Result<(Value, Vec<String>), Refusal> {
    let kind = &call.resource.kind;
    let unrecognized = |why: String| {
        let text = String::from_utf8_lossy(&body[..body.len().min(64)]);
        let text = if text.is_empty() { "<empty>".into() } else { text };
        Refusal::BadRequest(format!("the object provided is unrecognized (must be of type {kind}): {why} ({text})"))
    };
    let parsed: Value = serde_json::from_slice(body)
        .map_err(|error| unrecognized(format!("couldn't get version/kind; json parse error: {error}")))?;
    let mut object = if parsed.is_null() { json!({}) } else { parsed };
    let misshapen = !object.is_object()
        || ["apiVersion", "kind"].iter().any(|field| !object[*field].is_null() && !object[*field].is_string());
    if misshapen {
        return Err(unrecognized("couldn't get version/kind; json parse error: not an object with a type".into()));
    }
    check_type(call, &object, unrecognized)?;
    let members = map_of(&mut object);
    members.entry("apiVersion").or_insert_with(|| json!(call.served.api_version()));
    members.entry("kind").or_insert_with(|| json!(kind));
    let sent = object.clone();
    let new = call.resource.rules.decode(&call.served, object).map_err(|why| cannot_handle(call, &why))?;
    let warnings = unknown_fields(call, options, &sent, &new)?;
    Ok((new, warnings))
}

/// Reads the result of a patch, which has no bytes of its own to quote.
pub(crate) fn decode_patched(
    call: &Call,
    options: &WriteOptions,
    patched: Value,
) -> Result<(Value, Vec<String>), Refusal> {
    let refuse =
        |why: String| Refusal::Invalid(Subject::default(), vec![Cause::invalid("patch", patched.to_string(), why)]);
    let typed =
        |field: &str, wanted: &str| call.resource.traits.custom || patched[field].is_null() || patched[field] == wanted;
    if !typed("kind", &call.resource.kind) || !typed("apiVersion", &call.served.api_version()) {
        let (kind, version) = (&patched["kind"], &patched["apiVersion"]);
        return Err(refuse(format!("no kind {kind} is registered for version {version}")));
    }
    let new = call.resource.rules.decode(&call.served, patched.clone()).map_err(refuse)?;
    let warnings = unknown_fields(call, options, &patched, &new)?;
    Ok((new, warnings))
}

fn cannot_handle(call: &Call, why: &str) -> Refusal {
    let (kind, version) = (&call.resource.kind, &call.served.version);
    Refusal::BadRequest(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
}

/// Built-in kinds may leave their type out; custom ones may not, and are checked further with their schema.
fn check_type(call: &Call, object: &Value, unrecognized: impl Fn(String) -> Refusal) -> Result<(), Refusal> {
    let (wanted, wanted_version) = (call.resource.kind.as_str(), call.served.api_version());
    let kind = object["kind"].as_str().unwrap_or_default();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    if call.resource.traits.custom {
        if kind.is_empty() {
            return Err(unrecognized("Object 'Kind' is missing".into()));
        }
        if version != wanted_version {
            return Err(Refusal::BadRequest(format!(
                "the API version in the data ({version}) does not match the expected API version ({wanted_version})"
            )));
        }
        return Ok(());
    }
    if (kind.is_empty() || kind == wanted) && (version.is_empty() || version == wanted_version) {
        return Ok(());
    }
    let short = version.rsplit('/').next().unwrap_or_default();
    Err(Refusal::BadRequest(format!("{kind} in version {short:?} cannot be handled as a {wanted}: unknown conversion")))
}

/// Refuses, warns about or passes over fields that were sent and did not survive.
fn unknown_fields(call: &Call, options: &WriteOptions, sent: &Value, new: &Value) -> Result<Vec<String>, Refusal> {
    if options.field_validation == FieldValidation::Ignore {
        return Ok(Vec::new());
    }
    let mut paths = Vec::new();
    lost_fields(sent, &call.resource.rules.show(&call.served, new), "", &mut paths);
    let sentences: Vec<String> = paths.iter().map(|path| format!("unknown field {path:?}")).collect();
    if options.field_validation == FieldValidation::Strict && !sentences.is_empty() {
        return Err(cannot_handle(call, &format!("strict decoding error: {}", sentences.join(", "))));
    }
    Ok(sentences)
}

/// Fields that the server drops although it knows them.
const KNOWN: [&str; 3] = ["metadata.managedFields", "metadata.selfLink", "stringData"];

fn lost_fields(sent: &Value, kept: &Value, path: &str, lost: &mut Vec<String>) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (name, value) in sent {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match kept.get(name) {
                    Some(kept) => lost_fields(value, kept, &path, lost),
                    None if is_zero(value) || KNOWN.contains(&path.as_str()) => {}
                    None => lost.push(path),
                }
            }
        }
        (Value::Array(sent), Value::Array(kept)) => {
            for (i, (sent, kept)) in sent.iter().zip(kept).enumerate() {
                lost_fields(sent, kept, &format!("{path}[{i}]"), lost);
            }
        }
        _ => {}
    }
}

/// Values that mean the same as absence, and may be dropped without a word.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        other => crate::meta::is_empty(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_fields_are_named_with_their_path() {
        let sent = json!({"spec": {"ports": [{"port": 80, "zz": 1}], "foo": 1, "empty": []}, "stringData": {"a": "b"}});
        let kept = json!({"spec": {"ports": [{"port": 80}]}});
        let mut lost = Vec::new();
        lost_fields(&sent, &kept, "", &mut lost);
        assert_eq!(lost, ["spec.foo", "spec.ports[0].zz"]);
    }
}
