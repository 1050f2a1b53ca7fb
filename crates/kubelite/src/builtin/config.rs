//! Secrets and config maps.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Value, json};

use super::typed;
use crate::kinds::Served;
use crate::object::map_of;
use crate::openapi::Schemas;
use crate::rules::{Ground, Rules};
use crate::status::Cause;

/// Secrets take plain text in `stringData` and give it back encoded in `data`.
pub(crate) struct SecretRules;

impl Rules for SecretRules {
    fn decode(&self, _served: &Served, body: Value) -> Result<Value, String> {
        let mut secret: Secret = serde_json::from_value(body).map_err(|error| error.to_string())?;
        for (key, text) in secret.string_data.take().unwrap_or_default() {
            secret.data.get_or_insert_default().insert(key, ByteString(text.into_bytes()));
        }
        secret.type_.get_or_insert_with(|| "Opaque".into());
        typed::<Secret>(json!(secret))
    }

    fn describe(&self, _served: &Served, schemas: &mut Schemas) -> String {
        schemas.typed::<Secret>()
    }

    fn create(&self, _ground: &Ground<'_>, _served: &Served, new: &mut Value) -> Vec<Cause> {
        key_faults(new, &["data"])
    }

    fn update(&self, _ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        if map_of(new).get("type") == Some(&json!("Opaque")) && old["type"] != "Opaque" {
            map_of(new).insert("type".into(), old["type"].clone());
        }
        let mut causes = key_faults(new, &["data"]);
        if old["type"] != new["type"] {
            causes.push(Cause::invalid("type", &new["type"], "field is immutable"));
        }
        causes.extend(immutable_faults(old, new, &["data"]));
        causes
    }
}

/// Config maps, which may be declared immutable.
pub(crate) struct ConfigMapRules;

impl Rules for ConfigMapRules {
    fn decode(&self, _served: &Served, body: Value) -> Result<Value, String> {
        typed::<ConfigMap>(body)
    }

    fn describe(&self, _served: &Served, schemas: &mut Schemas) -> String {
        schemas.typed::<ConfigMap>()
    }

    fn create(&self, _ground: &Ground<'_>, _served: &Served, new: &mut Value) -> Vec<Cause> {
        key_faults(new, &["data", "binaryData"])
    }

    fn update(&self, _ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        let mut causes = key_faults(new, &["data", "binaryData"]);
        causes.extend(immutable_faults(old, new, &["data", "binaryData"]));
        causes
    }
}

fn key_faults(object: &Value, fields: &[&str]) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in fields {
        for key in object[*field].as_object().into_iter().flat_map(|members| members.keys()) {
            let good = key.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'));
            if key.is_empty() || !good {
                let rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
                            or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                causes.push(Cause::invalid(format!("{field}[{key}]"), key, rule));
            }
        }
    }
    causes
}

fn immutable_faults(old: &Value, new: &Value, fields: &[&str]) -> Vec<Cause> {
    if old["immutable"] != true {
        return Vec::new();
    }
    let rule = "field is immutable when `immutable` is set";
    let changed =
        fields.iter().filter(|field| old[**field] != new[**field]).map(|field| Cause::forbidden(*field, rule));
    let released = (new["immutable"] != true).then(|| Cause::forbidden("immutable", rule));
    released.into_iter().chain(changed).collect()
}
