//! PureLB as it is shipped, on the shared cluster, with routing software beside it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use purelb_lab::Cluster;
use purelb_lab::cluster::{NODES_AS, Node, ROUTER_AS, addresses};
use purelb_lab::router::{Make, Router};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::site::{SOON, cluster, fetch, rolled_out, talk, url};

/// The nodes of every cluster here.
pub const NODES: [&str; 3] = ["node1", "node2", "node3"];
/// How many connections a client makes, and how many of them every node must get.
const CONNECTIONS: usize = 300;
const SHARE: usize = CONNECTIONS / 5;

/// After this time a definition that should be gone is touched.
const LINGERS: Duration = Duration::from_secs(5);

/// Where it is installed.
pub const HOME: &str = "purelb-system";

/// A story that does little but install, for whoever wants to see that again.
const FIRST: &str = "rights::purelb_asks_for_nothing_that_it_may_not_have";

static ROUTERS: OnceCell<Result<Vec<Router>>> = OnceCell::const_new();

/// The cluster, with PureLB and a BIRD on every node. The first to ask installs them.
pub async fn installed() -> Result<&'static Cluster> {
    let cluster = cluster().await?;
    let first = async || cluster.prove(FIRST, async |cluster| prepare(cluster).await.context("not installed")).await;
    let installed = ROUTERS.get_or_init(first).await;
    installed.as_ref().map_err(|error| anyhow!("{error:#}"))?;
    Ok(cluster)
}

/// Installs PureLB and starts a BIRD on every node, which runs as long as the result is kept.
pub async fn prepare(cluster: &Cluster) -> Result<Vec<Router>> {
    install(cluster, "nobgp").await?;
    beside(cluster, Make::Bird)
}

/// Starts routing software on every node, which runs as long as the result is kept.
pub fn beside(cluster: &Cluster, make: Make) -> Result<Vec<Router>> {
    let config = |node| if make == Make::Frr { frr(node) } else { Ok(bird(node)) };
    cluster.nodes.iter().map(|node| cluster.route_on(node, make, &config(node)?)).collect()
}

/// Installs PureLB as an operator does, from the shipped manifests: `default`, or `nobgp`, which goes without the kinds of BGP.
pub async fn install(cluster: &Cluster, variant: &str) -> Result<()> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let kinds = if variant == "nobgp" { "crds-nobgp" } else { "crds" };
    for part in [kinds, variant] {
        cluster.kubectl(&["apply", "-k", &deploy.join(part).display().to_string()]).await?;
        cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?;
    }
    rolled_out(cluster, HOME, "deployment/allocator").await?;
    rolled_out(cluster, HOME, "daemonset/lbnodeagent").await
}

/// Removes what was installed last, as an operator does when the workloads are gone: the manifests, then the kinds.
pub async fn remove(cluster: &Cluster) -> Result<()> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let file = |name: &str| deploy.join(name).display().to_string();
    let timeout = format!("--timeout={}s", SOON.as_secs());
    cluster.kubectl(&["delete", "--ignore-not-found", "-f", &file("install.yaml"), &timeout]).await?;
    cluster.kubectl(&["delete", "--ignore-not-found", "-f", &file("install-crds.yaml"), "--wait=false"]).await?;
    kinds_gone(cluster).await
}

