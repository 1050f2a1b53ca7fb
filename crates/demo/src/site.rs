//! Everything that runs: nodes, router, clients, the cluster's API and the daemons of PureLB.

pub mod node;
pub mod plan;

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result, anyhow, ensure};
use purelb_net::{Lan, Namespace, own_process};

use crate::cluster::{Cluster, HOME};
use crate::keeper;
use crate::process::Process;
use crate::router::Router;
use crate::sandbox;
use crate::show::{Show, quoted};
use node::Node;
use plan::Place;

/// How many allocators there are.
const ALLOCATORS: usize = 2;
/// How long a leadership lasts without renewal, so that the demo need not wait long for the next.
pub const LEADER_SECONDS: &str = "3";

/// All of it.
pub struct Site {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The router.
    pub router: Router,
    /// A client behind the router.
    pub client: Namespace,
    /// A client on the nodes' segment.
    pub desk: Namespace,
    /// The cluster's API.
    pub cluster: Arc<Cluster>,
    /// The allocators, by their names.
    allocators: Vec<(String, Option<Process>)>,
    control: Namespace,
    program: PathBuf,
    folder: PathBuf,
    _lans: [Lan; 2],
}

impl Site {
    /// Builds and starts everything. What does not depend on each other is built side by side: most of the time is spent
    /// waiting for wires.
    pub fn build(folder: &Path, nodes: u8, data: Option<&Path>, show: &mut Show) -> Result<Self> {
        show.line(&format!("PureLB on one machine: {nodes} nodes, a router, two clients, no Kubernetes"));
        show.progress("... building the machines");
        let program = program()?;
        let places: Vec<Place> = (1..=nodes).map(Place::of).collect();
        let (inside, outside) = (Lan::new()?, Lan::new()?);
        let control =
            machine(&inside, "control", &plan::CONTROL, &places.iter().map(Place::routes).collect::<String>())?;
        let (cluster, router, clients, nodes) = thread::scope(|scope| {
            let cluster = scope.spawn(|| furnished(folder, &control, &places, data));
            let router = scope.spawn(|| Router::start(folder, &inside, &outside, &places));
            let clients = scope.spawn(|| clients(&inside, &outside));
            let nodes = raise(&inside, &places, folder);
            Ok::<_, anyhow::Error>((joined(cluster)?, joined(router)?, joined(clients)?, nodes?))
        })?;
        let grounds = nodes.iter().map(|node| (node.place.clone(), node.namespace.clone())).collect();
        keeper::start(Arc::clone(&cluster), grounds, &control, folder)?;
        let allocators = (1..=ALLOCATORS).map(|number| (format!("allocator-{number}"), None)).collect();
        let (folder, lans, [client, desk]) = (folder.to_owned(), [inside, outside], clients);
        let mut site = Self { nodes, router, client, desk, cluster, allocators, control, program, folder, _lans: lans };
        show.progress("... starting the daemons");
        site.start_allocators()?;
        for node in &mut site.nodes {
            node.start(&site.program, &site.cluster.inner_kubeconfig)?;
        }
        site.write_door()?;
        show.erase();
        Ok(site)
    }

    /// Starts the allocators that do not run.
    pub fn start_allocators(&mut self) -> Result<()> {
        for (name, process) in self.allocators.iter_mut().filter(|(_, process)| process.is_none()) {
            let mut command = self.control.command(&self.program.display().to_string());
            command.args(["allocator", "--port", "0", "--namespace", HOME, "--lease-seconds", LEADER_SECONDS]);
            command.arg("--kubeconfig").arg(&self.cluster.inner_kubeconfig);
            command.env("DEFAULT_ANNOUNCER", "PureLB").env("HOSTNAME", &*name);
            *process = Some(Process::start(&mut command, &self.folder.join(format!("{name}.log")))?);
        }
        Ok(())
    }

