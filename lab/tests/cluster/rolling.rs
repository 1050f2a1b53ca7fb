//! A Deployment is updated while clients connect: what is lost by the address, beside what is lost without PureLB.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, watcher};
use kube::{Api, Client};
use purelb_lab::Cluster;
use purelb_lab::cluster::{Proxy, addresses};
use purelb_lab::net::Namespace;
use purelb_lab::tested::seen;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::policies::nodes_of;
use crate::purelb::{assigned, group, held_by, installed, service};
use crate::site::{SOON, ask_over, deployment, fetch, rolled_out, room, url};

const HOME: &str = "rolling";
const ADDRESS: &str = "203.0.113.113";
/// How long a Pod answers after it was told to end. Its probe needs three seconds of these to fail.
const LINGER: u8 = 15;
/// Long enough for TCP to ask three times.
const PATIENCE: Duration = Duration::from_secs(15);
/// TCP asks again after a second: whoever waits that long had its first packet dropped.
const LATE: Duration = Duration::from_millis(900);
/// Between two connections of a client.
const PAUSE: Duration = Duration::from_millis(20);

/// How often the router's next hops change: two nodes come, two go. A router without a memory for flows then sends what is
/// on its way to another node, which knows nothing of it; a client has one connection at a time.
const MOVES: usize = 4;

/// Where a client may connect to; it takes turns.
type Doors = Arc<Mutex<Vec<SocketAddr>>>;

/// A client that makes one connection after another until it is called back.
struct Customer {
    leave: Arc<AtomicBool>,
    visit: JoinHandle<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    asked: usize,
    late: usize,
    /// Attempts that made no connection.
    lost: Vec<String>,
    /// Connections that were made and did not last until the answer was there.
    cut: Vec<String>,
}

impl Customer {
    fn send(from: &Namespace, doors: Doors) -> Self {
        let leave = Arc::new(AtomicBool::new(false));
        let (from, watched) = (from.clone(), Arc::clone(&leave));
        Self { leave, visit: spawn_blocking(move || from.run(|| shop(&doors, &watched))) }
    }

    async fn recall(mut self) -> Result<Tally> {
        self.leave.store(true, Ordering::Relaxed);
        Ok((&mut self.visit).await?)
    }
}

/// Nobody waits for ever for a client of a story that failed.
impl Drop for Customer {
    fn drop(&mut self) {
        self.leave.store(true, Ordering::Relaxed);
    }
}

impl Tally {
    fn visit(&mut self, door: SocketAddr) {
        self.asked += 1;
        let asked = Instant::now();
        let stream = match TcpStream::connect_timeout(&door, PATIENCE) {
            Ok(stream) => stream,
            Err(error) => return self.lost.push(format!("{door} after {:?}: {error}", asked.elapsed())),
        };
        match ask_over(stream, PATIENCE) {
            Ok(_) => self.late += usize::from(asked.elapsed() >= LATE),
            Err(error) => self.cut.push(format!("{door} after {:?}: {error:#}", asked.elapsed())),
        }
    }
}

fn shop(doors: &Doors, leave: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    while !leave.load(Ordering::Relaxed) {
        let open = doors.lock().expect("nobody panics while holding it").clone();
        if let Some(door) = open.get(tally.asked % open.len().max(1)) {
            tally.visit(*door);
        }
        thread::sleep(PAUSE);
    }
    tally
}

/// Keeps the node ports of the nodes that have a ready Pod: what a load balancer would do that hears of every change at
/// once, and needs neither addresses nor routes.
fn follow(cluster: &Cluster, port: u16) -> Result<(Doors, JoinHandle<()>)> {
    let client = Client::try_from(cluster.plane.config())?;
    let ports = cluster
        .nodes
        .iter()
        .map(|node| (node.name.clone(), SocketAddr::new(IpAddr::from(addresses::node(node.number).0), port)));
    let ports: BTreeMap<String, SocketAddr> = ports.collect();
    let doors = Doors::default();
    let told = Arc::clone(&doors);
    let task = tokio::spawn(async move {
        let slices: Api<EndpointSlice> = Api::namespaced(client, HOME);
        let config = Config::default().labels("kubernetes.io/service-name=echo");
        let mut news = pin!(watcher(slices, config).default_backoff().applied_objects());
        while let Some(slice) = news.next().await {
            let Ok(slice) = slice else { continue };
            let ready = slice
                .endpoints
                .iter()
                .filter(|one| one.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true)));
            let nodes = ready.filter_map(|one| ports.get(one.node_name.as_ref()?).copied()).collect();
            *told.lock().expect("nobody panics while holding it") = nodes;
        }
    });
    Ok((doors, task))
}

/// Two Pods that stay for a while after they were told to end, as servers do that want to lose nobody.
fn workload() -> Value {
    let mut object = deployment(HOME, "echo", 2);
    let pod = &mut object["spec"]["template"]["spec"];
    pod["terminationGracePeriodSeconds"] = json!(2 * LINGER);
    if let Some(variables) = pod["containers"][0]["env"].as_array_mut() {
        variables.push(json!({"name": "LINGER", "value": LINGER.to_string()}));
    }
    object
}

