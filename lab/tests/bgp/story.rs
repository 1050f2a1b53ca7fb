//! One story on a whole cluster: what a user writes, and what routers and the clients behind them then see.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use purelb_lab::daemon::Account;
use purelb_lab::router::Make;
use purelb_lab::router::fabric::{self, Fabric, Gate, HOME, Node};
use purelb_lab::stories::{Past, PatchType};
use purelb_lab::{ControlPlane, Daemon, Ground};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::clients::Server;

static PLANE: OnceCell<Result<ControlPlane>> = OnceCell::const_new();
static FABRIC: Mutex<Option<Fabric>> = Mutex::const_new(None);

/// Only a guard against waiting for ever: nodes read a changed password within half a minute.
const PATIENCE: Duration = Duration::from_secs(60);
/// The port of the services.
pub const PORT: u16 = 7000;

/// The cluster, as long as the story lasts. A story that fails leaves one that nobody trusts: the next builds anew.
pub struct Story {
    pub ground: Ground,
    fabric: MutexGuard<'static, Option<Fabric>>,
    allocator: Daemon,
    begun: Instant,
    name: &'static str,
    good: bool,
}

impl Story {
    /// A whole cluster without groups, Services and BGPConfigurations, whose nodes hold nothing.
    pub async fn begin(name: &'static str) -> Result<Self> {
        let mut fabric = FABRIC.lock().await;
        let begun = Instant::now();
        let plane = PLANE.get_or_init(fabric::prepared).await.as_ref().map_err(|error| anyhow!("{error:#}"))?;
        let ground = Ground::fresh(plane.client()?, Past::default()).await?;
        sweep(&ground).await?;
        if fabric.is_none() {
            ground.delete(&format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases")).await?;
            *fabric = Some(Fabric::new(plane, &Make::ALL).await?);
        }
        let allocator = allocator(plane).await?;
        let mut story = Self { ground, fabric, allocator, begun, name, good: false };
        story.fabric_mut().start_agents()?;
        let clean = async |story: &Self| {
            let idle = story.nodes().iter().map(is_idle).collect::<Result<Vec<_>>>()?;
            Ok(idle.into_iter().all(|idle| idle))
        };
        story.until("the nodes are ready, hold nothing and talk to no router", clean).await?;
        Ok(story)
    }

    /// Ends a story that went well.
    pub fn close(mut self) -> Result<()> {
        let logs = self.fabric().logs();
        ensure!(!logs.contains("panicked"), "an agent panicked\n{logs}");
        self.good = true;
        println!("{}: {:.1} s", self.name, self.begun.elapsed().as_secs_f64());
        Ok(())
    }

    pub fn allocator_log(&self) -> String {
        self.allocator.log()
    }

    pub fn fabric(&self) -> &Fabric {
        self.fabric.as_ref().expect("a story has a fabric")
    }

    pub fn fabric_mut(&mut self) -> &mut Fabric {
        self.fabric.as_mut().expect("a story has a fabric")
    }

    pub fn nodes(&self) -> &[Node] {
        &self.fabric().nodes
    }

    pub fn gates(&self) -> &[Gate] {
        &self.fabric().gates
    }

    /// The routers that forward packets.
    pub fn forwarding(&self) -> impl Iterator<Item = &Gate> {
        self.gates().iter().filter(|gate| gate.make != Make::GoBgp)
    }

    /// Waits until each of these routers reaches the prefix through exactly the nodes with these numbers.
    pub fn routed<G: std::borrow::Borrow<Gate>>(&self, gates: &[G], prefix: &str, nodes: &[usize]) -> Result<()> {
        let nodes: Vec<&Node> = nodes.iter().map(|number| &self.nodes()[*number]).collect();
        gates.iter().try_for_each(|gate| {
            let gate = gate.borrow();
            gate.has(prefix, &nodes).with_context(|| format!("{:?}\n{}", gate.make, self.fabric().logs()))
        })
    }

    /// Virtual addresses in both families, with these prefix lengths.
    pub async fn group(&self, name: &str, aggregation: [&str; 2]) -> Result<()> {
        self.group_in(name, aggregation, 22).await
    }

    /// The same from 172.22.0.0/24 and fc00:22::/64, or from other networks with this number in place of 22.
    pub async fn group_in(&self, name: &str, aggregation: [&str; 2], net: u8) -> Result<()> {
        let [v4, v6] = aggregation;
        let v4_pool = format!("172.{net}.0.10-172.{net}.0.25");
        let v6_pool = format!("fc00:{net}::10-fc00:{net}::25");
        let group = json!({
            "apiVersion": "purelb.io/v2",
            "kind": "ServiceGroup",
            "metadata": {"name": name, "namespace": HOME},
            "spec": {"remote": {
                "v4pools": [{"aggregation": v4, "pool": v4_pool, "subnet": format!("172.{net}.0.0/24")}],
                "v6pools": [{"aggregation": v6, "pool": v6_pool, "subnet": format!("fc00:{net}::/64")}],
            }},
        });
        self.ground.create(&format!("/apis/purelb.io/v2/namespaces/{HOME}/servicegroups"), &group).await?;
        Ok(())
    }

    /// A Service in both families; returns its addresses, IPv4 first.
    pub async fn service(&self, name: &str, group: &str, policy: &str) -> Result<[IpAddr; 2]> {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "annotations": {"purelb.io/service-group": group}},
            "spec": {
                "type": "LoadBalancer",
                "externalTrafficPolicy": policy,
                "ipFamilyPolicy": "RequireDualStack",
                "ipFamilies": ["IPv4", "IPv6"],
                "ports": [{"port": PORT}],
            },
        });
        self.ground.create(&self.ground.core("services"), &service).await?;
        let mut found = Vec::new();
        self.until(&format!("{name} has both addresses"), async |story| {
            found = story.ingress(name).await?;
            Ok(found.len() == 2)
        })
        .await?;
        Ok([found[0], found[1]])
    }

    async fn ingress(&self, name: &str) -> Result<Vec<IpAddr>> {
        let shown = self.ground.get(&self.ground.core(&format!("services/{name}"))).await?;
        let ingress = shown["status"]["loadBalancer"]["ingress"].as_array();
        let texts = ingress.into_iter().flatten().filter_map(|entry| entry["ip"].as_str());
        Ok(texts.map(str::parse).collect::<Result<_, _>>()?)
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        self.ground.delete(&self.ground.core(&format!("services/{name}"))).await?;
        Ok(())
    }

    /// The pods of a Service are on these nodes, and nowhere else.
    pub async fn pods(&self, service: &str, nodes: &[&str]) -> Result<()> {
        let endpoints: Vec<Value> = nodes
            .iter()
            .zip(1..)
            .map(|(node, number)| json!({"addresses": [format!("10.1.0.{number}")], "nodeName": node}))
            .collect();
        let name = format!("{service}-1");
        let path = self.ground.group("discovery.k8s.io/v1", &format!("endpointslices/{name}"));
        match self.ground.get(&path).await {
            Ok(_) => self.ground.patch(&path, PatchType::Merge, &json!({"endpoints": endpoints})).await?,
            Err(_) => {
                let slice = json!({
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {"name": name, "labels": {"kubernetes.io/service-name": service}},
                    "addressType": "IPv4",
                    "endpoints": endpoints,
                    "ports": [{"port": 8080}],
                });
                self.ground.create(&self.ground.group("discovery.k8s.io/v1", "endpointslices"), &slice).await?
            }
        };
        Ok(())
    }

    /// A back-end on every node, which answers with the node's name.
    pub fn serve(&self) -> Result<Vec<Server>> {
        self.nodes().iter().map(|node| Server::start(&node.namespace, PORT)).collect()
    }

    /// Three hundred connections from behind each router that forwards: each of the nodes has a fair part of them.
    pub fn spread(&self, address: IpAddr) -> Result<()> {
        for gate in self.forwarding() {
            let shares: BTreeMap<String, usize> = crate::clients::connect(&gate.client, address, 300)?;
            println!("{address} through {:?}: {shares:?}", gate.make);
            for node in self.nodes() {
                let share = shares.get(node.name()).copied().unwrap_or_default();
                assert!(share >= 60, "{} has {share} of 300 connections through {:?}", node.name(), gate.make);
            }
        }
        Ok(())
    }

    /// Asks again and again. In the end the agents' logs tell why not.
    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self).await? {
            if Instant::now() > deadline {
                bail!("it never came true that {what}\n{}", self.fabric().logs());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        if !self.good {
            *self.fabric = None;
        }
    }
}

