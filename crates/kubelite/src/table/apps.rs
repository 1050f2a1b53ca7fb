//! The columns of Pods and of the workloads that run them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Column;
use super::cells::{age, items, labels, name, number, or, since, text};

/// The columns of these kinds; nothing for any other.
pub(super) fn columns(kind: &str) -> Option<Vec<Column>> {
    match kind {
        "Pod" => Some(pod()),
        "DaemonSet" => Some(daemon_set()),
        "Deployment" => Some(deployment()),
        _ => None,
    }
}

fn daemon_set() -> Vec<Column> {
    let mut columns = vec![
        name(),
        Column::new("Desired", |it, _| json!(number(it, "/status/desiredNumberScheduled"))).integer(),
        Column::new("Current", |it, _| json!(number(it, "/status/currentNumberScheduled"))).integer(),
        Column::new("Ready", |it, _| json!(number(it, "/status/numberReady"))).integer(),
        Column::new("Up-to-date", |it, _| json!(number(it, "/status/updatedNumberScheduled"))).integer(),
        Column::new("Available", |it, _| json!(number(it, "/status/numberAvailable"))).integer(),
        Column::new("Node Selector", |it, _| json!(labels(it, "/spec/template/spec/nodeSelector"))),
        age(),
    ];
    columns.extend(template_columns());
    columns
}

fn deployment() -> Vec<Column> {
    let mut columns = vec![
        name(),
        Column::new("Ready", |it, _| {
            json!(format!("{}/{}", number(it, "/status/readyReplicas"), number(it, "/spec/replicas")))
        }),
        Column::new("Up-to-date", |it, _| json!(number(it, "/status/updatedReplicas"))),
        Column::new("Available", |it, _| json!(number(it, "/status/availableReplicas"))),
        age(),
    ];
    columns.extend(template_columns());
    columns
}

fn template_columns() -> [Column; 3] {
    [
        Column::new("Containers", |it, _| json!(containers(it, "/name"))).wide(),
        Column::new("Images", |it, _| json!(containers(it, "/image"))).wide(),
        Column::new("Selector", |it, _| json!(labels(it, "/spec/selector/matchLabels"))).wide(),
    ]
}

fn containers(workload: &Value, pointer: &str) -> String {
    let texts: Vec<&str> = items(workload, "/spec/template/spec/containers").map(|it| text(it, pointer)).collect();
    texts.join(",")
}

fn pod() -> Vec<Column> {
    vec![
        name(),
        Column::new("Ready", |it, _| {
            let ready = items(it, "/status/containerStatuses").filter(|it| is_ready(it)).count();
            json!(format!("{ready}/{}", items(it, "/spec/containers").count()))
        }),
        Column::new("Status", |it, _| json!(pod_status(it))),
        Column::new("Restarts", |it, now| json!(restarts(it, now))),
        age(),
        Column::new("IP", |it, _| or(text(it, "/status/podIPs/0/ip"), "<none>")).wide(),
        Column::new("Node", |it, _| or(text(it, "/spec/nodeName"), "<none>")).wide(),
        Column::new("Nominated Node", |it, _| or(text(it, "/status/nominatedNodeName"), "<none>")).wide(),
        Column::new("Readiness Gates", |it, _| json!(gates(it))).wide(),
    ]
}

fn is_ready(container: &Value) -> bool {
    container["ready"] == true && container["state"]["running"].is_object()
}

/// One word for what a pod does: the trouble of a container before the phase of the whole.
fn pod_status(pod: &Value) -> String {
    let phase = text(pod, "/status/phase");
    let ended = matches!(phase, "Succeeded" | "Failed");
    if pod["metadata"]["deletionTimestamp"].is_string() && !ended {
        return "Terminating".into();
    }
    let trouble = items(pod, "/status/containerStatuses").find_map(|container| {
        let why = ["/state/waiting/reason", "/state/terminated/reason"].map(|pointer| text(container, pointer));
        why.into_iter().find(|why| !why.is_empty())
    });
    let running = items(pod, "/status/containerStatuses").any(is_ready);
    match (trouble, text(pod, "/status/reason")) {
        (Some("Completed"), _) if running => "Running".into(),
        (Some(trouble), _) => trouble.into(),
        (None, "") => phase.into(),
        (None, reason) => reason.into(),
    }
}

fn restarts(pod: &Value, now: Timestamp) -> String {
    let count: i64 = items(pod, "/status/containerStatuses").map(|it| number(it, "/restartCount")).sum();
    let ends = items(pod, "/status/containerStatuses").map(|it| text(it, "/lastState/terminated/finishedAt"));
    match ends.max().unwrap_or_default() {
        time if count > 0 && !time.is_empty() => format!("{count} ({} ago)", since(time, now)),
        _ => count.to_string(),
    }
}

fn gates(pod: &Value) -> String {
    let wanted: Vec<&str> = items(pod, "/spec/readinessGates").map(|it| text(it, "/conditionType")).collect();
    if wanted.is_empty() {
        return "<none>".into();
    }
    let open = |gate: &&&str| {
        items(pod, "/status/conditions").any(|it| text(it, "/type") == **gate && text(it, "/status") == "True")
    };
    format!("{}/{}", wanted.iter().filter(open).count(), wanted.len())
}
