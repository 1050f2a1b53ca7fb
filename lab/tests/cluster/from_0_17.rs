//! PureLB 0.17 with its BGP container is replaced node by node, while old and new agents run side by side.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use purelb_lab::Cluster;
use purelb_lab::cluster::{NODES_AS, ROUTER_AS, addresses};
use purelb_lab::router::Make;
use purelb_lab::tested::seen;
use serde_json::{Value, json};

use crate::past::{self, BOTH, Clients, FAR, NEAR, Picture, ROOM};
use crate::purelb::{HOME, NODES, assigned, held_by, service};
use crate::site::{SECOND, SOON};

/// The other nodes go on, so that nobody should wait; the rest is for a busy machine.
const GAP: Duration = Duration::from_secs(3);

fn object(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": HOME}, "spec": spec})
}

/// What its operator had written.
fn objects() -> [Value; 4] {
    let (router4, router6) = addresses::ROUTER;
    let session = |address: String, family: &str| {
        json!({
            "config": {"neighborAddress": address, "peerAsn": ROUTER_AS},
            "afiSafis": [{"family": family, "enabled": true}],
        })
    };
    let near = json!({"local": {"v4pools": [{"pool": "192.168.7.203-192.168.7.209", "subnet": "192.168.7.0/24"}]}});
    let far = json!({"remote": {
        "v4pools": [{"pool": "172.37.0.1-172.37.0.9", "subnet": "172.37.0.0/24", "aggregation": "/32"}],
        "v6pools": [{"pool": "fc00:37::10-fc00:37::19", "subnet": "fc00:37::/64", "aggregation": "/128"}],
    }});
    let bgp = json!({
        "global": {"asn": NODES_AS},
        "neighbors": [session(router4.to_string(), "ipv4-unicast"), session(router6.to_string(), "ipv6-unicast")],
        "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb0"]},
    });
    [
        object("bgp.purelb.io/v1", "BGPConfiguration", "default", &bgp),
        object("purelb.io/v2", "LBNodeAgent", "default", &json!({"local": {"dummyInterface": "kube-lb0"}})),
        object("purelb.io/v2", "ServiceGroup", "near", &near),
        object("purelb.io/v2", "ServiceGroup", "far", &far),
    ]
}

async fn old_times(cluster: &Cluster) -> Result<()> {
    past::settle(cluster).await?;
    // The kinds of its BGP container are part of its install; their API is the same today.
    for kind in ["configs", "bgpnodestatuses"] {
        past::learn(cluster, &past::shipped(&format!("crds/bgp.purelb.io_{kind}.yaml"))).await?;
    }
    cluster.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})).await?;
    let [bgp, others @ ..] = objects();
    cluster.apply(&bgp).await?;
    past::install(cluster, "0.17", HOME).await?;
    for object in others {
        cluster.apply(&object).await?;
    }
    for (name, kind, given) in [("near", "local", &[NEAR][..]), ("far", "remote", &FAR)] {
        let annotations = json!({
            "purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": name, "purelb.io/pool-type": kind,
        });
        past::give(cluster, name, given, &annotations).await?;
    }
    at_work(cluster).await
}

/// Each address where both releases want it, and the winner's name where both write it.
async fn at_work(cluster: &Cluster) -> Result<()> {
    past::held_alone(cluster, NEAR, "node2").await?;
    held_by(cluster, &format!("{}/32", FAR[0]), &NODES).await?;
    held_by(cluster, &format!("{}/128", FAR[1]), &NODES).await?;
    let named = async |cluster: &Cluster| {
        let service = cluster.object(&["service", "-n", ROOM, "near"]).await?;
        let announced = &service["metadata"]["annotations"]["purelb.io/announcing-IPv4"];
        ensure!(*announced == format!("node2,eth0,{NEAR}"), "announced by {announced}");
        Ok(true)
    };
    cluster.until("the Service names its node", SOON, named).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_0_17_is_upgraded_node_by_node_and_keeps_every_address_and_object() -> Result<()> {
    let story = "from_0_17::a_cluster_of_0_17_is_upgraded_node_by_node_and_keeps_every_address_and_object";
    let _alone = SECOND.lock().await;
    let cluster = past::cluster(Make::Bird).await?;
    cluster
        .prove(story, async |cluster| {
            old_times(cluster).await?;
            let before = Picture::take(cluster, &["configs.bgp.purelb.io"]).await?;
            let clients = Clients::send(cluster).await?;

            let passing = past::watched(cluster, upgrade(cluster)).await?;

            clients.were_answered(cluster, "0.17", GAP).await?;
            println!("from 0.17: {passing:?}");
            let (both, less) = (passing.doubled.as_millis(), passing.thinned.as_millis());
            ensure!(passing.doubled < BOTH, "{NEAR} was on two nodes for {both} ms");
            seen("8", "from 0.17, the local address on two nodes at once", past::looks(both));
            seen("8", "from 0.17, allocators of two releases at once", "never");
            seen("8", "from 0.17, the router without one of three next hops", format!("{less} ms at most"));
            before.is_kept_in(&Picture::take(cluster, &["configs.bgp.purelb.io"]).await?)?;
            let words = format!("all {} objects kept, every address where it was, the same winner", before.objects());
            seen("8", "from 0.17, three nodes replaced one after another", words);
            past::nothing_denied(cluster)?;
            adopted(cluster).await
        })
        .await
}

async fn upgrade(cluster: &Cluster) -> Result<()> {
    past::learn(cluster, &past::shipped("install-crds.yaml")).await?;
    cluster.kubectl(&["apply", "-k", &past::shipped("from-0.17").display().to_string()]).await?;
    past::running(cluster, HOME).await?;
    // Until the last node is back, so that what the router lacks meanwhile is seen to its end.
    at_work(cluster).await
}

/// What was given by the old programs is known to ours: it is not given twice, and goes with its Service.
async fn adopted(cluster: &Cluster) -> Result<()> {
    cluster.apply(&service(ROOM, "new", "echo", "near", &["IPv4"])).await?;
    assert_eq!(assigned(cluster, ROOM, "new").await?, ["192.168.7.204"], "the next one");
    cluster.kubectl(&["delete", "service", "-n", ROOM, "near", "far"]).await?;
    past::gone(cluster, NEAR).await.context("what 0.17 gave was not adopted")
}
