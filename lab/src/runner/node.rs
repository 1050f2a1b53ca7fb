//! What a kubelet says about its node: that it is there, its addresses, that it is ready, that it is alive.

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{Seat, Shop};
use crate::cluster::addresses;

/// As long as a kubelet's.
const LEASE_SECONDS: u32 = 40;

/// Registers the node if nobody knows it, and says that it is ready: also where the cluster has given it up meanwhile.
pub(super) async fn assert_ready(shop: &Shop) -> Result<()> {
    let nodes: Api<Node> = Api::all(shop.client.clone());
    let seat = &shop.seat;
    let mut known = nodes.get_opt(&seat.name).await?;
    if known.is_none() {
        known = Some(nodes.create(&PostParams::default(), &serde_json::from_value(object(seat))?).await?);
        shop.journal.tell("the node is registered");
    }
    // A status that says what we would say is left alone: everybody who watches nodes would be told of the change.
    if !known.as_ref().is_some_and(is_ready) {
        // Not a strategic patch: it takes two addresses of one type for one, and is refused.
        nodes.patch_status(&seat.name, &PatchParams::default(), &Patch::Merge(status(seat))).await?;
        shop.journal.tell("the node has said that it is ready");
    }
    let leases: Api<Lease> = Api::namespaced(shop.client.clone(), "kube-node-lease");
    let apply = PatchParams::apply("lab-runner").force();
    leases.patch(&seat.name, &apply, &Patch::Apply(lease(seat))).await?;
    Ok(())
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn object(seat: &Seat) -> Value {
    let (v4, v6) = addresses::pod_networks(seat.number);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": seat.name, "labels": {
            "kubernetes.io/hostname": seat.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        }},
        "spec": {"podCIDR": v4, "podCIDRs": [v4, v6]},
    })
}

fn status(seat: &Seat) -> Value {
    let room = json!({"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "20Gi"});
    let now = Timestamp::now();
    json!({"status": {
        "addresses": [
            {"type": "InternalIP", "address": seat.v4},
            {"type": "InternalIP", "address": seat.v6},
            {"type": "Hostname", "address": seat.name},
        ],
        "capacity": room,
        "allocatable": room,
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "RunnerReady",
            "message": "the lab's runner is at work",
            "lastHeartbeatTime": format!("{now:.0}"),
        }],
        "nodeInfo": {
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "operatingSystem": "linux",
            "osImage": "a network namespace",
            "kernelVersion": "",
            "containerRuntimeVersion": "purelb-lab://1",
            "kubeletVersion": "v1.36.3",
            "kubeProxyVersion": "",
            "machineID": seat.name,
            "systemUUID": seat.name,
            "bootID": seat.name,
        },
    }})
}

fn lease(seat: &Seat) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": seat.name},
        "spec": {
            "holderIdentity": seat.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format!("{:.6}", Timestamp::now()),
        },
    })
}
