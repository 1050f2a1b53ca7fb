//! A spec as it last was when nothing was wrong with it, kept in the object's own status.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An object as it last was when nothing was wrong with it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["generation", "spec"]))]
pub struct LastValid {
    /// The metadata.generation the object had then.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub generation: i64,

    /// The spec the object had then. It is kept as it was, whatever later releases make of its fields.
    #[serde(default)]
    #[schemars(schema_with = "any_object")]
    pub spec: Value,
}

/// An object whose fields nobody checks or removes.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
