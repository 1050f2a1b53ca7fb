//! Strategic merge patch: lists of built-in kinds are merged item by item where Kubernetes says so.

use serde_json::{Map, Value};

use crate::status::Refusal;

/// How a list is patched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListRule {
    /// Items with the same value of this field are merged.
    ByKey(&'static str),
    /// A list of plain values without repetition.
    Set,
    /// The patch replaces the list.
    Atomic,
}

/// Lists that are not atomic: kind (`*` for all), path, rule. Paths leave out list items.
const LISTS: [(&str, &str, ListRule); 25] = [
    ("*", "metadata.finalizers", ListRule::Set),
    ("*", "metadata.ownerReferences", ListRule::ByKey("uid")),
    ("Service", "spec.ports", ListRule::ByKey("port")),
    ("Service", "status.conditions", ListRule::ByKey("type")),
    ("Namespace", "status.conditions", ListRule::ByKey("type")),
    ("DaemonSet", "status.conditions", ListRule::ByKey("type")),
    ("Deployment", "status.conditions", ListRule::ByKey("type")),
    ("Node", "spec.podCIDRs", ListRule::Set),
    ("Node", "status.addresses", ListRule::ByKey("type")),
    ("Node", "status.conditions", ListRule::ByKey("type")),
    ("Pod", "status.conditions", ListRule::ByKey("type")),
    ("Pod", "status.podIPs", ListRule::ByKey("ip")),
    ("Pod", "spec.containers", ListRule::ByKey("name")),
    ("Pod", "spec.initContainers", ListRule::ByKey("name")),
    ("Pod", "spec.ephemeralContainers", ListRule::ByKey("name")),
    ("Pod", "spec.volumes", ListRule::ByKey("name")),
    ("Pod", "spec.imagePullSecrets", ListRule::ByKey("name")),
    ("Pod", "spec.hostAliases", ListRule::ByKey("ip")),
    ("Pod", "spec.topologySpreadConstraints", ListRule::ByKey("topologyKey")),
    ("Pod", "spec.containers.env", ListRule::ByKey("name")),
    ("Pod", "spec.containers.ports", ListRule::ByKey("containerPort")),
    ("Pod", "spec.containers.volumeMounts", ListRule::ByKey("mountPath")),
    ("Pod", "spec.containers.volumeDevices", ListRule::ByKey("devicePath")),
    ("Pod", "spec.initContainers.env", ListRule::ByKey("name")),
    ("Pod", "spec.initContainers.volumeMounts", ListRule::ByKey("mountPath")),
];

fn list_rule(kind: &str, path: &str) -> ListRule {
    // The template of a workload is a pod without a name.
    if matches!(kind, "DaemonSet" | "Deployment")
        && let Some(inner) = path.strip_prefix("spec.template.")
    {
        return list_rule("Pod", inner);
    }
    let known = LISTS.iter().find(|(owner, place, _)| (*owner == "*" || *owner == kind) && *place == path);
    known.map_or(ListRule::Atomic, |(.., rule)| *rule)
}

/// Merges a patch into an object of a built-in kind.
pub(super) fn merge(kind: &str, object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    merge_value(kind, "", object, patch)
}

/// The API server answers a patch it cannot make sense of with 500.
fn bad(why: String) -> Refusal {
    Refusal::Internal(format!("unable to apply strategic merge patch: {why}"))
}

fn merge_value(kind: &str, path: &str, object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    match patch {
        Value::Object(patch) => merge_map(kind, path, object, patch),
        Value::Array(items) => merge_list(kind, path, object, items),
        plain => {
            *object = plain.clone();
            Ok(())
        }
    }
}

fn merge_map(kind: &str, path: &str, object: &mut Value, patch: &Map<String, Value>) -> Result<(), Refusal> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *object = Value::Object(patch.iter().filter(|(key, _)| !key.starts_with('$')).map(own).collect());
            return Ok(());
        }
        Some("delete") => {
            *object = Value::Object(Map::new());
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(bad(format!("unknown $patch directive {other:?}"))),
    }
    let members = crate::object::map_of(object);
    if let Some(retained) = patch.get("$retainKeys").and_then(Value::as_array) {
        members.retain(|name, _| retained.iter().any(|it| it == name));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let doomed = value.as_array().cloned().unwrap_or_default();
            if let Some(kept) = members.get_mut(list).and_then(Value::as_array_mut) {
                kept.retain(|item| !doomed.contains(item));
            }
        } else if name.starts_with('$') {
            // The wanted order of lists is a refinement that nothing here depends on.
        } else if value.is_null() {
            members.remove(name);
        } else {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            merge_value(kind, &path, members.entry(name.clone()).or_insert(Value::Null), value)?;
        }
    }
    Ok(())
}

