//! A cluster with an older PureLB at work: its objects, its programs (played), addresses on the nodes, and clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use purelb_lab::Cluster;
use purelb_lab::audit::{self, Request};
use purelb_lab::cluster::{Node, Proxy};
use purelb_lab::net::probe::Manner;
use purelb_lab::net::{Namespace, Probe, Report};
use purelb_lab::router::Make;
use purelb_lab::runner::images::Source;
use purelb_lab::tested::seen;
use serde_json::{Value, json};

use crate::purelb::{proxied, shown};
use crate::site::{SOON, deployment, furnished, rolled_out, room};

/// Where the users' Services are.
pub const ROOM: &str = "shop";
/// A local address, which one node holds; by the digests of their names it is the second.
pub const NEAR: &str = "192.168.7.203";
/// A virtual address of each family, which every node holds.
pub const FAR: [&str; 2] = ["172.37.0.1", "fc00:37::10"];

/// How long a local address may be on two nodes. Agents of 0.17 take an address off when they see that another node has won
/// it, and these look three times a second; those of 0.13 that are killed leave it to their successor.
pub const BOTH: Duration = Duration::from_secs(3);

/// The kinds of which no object may be deleted.
const KINDS: &str = "services,serviceaccounts,deployments,daemonsets,servicegroups.purelb.io,lbnodeagents.purelb.io";
/// How a client asks: a thousand times a second, from ports enough that every node has some.
const MANNER: Manner = Manner { flows: 16, pace: Duration::from_millis(1) };

/// A file under `lab/tests/data`.
fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

/// A file or folder of `deploy`.
pub fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path)
}

/// A cluster whose images of older releases are there to be pulled: the program that plays them, and its tools.
pub async fn cluster(router: Make) -> Result<Cluster> {
    let image = |name: &str| {
        let programs = [(env!("CARGO_BIN_EXE_reference"), name), ("/bin/ip", "ip"), ("/usr/sbin/bird", "bird")];
        let programs = programs.map(|(program, inside)| (PathBuf::from(program), format!("/{inside}")));
        (name.to_owned(), Source::Programs(programs.to_vec()))
    };
    furnished(Some(router), Proxy::Nftables, ["allocator", "lbnodeagent", "k8gobgp"].map(image)).await
}

/// Installs an older release as its documentation says.
pub async fn install(cluster: &Cluster, release: &str, home: &str) -> Result<()> {
    learn(cluster, &data(release).join("crds")).await?;
    cluster.apply_file(&data(release).join("workloads.yaml")).await?;
    running(cluster, home).await
}

/// Applies definitions, and waits until they can be used.
pub async fn learn(cluster: &Cluster, definitions: &Path) -> Result<()> {
    cluster.apply_file(definitions).await?;
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?;
    Ok(())
}

/// Waits until both workloads are what was applied last.
pub async fn running(cluster: &Cluster, home: &str) -> Result<()> {
    rolled_out(cluster, home, "deployment/allocator").await?;
    rolled_out(cluster, home, "daemonset/lbnodeagent").await
}

/// Users with their workload.
pub async fn settle(cluster: &Cluster) -> Result<()> {
    room(cluster, ROOM).await?;
    cluster.apply(&deployment(ROOM, "echo", 3)).await?;
    rolled_out(cluster, ROOM, "deployment/echo").await
}

/// A Service as it is after an older allocator has given it these addresses.
pub async fn give(cluster: &Cluster, name: &str, given: &[&str], annotations: &Value) -> Result<()> {
    let families: Vec<&str> = given.iter().map(|one| if one.contains(':') { "IPv6" } else { "IPv4" }).collect();
    let mut object = crate::purelb::service(ROOM, name, "echo", name, &families);
    object["spec"]["ports"] = json!([
        {"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"},
        {"name": "datagrams", "port": 80, "targetPort": 8080, "protocol": "UDP"},
    ]);
    cluster.apply(&object).await?;
    // A write of the status carries annotations too: so the older allocators do it, in one.
    let ingress: Vec<Value> = given.iter().map(|address| json!({"ip": address})).collect();
    let status = json!({"metadata": {"annotations": annotations}, "status": {"loadBalancer": {"ingress": ingress}}});
    let patch = ["patch", "service", "-n", ROOM, name, "--subresource=status", "--type=merge", "-p"];
    cluster.kubectl(&[&patch[..], &[&status.to_string()]].concat()).await?;
    Ok(())
}

/// The nodes that hold the local address.
pub fn holders<'a>(cluster: &'a Cluster, address: &str) -> Result<Vec<&'a Node>> {
    let cidr = format!("{address}/24");
    let all = cluster.nodes.iter().map(|node| Ok((node, shown(node, "eth0")?.contains(&cidr))));
    let all = all.collect::<Result<Vec<_>>>()?;
    Ok(all.into_iter().filter(|(_, holds)| *holds).map(|(node, _)| node).collect())
}

