//! The first pages of the documentation, with packets.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Result, ensure};
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
            for address in [V4, V6] {
                seen("1", &format!("{address}, on kube-lb0 and as next hops of the router"), NODES.join(", "));
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

/// The lines of the page, as kubectl prints them.
async fn described(cluster: &Cluster, home: &str) -> Result<()> {
    let mut lines = vec![
        "purelb.io/allocated-by: PureLB".to_owned(),
        "purelb.io/allocated-from: remotedual".to_owned(),
        "purelb.io/service-group: remotedual".to_owned(),
        format!(
            "Assigned {{Ingress:[{{IP:{V4} Hostname: Ports:[]}} {{IP:{V6} Hostname: Ports:[]}}]}} from pool remotedual"
        ),
    ];
    for (node, address) in cluster.nodes.iter().flat_map(|node| [V4, V6].map(|address| (node, address))) {
        lines.push(format!("Announcing {address} from node {} interface kube-lb0", node.name));
    }
    let told = async |cluster: &Cluster| {
        let text = cluster.kubectl(&["describe", "service", "-n", home, "kuard-svc-dual-remote"]).await?;
        let missing: Vec<&String> = lines.iter().filter(|line| !text.contains(line.as_str())).collect();
        ensure!(missing.is_empty(), "missing: {missing:#?}\n{text}");
        let ingress = text.lines().find(|line| line.starts_with("LoadBalancer Ingress:")).unwrap_or_default();
        ensure!(ingress.contains(V4) && ingress.contains(V6), "{ingress}");
        Ok(true)
    };
    cluster.until("kubectl describes it as the page does", SOON, told).await
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
                cluster.apply(&service(home, name, "echoserver1", from, &["IPv4"])).await?;
                assert_eq!(assigned(cluster, home, name).await?, [address]);
                for node in &cluster.nodes {
                    let cidr = format!("{address}/24");
                    let there = async |_: &Cluster| Ok(shown(node, "kube-lb0")?.contains(&cidr));
                    cluster.until(&format!("{} shows {cidr}", node.name), SOON, there).await?;
                }
                proxied(cluster, address).await?;
            }
            let one = async |cluster: &Cluster| {
                let routes = cluster.router_network().ip(&["-j", "route", "show", "root", "172.22.0.0/16"])?;
                let hops = routes[0]["nexthops"].as_array().map_or(0, Vec::len);
                ensure!(routes.as_array().map(Vec::len) == Some(1) && routes[0]["dst"] == "172.22.0.0/24", "{routes}");
                Ok(hops == NODES.len())
            };
            cluster.until("the router has one route with three next hops", SOON, one).await?;
            seen("2", "kube-lb0 of every node", "172.22.0.10/24, 172.22.0.100/24");
            seen("2", "routes of the router under 172.22.0.0/16", "172.22.0.0/24 with three next hops");
            for address in ["172.22.0.10", "172.22.0.100"] {
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
            seen("3", &format!("{address}, a local address"), "on one node of three");
            seen("3", &format!("50 connections to {address}"), "50 came in by that node, for Pods on 3 nodes");
            let links = holder.namespace.ip(&["-j", "link", "show", "dev", "eth0"])?;
            let neighbour = cluster.client().ip(&["-j", "neigh", "show", "to", address])?;
            assert_eq!(neighbour[0]["lladdr"], links[0]["address"], "the client sends to the node that holds it");
            Ok(())
        })
        .await
}