fn own((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

fn merge_list(kind: &str, path: &str, object: &mut Value, patch: &[Value]) -> Result<(), Refusal> {
    let old = object.as_array().cloned().unwrap_or_default();
    let merged = match list_rule(kind, path) {
        ListRule::Atomic => patch.to_vec(),
        ListRule::Set => {
            let kept = old.iter().filter(|item| !patch.contains(item)).cloned().collect();
            interleave(|item| old.iter().position(|old| old == item), patch.to_vec(), kept)
        }
        ListRule::ByKey(key) => merge_by_key(kind, path, key, &old, patch)?,
    };
    *object = Value::Array(merged);
    Ok(())
}

fn merge_by_key(kind: &str, path: &str, key: &str, old: &[Value], patch: &[Value]) -> Result<Vec<Value>, Refusal> {
    let mut kept: Vec<Value> = old.to_vec();
    if patch.iter().any(|item| item["$patch"] == "replace") {
        kept.clear();
    }
    let mut touched: Vec<Value> = Vec::new();
    for item in patch {
        let id = &item[key];
        match item["$patch"].as_str() {
            Some("replace") if id.is_null() => continue,
            _ if id.is_null() => return Err(bad(format!("an item of {path} does not contain the merge key {key:?}"))),
            Some("delete") => {
                kept.retain(|old| old[key] != *id);
                continue;
            }
            _ => {}
        }
        let position = kept.iter().position(|old| old[key] == *id);
        let mut merged = position.map_or(Value::Null, |position| kept.remove(position));
        merge_value(kind, path, &mut merged, item)?;
        touched.push(merged);
    }
    Ok(interleave(|item| old.iter().position(|old| old[key] == item[key]), touched, kept))
}

/// Patched items in the order of the patch, the others in their old places between them.
fn interleave(place: impl Fn(&Value) -> Option<usize>, touched: Vec<Value>, kept: Vec<Value>) -> Vec<Value> {
    let mut result = Vec::new();
    let mut kept = kept.into_iter().peekable();
    for item in touched {
        if let Some(own) = place(&item) {
            while let Some(earlier) = kept.next_if(|other| place(other).is_some_and(|other| other < own)) {
                result.push(earlier);
            }
        }
        result.push(item);
    }
    result.extend(kept);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(kind: &str, mut object: Value, patch: Value) -> Value {
        merge(kind, &mut object, &patch).expect("a good patch");
        object
    }

    #[test]
    fn ports_of_a_service_are_merged_by_port() {
        let service = json!({"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 443, "name": "b"}]}});
        let result = merged("Service", service, json!({"spec": {"ports": [{"port": 443, "nodePort": 30000}]}}));
        assert_eq!(
            result["spec"]["ports"],
            json!([{"port": 80, "name": "a"}, {"port": 443, "name": "b", "nodePort": 30000}])
        );
    }

    #[test]
    fn ingress_of_a_service_and_taints_of_a_node_are_replaced() {
        let service = json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}});
        let patch = json!({"status": {"loadBalancer": {"ingress": [{"ip": "2.2.2.2"}]}}});
        assert_eq!(merged("Service", service, patch.clone()), patch);
        let node = json!({"spec": {"taints": [{"key": "a"}]}});
        let patch = json!({"spec": {"taints": [{"key": "b"}]}});
        assert_eq!(merged("Node", node, patch.clone()), patch);
    }

    #[test]
    fn new_items_come_before_the_ones_the_patch_does_not_mention() {
        let node = json!({"status": {"addresses": [{"type": "InternalIP", "address": "1"}]}});
        let result = merged("Node", node, json!({"status": {"addresses": [{"type": "Hostname", "address": "h"}]}}));
        assert_eq!(
            result["status"]["addresses"],
            json!([{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "1"}])
        );
    }

    #[test]
    fn directives_delete_and_replace() {
        let pod = || json!({"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]}});
        let result = merged("Pod", pod(), json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}));
        assert_eq!(result["spec"]["containers"], json!([{"name": "b"}]));
        let result = merged("Pod", pod(), json!({"spec": {"containers": [{"name": "c"}, {"$patch": "replace"}]}}));
        assert_eq!(result["spec"]["containers"], json!([{"name": "c"}]));
        let result = merged("Pod", pod(), json!({"spec": {"$patch": "replace", "nodeName": "n"}}));
        assert_eq!(result["spec"], json!({"nodeName": "n"}));
        let object = json!({"metadata": {"finalizers": ["a/b", "c/d"]}});
        let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"], "finalizers": ["e/f"]}});
        assert_eq!(merged("Service", object, patch)["metadata"]["finalizers"], json!(["e/f", "c/d"]));
        let result = merged("Pod", pod(), json!({"spec": {"$retainKeys": ["nodeName"], "nodeName": "n"}}));
        assert_eq!(result["spec"], json!({"nodeName": "n"}));
    }

    #[test]
    fn an_item_without_its_key_is_refused() {
        let mut service = json!({"spec": {"ports": []}});
        let refusal = merge("Service", &mut service, &json!({"spec": {"ports": [{"name": "x"}]}}));
        assert_eq!(refusal.expect_err("refused").code(), 500);
    }
}
