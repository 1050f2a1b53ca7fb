//! A node in trouble: who answers for its addresses, and what becomes of the node.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb_lab::Cluster;
use purelb_lab::cluster::{Node, Proxy};
use serde_json::json;

use crate::purelb::{assigned, group, install, service, shown};
use crate::site::{SECOND, SOON, deployment, fetch, fresh, rolled_out, room, url};

const ADDRESS: &str = "192.168.7.200";
/// The lease lasts ten seconds; the rest is for kube-proxy and a busy machine.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(30);

fn holders(cluster: &Cluster) -> Result<Vec<&Node>> {
    let all = cluster.nodes.iter().map(|node| Ok((node, shown(node, "eth0")?)));
    let all = all.collect::<Result<Vec<_>>>()?;
    let cidr = format!("{ADDRESS}/24");
    Ok(all.into_iter().filter(|(_, shown)| shown.contains(&cidr)).map(|(node, _)| node).collect())
}

async fn is_ready(cluster: &Cluster, node: &str) -> Result<bool> {
    let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    Ok(cluster.kubectl(&["get", "node", node, "-o", ready]).await? == "True")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_wire_loses_its_local_address_and_comes_back_as_a_node() -> Result<()> {
    let story = "trouble::a_node_without_a_wire_loses_its_local_address_and_comes_back_as_a_node";
    let _alone = SECOND.lock().await;
    let cluster = fresh(None, Proxy::Nftables).await?;
    let pool = json!({"local": {"v4pools": [{
        "pool": "192.168.7.200-192.168.7.209", "subnet": "192.168.7.0/24", "aggregation": "default",
    }]}});
    cluster
        .prove(story, async |cluster| {
            install(cluster, "nobgp").await?;
            let home = "local";
            room(cluster, home).await?;
            cluster.apply(&deployment(home, "echo", 3)).await?;
            rolled_out(cluster, home, "deployment/echo").await?;
            cluster.apply(&group("local", &pool)).await?;
            cluster.apply(&service(home, "echo", "echo", "local", &["IPv4"])).await?;
            assert_eq!(assigned(cluster, home, "echo").await?, [ADDRESS]);
            // The client forgets whom it spoke to: what a switch or a gratuitous ARP does is not the question here.
            let answers = async |cluster: &Cluster| {
                cluster.client().ip(&["neigh", "flush", "all"])?;
                fetch(cluster.client(), &url(ADDRESS, 80, "/")).map(|_| true)
            };
            cluster.until("it answers", SOON, answers).await?;
            let old = *holders(cluster)?.first().context("a node holds it")?;

            old.plug.cut()?;
            let cut = Instant::now();
            let others = async |cluster: &Cluster| {
                let holders = holders(cluster)?;
                ensure!(holders.len() == 1 && holders[0].name != old.name, "{} nodes hold it", holders.len());
                Ok(true)
            };
            cluster.until("another node alone holds it", TAKEN_OVER_WITHIN, others).await?;
            println!("taken over after {:?}", cut.elapsed());
            let lost = async |cluster: &Cluster| Ok(!is_ready(cluster, &old.name).await?);
            cluster.until("the node is given up", SOON, lost).await?;

            old.plug.mend()?;
            let back = async |cluster: &Cluster| is_ready(cluster, &old.name).await;
            cluster.until("the node is ready again", SOON, back).await?;
            let one = async |cluster: &Cluster| Ok(holders(cluster)?.len() == 1);
            cluster.until("one node holds the address", SOON, one).await?;
            cluster.until("it answers again", SOON, answers).await
        })
        .await
}