/// Waits until exactly this node holds a local address.
pub async fn held_alone(cluster: &Cluster, address: &str, name: &str) -> Result<()> {
    let alone = async |cluster: &Cluster| {
        let names: Vec<&str> = holders(cluster, address)?.iter().map(|node| node.name.as_str()).collect();
        ensure!(names == [name], "{address} is on {names:?}");
        Ok(true)
    };
    cluster.until(&format!("{name} alone holds {address}"), SOON, alone).await
}

/// What must be the same before and after: objects by their identity, what users see of Services, what nodes hold.
#[derive(Debug, PartialEq, Eq)]
pub struct Picture {
    identities: BTreeMap<String, String>,
    services: BTreeMap<String, String>,
    nodes: BTreeMap<String, BTreeSet<String>>,
}

impl Picture {
    /// Looks at everything that an upgrade must keep, objects of some more kinds included.
    pub async fn take(cluster: &Cluster, more: &[&str]) -> Result<Self> {
        let all = cluster.object(&[&[&[KINDS], more].concat().join(","), "-A"]).await?;
        let (mut identities, mut services) = (BTreeMap::new(), BTreeMap::new());
        for object in all["items"].as_array().context("a list has items")? {
            let metadata = &object["metadata"];
            let word = |key: &str| metadata[key].as_str().unwrap_or_default();
            let name =
                format!("{} {}/{}", object["kind"].as_str().unwrap_or_default(), word("namespace"), word("name"));
            if object["spec"]["type"] == "LoadBalancer" {
                services.insert(name.clone(), visible(object));
            }
            identities.insert(name, word("uid").to_owned());
        }
        let mut nodes = BTreeMap::new();
        for node in &cluster.nodes {
            let mut held = BTreeSet::new();
            for interface in ["eth0", "kube-lb0"] {
                held.extend(shown(node, interface)?.into_iter().map(|cidr| format!("{cidr} on {interface}")));
            }
            nodes.insert(node.name.clone(), held);
        }
        Ok(Self { identities, services, nodes })
    }

    /// Fails where something that was there before is gone, or is another one. What is new does no harm.
    pub fn is_kept_in(&self, after: &Self) -> Result<()> {
        for (name, uid) in &self.identities {
            ensure!(after.identities.get(name) == Some(uid), "{name} was deleted");
        }
        ensure!(self.services == after.services, "before: {:#?}\nafter: {:#?}", self.services, after.services);
        ensure!(self.nodes == after.nodes, "before: {:#?}\nafter: {:#?}", self.nodes, after.nodes);
        Ok(())
    }

    /// How many objects are looked at.
    pub fn objects(&self) -> usize {
        self.identities.len()
    }
}

/// What users and their scripts read: addresses, and where they are from.
fn visible(service: &Value) -> String {
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    let addresses: Vec<&str> = ingress.iter().filter_map(|one| one["ip"].as_str()).collect();
    let keys = ["service-group", "allocated-by", "allocated-from", "pool-type"];
    let annotation = |key: &str| format!("{key}={}", service["metadata"]["annotations"][format!("purelb.io/{key}")]);
    format!("{addresses:?} {}", keys.map(annotation).join(" "))
}