fn is_idle(node: &Node) -> Result<bool> {
    let ready = node.ask("/readyz").is_ok_and(|answer| answer.contains("ok"));
    Ok(ready && node.virtual_addresses()?.is_empty() && node.bgp_listeners()?.is_empty())
}

/// What an agent shows on its debug socket.
pub fn debug_state(agent: &Daemon) -> Result<String> {
    let mut stream = UnixStream::connect(agent.debug_socket()).context("no debug socket")?;
    write!(stream, "GET /debug/state HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Removes what an earlier story left.
async fn sweep(ground: &Ground) -> Result<()> {
    for kinds in [
        format!("purelb.io/v2/namespaces/{HOME}/servicegroups"),
        format!("bgp.purelb.io/v1/namespaces/{HOME}/configs"),
        "bgp.purelb.io/v1/bgpnodestatuses".to_owned(),
    ] {
        match ground.delete(&format!("/apis/{kinds}")).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer?),
        }
    }
    let services = ground.get("/api/v1/services?fieldSelector=spec.type=LoadBalancer").await?;
    for service in services["items"].as_array().into_iter().flatten() {
        let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default().to_owned();
        ground.delete(&format!("/api/v1/namespaces/{}/services/{}", text("namespace"), text("name"))).await?;
    }
    Ok(())
}

async fn allocator(plane: &ControlPlane) -> Result<Daemon> {
    let account = Account::of(plane, HOME, "allocator").await?;
    let arguments = ["allocator", "--port", "0", "--namespace", HOME, "--lease-seconds", "2"];
    Daemon::start(&account, &arguments, &[("DEFAULT_ANNOUNCER", "PureLB"), ("HOSTNAME", "allocator-0")])
}
