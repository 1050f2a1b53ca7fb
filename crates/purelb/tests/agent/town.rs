//! A cluster in memory: nodes with pretended kernels, agents on them, an allocator, and somebody who watches that no local
//! address ever has two holders.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use purelb::agent::clock::Clock;
use purelb::agent::kernel::pretended::Pretended;
use purelb::agent::metrics::Metrics;
use purelb::agent::stop::OnStop;
use purelb::agent::{Settings, Timing, World};
use purelb::http::{Readiness, channel};
use purelb::{agent, allocator};
use purelb_api::{annotations, crds};
use purelb_core::addr::Family;
use purelb_core::alloc::Scope;
use purelb_core::links::{DefaultRoute, HeldAddr, Link, LinkKind, Links};
use purelb_kubelite::Kubelite;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::line::{Line, Weather};

/// Where PureLB is installed.
pub const HOME: &str = "purelb-system";
/// How the leases of the stories are timed: as shipped.
pub const TIMING: Timing = Timing::SHIPPED;

/// Who holds which local address, as of now, and whether there ever were two.
#[derive(Default)]
pub struct Holders {
    now: BTreeMap<IpAddr, BTreeSet<String>>,
    on_virtual: BTreeMap<String, BTreeSet<IpAddr>>,
    pub violations: Vec<String>,
    /// Addresses that left an interface: when, which node, which address.
    pub losses: Vec<(Duration, String, IpAddr)>,
}

impl Holders {
    /// A node's kernel shows this.
    fn see(&mut self, node: &str, links: &Links, when: Duration) {
        let nics = links.by_index.values().filter(|link| link.name.starts_with("eth"));
        let shown = nics.flat_map(|link| &link.addrs).map(|held| held.addr);
        let held: BTreeSet<IpAddr> = shown.filter(|addr| is_pooled(*addr)).collect();
        for (addr, nodes) in &mut self.now {
            if !held.contains(addr) && nodes.remove(node) {
                self.losses.push((when, node.to_owned(), *addr));
            }
        }
        let lb = links.by_index.values().filter(|link| link.name == "kube-lb0").flat_map(|link| &link.addrs);
        let lb: BTreeSet<IpAddr> = lb.map(|held| held.addr).collect();
        let before = self.on_virtual.insert(node.to_owned(), lb.clone()).unwrap_or_default();
        self.losses.extend(before.difference(&lb).map(|addr| (when, node.to_owned(), *addr)));
        for addr in held {
            let nodes = self.now.entry(addr).or_default();
            nodes.insert(node.to_owned());
            if nodes.len() > 1 {
                self.violations.push(format!("at {when:?} {addr} is on {nodes:?}"));
            }
        }
    }
}

/// One machine.
pub struct TownNode {
    pub name: String,
    /// Its machine, which has the name of the node unless two machines believe to be one node.
    pub machine: String,
    pub kernel: Pretended,
    pub weather: watch::Sender<Weather>,
    pub writes: Arc<Mutex<Vec<(Method, String)>>>,
    /// How wrong its wall clock is.
    pub skew: SignedDuration,
    /// What the agent of the day counts.
    registry: Registry,
    line: Client,
    agent: Option<Agent>,
    runs: u32,
    pub on_stop: OnStop,
}

struct Agent {
    stop: watch::Sender<bool>,
    paused: watch::Sender<bool>,
    /// The weather that there will be when it goes on.
    after: Option<Weather>,
    task: JoinHandle<Result<(), String>>,
}

/// The whole cluster.
pub struct Town {
    pub client: Client,
    pub clock: Clock,
    pub nodes: Vec<TownNode>,
    pub holders: Arc<Mutex<Holders>>,
    server: Kubelite,
    allocator: JoinHandle<()>,
}

impl Drop for Town {
    fn drop(&mut self) {
        self.allocator.abort();
    }
}

impl Town {
    /// A cluster with this many nodes on one LAN, agents not started yet, and the default LBNodeAgent.
    pub async fn new(nodes: u8) -> Result<Self> {
        let server = Kubelite::new();
        let client = server.client();
        for crd in crds() {
            Api::<CustomResourceDefinition>::all(client.clone()).create(&PostParams::default(), &crd).await?;
        }
        let allocator = tokio::spawn(allocate(client.clone()));
        let clock = Clock::new();
        let mut town = Self { client, clock, nodes: Vec::new(), holders: Arc::default(), server, allocator };
        for namespace in [HOME, "test"] {
            town.create(
                "namespaces",
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            )
            .await?;
        }
        town.node_agent("default", json!({"local": {"localInterface": "default", "dummyInterface": "kube-lb0"}}))
            .await?;
        for number in 1..=nodes {
            town.add_node(number).await?;
        }
        Ok(town)
    }