    /// Kills the allocator whose name a holder of the lease begins with, and returns that name.
    pub fn kill_allocator(&mut self, holder: &str) -> Result<String> {
        let found = self.allocators.iter_mut().find(|(name, _)| holder.starts_with(&**name));
        let (name, process) = found.with_context(|| format!("no allocator is called {holder}"))?;
        *process = None;
        Ok(name.clone())
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Result<&Node> {
        self.nodes.iter().find(|node| node.name() == name).with_context(|| format!("there is no node {name}"))
    }

    /// The names of all nodes.
    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name().to_owned()).collect()
    }

    /// A node whose proxy does not serve yet what the API says, and what it has; `None` if all do.
    pub fn behind(&self) -> Result<Option<String>> {
        keeper::behind(&self.cluster, &self.names(), &self.folder)
    }

    /// A machine without power.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        let (node, cluster) = self.both(name)?;
        node.kill()?;
        cluster.set_ready(&node.place, false)
    }

    /// A planned stop of a node's agent.
    pub fn stop(&mut self, name: &str) -> Result<()> {
        self.both(name)?.0.stop()
    }

    /// The node comes back.
    pub fn revive(&mut self, name: &str) -> Result<()> {
        let program = self.program.clone();
        let (node, cluster) = self.both(name)?;
        node.revive(&program, &cluster.inner_kubeconfig)?;
        cluster.set_ready(&node.place, true)
    }

    fn both(&mut self, name: &str) -> Result<(&mut Node, &Cluster)> {
        let node = self.nodes.iter_mut().find(|node| node.name() == name);
        Ok((node.with_context(|| format!("there is no node {name}"))?, &self.cluster))
    }

    /// Writes the script by which people look into a machine: `sh on node1 ip addr`.
    fn write_door(&self) -> Result<()> {
        // An ordinary user has rights in there only as the root of the demo's own user namespace.
        let user = match env::var_os(sandbox::USER_NAMESPACE) {
            Some(_) => format!("--user=/proc/{}/ns/user --preserve-credentials ", own_process()),
            None => String::new(),
        };
        let machines = self.nodes.iter().map(|node| &node.namespace);
        let machines: Vec<&Namespace> = machines.chain([&self.router.namespace, &self.client, &self.desk]).collect();
        let case = |machine: &&Namespace| format!("  {}) net={} ;;\n", machine.name(), machine.path());
        let cases: String = machines.iter().map(case).collect();
        let names: Vec<&str> = machines.iter().map(|machine| machine.name()).collect();
        let names = names.join(", ");
        let text = format!(
            "# Runs a command on a machine of the demo: sh on MACHINE COMMAND...\n\
             case \"$1\" in\n{cases}  *) echo \"no machine is called '$1'; there are {names}\" >&2; exit 2 ;;\nesac\n\
             shift\n{}exec nsenter {user}--net=\"$net\" -- \"$@\"\n",
            programs()
        );
        Ok(fs::write(self.folder.join("on"), text)?)
    }
}

/// Where the demo finds its programs: another terminal may not know, for some are unpacked in a cache.
fn programs() -> String {
    let all = ["PATH", "LD_LIBRARY_PATH"].into_iter().filter_map(|name| Some((name, env::var(name).ok()?)));
    all.map(|(name, folders)| format!("{name}=${{{name}:+${name}:}}{}\nexport {name}\n", quoted(&folders))).collect()
}

/// A machine on a segment, with these routes.
fn machine(lan: &Lan, name: &str, addresses: &[&str], routes: &str) -> Result<Namespace> {
    let namespace = Namespace::new(name)?;
    lan.plug(&namespace, "eth0", addresses)?;
    namespace.batch(routes)?;
    Ok(namespace)
}

/// The client behind the router, and the one on the nodes' segment.
fn clients(inside: &Lan, outside: &Lan) -> Result<[Namespace; 2]> {
    let routes = "route add default via 10.9.0.1\nroute add ::/0 via fd00:9::1\n";
    Ok([machine(outside, "client", &plan::CLIENT, routes)?, machine(inside, "desk", &plan::DESK, "")?])
}

fn furnished(folder: &Path, control: &Namespace, places: &[Place], data: Option<&Path>) -> Result<Arc<Cluster>> {
    let cluster = Cluster::start(folder, control, SocketAddr::from(plan::DOOR), data)?;
    cluster.furnish(places)?;
    Ok(Arc::new(cluster))
}

/// Builds the nodes.
fn raise(lan: &Lan, places: &[Place], logs: &Path) -> Result<Vec<Node>> {
    thread::scope(|scope| {
        let build = |place: &Place| {
            let place = place.clone();
            scope.spawn(move || Node::build(lan, place, places, logs))
        };
        let threads: Vec<_> = places.iter().map(build).collect();
        threads.into_iter().map(joined).collect()
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow!("a part of the demo could not be built"))?
}

/// The program named by `PURELB_PROGRAM`, or else the `purelb` beside this one.
fn program() -> Result<PathBuf> {
    let beside = || Ok::<_, anyhow::Error>(env::current_exe()?.with_file_name("purelb"));
    let program = env::var_os("PURELB_PROGRAM").map_or_else(beside, |named| Ok(named.into()))?;
    let known = Command::new(&program).arg("--version").output();
    ensure!(
        known.is_ok_and(|output| output.status.success()),
        "{} does not run; build it with: cargo build -p purelb",
        program.display()
    );
    Ok(program)
}
