//! The first pages of the documentation, with packets.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use purelb_lab::Cluster;
use purelb_lab::tested::seen;
use serde_json::json;

use crate::entrance::entrances;
use crate::purelb::{NODES, assigned, group, held_by, installed, proxied, service, shown, spread};
use crate::site::{SOON, deployment, fetch, rolled_out, room, talk, url};

const V4: &str = "172.32.100.225";
const V6: &str = "fc00:370:155:0:8000::";

/// The group `remotedual`, its Service, and everything the page shows.
#[tokio::test(flavor = "multi_thread")]
async fn seed_000_a_virtual_address_of_each_family_is_on_every_node() -> Result<()> {
    let story = "seeds::seed_000_a_virtual_address_of_each_family_is_on_every_node";
    let remote_dual = json!({"local": {
        "v4pools": [{"aggregation": "/32", "pool": "172.32.100.225-172.32.100.229", "subnet": "172.32.100.0/24"}],
        "v6pools": [{"aggregation": "/128", "pool": "fc00:370:155:0:8000::/126", "subnet": "fc00:370:155::/64"}],
    }});
    installed()
        .await?
        .prove(story, async |cluster| {
            let home = "test";
            room(cluster, home).await?;
            cluster.apply(&deployment(home, "kuard", 3)).await?;
            rolled_out(cluster, home, "deployment/kuard").await?;
            cluster.apply(&group("remotedual", &remote_dual)).await?;
            cluster.apply(&service(home, "kuard-svc-dual-remote", "kuard", "remotedual", &["IPv4", "IPv6"])).await?;
            assert_eq!(assigned(cluster, home, "kuard-svc-dual-remote").await?, [V4, V6]);
            held_by(cluster, &format!("{V4}/32"), &NODES).await?;
            held_by(cluster, &format!("{V6}/128"), &NODES).await?;
            described(cluster, home).await?;
            seen("1", "kubectl describe", "the annotations, the ingress and the Events of the page, one for each node");
            for (address, length) in [(V4, 32), (V6, 128)] {
                let hops = next_hops(cluster, &format!("{address}/{length}"))?;
                ensure!(hops.len() == NODES.len(), "next hops for {address}: {hops:?}");
                seen("1", &format!("{address}, on kube-lb0 of"), NODES.join(", "));
                seen("1", &format!("{address}, next hops of the router"), hops.join(", "));
                proxied(cluster, address).await?;
                let shares = spread(cluster, address)?;
                seen("1", &format!("{address}, connections from behind the router"), &shares);
                let family = if address == V4 { "IPv4" } else { "IPv6" };
                let way = format!("kube-proxy with nftables, BIRD on the nodes, BIRD as the router, {family}");
                seen("11", &way, shares);
            }
            Ok(())
        })
        .await
}

/// Where the router sends what is for a prefix, in words.
fn next_hops(cluster: &Cluster, prefix: &str) -> Result<Vec<String>> {
    let router = cluster.router.as_ref().context("the cluster has a router")?;
    Ok(router.next_hops(prefix)?.iter().map(ToString::to_string).collect())
}

/// Whether `kubectl describe` shows this Event, whatever its age.
fn tells(text: &str, (reason, source, message): &(&str, &str, String)) -> bool {
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        let begins = words.next() == Some("Normal") && words.next() == Some(*reason);
        let rest = line.strip_suffix(message.as_str()).map(str::trim_end);
        begins && rest.is_some_and(|rest| rest.split_whitespace().last() == Some(*source))
    })
}

