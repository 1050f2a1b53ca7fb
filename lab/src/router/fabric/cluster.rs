//! What an operator installs before the first agent starts, and what a cluster has anyway.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{NODES, v4, v6};
use crate::ControlPlane;

/// Where PureLB is installed.
pub const HOME: &str = "purelb-system";

/// An API server with the definitions, the rights, the default LBNodeAgent, the DaemonSet and the nodes.
///
/// # Errors
/// When the server does not start, or refuses a manifest.
pub async fn prepared() -> Result<ControlPlane> {
    let plane = ControlPlane::start().await?;
    kubectl(&plane, &["create", "namespace", HOME]).await?;
    for path in ["crds", "rbac/allocator.yaml", "rbac/agent.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path);
        kubectl(&plane, &["apply", "-f", &path.display().to_string()]).await?;
    }
    kubectl(&plane, &["wait", "--for=condition=Established", "crd", "--all"]).await?;
    let mut objects: Vec<Value> = NODES.into_iter().zip(11..).map(|(name, number)| node(name, number)).collect();
    objects.extend([default_agent(), daemon_set()]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), list.to_string())?;
    let file = file.path().display().to_string();
    kubectl(&plane, &["apply", "-f", &file]).await?;
    // `apply` leaves out what belongs to the status.
    for (name, number) in NODES.into_iter().zip(11..) {
        let status = json!({"status": node(name, number)["status"]}).to_string();
        kubectl(&plane, &["patch", "node", name, "--subresource", "status", "--type", "merge", "-p", &status]).await?;
    }
    Ok(plane)
}

fn node(name: &str, number: u8) -> Value {
    let addresses = [v4(number), v6(number)].map(|address| json!({"type": "InternalIP", "address": address}));
    let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"addresses": addresses},
    })
}

fn default_agent() -> Value {
    json!({
        "apiVersion": "purelb.io/v2",
        "kind": "LBNodeAgent",
        "metadata": {"name": "default", "namespace": HOME},
        "spec": {"local": {"localInterface": "default", "dummyInterface": "kube-lb0"}},
    })
}

/// It says: an agent that stops will be back.
fn daemon_set() -> Value {
    let labels = json!({"app.kubernetes.io/component": "lbnodeagent"});
    let pod = json!({"containers": [{"name": "lbnodeagent", "image": "purelb"}], "hostNetwork": true});
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "lbnodeagent", "namespace": HOME},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    })
}

async fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> Result<()> {
    let output = plane.kubectl().args(arguments).output().await.context("cannot run kubectl")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {} failed: {complaint}", arguments.join(" "));
    Ok(())
}
