//! A whole cluster in network namespaces: Kubernetes' own programs, nodes, a router, and clients on both sides of it.
//!
//! ```text
//!   far client ── far LAN ── router ── LAN ──┬── node1 (kube-proxy, runner, Pods)
//!   192.168.8.100         192.168.7.1        ├── node2 …
//!   fd00:8::100           fd00:7::1          ├── client 192.168.7.100
//!                                            └── control 192.168.7.2: the door to the API server
//! ```
//!
//! etcd, the API server, the controllers and the scheduler run on the machine's loopback; whoever is on the LAN finds
//! the API server behind a door there. Everything ends with the [`Cluster`], or with its process however that ends.

pub mod addresses;
pub mod evidence;
pub mod keeper;
mod processes;
mod proxy;
mod wires;

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::Config;
use serde_json::Value;

use crate::ControlPlane;
use crate::control_plane::flags::Purpose;
use crate::control_plane::programs::Programs;
use crate::control_plane::watchdog::Watchdog;
use crate::net::{Namespace, Plug, relay};
use crate::router::{Make, Neighbour, Router, Settings as RouterSettings};
use crate::runner::images::{Images, Source};
use crate::runner::{Runner, Seat};
pub use proxy::Proxy;
use wires::Wires;

/// Generous: a busy machine of two cores may need a minute.
const UP_WITHIN: Duration = Duration::from_secs(180);
/// The AS of the router.
pub const ROUTER_AS: u32 = 64_513;
/// The AS of the nodes.
pub const NODES_AS: u32 = 64_512;

/// What a cluster should be like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many nodes.
    pub nodes: u8,
    /// What the router runs; without it, routes are the caller's.
    pub router: Option<Make>,
    /// How kube-proxy does its work.
    pub proxy: Proxy,
    /// What Pods can run, by the name of the image.
    pub images: BTreeMap<String, Source>,
    /// The program `lab`, which becomes containers.
    pub lab: PathBuf,
}

/// A node.
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its network.
    pub namespace: Namespace,
    /// Its end of the wire, to be cut.
    pub plug: Plug,
    /// Its number, from 1.
    pub number: u8,
    runner: Option<Runner>,
}

/// A running cluster.
pub struct Cluster {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Who runs on the router.
    pub router: Option<Router>,
    /// The API server.
    pub plane: ControlPlane,
    wires: Wires,
    folder: PathBuf,
    // Last, so that its programs and files outlive every other part.
    _watchdog: Watchdog,
}

impl Cluster {
    /// Builds a cluster and waits until every node is ready.
    ///
    /// # Errors
    /// When something does not start; the error says what, and shows the end of its log.
    pub async fn start(settings: &Settings) -> Result<Self> {
        let programs = Programs::find().await?;
        let folder = tempfile::Builder::new().prefix("purelb-lab-").tempdir().context("cannot make a folder")?;
        let mut watchdog = Watchdog::guard(folder.path())?;
        let folder = folder.keep();
        fs::create_dir(folder.join("logs"))?;
        let mut plane = ControlPlane::start_for(&programs, Purpose::Cluster(addresses::CONTROL.0.into())).await?;
        plane.start_controllers()?;
        let wires = Wires::lay()?;
        let server = format!("127.0.0.1:{}", plane.port());
        for door in [IpAddr::from(addresses::CONTROL.0), IpAddr::from(addresses::CONTROL.1)] {
            relay::open(&wires.control, (door, plane.port()).into(), &server)?;
        }
        let nodes = wires.nodes(settings.nodes)?;
        let proxy = proxy::Setup::new(&programs, &plane, settings.proxy)?;
        for node in &nodes {
            proxy.start(node, &folder, &mut watchdog)?;
        }
        wires.watch(&folder, &mut watchdog)?;
        let router =
            settings.router.map(|make| routed(make, &wires.router, &nodes, &folder.join("logs"))).transpose()?;
        let mut cluster = Self { nodes, router, plane, wires, folder, _watchdog: watchdog };
        cluster.staff(settings)?;
        if let Err(error) = cluster.until("every node is ready", UP_WITHIN, Self::is_up).await {
            let kept = cluster.keep_evidence("start").await?;
            return Err(error.context(format!("the cluster did not come up; evidence: {}", kept.display())));
        }
        Ok(cluster)
    }

    /// Puts a runner on every node.
    fn staff(&mut self, settings: &Settings) -> Result<()> {
        let images = Arc::new(Images::make(&self.folder.join("images"), &settings.images)?);
        let config = self.config_on_lan()?;
        for node in &mut self.nodes {
            let (v4, v6) = addresses::node(node.number);
            let folder = self.folder.join(&node.name);
            fs::create_dir_all(&folder)?;
            node.runner = Some(Runner::start(Seat {
                name: node.name.clone(),
                namespace: node.namespace.clone(),
                v4,
                v6,
                number: node.number,
                config: config.clone(),
                images: Arc::clone(&images),
                lab: settings.lab.clone(),
                folder,
                logs: self.folder.join("logs"),
            })?);
        }
        Ok(())
    }

