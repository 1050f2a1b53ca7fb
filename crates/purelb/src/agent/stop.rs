//! What becomes of virtual addresses when the agent has to stop: they go with a node that goes, else they wait for a successor.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::core::{ApiResource, NotUsed, Object};
use kube::{Api, Client, Error};
use purelb_core::want::Leaving;
use serde::Deserialize;
use tokio::time::timeout;
use tracing::info;

use crate::cluster::again::until_answered;

/// The DaemonSet that runs the agents.
const DAEMON_SET: &str = "lbnodeagent";
/// How long the API server has to say that the node goes; silence means that it stays.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long virtual addresses wait for a successor.
const STAY: Duration = Duration::from_secs(60);
/// The taint of a node that is not coming back.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The DaemonSet, reduced to what decides: the code that reads a whole one is larger than all else in this file.
type AgentSet = Object<SetSpec, NotUsed>;

#[derive(Clone, Debug, Deserialize)]
struct SetSpec {
    template: Template,
}

#[derive(Clone, Debug, Deserialize)]
struct Template {
    spec: Pod,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    #[serde(default)]
    node_selector: BTreeMap<String, String>,
}

/// What to do with virtual addresses at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnStop {
    /// Ask the API server whether the node or the agent goes for good
    #[default]
    Auto,
    /// Keep them for a successor, for a minute at most
    Stay,
    /// Remove them, and the virtual interface
    Leave,
}

impl OnStop {
    /// What to do as long as nobody has asked: any doubt means keep.
    pub fn at_first(self) -> Leaving {
        if self == Self::Leave { Leaving::Go } else { Leaving::Stay(STAY) }
    }
}

/// Finds out whether this node's virtual addresses go.
pub async fn leaving(on_stop: OnStop, client: Client, namespace: &str, node: &str) -> Leaving {
    if on_stop != OnStop::Auto {
        return on_stop.at_first();
    }
    let why = timeout(PATIENCE, farewell(client, namespace, node)).await.ok().flatten();
    info!(reason = why.unwrap_or("a successor is expected"), leave = why.is_some(), "virtual addresses");
    if why.is_some() { Leaving::Go } else { Leaving::Stay(STAY) }
}

/// Why nobody will succeed this agent on this node; `None` if somebody will, or if nobody can tell.
async fn farewell(client: Client, namespace: &str, node: &str) -> Option<&'static str> {
    let nodes: Api<Node> = Api::all(client.clone());
    let sets: Api<AgentSet> = Api::namespaced_with(client, namespace, &ApiResource::erase::<DaemonSet>(&()));
    let (node, set) = tokio::join!(
        until_answered("the Node", || nodes.get(node)),
        until_answered("the DaemonSet", || sets.get(DAEMON_SET)),
    );
    let labels = match node {
        Err(error) if is_absent(&error) => return Some("the Node is deleted"),
        Err(_) => None,
        Ok(node) => match node_goes(&node) {
            Some(why) => return Some(why),
            None => Some(node.metadata.labels.unwrap_or_default()),
        },
    };
    match set {
        Err(error) if is_absent(&error) => Some("there is no DaemonSet lbnodeagent"),
        Err(_) => None,
        Ok(set) => set_goes(&set, labels.as_ref()),
    }
}

fn node_goes(node: &Node) -> Option<&'static str> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    // The kubelet says so when it shuts the node down in order.
    let shutting_down = conditions.any(|condition| {
        condition.type_ == "Ready"
            && condition.status != "True"
            && condition.message.as_deref().is_some_and(|message| message.contains("shutting down"))
    });
    if node.metadata.deletion_timestamp.is_some() {
        Some("the Node is being deleted")
    } else if taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE) {
        Some("the Node is out of service")
    } else if shutting_down {
        Some("the Node is shutting down")
    } else {
        None
    }
}

fn set_goes(set: &AgentSet, labels: Option<&BTreeMap<String, String>>) -> Option<&'static str> {
    if set.metadata.deletion_timestamp.is_some() {
        return Some("the DaemonSet lbnodeagent is being deleted");
    }
    let mut selector = set.spec.template.spec.node_selector.iter();
    let excluded = labels.is_some_and(|labels| selector.any(|(key, value)| labels.get(key) != Some(value)));
    excluded.then_some("the DaemonSet lbnodeagent does not select the Node")
}

fn is_absent(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::healthy(json!({}), None)]
    #[case::cordoned(json!({"spec": {"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}}), None)]
    #[case::dead(json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}}), Some("the Node is out of service"))]
    #[case::going_down(
        json!({"status": {"conditions": [{"type": "Ready", "status": "False", "message": "node is shutting down"}]}}),
        Some("the Node is shutting down")
    )]
    #[case::deleted(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), Some("the Node is being deleted"))]
    fn a_node_that_goes_is_told_from_one_that_stays(#[case] node: Value, #[case] why: Option<&str>) {
        assert_eq!(node_goes(&serde_json::from_value(node).unwrap()), why);
    }

    #[rstest]
    #[case::same(json!({"disk": "ssd"}), true)]
    #[case::other(json!({"disk": "hdd"}), false)]
    #[case::none(json!({}), false)]
    fn a_node_that_the_daemon_set_does_not_select_has_no_successor(#[case] labels: Value, #[case] stays: bool) {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "lbnodeagent"},
            "spec": {
                "selector": {}, "template": {"spec": {"containers": [], "nodeSelector": {"disk": "ssd"}}},
            },
        });
        let labels = serde_json::from_value(labels).unwrap();
        assert_eq!(set_goes(&serde_json::from_value(set).unwrap(), Some(&labels)).is_none(), stays);
    }
}
