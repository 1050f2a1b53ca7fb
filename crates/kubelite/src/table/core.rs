//! The columns of Services, Nodes and the other kinds without a workload.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Column;
use super::cells::{age, few, items, labels, name, number, or, since, size, text};

/// The columns of these kinds; nothing for any other.
pub(super) fn columns(kind: &str) -> Option<Vec<Column>> {
    Some(match kind {
        "Service" => service(),
        "Node" => node(),
        "Namespace" => vec![name(), Column::new("Status", |it, _| json!(text(it, "/status/phase"))), age()],
        "Secret" => vec![
            name(),
            Column::new("Type", |it, _| json!(text(it, "/type"))),
            Column::new("Data", |it, _| json!(size(it, "/data"))),
            age(),
        ],
        "ConfigMap" => {
            vec![name(), Column::new("Data", |it, _| json!(size(it, "/data") + size(it, "/binaryData"))), age()]
        }
        "Event" => event(),
        "EndpointSlice" => vec![
            name(),
            Column::new("AddressType", |it, _| json!(text(it, "/addressType"))),
            Column::new("Ports", |it, _| few(&slice_ports(it))),
            Column::new("Endpoints", |it, _| few(&slice_addresses(it))),
            age(),
        ],
        "Lease" => vec![name(), Column::new("Holder", |it, _| json!(text(it, "/spec/holderIdentity"))), age()],
        _ => return None,
    })
}

fn service() -> Vec<Column> {
    vec![
        name(),
        Column::new("Type", |it, _| json!(text(it, "/spec/type"))),
        Column::new("Cluster-IP", |it, _| or(text(it, "/spec/clusterIPs/0"), "<none>")),
        Column::new("External-IP", |it, _| external_addresses(it)),
        Column::new("Port(s)", |it, _| {
            let ports: Vec<String> = items(it, "/spec/ports").map(service_port).collect();
            or(&ports.join(","), "<none>")
        }),
        age(),
        Column::new("Selector", |it, _| json!(labels(it, "/spec/selector"))).wide(),
    ]
}

fn external_addresses(service: &Value) -> Value {
    let given: Vec<&str> = items(service, "/spec/externalIPs").filter_map(Value::as_str).collect();
    match text(service, "/spec/type") {
        "LoadBalancer" => {
            let address = |it| Some(text(it, "/ip")).filter(|ip| !ip.is_empty()).unwrap_or(text(it, "/hostname"));
            let ingress: BTreeSet<&str> = items(service, "/status/loadBalancer/ingress").map(address).collect();
            let all: Vec<&str> = ingress.into_iter().filter(|it| !it.is_empty()).chain(given).collect();
            or(&all.join(","), "<pending>")
        }
        "ExternalName" => json!(text(service, "/spec/externalName")),
        "ClusterIP" | "NodePort" => or(&given.join(","), "<none>"),
        _ => json!("<unknown>"),
    }
}

fn service_port(port: &Value) -> String {
    let (own, node, protocol) = (number(port, "/port"), number(port, "/nodePort"), text(port, "/protocol"));
    if node > 0 { format!("{own}:{node}/{protocol}") } else { format!("{own}/{protocol}") }
}

fn node() -> Vec<Column> {
    vec![
        name(),
        Column::new("Status", |it, _| node_status(it)),
        Column::new("Roles", |it, _| node_roles(it)),
        age(),
        Column::new("Version", |it, _| json!(text(it, "/status/nodeInfo/kubeletVersion"))),
        Column::new("Internal-IP", |it, _| node_address(it, "InternalIP")).wide(),
        Column::new("External-IP", |it, _| node_address(it, "ExternalIP")).wide(),
        Column::new("OS-Image", |it, _| or(text(it, "/status/nodeInfo/osImage"), "<unknown>")).wide(),
        Column::new("Kernel-Version", |it, _| kernel(it)).wide(),
        Column::new("Container-Runtime", |it, _| or(text(it, "/status/nodeInfo/containerRuntimeVersion"), "<unknown>"))
            .wide(),
    ]
}

fn node_status(node: &Value) -> Value {
    let ready = items(node, "/status/conditions").rfind(|it| it["type"] == "Ready");
    let word = match ready {
        Some(condition) if condition["status"] == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let closed = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    json!(format!("{word}{closed}"))
}

fn node_roles(node: &Value) -> Value {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<String> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    or(&roles.into_iter().collect::<Vec<_>>().join(","), "<none>")
}

fn node_address(node: &Value, kind: &str) -> Value {
    let address = items(node, "/status/addresses").find(|it| it["type"] == kind);
    or(address.map_or("", |it| text(it, "/address")), "<none>")
}

fn kernel(node: &Value) -> Value {
    let version = text(node, "/status/nodeInfo/kernelVersion");
    let version = if version.is_empty() { "<unknown>" } else { version };
    match text(node, "/status/nodeInfo/architecture") {
        "" => json!(version),
        architecture => json!(format!("{version} ({architecture})")),
    }
}

fn slice_ports(slice: &Value) -> Vec<String> {
    let port = |it: &Value| match (it["port"].as_i64(), it["name"].as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    };
    items(slice, "/ports").map(port).collect()
}

fn slice_addresses(slice: &Value) -> Vec<String> {
    let addresses = items(slice, "/endpoints").flat_map(|it| items(it, "/addresses"));
    addresses.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn event() -> Vec<Column> {
    vec![
        Column::new("Last Seen", |it, now| json!(last_seen(it, now))),
        Column::new("Type", |it, _| json!(text(it, "/type"))),
        Column::new("Reason", |it, _| json!(text(it, "/reason"))),
        Column::new("Object", |it, _| json!(event_object(it))),
        Column::new("Subobject", |it, _| json!(text(regarding(it), "/fieldPath"))).wide(),
        Column::new("Source", |it, _| json!(event_source(it))).wide(),
        Column::new("Message", |it, _| json!(first_of(it, &["/message", "/note"]).trim())),
        Column::new("First Seen", |it, now| json!(first_seen(it, now))).wide(),
        Column::new("Count", |it, _| json!(event_count(it))).wide(),
        name().wide(),
    ]
}

/// The same object in the words of either API group.
fn regarding(event: &Value) -> &Value {
    event.get("involvedObject").unwrap_or(&event["regarding"])
}

fn first_of<'a>(event: &'a Value, pointers: &[&str]) -> &'a str {
    pointers.iter().map(|pointer| text(event, pointer)).find(|text| !text.is_empty()).unwrap_or_default()
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    since(first_of(event, &["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"]), now)
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    match first_of(event, &["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp"]) {
        "" => first_seen(event, now),
        time => since(time, now),
    }
}

fn event_count(event: &Value) -> i64 {
    let counts = ["/series/count", "/count", "/deprecatedCount"].map(|pointer| number(event, pointer));
    counts.into_iter().find(|count| *count > 0).unwrap_or(1)
}

fn event_object(event: &Value) -> String {
    let object = regarding(event);
    let kind = text(object, "/kind").to_lowercase();
    match text(object, "/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn event_source(event: &Value) -> String {
    let component = ["/source/component", "/deprecatedSource/component", "/reportingComponent", "/reportingController"];
    let component = first_of(event, &component);
    match first_of(event, &["/source/host", "/deprecatedSource/host", "/reportingInstance"]) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}
