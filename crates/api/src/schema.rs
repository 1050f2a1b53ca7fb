//! What the API server does with an object of a custom kind: prune, default and check it by the kind's structural
//! schema.
//!
//! Offline validation and the in-process API server use the same functions, so that both judge an object as a cluster
//! would. CEL rules are not evaluated here. `apiVersion`, `kind` and `metadata` at the root belong to Kubernetes and
//! are passed over.

mod check;
mod fields;

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

pub use check::check;
pub(crate) use fields::field;
use fields::{Known, known};

/// One way in which an object does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The field, such as `spec.local.v4pools[0].pool`.
    pub field: String,
    /// What kind of fault it is.
    pub kind: ViolationKind,
    /// What is wrong; empty where the kind says it all.
    pub sentence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.kind.phrase())?;
        if self.sentence.is_empty() { Ok(()) } else { write!(f, ": {}", self.sentence) }
    }
}

/// The kinds of fault that the API server tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// A required field is missing.
    Required,
    /// The value breaks a pattern or a limit.
    Invalid,
    /// The value is of another type.
    TypeInvalid,
    /// The value is none of those listed.
    NotSupported,
    /// The text has too many characters.
    TooLong,
    /// The list has too many items.
    TooMany,
    /// Two items of a list have the same key.
    Duplicate,
}

impl ViolationKind {
    /// The words the API server uses in its sentences.
    pub fn phrase(self) -> &'static str {
        match self {
            ViolationKind::Required => "Required value",
            ViolationKind::Invalid | ViolationKind::TypeInvalid => "Invalid value",
            ViolationKind::NotSupported => "Unsupported value",
            ViolationKind::TooLong => "Too long",
            ViolationKind::TooMany => "Too many",
            ViolationKind::Duplicate => "Duplicate value",
        }
    }

    /// The word the API server uses as the reason of a cause in a `Status`.
    pub fn reason(self) -> &'static str {
        match self {
            ViolationKind::Required => "FieldValueRequired",
            ViolationKind::Invalid => "FieldValueInvalid",
            ViolationKind::TypeInvalid => "FieldValueTypeInvalid",
            ViolationKind::NotSupported => "FieldValueNotSupported",
            ViolationKind::TooLong => "FieldValueTooLong",
            ViolationKind::TooMany => "FieldValueTooMany",
            ViolationKind::Duplicate => "FieldValueDuplicate",
        }
    }
}

/// Removes the fields that the schema does not know, as the API server does before it stores an object.
pub fn prune(schema: &JSONSchemaProps, value: &mut Value) {
    prune_inside(schema, value, true);
}

fn prune_inside(schema: &JSONSchemaProps, value: &mut Value, resource: bool) {
    match value {
        Value::Object(members) => {
            members.retain(|name, member| match known(schema, name, resource) {
                Known::As(inner) => {
                    prune_inside(inner, member, inner.x_kubernetes_embedded_resource == Some(true));
                    true
                }
                Known::Any => true,
                Known::No => false,
            });
        }
        Value::Array(items) => {
            if let Some(inner) = fields::items(schema) {
                items
                    .iter_mut()
                    .for_each(|item| prune_inside(inner, item, inner.x_kubernetes_embedded_resource == Some(true)));
            }
        }
        _ => {}
    }
}

/// The paths of the fields that [`prune`] would remove, such as `spec.local.v4Pool`.
pub fn unknown(schema: &JSONSchemaProps, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    unknown_inside(schema, value, true, "", &mut found);
    found
}

fn unknown_inside(schema: &JSONSchemaProps, value: &Value, resource: bool, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = field(path, name);
                match known(schema, name, resource) {
                    Known::As(inner) => {
                        unknown_inside(inner, member, inner.x_kubernetes_embedded_resource == Some(true), &path, found);
                    }
                    Known::Any => {}
                    Known::No => found.push(path),
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = fields::items(schema) {
                for (i, item) in items.iter().enumerate() {
                    let resource = inner.x_kubernetes_embedded_resource == Some(true);
                    unknown_inside(inner, item, resource, &format!("{path}[{i}]"), found);
                }
            }
        }
        _ => {}
    }
}

/// The schema of the object or list at a path such as `spec.local.v4pools[0]`; the empty path is the whole object.
pub(crate) fn at<'a>(schema: &'a JSONSchemaProps, path: &str) -> Option<&'a JSONSchemaProps> {
    path.split('.').filter(|step| !step.is_empty()).try_fold(schema, |schema, step| {
        let (name, indices) =
            step.split_once('[').map_or((step, 0), |(name, rest)| (name, 1 + rest.matches('[').count()));
        let inner = schema.properties.as_ref()?.get(name)?;
        (0..indices).try_fold(inner, |list, _| fields::items(list))
    })
}

/// Adds the default of every absent field inside the objects that exist, and drops nulls where the schema allows none.
///
/// A member that is null but may not be counts as absent, whether or not it has a default; items of lists stay.
pub fn fill(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, member| match known(schema, name, false) {
                Known::As(inner) => !member.is_null() || inner.nullable == Some(true),
                Known::Any | Known::No => true,
            });
            for (name, inner) in schema.properties.iter().flatten() {
                if let Some(default) = inner.default.as_ref().filter(|_| !members.contains_key(name)) {
                    members.insert(name.clone(), default.0.clone());
                }
            }
            for (name, member) in members.iter_mut() {
                if let Known::As(inner) = known(schema, name, false) {
                    fill(inner, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = fields::items(schema) {
                items.iter_mut().for_each(|item| fill(inner, item));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
