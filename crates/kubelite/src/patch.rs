//! The three kinds of patch: JSON patch, merge patch and strategic merge patch.

mod strategic;

use serde_json::Value;

use crate::status::Refusal;

/// A parsed patch.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
}

/// The API server's limit on the operations of one JSON patch.
const MOST_OPERATIONS: usize = 10_000;

impl Patch {
    /// Reads a patch of the given content type; custom resources know no strategic merge patch.
    pub(crate) fn parse(content_type: &str, custom: bool, body: &[u8]) -> Result<Self, Refusal> {
        match content_type {
            "application/json-patch+json" => parse_json_patch(body),
            "application/merge-patch+json" => parse_map(body).map(Self::Merge),
            "application/strategic-merge-patch+json" if !custom => parse_map(body).map(Self::Strategic),
            "application/strategic-merge-patch+json" => Err(Refusal::UnsupportedMediaType(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json"
                    .into(),
            )),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => Err(Refusal::UnsupportedMediaType(
                "server-side apply is not served here: send a merge patch (application/merge-patch+json)".into(),
            )),
            _ => Err(Refusal::UnknownPatchType),
        }
    }

    /// The object after the patch; `kind` decides how strategic patches treat lists.
    pub(crate) fn apply(&self, kind: &str, object: &Value) -> Result<Value, Refusal> {
        let mut patched = object.clone();
        match self {
            Self::Json(patch) => json_patch::patch(&mut patched, patch).map_err(|_| Refusal::FailedPatch)?,
            Self::Merge(patch) => json_patch::merge(&mut patched, patch),
            Self::Strategic(patch) => strategic::merge(kind, &mut patched, patch)?,
        }
        if patched.is_object() && !is_too_deep(&patched) { Ok(patched) } else { Err(Refusal::FailedPatch) }
    }
}

/// How deep an object may be nested; bodies cannot exceed it, but a JSON patch could pile values up.
const DEEPEST: usize = 256;

fn is_too_deep(value: &Value) -> bool {
    let mut level: Vec<&Value> = vec![value];
    for _ in 0..DEEPEST {
        level = level.into_iter().flat_map(members).collect();
        if level.is_empty() {
            return false;
        }
    }
    true
}

fn members(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(members) => members.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    }
}

fn decode_error(why: impl std::fmt::Display) -> Refusal {
    Refusal::BadRequest(format!("error decoding patch: {why}"))
}

fn parse_json_patch(body: &[u8]) -> Result<Patch, Refusal> {
    let operations: Vec<Value> = serde_json::from_slice(body).map_err(decode_error)?;
    if operations.len() > MOST_OPERATIONS {
        return Err(Refusal::BodyTooLarge(MOST_OPERATIONS));
    }
    serde_json::from_value(Value::Array(operations)).map(Patch::Json).map_err(|_| Refusal::FailedPatch)
}

fn parse_map(body: &[u8]) -> Result<Value, Refusal> {
    let patch: Value = serde_json::from_slice(body).map_err(decode_error)?;
    if patch.is_object() { Ok(patch) } else { Err(decode_error("the patch is not an object")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn apply(content_type: &str, patch: &Value, object: &Value) -> Result<Value, Refusal> {
        Patch::parse(content_type, false, patch.to_string().as_bytes())?.apply("Service", object)
    }

    #[test]
    fn a_merge_patch_replaces_lists_and_removes_nulls() {
        let object = json!({"spec": {"a": [1, 2], "b": 1}});
        let patched = apply("application/merge-patch+json", &json!({"spec": {"a": [3], "b": null}}), &object);
        assert_eq!(patched, Ok(json!({"spec": {"a": [3]}})));
    }

    #[test]
    fn a_json_patch_that_does_not_apply_is_refused_as_a_whole() {
        let object = json!({"a": 1});
        let kind = "application/json-patch+json";
        let good = json!([{"op": "test", "path": "/a", "value": 1}, {"op": "add", "path": "/b", "value": 2}]);
        assert_eq!(apply(kind, &good, &object), Ok(json!({"a": 1, "b": 2})));
        for bad in [
            json!([{"op": "test", "path": "/a", "value": 2}]),
            json!([{"op": "remove", "path": "/nope"}]),
            json!([{"op": "dance", "path": "/a"}]),
            json!([{"op": "replace", "path": "", "value": 5}]),
        ] {
            assert_eq!(apply(kind, &bad, &object).expect_err("refused").code(), 422, "{bad}");
        }
    }

    #[test]
    fn a_json_patch_cannot_pile_up_a_tower() {
        let path = |depth: usize| "/a".repeat(depth);
        let tower: Vec<Value> = (1..600).map(|depth| json!({"op": "add", "path": path(depth), "value": {}})).collect();
        let refusal = apply("application/json-patch+json", &json!(tower), &json!({})).expect_err("refused");
        assert_eq!(refusal.code(), 422);
    }

    #[test]
    fn media_types_and_malformed_patches_get_their_own_answers() {
        let object = json!({});
        assert_eq!(apply("application/json", &json!({}), &object).expect_err("refused").code(), 415);
        assert_eq!(apply("application/apply-patch+yaml", &json!({}), &object).expect_err("refused").code(), 415);
        assert_eq!(apply("application/merge-patch+json", &json!([]), &object).expect_err("refused").code(), 400);
        assert_eq!(apply("application/json-patch+json", &json!({}), &object).expect_err("refused").code(), 400);
        let strategic = Patch::parse("application/strategic-merge-patch+json", true, b"{}");
        assert_eq!(strategic.expect_err("refused").code(), 415);
    }
}
