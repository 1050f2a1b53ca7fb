//! Every way to tell the routers, with every kube-proxy: BIRD or FRR beside PureLB, or its own speaker.
//!
//! kube-proxy with nftables and BIRD on the nodes is what all stories of the shared cluster run on; iptables is in
//! `speaker`. The cluster here has the rest, and what else needs a speaker or changes what holds for all nodes.

use anyhow::Result;
use purelb_lab::Cluster;
use purelb_lab::cluster::Proxy;
use purelb_lab::router::Make;
use purelb_lab::tested::seen;
use serde_json::json;

use crate::past::nothing_denied;
use crate::purelb::{NODES, assigned, beside, group_v2, held_by, install, proxied, service, spread};
use crate::site::{SECOND, deployment, fresh, rolled_out, room};
use crate::speaker::configuration;
use crate::{doors, selected};

/// The addresses of [`serve`], with their lengths.
pub const ADDRESSES: [(&str, u8); 2] = [("198.51.100.1", 32), ("2001:db8:1::1", 128)];
/// Where its Service is.
pub const ROOM: &str = "routed";

/// A Service of both families with virtual addresses, and a Pod on every node.
pub async fn serve(cluster: &Cluster) -> Result<()> {
    let pools = json!({"remote": {
        "v4pools": [{"aggregation": "/32", "pool": "198.51.100.1-198.51.100.9", "subnet": "198.51.100.0/24"}],
        "v6pools": [{"aggregation": "/128", "pool": "2001:db8:1::1-2001:db8:1::9", "subnet": "2001:db8:1::/64"}],
    }});
    room(cluster, ROOM).await?;
    cluster.apply(&deployment(ROOM, "echo", 3)).await?;
    rolled_out(cluster, ROOM, "deployment/echo").await?;
    cluster.apply(&group_v2("routed", &pools)).await?;
    cluster.apply(&service(ROOM, "echo", "echo", "routed", &["IPv4", "IPv6"])).await?;
    assert_eq!(assigned(cluster, ROOM, "echo").await?, ADDRESSES.map(|(address, _)| address));
    for (address, _) in ADDRESSES {
        proxied(cluster, address).await?;
    }
    Ok(())
}

/// Every node is a next hop for both addresses, and connections from behind the router are spread over all.
pub async fn reached(cluster: &Cluster, way: &str) -> Result<()> {
    for (address, length) in ADDRESSES {
        held_by(cluster, &format!("{address}/{length}"), &NODES).await?;
        let family = if length == 32 { "IPv4" } else { "IPv6" };
        seen("11", &format!("{way}, {family}"), spread(cluster, address)?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nftables_with_frr_and_with_the_built_in_speaker_and_nodes_that_are_not_selected() -> Result<()> {
    let story = "makes::nftables_with_frr_and_with_the_built_in_speaker_and_nodes_that_are_not_selected";
    let _alone = SECOND.lock().await;
    let cluster = fresh(Some(Make::Bird), Proxy::Nftables).await?;
    cluster
        .prove(story, async |cluster| {
            install(cluster, "default").await?;
            serve(cluster).await?;
            let frr = beside(cluster, Make::Frr)?;
            reached(cluster, "kube-proxy with nftables, FRR on the nodes, BIRD as the router").await?;
            drop(frr);
            cluster.apply(&configuration()).await?;
            reached(cluster, "kube-proxy with nftables, the built-in speaker, BIRD as the router").await?;
            selected::only_selected_nodes_announce(cluster).await?;
            doors::mistakes_in_an_lbnodeagent_are_told(cluster).await?;
            doors::mistakes_in_a_bgpconfiguration_are_told(cluster).await?;
            nothing_denied(cluster)
        })
        .await
}