/// Waits until the kinds are gone, which somebody deletes or will.
///
/// The API server itself deletes the objects of a kind before the kind. If the kind's storage is just being replaced, and
/// its own note of that meets another writer, it comes back to it when the definition changes again, or after five minutes
/// (`crd_finalizer.go`: "storage is (re)initializing"). So a definition that lingers is touched.
pub async fn kinds_gone(cluster: &Cluster) -> Result<()> {
    let touched = Cell::new(Instant::now());
    let deleted = "jsonpath={range .items[?(@.metadata.deletionTimestamp)]}crd/{.metadata.name} {end}";
    let gone = async |cluster: &Cluster| {
        let left = cluster.kubectl(&["get", "crd", "-o", "name"]).await?;
        if touched.get().elapsed() > LINGERS {
            let mark = format!("lab/touched={}", touched.replace(Instant::now()).elapsed().as_nanos());
            for kind in cluster.kubectl(&["get", "crd", "-o", deleted]).await?.split_whitespace() {
                // One that goes meanwhile is what is wanted.
                let _ = cluster.kubectl(&["annotate", "--overwrite", kind, &mark]).await;
            }
        }
        let left: Vec<&str> = left.lines().filter(|name| name.ends_with("purelb.io")).collect();
        ensure!(left.is_empty(), "{left:?} are still there");
        Ok(true)
    };
    cluster.until("the kinds are gone", SOON, gone).await
}

/// Routing software beside PureLB: it advertises whatever is on `kube-lb0`, and knows nothing of Services.
fn bird(node: &Node) -> String {
    let (v4, v6) = addresses::node(node.number);
    let (router4, router6) = addresses::ROUTER;
    let session = |name: &str, own: IpAddr, peer: IpAddr| {
        let family = if own.is_ipv4() { "ipv4" } else { "ipv6" };
        format!(
            "protocol bgp {name} {{ local {own} as {NODES_AS}; neighbor {peer} as {ROUTER_AS}; direct; hold time 9;
               connect retry time 1; connect delay time 1; error wait time 1, 2;
               {family} {{ import none; export where source = RTS_DEVICE; next hop self; }}; }}\n"
        )
    };
    format!(
        "log stderr all;\nrouter id {v4};\nprotocol device {{ scan time 1; }}
         protocol direct {{ ipv4; ipv6; interface \"kube-lb0\"; }}\n{}{}",
        session("four", v4.into(), router4.into()),
        session("six", v6.into(), router6.into())
    )
}

/// The same with FRR: the file of the documentation, for the one router that is here.
fn frr(node: &Node) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/frr.conf");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let (router4, router6) = addresses::ROUTER;
    let lines = text.lines().filter(|line| !line.contains("7.252") && !line.contains("::252"));
    let text = lines.map(|line| format!("{line}\n")).collect::<String>();
    let text = text.replace("192.168.7.251", &router4.to_string()).replace("fd00:7::251", &router6.to_string());
    let id = addresses::node(node.number).0;
    Ok(text.replace("router-id 192.168.7.11", &format!("router-id {id}")))
}

/// A group of the first API version, whose form says everything.
pub fn group(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "purelb.io/v1",
        "kind": "ServiceGroup",
        "metadata": {"name": name, "namespace": HOME},
        "spec": spec,
    })
}

/// A group of the second API version.
pub fn group_v2(name: &str, spec: &Value) -> Value {
    let mut group = group(name, spec);
    group["apiVersion"] = json!("purelb.io/v2");
    group
}

/// A Service that asks a group for addresses of these families, in front of the workload of this name.
pub fn service(room: &str, name: &str, app: &str, group: &str, families: &[&str]) -> Value {
    let policy = if families.len() == 2 { "RequireDualStack" } else { "SingleStack" };
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": room, "annotations": {"purelb.io/service-group": group}},
        "spec": {
            "type": "LoadBalancer",
            "ipFamilyPolicy": policy,
            "ipFamilies": families,
            "selector": {"app": app},
            "ports": [{"port": 80, "targetPort": "http"}],
        },
    })
}

/// What `ip` shows on an interface of a node, as `address/length`, without link-local addresses; nothing where it is not.
pub fn shown(node: &Node, interface: &str) -> Result<Vec<String>> {
    let links = node.namespace.ip(&["-j", "addr"])?;
    let link = links.as_array().into_iter().flatten().find(|link| link["ifname"] == interface);
    let entries = link.and_then(|link| link["addr_info"].as_array().cloned()).unwrap_or_default();
    let ours = entries.iter().filter(|entry| entry["scope"] != "link");
    let mut ours: Vec<String> =
        ours.map(|entry| format!("{}/{}", entry["local"].as_str().unwrap_or_default(), entry["prefixlen"])).collect();
    ours.sort();
    Ok(ours)
}