async fn serve(cluster: &Cluster) -> Result<u16> {
    let pool = json!({"local": {"v4pools": [{
        "aggregation": "/32", "pool": "203.0.113.113-203.0.113.119", "subnet": "203.0.113.112/28",
    }]}});
    room(cluster, HOME).await?;
    cluster.apply(&workload()).await?;
    rolled_out(cluster, HOME, "deployment/echo").await?;
    cluster.apply(&group("rolling", &pool)).await?;
    let mut object = service(HOME, "echo", "echo", "rolling", &["IPv4"]);
    object["spec"]["externalTrafficPolicy"] = json!("Local");
    cluster.apply(&object).await?;
    assert_eq!(assigned(cluster, HOME, "echo").await?, [ADDRESS]);
    let object = cluster.object(&["service", "-n", HOME, "echo"]).await?;
    let port = object["spec"]["ports"][0]["nodePort"].as_u64().context("it has a port")?.try_into()?;
    settled(cluster, port).await?;
    Ok(port)
}

/// Waits until there are two Pods, exactly their nodes hold the address, and kube-proxy serves it there.
async fn settled(cluster: &Cluster, port: u16) -> Result<()> {
    let two = async |cluster: &Cluster| Ok(nodes_of(cluster, HOME).await?.len() == 2);
    cluster.until("there are two Pods", SOON, two).await?;
    let nodes = nodes_of(cluster, HOME).await?;
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    held_by(cluster, &format!("{ADDRESS}/32"), &nodes).await?;
    for name in nodes {
        let at = url(&addresses::node(cluster.node(name)?.number).0.to_string(), port, "/");
        let answers = async |cluster: &Cluster| fetch(cluster.far_client(), &at).map(|_| true);
        cluster.until(&format!("kube-proxy knows the Pod on {name}"), SOON, answers).await?;
    }
    Ok(())
}

/// Updates the Deployment under two clients: one goes to the address, the other to the node ports of the same Service,
/// through the same kube-proxies to the same Pods.
async fn update(cluster: &Cluster, port: u16, command: &[&str]) -> Result<[Tally; 2]> {
    let (ports, followed) = follow(cluster, port)?;
    let known = async |_: &Cluster| Ok(ports.lock().expect("nobody panics while holding it").len() == 2);
    cluster.until("both nodes are known", SOON, known).await?;
    let address: Doors = Arc::new(Mutex::new(vec![SocketAddr::new(ADDRESS.parse()?, 80)]));
    let customers = [address, ports].map(|doors| Customer::send(cluster.far_client(), doors));
    cluster.kubectl(command).await?;
    rolled_out(cluster, HOME, "deployment/echo").await?;
    settled(cluster, port).await?;
    let [by_address, by_ports] = customers;
    let tallies = [by_address.recall().await?, by_ports.recall().await?];
    followed.abort();
    Ok(tallies)
}

/// What was seen, in words: for each way, what it is and how it went.
fn words(proxy: Proxy, pods: &str, tallies: &[Tally; 2]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (Tally { asked, late, lost, cut }, way) in
        tallies.iter().zip(["the address of PureLB", "node ports, without PureLB"])
    {
        let what = format!("rolling update of two replicas that {pods}, kube-proxy with {}, by {way}", proxy.name());
        let (lost, cut) = (lost.len(), cut.len());
        let words =
            format!("{lost} of {asked} attempts lost, {late} answered only after TCP had asked again, {cut} cut");
        println!("{what}: {words}");
        all.push((what, words));
    }
    all
}

/// What rolling updates cost: nothing that kube-proxy by itself would not cost, if Pods stay for those who have not heard.
pub async fn costs_no_more_than_kube_proxy(cluster: &Cluster, proxy: Proxy) -> Result<()> {
    let port = serve(cluster).await?;
    // It is the old Pods whose ends are seen.
    let tallies = update(cluster, port, &["set", "env", "-n", HOME, "deployment/echo", "LINGER=0"]).await?;
    let told = words(proxy, "stay for a while", &tallies);
    let [ours, theirs] = &tallies;
    ensure!(ours.asked > 200 && theirs.asked > 200, "too few connections to mean anything: {tallies:?}");
    ensure!(ours.lost.len() <= theirs.lost.len(), "by the address and by the node ports: {tallies:#?}");
    ensure!(ours.cut.len() <= MOVES, "more than one was cut for each change of the next hops: {tallies:#?}");
    // Whom these lose depends on who connects in the moment of their end: it is told, not judged.
    let restart = ["rollout", "restart", "-n", HOME, "deployment/echo"];
    let at_once = words(proxy, "end at once", &update(cluster, port, &restart).await?);
    for (what, words) in told.into_iter().chain(at_once) {
        seen("4", &what, words);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_loses_no_connection_that_kube_proxy_keeps() -> Result<()> {
    let story = "rolling::a_rolling_update_loses_no_connection_that_kube_proxy_keeps";
    let proof = async |cluster: &Cluster| costs_no_more_than_kube_proxy(cluster, Proxy::Nftables).await;
    installed().await?.prove(story, proof).await
}