/// The lines of the page, as kubectl prints them.
async fn described(cluster: &Cluster, home: &str) -> Result<()> {
    let lines = [
        "purelb.io/allocated-by: PureLB".to_owned(),
        "purelb.io/allocated-from: remotedual".to_owned(),
        "purelb.io/service-group: remotedual".to_owned(),
    ];
    let given = format!("{{Ingress:[{{IP:{V4} Hostname: Ports:[]}} {{IP:{V6} Hostname: Ports:[]}}]}}");
    let mut events = vec![("AddressAssigned", "purelb-allocator", format!("Assigned {given} from pool remotedual"))];
    for (node, address) in cluster.nodes.iter().flat_map(|node| [V4, V6].map(|address| (node, address))) {
        let message = format!("Announcing {address} from node {} interface kube-lb0", node.name);
        events.push(("AnnouncingNonLocal", "purelb-lbnodeagent", message));
    }
    let told = async |cluster: &Cluster| {
        let text = cluster.kubectl(&["describe", "service", "-n", home, "kuard-svc-dual-remote"]).await?;
        let missing: Vec<&String> = lines.iter().filter(|line| !text.contains(line.as_str())).collect();
        let untold: Vec<_> = events.iter().filter(|event| !tells(&text, event)).collect();
        ensure!(missing.is_empty() && untold.is_empty(), "missing: {missing:#?} {untold:#?}\n{text}");
        let ingress = text.lines().find(|line| line.starts_with("LoadBalancer Ingress:")).unwrap_or_default();
        ensure!(ingress.contains(V4) && ingress.contains(V6), "{ingress}");
        Ok(true)
    };
    cluster.until("kubectl describes it as the page does", SOON, told).await
}

/// A Service gets this address from a group, and every node shows it with this length.
async fn served(
    cluster: &Cluster,
    home: &str,
    (name, from): (&str, &str),
    (address, length): (&str, u8),
) -> Result<()> {
    cluster.apply(&service(home, name, "echoserver1", from, &["IPv4"])).await?;
    assert_eq!(assigned(cluster, home, name).await?, [address]);
    for node in &cluster.nodes {
        let cidr = format!("{address}/{length}");
        let there = async |_: &Cluster| Ok(shown(node, "kube-lb0")?.contains(&cidr));
        cluster.until(&format!("{} shows {cidr}", node.name), SOON, there).await?;
    }
    proxied(cluster, address).await
}

/// Waits until all that the router knows of a network is this route, with every node as next hop.
async fn one_route(cluster: &Cluster, network: &str, route: &str) -> Result<()> {
    let one = async |cluster: &Cluster| {
        let routes = cluster.router_network().ip(&["-j", "route", "show", "root", network])?;
        let hops = routes[0]["nexthops"].as_array().map_or(0, Vec::len);
        ensure!(routes.as_array().map(Vec::len) == Some(1) && routes[0]["dst"] == route, "{routes}");
        ensure!(hops == NODES.len(), "{hops} next hops: {routes}");
        Ok(true)
    };
    cluster.until(&format!("the router has only {route} in {network}, by three next hops"), SOON, one).await?;
    seen("2", &format!("routes of the router in {network}"), format!("{route} with {} next hops", NODES.len()));
    Ok(())
}

/// Groups of different subnets under one aggregate that is shorter than either.
async fn supernet(cluster: &Cluster, home: &str) -> Result<()> {
    for (number, name) in [(2, "lower"), (3, "upper")] {
        let (subnet, pool) = (format!("172.22.{number}.0/24"), format!("172.22.{number}.10-172.22.{number}.25"));
        let flat = json!({"name": name, "subnet": subnet, "pool": pool, "aggregation": "/23"});
        cluster.apply(&group(name, &flat)).await?;
        served(cluster, home, (name, name), (&format!("172.22.{number}.10"), 23)).await?;
    }
    one_route(cluster, "172.22.2.0/23", "172.22.2.0/23").await?;
    seen("2", "kube-lb0 of every node, groups of two subnets with aggregation /23", "172.22.2.10/23, 172.22.3.10/23");
    Ok(())
}

