//! The objects that stories write, as short as the API server allows.

use serde_json::{Value, json};

/// A ConfigMap with one entry.
pub(super) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"colour": "blue"}})
}

/// A ConfigMap with labels.
pub(super) fn labelled(name: &str, labels: Value) -> Value {
    let mut object = config_map(name);
    object["metadata"]["labels"] = labels;
    object
}

/// A Service of the given type with port 80.
pub(super) fn service(name: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"type": kind, "selector": {"app": name}, "ports": [{"port": 80}]},
    })
}

/// A Service of type LoadBalancer with further fields in its spec.
pub(super) fn load_balancer(name: &str, more: Value) -> Value {
    let mut object = service(name, "LoadBalancer");
    merge(&mut object["spec"], more);
    object
}

/// An Event about a Service of the same namespace, as the API server demands.
pub(super) fn event(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": "web"},
        "type": "Normal",
        "reason": "AddressAssigned",
        "message": "Assigned 192.0.2.1 from pool default",
        "source": {"component": "purelb-allocator"},
    })
}

/// A ServiceGroup in API version `version` with this spec.
pub(super) fn group(version: &str, name: &str, spec: Value) -> Value {
    custom(version, "ServiceGroup", name, spec)
}

/// The spec of a group with one IPv4 range.
pub(super) fn local_v4() -> Value {
    json!({"local": {"v4pools": [{"subnet": "192.0.2.0/24", "pool": "192.0.2.10-192.0.2.20"}]}})
}

/// An LBNodeAgent in API version `version` with this spec.
pub(super) fn agent(version: &str, name: &str, spec: Value) -> Value {
    custom(version, "LBNodeAgent", name, spec)
}

fn custom(version: &str, kind: &str, name: &str, spec: Value) -> Value {
    let version = format!("purelb.io/{version}");
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// The spec of a group in the flat form of PureLB's earliest documentation.
pub(super) fn flat() -> Value {
    json!({
        "name": "virtaddrange",
        "subnet": "172.22.0.0/24",
        "pool": "172.22.0.10-172.22.0.25",
        "aggregation": "default",
    })
}

/// A condition as Kubernetes demands it.
pub(super) fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind,
        "status": status,
        "reason": "Story",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// A patch that is valid only for the object as it was seen.
pub(super) fn patch_of(seen: &Value, mut patch: Value) -> Value {
    patch["metadata"]["resourceVersion"] = seen["metadata"]["resourceVersion"].clone();
    patch
}

/// Puts the fields of one object into another.
pub(super) fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}
