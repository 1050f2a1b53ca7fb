//! The other makes: FRR on the router, kube-proxy with iptables, and PureLB's own speaker in place of routing software.
//! And its end: what is left on nodes and router after it was uninstalled.

use std::collections::BTreeSet;

use anyhow::Result;
use purelb_lab::Cluster;
use purelb_lab::cluster::{NODES_AS, Node, Proxy, ROUTER_AS, addresses};
use purelb_lab::router::Make;
use purelb_lab::tested::seen;
use serde_json::{Value, json};

use crate::makes::{ADDRESSES, reached, serve};
use crate::past::nothing_denied;
use crate::purelb::{HOME, beside, held_by, install, remove};
use crate::rolling::costs_no_more_than_kube_proxy;
use crate::site::{SECOND, SOON, fresh};

/// A session with the router for each family.
pub fn configuration() -> Value {
    let (v4, v6) = addresses::ROUTER;
    let session = |address: &str, family: &str| {
        json!({
            "config": {"neighborAddress": address, "peerAsn": ROUTER_AS},
            "afiSafis": [{"family": family, "enabled": true}],
        })
    };
    json!({
        "apiVersion": "bgp.purelb.io/v1",
        "kind": "BGPConfiguration",
        "metadata": {"name": "default", "namespace": HOME},
        "spec": {
            "global": {"asn": NODES_AS},
            "neighbors": [session(&v4.to_string(), "ipv4-unicast"), session(&v6.to_string(), "ipv6-unicast")],
            "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb0"]},
        },
    })
}

/// What a node has besides its Pods: interfaces, addresses, routes.
fn footprint(node: &Node) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for question in [&["-o", "addr"][..], &["route"], &["-6", "route"]] {
        let output = node.namespace.command("ip").args(question).output()?;
        let text = String::from_utf8(output.stdout)?;
        // Lifetimes count down, and Pods come and go.
        let lines = text.lines().filter(|line| !line.contains("dev pod") && !line.contains(": pod"));
        all.extend(lines.map(|line| line.split("valid_lft").next().unwrap_or_default().trim().to_owned()));
    }
    Ok(all)
}

/// As the documentation says.
async fn uninstall(cluster: &Cluster) -> Result<()> {
    let timeout = format!("--timeout={}s", SOON.as_secs());
    let workloads = ["daemonset/lbnodeagent", "deployment/allocator", "-n", HOME, "--cascade=foreground", &timeout];
    cluster.kubectl(&[&["delete"], &workloads[..]].concat()).await?;
    remove(cluster).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_built_in_speaker_brings_traffic_from_frr_to_every_node_until_it_is_uninstalled() -> Result<()> {
    let story = "speaker::the_built_in_speaker_brings_traffic_from_frr_to_every_node_until_it_is_uninstalled";
    let _alone = SECOND.lock().await;
    let cluster = fresh(Some(Make::Frr), Proxy::Iptables).await?;
    cluster
        .prove(story, async |cluster| {
            let before = cluster.nodes.iter().map(footprint).collect::<Result<Vec<_>>>()?;
            install(cluster, "default").await?;
            serve(cluster).await?;
            for (make, name) in [(Make::Bird, "BIRD"), (Make::Frr, "FRR")] {
                let _beside = beside(cluster, make)?;
                reached(cluster, &format!("kube-proxy with iptables, {name} on the nodes, FRR as the router")).await?;
            }
            cluster.apply(&configuration()).await?;
            reached(cluster, "kube-proxy with iptables, the built-in speaker, FRR as the router").await?;
            costs_no_more_than_kube_proxy(cluster, Proxy::Iptables).await?;

            uninstall(cluster).await?;
            for (address, length) in ADDRESSES {
                held_by(cluster, &format!("{address}/{length}"), &[]).await?;
            }
            let after = cluster.nodes.iter().map(footprint).collect::<Result<Vec<_>>>()?;
            assert_eq!(before, after, "the nodes are as they were");
            nothing_denied(cluster)?;
            seen("9", "with live BGP sessions: next hops of the router for either address", "none");
            seen("9", "with live BGP sessions: links, addresses and routes left on three nodes", "none");
            Ok(())
        })
        .await
}