/// The flat form of the early documents, whose addresses carry the length of their subnet.
#[tokio::test(flavor = "multi_thread")]
async fn seed_001_groups_of_one_subnet_are_one_route() -> Result<()> {
    let story = "seeds::seed_001_groups_of_one_subnet_are_one_route";
    let flat = |name: &str, pool: &str| {
        group(name, &json!({"name": name, "subnet": "172.22.0.0/24", "pool": pool, "aggregation": "default"}))
    };
    installed()
        .await?
        .prove(story, async |cluster| {
            let home = "flat";
            room(cluster, home).await?;
            cluster.apply(&deployment(home, "echoserver1", 3)).await?;
            rolled_out(cluster, home, "deployment/echoserver1").await?;
            cluster.apply(&flat("virtualaddrange", "172.22.0.10-172.22.0.25")).await?;
            cluster.apply(&flat("another", "172.22.0.100-172.22.0.110")).await?;
            for (name, from, address) in
                [("first", "virtualaddrange", "172.22.0.10"), ("second", "another", "172.22.0.100")]
            {
                served(cluster, home, (name, from), (address, 24)).await?;
            }
            one_route(cluster, "172.22.0.0/16", "172.22.0.0/24").await?;
            seen("2", "kube-lb0 of every node", "172.22.0.10/24, 172.22.0.100/24");
            supernet(cluster, home).await?;
            for address in ["172.22.0.10", "172.22.0.100", "172.22.2.10", "172.22.3.10"] {
                fetch(cluster.far_client(), &url(address, 80, "/"))?;
                seen("2", &format!("a client behind the router asks {address}"), "answered");
            }
            Ok(())
        })
        .await
}

/// A local address is on one node, and its traffic enters there.
#[tokio::test(flavor = "multi_thread")]
async fn seed_002_a_local_address_is_on_one_node_and_traffic_enters_there() -> Result<()> {
    let story = "seeds::seed_002_a_local_address_is_on_one_node_and_traffic_enters_there";
    let address = "192.168.7.200";
    let pool = json!({"local": {"v4pools": [{
        "pool": "192.168.7.200-192.168.7.209", "subnet": "192.168.7.0/24", "aggregation": "default",
    }]}});
    installed()
        .await?
        .prove(story, async |cluster| {
            let home = "local";
            room(cluster, home).await?;
            cluster.apply(&deployment(home, "echo", 3)).await?;
            rolled_out(cluster, home, "deployment/echo").await?;
            cluster.apply(&group("local", &pool)).await?;
            cluster.apply(&service(home, "echo", "echo", "local", &["IPv4"])).await?;
            assert_eq!(assigned(cluster, home, "echo").await?, [address]);
            let cidr = format!("{address}/24");
            let holders = || -> Result<Vec<&purelb_lab::cluster::Node>> {
                let all = cluster.nodes.iter().map(|node| Ok((node, shown(node, "eth0")?.contains(&cidr))));
                let all = all.collect::<Result<Vec<_>>>()?;
                Ok(all.into_iter().filter(|(_, holds)| *holds).map(|(node, _)| node).collect())
            };
            cluster.until("one node holds it", SOON, async |_| Ok(holders()?.len() == 1)).await?;
            proxied(cluster, address).await?;
            let at = SocketAddr::new(address.parse()?, 80);
            let answers = talk(cluster.client(), at, 50)?;
            let pods: BTreeSet<_> = answers.iter().map(|answer| answer.split(' ').next()).collect();
            assert_eq!(pods.len(), NODES.len(), "kube-proxy spreads it over all Pods");
            let [holder] = holders()?[..] else { anyhow::bail!("the holder changed") };
            assert_eq!(entrances(&answers)?, [(holder.name.as_str(), answers.len())].into(), "all came in there");
            let links = holder.namespace.ip(&["-j", "link", "show", "dev", "eth0"])?;
            let neighbour = cluster.client().ip(&["-j", "neigh", "show", "to", address])?;
            assert_eq!(neighbour[0]["lladdr"], links[0]["address"], "the client sends to the node that holds it");
            let name = &holder.name;
            seen("3", &format!("{address}, a local address"), format!("on {name} and on no other node of three"));
            let words = format!("{} came in by {name}, for Pods on {} nodes", answers.len(), pods.len());
            seen("3", &format!("{} connections to {address}", answers.len()), words);
            Ok(())
        })
        .await
}
