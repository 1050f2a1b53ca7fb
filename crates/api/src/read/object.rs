//! Services and ServiceGroups as they come, whatever is in them: one that is odd must not hide all others of its kind.
//!
//! A watch lists all objects of a kind in one answer, and fails as a whole if one of them cannot be read. What others
//! may have written freely, or under an older CRD, is therefore read part by part.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service, ServiceSpec};
use kube::Resource;
use kube::api::ObjectMeta;
use purelb_core::reason::{Problem, Reason};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::service_group::{ServiceGroup, ServiceGroupSpec, ServiceGroupStatus};

/// A Service with the conditions kept as they are: the API server stores them without looking.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ServiceObject {
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(default)]
    pub spec: Option<ServiceSpec>,
    /// What of its status concerns PureLB.
    #[serde(default)]
    pub status: Option<ServiceObjectStatus>,
}

/// The status of a [`ServiceObject`].
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceObjectStatus {
    /// The addresses.
    #[serde(default)]
    pub load_balancer: Option<LoadBalancerStatus>,
    /// The conditions, some of which may not even have a time.
    #[serde(default)]
    pub conditions: Option<Vec<Value>>,
}

impl Resource for ServiceObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Service::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Service::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Service::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Service::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A ServiceGroup as far as it can be read, with the fields that cannot.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Raw")]
pub struct GroupObject {
    /// The group, without the fields that have a wrong type.
    pub object: ServiceGroup,
    /// The fields of its spec that have a wrong type.
    pub unread: Vec<Problem>,
}

impl From<ServiceGroup> for GroupObject {
    fn from(object: ServiceGroup) -> Self {
        Self { object, unread: Vec::new() }
    }
}

impl Resource for GroupObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        ServiceGroup::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        ServiceGroup::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        ServiceGroup::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        ServiceGroup::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.object.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.object.metadata
    }
}

/// An object of ours before anything is understood of it.
#[derive(Deserialize)]
pub(super) struct Raw {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl Raw {
    /// The metadata, what can be read of the spec, the status as it is, and the fields of the spec that cannot be read.
    pub(super) fn parts<S: DeserializeOwned + Default>(self) -> (ObjectMeta, S, Option<Value>, Vec<Problem>) {
        let (spec, unread) = salvaged::<S>(self.spec);
        let unread = unread.into_iter().map(|(field, why)| {
            let field = if field.is_empty() { "spec".to_owned() } else { format!("spec.{field}") };
            Problem::new(field, Reason::FieldUnreadable { why })
        });
        (self.metadata, spec, Some(self.status).filter(Value::is_object), unread.collect())
    }
}

impl From<Raw> for GroupObject {
    fn from(raw: Raw) -> Self {
        let (metadata, spec, status, unread) = raw.parts::<ServiceGroupSpec>();
        // What is wrong with the status is nobody's concern: it is about to be written anew.
        let status = status.map(|status| salvaged::<ServiceGroupStatus>(status).0);
        Self { object: ServiceGroup { metadata, spec, status }, unread }
    }
}

/// What can be read of an object, and the fields that cannot, each with the reason. Of a list, the good items are kept.
pub(super) fn salvaged<T: DeserializeOwned + Default>(value: Value) -> (T, Vec<(String, String)>) {
    let Value::Object(fields) = value else {
        let unread = if value.is_null() { vec![] } else { vec![(String::new(), "it is not an object".to_owned())] };
        return (T::default(), unread);
    };
    let mut unread = Vec::new();
    let mut kept = Map::new();
    for (name, value) in fields {
        match readable::<T>(&name, &value) {
            Ok(()) => drop(kept.insert(name, value)),
            Err(why) => {
                if let Value::Array(items) = value {
                    let good =
                        items.into_iter().filter(|item| readable::<T>(&name, &Value::from(vec![item.clone()])).is_ok());
                    kept.insert(name.clone(), good.collect());
                }
                unread.push((name, why));
            }
        }
    }
    (serde_json::from_value(Value::Object(kept)).unwrap_or_default(), unread)
}

fn readable<T: DeserializeOwned>(name: &str, value: &Value) -> Result<(), String> {
    let alone = Map::from_iter([(name.to_owned(), value.clone())]);
    serde_json::from_value::<T>(Value::Object(alone)).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::read::{group_forms, kept_form};

    fn read(spec: Value, status: Value) -> GroupObject {
        let object = json!({"metadata": {"name": "edge", "namespace": "home"}, "spec": spec, "status": status});
        serde_json::from_value(object).unwrap()
    }

    fn fields(object: &GroupObject) -> Vec<&str> {
        object.unread.iter().map(|problem| problem.field.as_str()).collect()
    }

    #[test]
    fn a_field_of_the_wrong_type_disables_only_itself() {
        let pools = json!({"v4pools": [{"pool": "192.0.2.0/24", "subnet": "192.0.2.0/24"}]});
        let read = read(json!({"namespaces": "text", "local": pools}), json!(null));
        assert_eq!(fields(&read), ["spec.namespaces"]);
        assert!(read.object.spec.local.is_some(), "the pools are as good as ever");
        let reading = group_forms(&read, None);
        assert_eq!(reading.problems.len(), 1);
        assert!(reading.forms.best().is_some());
    }

    #[test]
    fn a_spec_that_is_no_object_is_no_reason_to_stumble() {
        for spec in [json!("text"), json!(7), json!([1])] {
            let read = read(spec, json!("text"));
            assert_eq!(fields(&read), ["spec"]);
            assert!(group_forms(&read, None).forms.best().is_none());
        }
    }

    #[test]
    fn a_condition_without_a_time_costs_neither_the_others_nor_the_last_valid_form() {
        let condition = |time: Value| json!({"type": "Odd", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": time});
        let good = condition(json!("2026-01-01T00:00:00Z"));
        let kept = json!({"generation": 3, "spec": {"external": {"provider": "x", "announce": "local"}}});
        let status = json!({"allocatedIPv4": 2, "conditions": [condition(json!(null)), good], "lastValid": kept});
        let read = read(json!({"namespaces": 1}), status);
        let status = read.object.status.as_ref().unwrap();
        assert_eq!((status.conditions.len(), status.allocated_ipv4), (1, 2));
        let forms = group_forms(&read, kept_form(&read)).forms;
        assert!(forms.best().is_some() && forms.best() == forms.earlier.as_ref(), "the last valid form is in use");
    }
}
