//! Nodes, namespaces and pods.

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use serde_json::{Map, Value, json};

use super::typed;
use crate::kinds::Served;
use crate::object::{carry, map_at, map_of, name};
use crate::openapi::Schemas;
use crate::rules::{Ground, Rules};
use crate::status::Cause;

/// Nodes keep the status they register with; a new node is tainted until somebody finds it ready.
pub(crate) struct NodeRules;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

impl Rules for NodeRules {
    fn decode(&self, _served: &Served, body: Value) -> Result<Value, String> {
        let mut node = typed::<Node>(body)?;
        map_at(&mut node, "spec");
        let status = map_at(&mut node, "status");
        status.entry("daemonEndpoints").or_insert_with(|| json!({"kubeletEndpoint": {"Port": 0}}));
        status.entry("nodeInfo").or_insert_with(|| json!(k8s_openapi::api::core::v1::NodeSystemInfo::default()));
        Ok(node)
    }

    fn describe(&self, _served: &Served, schemas: &mut Schemas) -> String {
        schemas.typed::<Node>()
    }

    fn create(&self, _ground: &Ground<'_>, _served: &Served, new: &mut Value) -> Vec<Cause> {
        let taints = map_at(new, "spec").entry("taints").or_insert_with(|| json!([]));
        if let Some(taints) = taints.as_array_mut()
            && !taints.iter().any(|taint| taint["key"] == NOT_READY)
        {
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        }
        Vec::new()
    }

    fn update(&self, _ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        carry(old, new, "status");
        Vec::new()
    }
}

/// Namespaces label themselves, and end in phases.
pub(crate) struct NamespaceRules;

impl Rules for NamespaceRules {
    fn decode(&self, _served: &Served, body: Value) -> Result<Value, String> {
        let mut namespace = typed::<Namespace>(body)?;
        let own_name = name(&namespace).to_owned();
        if !own_name.is_empty() {
            let labels = map_at(&mut namespace, "metadata").entry("labels").or_insert_with(|| json!({}));
            map_of(labels).insert("kubernetes.io/metadata.name".into(), json!(own_name));
        }
        Ok(namespace)
    }

    fn describe(&self, _served: &Served, schemas: &mut Schemas) -> String {
        schemas.typed::<Namespace>()
    }

    fn create(&self, _ground: &Ground<'_>, _served: &Served, new: &mut Value) -> Vec<Cause> {
        map_of(new).insert("status".into(), json!({"phase": "Active"}));
        map_of(new).insert("spec".into(), json!({"finalizers": ["kubernetes"]}));
        let own_name = name(new).to_owned();
        let labels = map_at(new, "metadata").entry("labels").or_insert_with(|| json!({}));
        map_of(labels).insert("kubernetes.io/metadata.name".into(), json!(own_name));
        Vec::new()
    }

    fn update(&self, _ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        carry(old, new, "spec");
        carry(old, new, "status");
        Vec::new()
    }
}

/// Pods get the defaults a scheduler-less reader expects, and keep their spec.
pub(crate) struct PodRules;

impl Rules for PodRules {
    fn decode(&self, _served: &Served, body: Value) -> Result<Value, String> {
        let mut pod = typed::<Pod>(body)?;
        let spec = map_at(&mut pod, "spec");
        spec.entry("enableServiceLinks").or_insert(json!(true));
        complete_pod(spec);
        Ok(pod)
    }

    fn describe(&self, _served: &Served, schemas: &mut Schemas) -> String {
        schemas.typed::<Pod>()
    }

    fn create(&self, _ground: &Ground<'_>, _served: &Served, new: &mut Value) -> Vec<Cause> {
        map_of(new).insert("status".into(), json!({"phase": "Pending", "qosClass": "BestEffort"}));
        admit_pod(map_at(new, "spec"));
        container_faults(&new["spec"]["containers"])
    }

    fn update(&self, _ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        carry(old, new, "status");
        if fixed_part(&old["spec"]) == fixed_part(&new["spec"]) {
            return Vec::new();
        }
        let rule = "pod updates may not change fields other than `spec.containers[*].image`,\
                    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                    existing tolerations),`spec.terminationGracePeriodSeconds`";
        vec![Cause::forbidden("spec", rule)]
    }
}

/// The defaults of a pod, or of the template of one.
pub(super) fn complete_pod(spec: &mut Map<String, Value>) {
    for (field, default) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
    ] {
        spec.entry(field).or_insert(default);
    }
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(complete_container);
    }
}

/// What admission adds to every new pod: the usual priority, and five minutes of patience with a lost node.
fn admit_pod(spec: &mut Map<String, Value>) {
    spec.entry("priority").or_insert(json!(0));
    spec.entry("preemptionPolicy").or_insert(json!("PreemptLowerPriority"));
    let tolerations = spec.entry("tolerations").or_insert(json!([]));
    for key in [NOT_READY, "node.kubernetes.io/unreachable"] {
        if let Some(list) = tolerations.as_array_mut()
            && !list.iter().any(|it| it["key"] == key)
        {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
}

fn complete_container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map_or("latest", |(_, tag)| tag);
    let policy = if tag == "latest" && !image.contains('@') { "Always" } else { "IfNotPresent" };
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        map_of(port).entry("protocol").or_insert(json!("TCP"));
    }
    let members = map_of(container);
    for (field, default) in [
        ("imagePullPolicy", json!(policy)),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("resources", json!({})),
    ] {
        members.entry(field).or_insert(default);
    }
}

fn container_faults(containers: &Value) -> Vec<Cause> {
    let containers: Vec<&Value> = containers.as_array().into_iter().flatten().collect();
    let mut causes = Vec::new();
    if containers.is_empty() {
        causes.push(Cause::required("spec.containers", ""));
    }
    for (i, container) in containers.iter().enumerate() {
        for field in ["name", "image"] {
            if container[field].as_str().unwrap_or_default().is_empty() {
                causes.push(Cause::required(format!("spec.containers[{i}].{field}"), ""));
            }
        }
        if containers[..i].iter().any(|other| other["name"] == container["name"]) {
            causes.push(Cause::duplicate(format!("spec.containers[{i}].name"), &container["name"]));
        }
    }
    causes
}

/// The part of a pod's spec that no update may touch.
fn fixed_part(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            map_of(container).remove("image");
        }
    }
    let members = map_of(&mut spec);
    for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
        members.remove(field);
    }
    spec
}