    /// All rights, through the door on the nodes' segment.
    fn config_on_lan(&self) -> Result<Config> {
        let mut config = self.plane.config();
        let (door, _) = addresses::CONTROL;
        config.cluster_url = format!("https://{door}:{}", self.plane.port()).parse()?;
        Ok(config)
    }

    async fn is_up(&self) -> Result<bool> {
        let ready = r#"{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{.spec.taints}{end}"#;
        let nodes = self.kubectl(&["get", "nodes", "-o", &format!("jsonpath={ready}")]).await?;
        let account = self.kubectl(&["get", "serviceaccount", "default", "--ignore-not-found", "-o", "name"]).await?;
        ensure!(nodes == "True".repeat(self.nodes.len()), "the nodes say {nodes:?}");
        ensure!(!account.is_empty(), "the controllers have made no ServiceAccount");
        let late = self.nodes.iter().find(|node| !proxy::is_synced(&node.namespace));
        ensure!(late.is_none(), "kube-proxy has no rules yet on {:?}", late.map(|node| &node.name));
        Ok(true)
    }

    /// A node by its name.
    ///
    /// # Errors
    /// When there is none.
    pub fn node(&self, name: &str) -> Result<&Node> {
        self.nodes.iter().find(|node| node.name == name).with_context(|| format!("there is no node {name}"))
    }

    /// Everything that has a network, by name.
    #[must_use]
    pub fn places(&self) -> Vec<&Namespace> {
        let others = [&self.wires.router, &self.wires.client, &self.wires.far_client, &self.wires.control];
        self.nodes.iter().map(|node| &node.namespace).chain(others).collect()
    }

    /// The client on the nodes' own segment.
    #[must_use]
    pub fn client(&self) -> &Namespace {
        &self.wires.client
    }

    /// The client behind the router.
    #[must_use]
    pub fn far_client(&self) -> &Namespace {
        &self.wires.far_client
    }

    /// Puts another machine on the nodes' segment, with the addresses of [`addresses::guest`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn guest(&self, name: &str, host: u8) -> Result<Namespace> {
        self.wires.guest(name, host)
    }

    /// Starts routing software on a node. What it prints is with all other logs, also when it has ended.
    ///
    /// # Errors
    /// See [`Router::start`].
    pub fn route_on(&self, node: &Node, make: Make, config: &str) -> Result<Router> {
        Router::start_logged(make, &node.namespace, config, &self.logs())
    }

    /// The network of the router, whether or not a program runs there.
    #[must_use]
    pub fn router_network(&self) -> &Namespace {
        &self.wires.router
    }

    /// The folder with all logs: of the nodes' programs and of every container.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    /// What kubectl prints, with all rights.
    ///
    /// # Errors
    /// When it fails, with its words.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let output = self.plane.kubectl().args(arguments).output().await.context("cannot run kubectl")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {} failed: {complaint}", arguments.join(" "));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What kubectl prints with `-o json`.
    ///
    /// # Errors
    /// See [`Cluster::kubectl`].
    pub async fn object(&self, arguments: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&[&["get", "-o", "json"], arguments].concat()).await?)?)
    }

    /// Applies an object, or a list of them.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), object.to_string())?;
        self.apply_file(file.path()).await
    }

    /// Applies a manifest, as an operator does.
    ///
    /// # Errors
    /// When the API server refuses a part of it.
    pub async fn apply_file(&self, path: &Path) -> Result<()> {
        self.kubectl(&["apply", "-f", &path.display().to_string()]).await.map(drop)
    }

    /// Waits until something is so; an error while asking is an answer of no.
    ///
    /// # Errors
    /// When it is not so in time, with what was wrong when it was last asked.
    pub async fn until(&self, what: &str, within: Duration, holds: impl AsyncFn(&Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + within;
        loop {
            let answer = holds(self).await;
            if matches!(answer, Ok(true)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let why = answer.err().map_or(String::new(), |error| format!(": {error:#}"));
                bail!("within {within:?} it did not come true that {what}{why}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // All at once: each takes the time of its slowest Pod.
        let runners: Vec<Runner> = self.nodes.iter_mut().filter_map(|node| node.runner.take()).collect();
        runners.iter().for_each(Runner::stop);
    }
}

/// A router that takes what the nodes announce, each family in a session of its own.
fn routed(make: Make, namespace: &Namespace, nodes: &[Node], logs: &Path) -> Result<Router> {
    let mut neighbours = Vec::new();
    for node in nodes {
        let (v4, v6) = addresses::node(node.number);
        neighbours.push(Neighbour { v6: false, passive: true, ..Neighbour::new(v4.into(), NODES_AS) });
        neighbours.push(Neighbour { v4: false, passive: true, ..Neighbour::new(v6.into(), NODES_AS) });
    }
    let settings = RouterSettings { asn: ROUTER_AS, id: addresses::ROUTER.0, neighbours };
    Router::start_logged(make, namespace, &settings.text(make), logs)
}