/// Clients of several addresses, who never stop asking.
pub struct Clients(Vec<(&'static str, Probe)>);

impl Clients {
    /// One for the local address on its segment, and one for each virtual one behind the router. All are answered before
    /// this returns.
    pub async fn send(cluster: &Cluster) -> Result<Self> {
        // A datagram that comes before kube-proxy's rules goes nowhere, and so does whatever follows it from its port.
        for address in [NEAR].into_iter().chain(FAR) {
            proxied(cluster, address).await?;
        }
        let mut all = vec![(NEAR, probe(cluster.client(), NEAR)?)];
        for address in FAR {
            all.push((address, probe(cluster.far_client(), address)?));
        }
        let clients = Self(all);
        clients.are_answered(cluster).await?;
        Ok(clients)
    }

    /// Waits until each has a hundred more answers.
    async fn are_answered(&self, cluster: &Cluster) -> Result<()> {
        for (address, probe) in &self.0 {
            let answered = probe.answers();
            let more = async |_: &Cluster| Ok(probe.answers() > answered + 100);
            cluster.until(&format!("{address} answers"), SOON, more).await?;
        }
        Ok(())
    }

    /// Calls them back once each has been answered again, and tells what each has seen of the upgrade from a release. None
    /// was without an answer for so long.
    pub async fn were_answered(self, cluster: &Cluster, release: &str, gap: Duration) -> Result<()> {
        self.are_answered(cluster).await?;
        for (address, probe) in self.0 {
            let report = probe.finish()?;
            let words = told(&report);
            println!("from {release}: {address}: {words}");
            ensure!(report.longest_gap < gap, "{address}: {words}");
            seen("8", &format!("from {release}, client of {address}"), words);
        }
        Ok(())
    }
}

fn probe(from: &Namespace, address: &str) -> Result<Probe> {
    Probe::start_as(from, SocketAddr::new(address.parse()?, 80), MANNER)
}

/// What a client has seen, in words.
fn told(report: &Report) -> String {
    let (lost, sent, gap) = (report.lost(), report.sent, report.longest_gap);
    format!("{lost} of {sent} packets lost, nobody answered for at most {} ms", gap.as_millis())
}

/// The addresses of deleted Services go from every node: this one, and all that are on `kube-lb0`.
pub async fn gone(cluster: &Cluster, address: &str) -> Result<()> {
    let gone = async |cluster: &Cluster| {
        ensure!(holders(cluster, address)?.is_empty(), "{address} is still there");
        for node in &cluster.nodes {
            let left = shown(node, "kube-lb0")?;
            ensure!(left.is_empty(), "{} has {left:?}", node.name);
        }
        Ok(true)
    };
    cluster.until("addresses go with their Services", SOON, gone).await
}

/// What was never meant to last, while something was done: at most so long.
#[derive(Debug, Default)]
pub struct Passing {
    /// The local address was on two nodes at once.
    pub doubled: Duration,
    /// The router had fewer next hops for the virtual address than there are nodes.
    pub thinned: Duration,
}

/// A time by looks, in words.
pub fn looks(milliseconds: u128) -> String {
    format!("{milliseconds} ms at most, by looks that are some 100 ms apart")
}

/// The Pods of the allocator, of whatever release.
struct Allocators(Api<Pod>);

impl Allocators {
    fn of(cluster: &Cluster) -> Result<Self> {
        Ok(Self(Api::all(Client::try_from(cluster.plane.config())?)))
    }

    /// Fails if containers of two images run: allocators of different releases know nothing of each other.
    async fn are_of_one_release(&self) -> Result<()> {
        let pods = self.0.list(&ListParams::default().labels("component=allocator")).await?;
        let states = pods.items.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref()).flatten();
        let running = states.filter(|one| one.state.as_ref().is_some_and(|state| state.running.is_some()));
        let images: BTreeSet<&str> = running.map(|one| one.image.as_str()).collect();
        ensure!(images.len() <= 1, "allocators of two releases run at once: {images:?}");
        Ok(())
    }
}

/// Looks on while something is done, and fails if allocators of two releases run at once. What is so at one look counts from the look before to the look after.
pub async fn watched(cluster: &Cluster, done: impl Future<Output = Result<()>>) -> Result<Passing> {
    let router = cluster.router.as_ref().context("the cluster has a router")?;
    let allocators = Allocators::of(cluster)?;
    let (mut seen, mut last) = (Passing::default(), [Instant::now(); 2]);
    let mut done = std::pin::pin!(done);
    let mut ended = false;
    while !ended {
        tokio::select! {
            result = &mut done => {
                result?;
                ended = true;
            }
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        allocators.are_of_one_release().await?;
        let begun = Instant::now();
        let doubled = holders(cluster, NEAR)?.len() > 1;
        let thinned = router.next_hops(&format!("{}/32", FAR[0]))?.len() < cluster.nodes.len();
        for ((is_so, longest), last) in
            [(doubled, &mut seen.doubled), (thinned, &mut seen.thinned)].into_iter().zip(&mut last)
        {
            *longest = if is_so { (*longest).max(last.elapsed()) } else { *longest };
            *last = if is_so { *last } else { begun };
        }
    }
    Ok(seen)
}

/// Fails if a program, of whatever release, was denied something.
pub fn nothing_denied(cluster: &Cluster) -> Result<()> {
    judge(cluster, |_| true)
}

/// Fails if one of today's programs was denied something. Those that are replaced all at once may find, in their last
/// second, that a right of theirs is gone.
pub fn nothing_denied_to_ours(cluster: &Cluster) -> Result<()> {
    judge(cluster, |request| !request.reference)
}

fn judge(cluster: &Cluster, counts: impl Fn(&Request) -> bool) -> Result<()> {
    let log = fs::read_to_string(cluster.plane.place().audit_log()).context("no audit log")?;
    let denied = audit::read(&log).into_iter().filter(|request| request.denied && counts(request));
    let denied: Vec<String> = denied.map(|request| request.right.to_string()).collect();
    ensure!(denied.is_empty(), "denied: {denied:#?}");
    Ok(())
}