    /// The same with all agents started and ready.
    pub async fn running(nodes: u8) -> Result<Self> {
        let mut town = Self::new(nodes).await?;
        for i in 0..town.nodes.len() {
            town.start(i);
        }
        town.until("all leases are there", async |town| {
            Ok((town.leases().await?.len() == town.nodes.len()).then_some(()))
        })
        .await?;
        Ok(town)
    }

    async fn add_node(&mut self, number: u8) -> Result<()> {
        let name = format!("node{number}");
        let addresses = json!([{"type": "InternalIP", "address": format!("192.168.7.{}", 10 + number)}]);
        let metadata = json!({"name": name, "labels": {"kubernetes.io/hostname": name}});
        let object =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"addresses": addresses}});
        self.create("nodes", object).await?;
        self.add_machine(&name, &name, number);
        Ok(())
    }

    /// A machine that believes to be this node; its agent is not started yet.
    pub fn add_machine(&mut self, machine: &str, node: &str, number: u8) {
        let (machine, name) = (machine.to_owned(), node.to_owned());
        let (holders, clock, me) = (self.holders.clone(), self.clock, machine.clone());
        let observer = move |links: &Links| {
            holders.lock().expect("nobody panics with it").see(&me, links, clock.now().0);
        };
        let (weather, line) = watch::channel(Weather::Fair);
        let writes: Arc<Mutex<Vec<_>>> = Arc::default();
        let line = Line { server: self.server.clone(), weather: line, writes: writes.clone() };
        self.nodes.push(TownNode {
            name,
            machine,
            kernel: Pretended::new(links(number), self.clock, Box::new(observer)),
            weather,
            writes,
            skew: SignedDuration::ZERO,
            registry: Registry::default(),
            line: Client::new(line, "default"),
            agent: None,
            runs: 0,
            on_stop: OnStop::Auto,
        });
    }

    /// Waits until an agent has ended by itself; answers with why.
    pub async fn ended(&mut self, node: usize) -> Result<String> {
        let agent = self.nodes[node].agent.take().context("it runs")?;
        Ok(agent.task.await.context("the agent panicked")?.err().unwrap_or_default())
    }

    /// Starts the agent of a node.
    pub fn start(&mut self, node: usize) {
        let (clock, node) = (self.clock, &mut self.nodes[node]);
        node.runs += 1;
        let settings = Settings {
            namespace: HOME.to_owned(),
            node: node.name.clone(),
            instance: format!("{}-{}", node.machine, node.runs),
            host: node.machine.clone(),
            timing: TIMING,
            on_stop: node.on_stop,
        };
        let (kernel_news, kernel_orders) = node.kernel.plug();
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a date");
        let skew = node.skew;
        node.registry = Registry::default();
        let world = World {
            client: node.line.clone(),
            kernel_news,
            kernel_orders,
            clock,
            wall: Arc::new(move || start + skew + SignedDuration::try_from(clock.now().0).expect("short")),
            guarded: watch::channel(BTreeMap::new()).1,
            questions: channel().1,
            metrics: Metrics::new(&mut node.registry),
            readiness: Readiness::default(),
        };
        let (stop, stopped) = watch::channel(false);
        let (paused, standing_still) = watch::channel(false);
        let running = async move { agent::run(world, settings, stopped).await.map_err(|error| error.to_string()) };
        let task = tokio::spawn(pausable(running, standing_still));
        node.agent = Some(Agent { stop, paused, after: None, task });
    }

    /// As SIGSTOP would: the agent sees no time pass, and what it has begun to write to the kernel or to the API server is
    /// written when it goes on.
    pub fn pause(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let Some(agent) = node.agent.as_mut().filter(|agent| agent.after.is_none()) else { return };
        agent.paused.send_replace(true);
        node.kernel.hold();
        agent.after = Some(node.weather.send_replace(Weather::Late));
    }

    /// As SIGCONT would: first what was begun is done, then the agent looks at the clock.
    pub fn resume(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        let Some(agent) = &mut node.agent else { return };
        node.kernel.go_on();
        agent.after.take().inspect(|after| _ = node.weather.send_replace(*after));
        agent.paused.send_replace(false);
    }

    pub fn is_paused(&self, node: usize) -> bool {
        self.nodes[node].agent.as_ref().is_some_and(|agent| agent.after.is_some())
    }

    /// What happens between a node and the API server from now on, or once its agent goes on.
    pub fn weather(&mut self, node: usize, weather: Weather) {
        let node = &mut self.nodes[node];
        match node.agent.as_mut().and_then(|agent| agent.after.as_mut()) {
            Some(after) => *after = weather,
            None => drop(node.weather.send_replace(weather)),
        }
    }

    /// Whether a node's agent shows this line on its page of metrics.
    pub fn counts(&self, node: usize, line: &str) -> Result<bool> {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.nodes[node].registry)?;
        Ok(page.lines().any(|shown| shown == line))
    }

    /// As SIGKILL would: nothing is told to anybody, and the kernel keeps what it has.
    pub fn kill(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        if let Some(agent) = node.agent.take() {
            agent.task.abort();
            agent.after.inspect(|after| _ = node.weather.send_replace(*after));
        }
    }

    /// Kills an agent at a time that is told, while others go on with the town.
    pub fn end_of(
        &mut self,
        node: usize,
        when: tokio::sync::oneshot::Receiver<()>,
    ) -> impl Future<Output = ()> + use<> {
        let agent = self.nodes[node].agent.take();
        async move {
            let _ = when.await;
            agent.inspect(|agent| agent.task.abort());
        }
    }

    /// As SIGTERM would; who stands still has to go on to see it.
    pub async fn stop(&mut self, node: usize) -> Result<()> {
        if self.is_paused(node) {
            self.resume(node);
        }
        let Some(agent) = self.nodes[node].agent.take() else { return Ok(()) };
        agent.stop.send_replace(true);
        agent.task.await.context("the agent panicked")?.map_err(anyhow::Error::msg)
    }

    pub fn is_running(&self, node: usize) -> bool {
        self.nodes[node].agent.is_some()
    }

    /// The address of a Service in a family, once it has one.
    pub async fn address(&self, service: &str, family: Family) -> Result<IpAddr> {
        self.until(&format!("{service} has an {family} address"), async |town| {
            let shown = town.shown(service).await?;
            let ingress = shown["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
            let addrs = ingress.iter().filter_map(|entry| entry["ip"].as_str()?.parse::<IpAddr>().ok());
            Ok(addrs.into_iter().find(|addr| Family::of(*addr) == family))
        })
        .await
    }

    /// What a node's kernel shows on an interface beside its own addresses: `address/prefix`, in order.
    pub fn on(&self, node: usize, link: &str) -> Vec<String> {
        let links = self.nodes[node].kernel.links();
        let link = links.by_index.values().find(|shown| shown.name == link);
        let kernels = |addr: IpAddr| addr.to_string().starts_with("fe80:");
        let own = |addr: IpAddr| kernels(addr) || own_v4(node) == Some(addr) || own_v6(node) == Some(addr);
        let mut held: Vec<_> = link
            .iter()
            .flat_map(|link| &link.addrs)
            .filter(|held| !own(held.addr))
            .map(|held| format!("{}/{}", held.addr, held.prefix))
            .collect();
        held.sort();
        held
    }

    /// The nodes that hold a local address.
    pub fn holders_of(&self, addr: IpAddr) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|node| self.on(*node, "eth0").iter().any(|held| held.starts_with(&format!("{addr}/"))))
            .collect()
    }

    /// Waits until exactly one node holds a local address; answers with it.
    pub async fn holder(&self, addr: IpAddr) -> Result<usize> {
        self.until(&format!("one node holds {addr}"), async |town| {
            let holders = town.holders_of(addr);
            Ok((holders.len() == 1).then(|| holders[0]))
        })
        .await
    }

    /// Asks again and again until there is an answer, for up to a minute of the town's time.
    pub async fn until<T: Debug>(&self, what: &str, mut ask: impl AsyncFnMut(&Town) -> Result<Option<T>>) -> Result<T> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(answer) = ask(self).await? {
                return Ok(answer);
            }
            if tokio::time::Instant::now() > deadline {
                bail!("it never came true that {what}; {}", self.describe().await?);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// When and where an address left an interface.
    pub fn losses_of(&self, addr: IpAddr) -> Vec<(Duration, String)> {
        let holders = self.holders.lock().expect("nobody panics with it");
        let losses = holders.losses.iter().filter(|(_, _, lost)| *lost == addr);
        losses.map(|(when, node, _)| (*when, node.clone())).collect()
    }

    /// Waits until every node has exactly these on `kube-lb0`.
    pub async fn everywhere(&self, addrs: &[&str]) -> Result<()> {
        self.until(&format!("{addrs:?} on every kube-lb0"), async |town| {
            Ok((0..town.nodes.len()).all(|node| town.on(node, "kube-lb0") == addrs).then_some(()))
        })
        .await
    }

    /// Waits until an Event with this reason and part of its message is told about an object.
    pub async fn told(&self, about: &str, reason: &str, part: &str) -> Result<String> {
        self.until(&format!("{about} is told {reason}: {part}"), async |town| {
            let events = town.events(about).await?;
            Ok(events
                .into_iter()
                .find(|(found, message)| found == reason && message.contains(part))
                .map(|(_, message)| message))
        })
        .await
    }

    /// Fails if a local address ever had two holders.
    pub fn check(&self) -> Result<()> {
        let violations = &self.holders.lock().expect("nobody panics with it").violations;
        if !violations.is_empty() {
            bail!("two holders: {violations:#?}");
        }
        Ok(())
    }

    async fn describe(&self) -> Result<String> {
        let mut text = format!("at {:?}\n", self.clock.now().0);
        for (i, node) in self.nodes.iter().enumerate() {
            let running = node.agent.as_ref().map(|agent| agent.task.is_finished());
            text += &format!(
                "{} (ended: {running:?}): eth0 {:?} kube-lb0 {:?}\n",
                node.name,
                self.on(i, "eth0"),
                self.on(i, "kube-lb0")
            );
        }
        for lease in self.leases().await? {
            text += &format!("{:?} {:?}\n", lease.metadata.name, lease.metadata.annotations);
        }
        let services = self.services().list(&ListParams::default()).await?;
        for service in services.items {
            text += &format!(
                "{}\n",
                json!({"name": service.metadata.name, "annotations": service.metadata.annotations, "status": service.status})
            );
        }
        Ok(text)
    }
}

