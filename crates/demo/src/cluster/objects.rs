//! What is in the cluster before anybody uses it: our kinds, the nodes, the configuration, and pods to talk to.

use anyhow::Result;
use purelb_api::crds::crds;
use serde_json::{Value, json};

use super::Cluster;
use crate::site::plan::{NODE_AS, Place, ROUTER_AS};

/// The namespace PureLB is installed in.
pub const HOME: &str = "purelb-system";
/// The namespace of the Services and the pods.
pub const TEST: &str = "test";

impl Cluster {
    /// Installs PureLB as its manifests do, and registers the nodes as their kubelets do.
    pub fn furnish(&self, nodes: &[Place]) -> Result<()> {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        for definition in crds() {
            let definition = serde_json::to_value(definition)?;
            self.create(definitions, &definition)?;
            let name = definition["metadata"]["name"].as_str().unwrap_or_default();
            // A folder of an older demo may have an older one.
            self.patch(&format!("{definitions}/{name}"), &json!({"spec": definition["spec"]}))?;
        }
        for name in [HOME, TEST] {
            self.create("/api/v1/namespaces", &json!({"metadata": {"name": name}}))?;
        }
        for node in nodes {
            self.create("/api/v1/nodes", &registered(node))?;
            self.set_ready(node, true)?;
            self.create(&format!("/api/v1/namespaces/{TEST}/pods"), &pod(node.number, node.number))?;
        }
        self.create(&format!("/apis/purelb.io/v2/namespaces/{HOME}/lbnodeagents"), &agents())?;
        self.create(&format!("/apis/bgp.purelb.io/v1/namespaces/{HOME}/configs"), &routing())?;
        self.create(&format!("/apis/apps/v1/namespaces/{HOME}/daemonsets"), &daemons())
    }

    /// What a kubelet reports, or the cluster about a node it does not hear of.
    pub fn set_ready(&self, node: &Place, ready: bool) -> Result<()> {
        let addresses = [node.v4.to_string(), node.v6.to_string()];
        let addresses = addresses.map(|address| json!({"type": "InternalIP", "address": address}));
        let condition = json!({"type": "Ready", "status": if ready { "True" } else { "Unknown" }});
        let status = json!({"addresses": addresses, "conditions": [condition]});
        self.patch(&format!("/api/v1/nodes/{}/status", node.name), &json!({"status": status}))
    }
}

fn registered(node: &Place) -> Value {
    let labels = json!({"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, "labels": labels}})
}

/// The pod `kuard-NUMBER` on a node.
pub fn pod(number: u8, node: u8) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("kuard-{number}"), "namespace": TEST, "labels": {"app": "kuard"}},
        "spec": {
            "nodeName": format!("node{node}"),
            "containers": [{"name": "kuard", "image": "kuard", "ports": [{"containerPort": 8080}]}],
        },
    })
}

fn agents() -> Value {
    json!({
        "apiVersion": "purelb.io/v2",
        "kind": "LBNodeAgent",
        "metadata": {"name": "default"},
        "spec": {"local": {"localInterface": "default", "dummyInterface": "kube-lb0"}},
    })
}

/// Each node speaks BGP to the router, over IPv4 about IPv4 and over IPv6 about IPv6.
fn routing() -> Value {
    let neighbour = |address: &str, family: &str| {
        json!({
            "config": {"neighborAddress": address, "peerAsn": ROUTER_AS},
            "afiSafis": [{"family": family, "enabled": true}],
            "timers": {"config": {"connectRetry": 1, "holdTime": 3, "keepaliveInterval": 1}},
        })
    };
    let neighbours = [neighbour("192.168.7.1", "ipv4-unicast"), neighbour("fd00:7::1", "ipv6-unicast")];
    json!({
        "apiVersion": "bgp.purelb.io/v1",
        "kind": "BGPConfiguration",
        "metadata": {"name": "default"},
        "spec": {
            "global": {"asn": NODE_AS},
            "neighbors": neighbours,
            "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb0"]},
        },
    })
}

fn daemons() -> Value {
    let labels = json!({"app.kubernetes.io/component": "lbnodeagent"});
    let pod = json!({"containers": [{"name": "lbnodeagent", "image": "purelb"}], "hostNetwork": true});
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "lbnodeagent"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    })
}
