//! The nodeSelector of an LBNodeAgent, and the picture of seed 002: a router with two next hops.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use purelb_lab::Cluster;
use purelb_lab::tested::seen;
use serde_json::json;

use crate::entrance::entrances;
use crate::makes::{ADDRESSES, ROOM};
use crate::mistakes::described;
use crate::purelb::{HOME, NODES, assigned, group_v2, held_by, proxied, service, shown};
use crate::site::{SOON, talk};

const SELECTED: [&str; 2] = ["node1", "node2"];
const SECOND: &str = "198.51.100.2";
/// The first is on node3 for as long as all nodes are selected, the others on the other two.
const LOCAL: [(&str, &str, &str); 3] = [
    ("local-one", "192.168.7.202", "node3"),
    ("local-two", "192.168.7.203", "node2"),
    ("local-three", "192.168.7.204", "node1"),
];
const CONNECTIONS: usize = 300;

/// Selects nodes by their label, or all.
async fn select(cluster: &Cluster, labels: serde_json::Value) -> Result<()> {
    let patch = json!({"spec": {"nodeSelector": labels}}).to_string();
    cluster.kubectl(&["patch", "lbnodeagent", "-n", HOME, "default", "--type=merge", "--patch", &patch]).await?;
    Ok(())
}

/// Waits until exactly one of these nodes has a local address.
async fn on_one_of(cluster: &Cluster, address: &str, nodes: &[&str]) -> Result<()> {
    let cidr = format!("{address}/24");
    let one = async |cluster: &Cluster| {
        let mut holders = Vec::new();
        for node in &cluster.nodes {
            holders.extend(shown(node, "eth0")?.contains(&cidr).then_some(node.name.as_str()));
        }
        ensure!(holders.len() == 1 && nodes.contains(&holders[0]), "{holders:?} have it");
        Ok(true)
    };
    cluster.until(&format!("one of {nodes:?} has {address}"), SOON, one).await
}

async fn local_services(cluster: &Cluster) -> Result<()> {
    let pools = json!({"local": {"v4pools": [{"pool": "192.168.7.202-192.168.7.204", "subnet": "192.168.7.0/24"}]}});
    cluster.apply(&group_v2("local", &pools)).await?;
    for (name, address, node) in LOCAL {
        cluster.apply(&service(ROOM, name, "echo", "local", &["IPv4"])).await?;
        assert_eq!(assigned(cluster, ROOM, name).await?, [address]);
        on_one_of(cluster, address, &[node]).await?;
    }
    Ok(())
}

/// Both addresses have both nodes as next hops; traffic comes in by both, and reaches the Pods of all three.
fn two_ways_in(cluster: &Cluster, address: &str) -> Result<()> {
    let answers = talk(cluster.far_client(), SocketAddr::new(address.parse()?, 80), CONNECTIONS)?;
    let entered = entrances(&answers)?;
    let fair = SELECTED.iter().all(|node| entered.get(node).is_some_and(|got| *got >= CONNECTIONS / 5));
    ensure!(fair && entered.len() == SELECTED.len(), "{address} was entered by {entered:?}");
    let served = NODES.iter().filter(|node| answers.iter().any(|answer| answer.split(' ').nth(1) == Some(node)));
    ensure!(served.count() == NODES.len(), "{address} was not answered by the Pods of all nodes");
    let [one, two] = SELECTED.map(|node| format!("{node} {}", entered[node]));
    let words = format!("{CONNECTIONS} of {CONNECTIONS} answered; came in by {one}, {two}; served by Pods on 3 nodes");
    seen("3", &format!("{address} with two nodes as next hops"), words);
    Ok(())
}

/// Two of three nodes are selected: only they hold addresses, local and virtual, and only they are next hops.
pub async fn only_selected_nodes_announce(cluster: &Cluster) -> Result<()> {
    local_services(cluster).await?;
    cluster.apply(&service(ROOM, "second", "echo", "routed", &["IPv4"])).await?;
    assert_eq!(assigned(cluster, ROOM, "second").await?, [SECOND]);
    proxied(cluster, SECOND).await?;
    cluster.kubectl(&["label", "nodes", SELECTED[0], SELECTED[1], "edge=yes"]).await?;
    select(cluster, json!({"matchLabels": {"edge": "yes"}})).await?;

    for (address, length) in ADDRESSES.into_iter().chain([(SECOND, 32)]) {
        held_by(cluster, &format!("{address}/{length}"), &SELECTED).await?;
    }
    for (_, address, _) in LOCAL {
        on_one_of(cluster, address, &SELECTED).await?;
    }
    described(cluster, &["node", "node3"], &["NodeDeselected", "no LBNodeAgent selects node node3"]).await?;
    two_ways_in(cluster, ADDRESSES[0].0)?;
    two_ways_in(cluster, SECOND)?;
    seen(
        "4",
        "LBNodeAgent with a nodeSelector for node1 and node2",
        "virtual addresses on both, local ones on one of them",
    );
    seen("4", "the Node that is not selected", "holds nothing, is no next hop, and has the Event NodeDeselected");

    select(cluster, json!(null)).await?;
    for (address, length) in ADDRESSES {
        held_by(cluster, &format!("{address}/{length}"), &NODES).await?;
    }
    for (_, address, node) in LOCAL {
        on_one_of(cluster, address, &[node]).await?;
    }
    Ok(())
}