/// The LAN's pools begin where the nodes' own addresses have long ended.
fn is_pooled(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => v4.octets()[3] >= 100,
        IpAddr::V6(v6) => v6.segments()[7] >= 0x100,
    }
}

fn own_v4(node: usize) -> Option<IpAddr> {
    format!("192.168.7.{}", 11 + node).parse().ok()
}

fn own_v6(node: usize) -> Option<IpAddr> {
    format!("fd00:7::{}", 11 + node).parse().ok()
}

/// A node's interfaces as its operator made them: a loopback, and a NIC with one address of each family.
fn links(number: u8) -> Links {
    let held = |text: String, prefix| HeldAddr::plain(text.parse().expect("an address"), prefix);
    let link = |name: &str, kind, addrs| Link {
        name: name.to_owned(),
        kind,
        up: true,
        carrier: true,
        mac: Some([2, 0, 0, 0, 0, number]),
        promote_secondaries: Some(false),
        addrs,
    };
    let own = 10 + number;
    let lan = vec![held(format!("192.168.7.{own}"), 24), held(format!("fd00:7::{own}"), 64)];
    let route = |family, gateway: &str| DefaultRoute { family, metric: 100, link: 2, gateway: gateway.parse().ok() };
    Links {
        by_index: [
            (1, link("lo", LinkKind::Loopback, vec![held("127.0.0.1".to_owned(), 8)])),
            (2, link("eth0", LinkKind::Other, lan)),
        ]
        .into(),
        default_routes: vec![route(Family::V4, "192.168.7.1"), route(Family::V6, "fd00:7::1")],
    }
}

/// An agent that is not looked at while it stands still.
async fn pausable<T>(agent: impl Future<Output = T>, mut paused: watch::Receiver<bool>) -> T {
    let mut agent = std::pin::pin!(agent);
    loop {
        let _ = paused.wait_for(|paused| !paused).await;
        let pausing = async {
            if paused.wait_for(|paused| *paused).await.is_err() {
                // Nobody is left to pause it.
                std::future::pending().await
            }
        };
        tokio::select! {
            biased;
            () = pausing => {}
            end = &mut agent => return end,
        }
    }
}

async fn allocate(client: Client) {
    let settings = allocator::Settings {
        namespace: HOME.to_owned(),
        scope: Scope { classes: vec![annotations::CLASS.to_owned()], default_announcer: true },
        replica: "allocator".to_owned(),
        timing: purelb::cluster::leader::Timing::default(),
    };
    let metrics = Arc::new(allocator::metrics::Metrics::new(&mut Registry::default()));
    let (_stop, stopped) = watch::channel(false);
    let ready = Readiness::default().register("the lease");
    allocator::lead(client, &settings, metrics, ready, channel().1, stopped).await;
}
