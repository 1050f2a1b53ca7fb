//! Three nodes and a client on one segment, with PureLB installed. Built once and handed from story to story.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use purelb_lab::daemon::Account;
use purelb_lab::net::{Lan, Namespace, relay};
use purelb_lab::stories::{Past, PatchType};
use purelb_lab::{ControlPlane, Daemon, Ground};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::node::Node;

static SERVER: OnceCell<Result<ControlPlane>> = OnceCell::const_new();

/// Where PureLB is installed.
pub const HOME: &str = "purelb-system";
/// Short, so that a story need not wait long for a node that was killed.
pub const LEASE: Duration = Duration::from_secs(3);
/// The names of the nodes.
pub const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];
/// Where the nodes find the API server: on their segment, so that a node without a wire has no API server either.
const DOOR: &str = "192.168.7.2:6443";
/// The same for a node without IPv4.
const DOOR_V6: &str = "[fd00:7::2]:6443";

pub struct Site {
    pub plane: &'static ControlPlane,
    pub lan: Lan,
    pub nodes: Vec<Node>,
    pub client: Namespace,
    /// With the rights of the agents.
    pub account: Account,
    /// The same over IPv6.
    pub account_v6: Account,
    /// Where the nodes find the API server.
    pub control: Namespace,
    _allocator: Daemon,
}

impl Site {
    /// A site with all its wires, and agents that are about to start.
    pub async fn build() -> Result<Self> {
        let plane = SERVER.get_or_init(prepared).await.as_ref().map_err(|error| anyhow!("{error:#}"))?;
        let ground = Ground::fresh(plane.client()?, Past::default()).await?;
        ground.delete(&format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases")).await?;
        let lan = Lan::new()?;
        let client = Namespace::new("client")?;
        lan.plug(&client, "eth0", &["192.168.7.1/24", "fd00:7::1/64"])?;
        let control = Namespace::new("control")?;
        lan.plug(&control, "eth0", &["192.168.7.2/24", "fd00:7::2/64"])?;
        let rights = Account::of(plane, HOME, "lbnodeagent").await?;
        for door in [DOOR, DOOR_V6] {
            relay::open(&control, door.parse()?, rights.server())?;
        }
        let (account, account_v6) = (rights.at(DOOR.parse()?), rights.at(DOOR_V6.parse()?));
        let mut nodes = Vec::new();
        for (name, number) in NODES.into_iter().zip(11..) {
            nodes.push(Node::new(&lan, name, number)?);
        }
        for node in &mut nodes {
            node.start(&account)?;
        }
        let allocator = allocator(plane).await?;
        Ok(Self { plane, lan, nodes, client, account, account_v6, control, _allocator: allocator })
    }

    pub fn node(&self, name: &str) -> Result<&Node> {
        self.nodes.iter().find(|node| node.name() == name).with_context(|| format!("there is no node {name}"))
    }

    pub fn node_mut(&mut self, name: &str) -> Result<&mut Node> {
        self.nodes.iter_mut().find(|node| node.name() == name).with_context(|| format!("there is no node {name}"))
    }

    /// Starts an agent where none runs.
    pub fn start(&mut self, name: &str) -> Result<()> {
        let account = self.account.clone();
        self.node_mut(name)?.start(&account)
    }

    /// The ends of all agents' logs.
    pub fn logs(&self) -> String {
        self.nodes.iter().map(Node::log).collect()
    }
}

async fn allocator(plane: &ControlPlane) -> Result<Daemon> {
    let account = Account::of(plane, HOME, "allocator").await?;
    let arguments = ["allocator", "--port", "0", "--namespace", HOME, "--lease-seconds", "2"];
    Daemon::start(&account, &arguments, &[("DEFAULT_ANNOUNCER", "PureLB"), ("HOSTNAME", "allocator-0")])
}

/// The API server with what an operator applies, and with what a cluster has anyway.
async fn prepared() -> Result<ControlPlane> {
    let plane = ControlPlane::start().await?;
    kubectl(&plane, &["create", "namespace", HOME]).await?;
    for path in ["crds", "rbac/allocator.yaml", "rbac/agent.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path);
        kubectl(&plane, &["apply", "-f", &path.display().to_string()]).await?;
    }
    let ground = Ground::fresh(plane.client()?, Past::default()).await?;
    for kind in ["v1/servicegroups", "v2/servicegroups", "v2/lbnodeagents"] {
        ground.served(&format!("/apis/purelb.io/{kind}")).await?;
    }
    for (name, number) in NODES.into_iter().zip(11..) {
        register(&ground, name, number).await?;
    }
    install(&ground).await?;
    Ok(plane)
}

/// What a kubelet does at its start.
pub async fn register(ground: &Ground, name: &str, number: u8) -> Result<()> {
    let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    ground.create("/api/v1/nodes", &node).await?;
    let addresses = [format!("192.168.7.{number}"), format!("fd00:7::{number}")];
    let addresses = addresses.map(|address| json!({"type": "InternalIP", "address": address}));
    let status = json!({"status": {"addresses": addresses}});
    ground.patch(&format!("/api/v1/nodes/{name}/status"), PatchType::Merge, &status).await?;
    Ok(())
}

/// The default configuration, and the DaemonSet that says: an agent that stops will be back.
async fn install(ground: &Ground) -> Result<()> {
    let agent = json!({
        "apiVersion": "purelb.io/v2",
        "kind": "LBNodeAgent",
        "metadata": {"name": "default"},
        "spec": {"local": {"localInterface": "default", "dummyInterface": "kube-lb0"}},
    });
    ground.create(&format!("/apis/purelb.io/v2/namespaces/{HOME}/lbnodeagents"), &agent).await?;
    let labels = json!({"app.kubernetes.io/component": "lbnodeagent"});
    let pod = json!({"containers": [{"name": "lbnodeagent", "image": "purelb"}], "hostNetwork": true});
    let set = json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "lbnodeagent"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    });
    ground.create(&format!("/apis/apps/v1/namespaces/{HOME}/daemonsets"), &set).await?;
    Ok(())
}

async fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> Result<()> {
    let output = plane.kubectl().args(arguments).output().await.context("cannot run kubectl")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {} failed: {complaint}", arguments.join(" "));
    Ok(())
}
