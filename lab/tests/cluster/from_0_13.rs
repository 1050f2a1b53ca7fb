//! PureLB 0.13 is replaced in place, in its own namespace.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use purelb_lab::Cluster;
use purelb_lab::router::Make;
use purelb_lab::tested::seen;
use serde_json::{Value, json};

use crate::past::{self, BOTH, Clients, FAR, NEAR, Picture, ROOM};
use crate::purelb::{NODES, assigned, beside, held_by, service};
use crate::site::SECOND;

const HOME: &str = "purelb";
/// A local address of the third node, whose agent of 0.13 is killed and leaves everything as it is.
const LEFT: &str = "192.168.7.200";
/// All agents are replaced at once: that the first new one is there takes a start, and a few seconds to see who is alive.
const GAP: Duration = Duration::from_secs(30);

/// What its operator had written.
fn objects() -> Vec<Value> {
    let object = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "purelb.io/v1", "kind": kind,
            "metadata": {"name": name, "namespace": HOME}, "spec": spec,
        })
    };
    let local = |pools: Value| json!({"local": pools});
    let near = |pool: &str| {
        let pool = json!({"pool": pool, "subnet": "192.168.7.0/24", "aggregation": "default"});
        local(json!({"v4pools": [pool]}))
    };
    let far = local(json!({
        "v4pools": [{"pool": "172.37.0.1-172.37.0.9", "subnet": "172.37.0.0/24", "aggregation": "/32"}],
        "v6pools": [{"pool": "fc00:37::10-fc00:37::19", "subnet": "fc00:37::/64", "aggregation": "/128"}],
    }));
    vec![
        object("LBNodeAgent", "default", local(json!({"localint": "default", "extlbint": "kube-lb0"}))),
        object("ServiceGroup", "near", near("192.168.7.203-192.168.7.205")),
        object("ServiceGroup", "left", near("192.168.7.200-192.168.7.202")),
        object("ServiceGroup", "far", far),
    ]
}

async fn old_times(cluster: &Cluster) -> Result<()> {
    past::settle(cluster).await?;
    past::install(cluster, "0.13", HOME).await?;
    for object in objects() {
        cluster.apply(&object).await?;
    }
    for (name, given) in [("near", &[NEAR][..]), ("left", &[LEFT]), ("far", &FAR)] {
        let annotations = json!({"purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": name});
        past::give(cluster, name, given, &annotations).await?;
    }
    at_work(cluster).await
}

/// Each address where both releases want it.
async fn at_work(cluster: &Cluster) -> Result<()> {
    past::held_alone(cluster, NEAR, "node2").await?;
    past::held_alone(cluster, LEFT, "node3").await?;
    held_by(cluster, &format!("{}/32", FAR[0]), &NODES).await?;
    held_by(cluster, &format!("{}/128", FAR[1]), &NODES).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_0_13_is_upgraded_and_keeps_every_address_and_object() -> Result<()> {
    let story = "from_0_13::a_cluster_of_0_13_is_upgraded_and_keeps_every_address_and_object";
    let _alone = SECOND.lock().await;
    let cluster = past::cluster(Make::Bird).await?;
    // As ever with 0.13: routing software of the operator's advertises kube-lb0, and goes on to do so.
    let _routers = beside(&cluster, Make::Bird)?;
    cluster
        .prove(story, async |cluster| {
            old_times(cluster).await?;
            let before = Picture::take(cluster, &[]).await?;
            let clients = Clients::send(cluster).await?;

            let passing = past::watched(cluster, upgrade(cluster)).await?;
            clients.were_answered(cluster, "0.13", GAP).await?;
            before.is_kept_in(&Picture::take(cluster, &[]).await?)?;
            println!("from 0.13: {passing:?}");
            let (both, less) = (passing.doubled.as_millis(), passing.thinned.as_millis());
            ensure!(passing.doubled < BOTH, "{NEAR} was on two nodes for {both} ms");
            seen("8", "from 0.13, the local address on two nodes at once", past::looks(both));
            seen("8", "from 0.13, allocators of two releases at once", "never");
            seen("8", "from 0.13, the router without some of three next hops", format!("{less} ms at most"));
            let words = format!("all {} objects kept, every address where it was, the same winners", before.objects());
            seen("8", "from 0.13, three nodes replaced at once", words);
            past::nothing_denied_to_ours(cluster)?;
            adopted(cluster).await
        })
        .await
}

async fn upgrade(cluster: &Cluster) -> Result<()> {
    past::learn(cluster, &past::shipped("install-crds-nobgp.yaml")).await?;
    cluster.kubectl(&["apply", "-k", &past::shipped("from-0.13").display().to_string()]).await?;
    past::running(cluster, HOME).await?;
    // Until the addresses are back, so that what the router lacks meanwhile is seen to its end.
    at_work(cluster).await
}

/// What the old programs left is ours now: it is not given twice, and goes with its Service.
async fn adopted(cluster: &Cluster) -> Result<()> {
    cluster.apply(&service(ROOM, "new", "echo", "left", &["IPv4"])).await?;
    assert_eq!(assigned(cluster, ROOM, "new").await?, ["192.168.7.201"], "the next one");
    cluster.kubectl(&["delete", "service", "-n", ROOM, "left", "far"]).await?;
    past::gone(cluster, LEFT).await.context("what 0.13 left was not adopted")
}
