//! Which schema a member of an object or an item of a list has.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// What a schema says about one member of an object.
pub enum Known<'a> {
    /// It has a schema of its own.
    As(&'a JSONSchemaProps),
    /// It may be anything.
    Any,
    /// It is not foreseen.
    No,
}

/// What a schema says about the member `name`; `resource` is true where the object is a whole Kubernetes object.
pub fn known<'a>(schema: &'a JSONSchemaProps, name: &str, resource: bool) -> Known<'a> {
    if resource && matches!(name, "apiVersion" | "kind" | "metadata") {
        return Known::Any;
    }
    if let Some(inner) = schema.properties.as_ref().and_then(|fields| fields.get(name)) {
        return Known::As(inner);
    }
    match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(inner)) => Known::As(inner),
        Some(JSONSchemaPropsOrBool::Bool(true)) => Known::Any,
        _ if schema.x_kubernetes_preserve_unknown_fields == Some(true) => Known::Any,
        _ => Known::No,
    }
}

/// The schema of a list's items.
pub fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(items) => Some(items),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

/// The path of a member of the object at `path`.
pub fn field(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
