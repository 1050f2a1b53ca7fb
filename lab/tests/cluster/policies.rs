//! externalTrafficPolicy and addresses that PureLB gives.

use anyhow::Result;
use purelb_lab::Cluster;
use purelb_lab::cluster::addresses;
use purelb_lab::tested::seen;
use serde_json::json;

use crate::purelb::{assigned, group, held_by, installed, service};
use crate::site::{SOON, deployment, fetch, rolled_out, room, url};

/// The nodes that have Pods of a Deployment, also of those that are ending.
pub async fn nodes_of(cluster: &Cluster, room: &str) -> Result<Vec<String>> {
    let nodes = "jsonpath={.items[*].spec.nodeName}";
    let nodes = cluster.kubectl(&["get", "pods", "-n", room, "-l", "app=echo", "-o", nodes]).await?;
    let mut nodes: Vec<String> = nodes.split_whitespace().map(str::to_owned).collect();
    nodes.sort();
    Ok(nodes)
}

/// Wants the Pod on this node, or on any, and waits until no other is left.
async fn move_to(cluster: &Cluster, room: &str, node: Option<&str>) -> Result<()> {
    let place = json!({"kubernetes.io/hostname": node});
    let patch = json!({"spec": {"template": {"spec": {"nodeSelector": place}}}}).to_string();
    cluster.kubectl(&["patch", "-n", room, "deployment/echo", "--patch", &patch]).await?;
    rolled_out(cluster, room, "deployment/echo").await?;
    let alone = async |cluster: &Cluster| Ok(nodes_of(cluster, room).await?.len() == 1);
    cluster.until("the old Pod is gone", SOON, alone).await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_policy_local_addresses_follow_the_pods_and_pods_see_their_clients() -> Result<()> {
    let story = "policies::with_policy_local_addresses_follow_the_pods_and_pods_see_their_clients";
    let pools = json!({"local": {
        "v4pools": [{"aggregation": "/32", "pool": "172.33.0.1-172.33.0.9", "subnet": "172.33.0.0/24"}],
        "v6pools": [{"aggregation": "/128", "pool": "fc00:33::10-fc00:33::19", "subnet": "fc00:33::/64"}],
    }});
    installed()
        .await?
        .prove(story, async |cluster| {
            let (home, v4, v6) = ("followed", "172.33.0.1/32", "fc00:33::10/128");
            room(cluster, home).await?;
            cluster.apply(&deployment(home, "echo", 1)).await?;
            rolled_out(cluster, home, "deployment/echo").await?;
            cluster.apply(&group("followed", &pools)).await?;
            let mut object = service(home, "echo", "echo", "followed", &["IPv4", "IPv6"]);
            object["spec"]["externalTrafficPolicy"] = json!("Local");
            cluster.apply(&object).await?;
            assert_eq!(assigned(cluster, home, "echo").await?, ["172.33.0.1", "fc00:33::10"]);

            for node in ["node2", "node3"] {
                move_to(cluster, home, Some(node)).await?;
                held_by(cluster, v4, &[node]).await?;
                held_by(cluster, v6, &[node]).await?;
            }
            move_to(cluster, home, None).await?;
            seen("4", "the Pod moves from node to node", "address and route follow it, and are nowhere else");

            for replicas in [1, 3, 2, 0] {
                cluster.kubectl(&["scale", "-n", home, "deployment/echo", &format!("--replicas={replicas}")]).await?;
                let settled = async |cluster: &Cluster| Ok(nodes_of(cluster, home).await?.len() == replicas);
                cluster.until(&format!("{replicas} Pods are there"), SOON, settled).await?;
                let nodes = nodes_of(cluster, home).await?;
                let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
                held_by(cluster, v4, &nodes).await?;
                held_by(cluster, v6, &nodes).await?;
                if replicas > 0 {
                    let (client4, client6) = addresses::FAR_CLIENT;
                    for (cidr, client) in [(v4, client4.to_string()), (v6, client6.to_string())] {
                        let url = url(cidr.split('/').next().unwrap_or_default(), 80, "/");
                        let sees =
                            async |_: &Cluster| Ok(fetch(cluster.far_client(), &url)?.trim_end().ends_with(&client));
                        cluster.until(&format!("a Pod sees {client}"), SOON, sees).await?;
                    }
                }
                seen(
                    "4",
                    &format!("nodes that hold the address, and next hops, when there are Pods on {replicas} nodes"),
                    nodes.len(),
                );
            }
            seen("4", "the client that Pods see", "the client's own address");
            Ok(())
        })
        .await
}
