//! OpenAPI documents, from which kubectl learns which fields a kind has (`kubectl explain`) and that the server itself
//! checks for unknown ones.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::schemars::JsonSchema;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::discovery;
use crate::kinds::{Registry, Resource, Served};
use crate::object::map_at;
use crate::status::Refusal;

/// The schemas of one document, collected kind by kind.
pub(crate) struct Schemas {
    generator: SchemaGenerator,
    custom: Map<String, Value>,
}

impl Schemas {
    fn new() -> Self {
        Self { generator: SchemaSettings::openapi3().into_generator(), custom: Map::new() }
    }

    /// Adds a type of Kubernetes and all it is made of; returns its name.
    pub(crate) fn typed<T: JsonSchema>(&mut self) -> String {
        self.generator.subschema_for::<T>();
        T::schema_name().into_owned()
    }

    /// Adds the schema of a custom resource with the fields that every object has; returns its name.
    pub(crate) fn custom(&mut self, kind: &str, served: &Served, mut schema: Value) -> String {
        let metadata = reference(&self.typed::<ObjectMeta>());
        let properties = map_at(&mut schema, "properties");
        properties.insert("apiVersion".into(), json!({"type": "string", "description": API_VERSION}));
        properties.insert("kind".into(), json!({"type": "string", "description": KIND}));
        properties.insert("metadata".into(), json!({"description": METADATA, "allOf": [metadata]}));
        let mut words: Vec<&str> = served.group.rsplit('.').collect();
        words.extend([served.version.as_str(), kind]);
        let name = words.join(".");
        self.custom.insert(name.clone(), schema);
        name
    }

    fn finish(mut self) -> Map<String, Value> {
        let mut all = self.generator.take_definitions(true);
        all.append(&mut self.custom);
        all.values_mut().for_each(wrap_references);
        all
    }
}

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should \
    convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this \
    from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// OpenAPI 3.0 ignores what stands beside a reference; wrapped in `allOf`, its description counts.
fn wrap_references(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(wrap_references);
            // One kind has a property of this name, which is no reference.
            if members.len() > 1
                && members.get("$ref").is_some_and(Value::is_string)
                && let Some(reference) = members.remove("$ref")
            {
                members.insert("allOf".into(), json!([{"$ref": reference}]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        _ => {}
    }
}

/// `/openapi/v3`: where the documents are, one per group and version.
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for served in registry.all().flat_map(|it| &it.served) {
        let root = root(served);
        let url = json!({"serverRelativeURL": format!("/openapi/v3{root}")});
        paths.insert(root.trim_start_matches('/').into(), url);
    }
    json!({"paths": paths})
}

fn root(served: &Served) -> String {
    let prefix = if served.group.is_empty() { "/api" } else { "/apis" };
    format!("{prefix}/{}", served.api_version())
}

/// `/openapi/v3/api/v1` and `/openapi/v3/apis/GROUP/VERSION`
pub(crate) fn document(registry: &Registry, group: &str, version: &str) -> Result<Value, Refusal> {
    let (mut schemas, mut paths) = (Schemas::new(), Map::new());
    let mut kinds: Vec<(String, Value)> = Vec::new();
    for resource in registry.all() {
        let Some(served) = resource.served.iter().find(|it| it.group == group && it.version == version) else {
            continue;
        };
        let own = json!({"group": group, "version": version, "kind": resource.kind});
        let schema = resource.rules.describe(served, &mut schemas);
        add_paths(&mut paths, resource, served, &own, &reference(&schema));
        kinds.push((schema, own));
    }
    if kinds.is_empty() {
        return Err(discovery::unknown(registry, group));
    }
    let mut schemas = schemas.finish();
    for (name, kind) in kinds {
        if let Some(schema) = schemas.get_mut(&name).and_then(Value::as_object_mut) {
            schema.insert("x-kubernetes-group-version-kind".into(), json!([kind]));
        }
    }
    Ok(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": discovery::version()["gitVersion"]},
        "paths": paths, "components": {"schemas": schemas},
    }))
}

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource, served: &Served, kind: &Value, schema: &Value) {
    let root = root(served);
    let place = if resource.namespaced { format!("{root}/namespaces/{{namespace}}") } else { root.clone() };
    let collection = format!("{place}/{}", resource.plural);
    let one = json!({
        "get": operation("get", kind, schema), "put": operation("put", kind, schema),
        "patch": operation("patch", kind, schema), "delete": operation("delete", kind, schema),
    });
    paths.insert(format!("{collection}/{{name}}"), one);
    paths.insert(collection, json!({"get": operation("list", kind, schema), "post": operation("post", kind, schema)}));
    if resource.namespaced {
        paths.insert(format!("{root}/{}", resource.plural), json!({"get": operation("list", kind, schema)}));
    }
}

fn operation(action: &str, kind: &Value, schema: &Value) -> Value {
    let mut operation = json!({
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
        "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
    });
    if matches!(action, "post" | "put" | "patch") {
        let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
        operation["parameters"] = ["dryRun", "fieldManager", "fieldValidation"].into_iter().map(parameter).collect();
        operation["requestBody"] = json!({"required": true, "content": request_body(action, schema)});
    }
    operation
}

/// Strategic merge patches are left out although built-in kinds take them: kubectl would look for their merge keys here,
/// and knows them itself.
fn request_body(action: &str, schema: &Value) -> Value {
    if action != "patch" {
        return json!({"application/json": {"schema": schema}});
    }
    let any = json!({"schema": {"type": "object"}});
    json!({"application/json-patch+json": any, "application/merge-patch+json": any})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_leads_from_a_path_to_all_fields_of_its_kind() {
        let document = document(&Registry::new(), "", "v1").expect("the core group");
        let patch = &document["paths"]["/api/v1/namespaces/{namespace}/services/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Service");
        let schemas = &document["components"]["schemas"];
        let service = &schemas["io.k8s.api.core.v1.Service"];
        assert_eq!(service["x-kubernetes-group-version-kind"][0]["kind"], "Service");
        let spec = service["properties"]["spec"]["allOf"][0]["$ref"].as_str().expect("a reference");
        let spec = document.pointer(spec.trim_start_matches('#')).expect("the schema it refers to");
        assert!(spec["properties"]["externalTrafficPolicy"]["description"].is_string());
        assert!(super::document(&Registry::new(), "nope.io", "v1").is_err());
    }

    #[test]
    fn the_index_names_each_document_once() {
        let index = index(&Registry::new());
        assert_eq!(index["paths"]["api/v1"]["serverRelativeURL"], "/openapi/v3/api/v1");
        assert_eq!(index["paths"]["apis/events.k8s.io/v1"]["serverRelativeURL"], "/openapi/v3/apis/events.k8s.io/v1");
    }
}