/// The node that a router means. Some routers prefer the link-local address of a next hop (RFC 2545).
fn at(cluster: &Cluster, hop: IpAddr) -> Result<&str> {
    for node in &cluster.nodes {
        let links = node.namespace.ip(&["-j", "addr", "show", "dev", "eth0"])?;
        let entries = links[0]["addr_info"].as_array().cloned().unwrap_or_default();
        if entries.iter().any(|entry| entry["local"].as_str() == Some(&hop.to_string())) {
            return Ok(&node.name);
        }
    }
    bail!("no node has the next hop {hop}")
}

/// Waits until exactly these nodes show an address on `kube-lb0`, and the router has exactly them as next hops.
pub async fn held_by(cluster: &Cluster, cidr: &str, names: &[&str]) -> Result<()> {
    let router = cluster.router.as_ref().context("the cluster has a router")?;
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    let holds = async |cluster: &Cluster| {
        for node in &cluster.nodes {
            let (wanted, is) =
                (names.contains(&node.name.as_str()), shown(node, "kube-lb0")?.iter().any(|one| one == cidr));
            ensure!(wanted == is, "{} on {}: {is}", cidr, node.name);
        }
        let mut hops = router.next_hops(cidr)?.iter().map(|hop| at(cluster, *hop)).collect::<Result<Vec<_>>>()?;
        hops.sort_unstable();
        ensure!(hops == sorted, "the router has the next hops {hops:?} for {cidr}");
        Ok(true)
    };
    cluster.until(&format!("{names:?} hold {cidr}"), SOON, holds).await
}

/// Waits until kube-proxy serves an address on these nodes.
///
/// A node attracts traffic as soon as it has an address. kube-proxy waits up to a second between two changes of its
/// rules, and is what a first client may have to wait for.
pub async fn proxied(cluster: &Cluster, address: &str) -> Result<()> {
    for node in &cluster.nodes {
        let answers = async |_: &Cluster| fetch(&node.namespace, &url(address, 80, "/")).map(|_| true);
        cluster.until(&format!("kube-proxy serves {address} on {}", node.name), SOON, answers).await?;
    }
    Ok(())
}

/// Waits until PureLB says of a Service that it has addresses, and returns them.
pub async fn assigned(cluster: &Cluster, room: &str, name: &str) -> Result<Vec<String>> {
    let (service, condition) = (format!("service/{name}"), "--for=condition=purelb.io/AddressAssigned");
    cluster.kubectl(&["wait", "-n", room, &service, condition, &format!("--timeout={}s", SOON.as_secs())]).await?;
    let object = cluster.object(&["service", "-n", room, name]).await?;
    let ingress = object["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    Ok(ingress.iter().filter_map(|one| one["ip"].as_str().map(str::to_owned)).collect())
}

/// Makes many connections from behind the router, all of which must be answered, and every node's Pod gets its share.
/// Returns in words who got how many.
pub fn spread(cluster: &Cluster, address: &str) -> Result<String> {
    let at = SocketAddr::new(address.parse()?, 80);
    let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
    for answer in talk(cluster.far_client(), at, CONNECTIONS)? {
        let node = answer.split(' ').nth(1).with_context(|| format!("no node in {answer}"))?.to_owned();
        *nodes.entry(node).or_default() += 1;
    }
    ensure!(nodes.len() == NODES.len() && nodes.values().all(|got| *got >= SHARE), "{address}: {nodes:?}");
    let shares: Vec<String> = nodes.iter().map(|(node, got)| format!("{node} {got}")).collect();
    Ok(format!("{CONNECTIONS} of {CONNECTIONS} answered: {}", shares.join(", ")))
}
