//! A control plane, one node with an agent on it, and a hand that writes what an allocator would.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use purelb_lab::daemon::Account;
use purelb_lab::net::{Lan, Namespace, relay};
use purelb_lab::{ControlPlane, Daemon};
use serde_json::json;

/// Where PureLB is installed.
const HOME: &str = "purelb-system";
/// Where the Services are.
const PLACE: &str = "load";
/// Where the node finds the API server.
const DOOR: &str = "192.168.7.2:6443";
/// How many requests are under way at once.
const AT_ONCE: usize = 32;
/// Longer than anything here takes, so that a defect ends the run.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Site {
    _plane: ControlPlane,
    pub client: Client,
    pub node: Namespace,
    /// The agent's rights, at the node's own door to the API server.
    pub account: Account,
    _lan: (Lan, Namespace),
}

impl Site {
    pub async fn start() -> Result<Self> {
        let plane = ControlPlane::start().await?;
        let client = plane.client()?;
        install(&plane).await?;
        let lan = Lan::new()?;
        let (node, control) = (Namespace::new("node-a")?, Namespace::new("control")?);
        lan.plug(&node, "eth0", &["192.168.7.11/24"])?;
        node.batch("route add default via 192.168.7.1\n")?;
        lan.plug(&control, "eth0", &["192.168.7.2/24"])?;
        let account = Account::of(&plane, HOME, "lbnodeagent").await?;
        relay::open(&control, DOOR.parse()?, account.server())?;
        let account = account.at(DOOR.parse()?);
        Ok(Self { _plane: plane, client, node, account, _lan: (lan, control) })
    }

    /// Starts the agent and waits until it has done what there is to do.
    pub async fn agent(&self) -> Result<Daemon> {
        let arguments = ["agent", "--node-name", "node-a", "--namespace", HOME, "--on-stop", "leave"];
        let daemon = Daemon::start_in(&self.node, &self.account, &arguments, &[("DEFAULT_ANNOUNCER", "PureLB")])?;
        let there = || self.node.ip(&["-j", "link", "show", "dev", "kube-lb0"]).is_ok();
        let deadline = Instant::now() + PATIENCE;
        while !there() {
            ensure!(!daemon.has_ended() && Instant::now() < deadline, "the agent does not start:\n{}", daemon.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(daemon)
    }

    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), PLACE)
    }

    /// A Service that waits for its address.
    pub async fn create(&self, name: &str) -> Result<()> {
        let service = json!({
            "metadata": {"name": name, "annotations": {
                "purelb.io/service-group": "remote",
                "purelb.io/allocated-by": "PureLB",
                "purelb.io/allocated-from": "remote",
            }},
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": "purelb.io/purelb",
                "allocateLoadBalancerNodePorts": false,
                "selector": {"app": name},
                "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}],
            },
        });
        let service = serde_json::from_value(service)?;
        self.services()
            .create(&PostParams::default(), &service)
            .await
            .with_context(|| format!("cannot create {name}"))?;
        Ok(())
    }

    /// Gives a Service its address.
    pub async fn assign(&self, name: &str, address: Ipv4Addr) -> Result<()> {
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}});
        self.services().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(())
    }

    /// Many Services with addresses, from this number on.
    pub async fn fill(&self, from: u32, count: u32) -> Result<()> {
        let one = async |number: u32| {
            let name = format!("many-{number}");
            self.create(&name).await?;
            self.assign(&name, address(number)).await
        };
        stream::iter(from..from + count).map(one).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Removes all Services.
    pub async fn clear(&self) -> Result<()> {
        self.services().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        Ok(())
    }

    /// Waits until this many addresses are on the virtual interface.
    pub async fn applied(&self, count: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.node.ip(&["-j", "-4", "addr", "show", "dev", "kube-lb0"])?;
            let there = shown[0]["addr_info"].as_array().map_or(0, Vec::len);
            if there == count {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{there} of {count} addresses are there");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// The address of a Service, in the group's range.
pub fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 128, 0, 1)) + number)
}

async fn install(plane: &ControlPlane) -> Result<()> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    for namespace in [HOME, PLACE] {
        kubectl(plane, &["create", "namespace", namespace]).await?;
    }
    for path in ["crds", "rbac/agent.yaml"] {
        kubectl(plane, &["apply", "-f", &deploy.join(path).display().to_string()]).await?;
    }
    kubectl(plane, &["wait", "--for=condition=Established", "crd", "--all"]).await?;
    let pool = json!({"subnet": "10.128.0.0/16", "pool": "10.128.0.0/16", "aggregation": "/32"});
    let objects = [
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}}),
        json!({
            "apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": {"name": "remote", "namespace": HOME},
            "spec": {"remote": {"v4pools": [pool]}},
        }),
        json!({
            "apiVersion": "purelb.io/v2", "kind": "LBNodeAgent", "metadata": {"name": "default", "namespace": HOME},
            "spec": {"local": {}},
        }),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), list.to_string())?;
    kubectl(plane, &["apply", "-f", &file.path().display().to_string()]).await
}

async fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> Result<()> {
    let output = plane.kubectl().args(arguments).output().await?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {} failed: {complaint}", arguments.join(" "));
    Ok(())
}
