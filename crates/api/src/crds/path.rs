//! Ways into a derived schema: one field by its path, or all of them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// The schema of a field, such as `spec.local.v4pools[].aggregation`.
pub fn at<'a>(schema: &'a mut JSONSchemaProps, path: &str) -> &'a mut JSONSchemaProps {
    path.split('.').fold(schema, |schema, step| {
        let name = step.trim_end_matches("[]");
        let field = schema.properties.as_mut().and_then(|fields| fields.get_mut(name));
        let field = field.expect("the path names a field of the derived schema");
        if step.ends_with("[]") { items(field).expect("[] follows the name of a list") } else { field }
    })
}

/// Changes a schema and every schema inside it.
pub fn each(schema: &mut JSONSchemaProps, change: &mut dyn FnMut(&mut JSONSchemaProps)) {
    change(schema);
    if let Some(items) = items(schema) {
        each(items, change);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        each(values, change);
    }
    for field in schema.properties.iter_mut().flat_map(|fields| fields.values_mut()) {
        each(field, change);
    }
}

fn items(schema: &mut JSONSchemaProps) -> Option<&mut JSONSchemaProps> {
    match schema.items.as_mut()? {
        JSONSchemaPropsOrArray::Schema(items) => Some(items),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}
