//! From the writing of a Service's address until the kernel of a router has the route: through the agent's own speaker on
//! one node, and through a BIRD that reads `kube-lb0` on another, each with a router of its own.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use purelb_lab::router::fabric::{self, Fabric, HOME, NODE_AS, ROUTER_AS};
use purelb_lab::router::{Make, Router};
use serde_json::{Value, json};

use crate::bird;
use crate::ear::{Change, Ear};
use crate::numbers::{ms, quantile, ratio};

/// How many times, after some to warm up.
const TIMES: u32 = 200;
const WARM_UP: u32 = 20;
/// Longer than anything here takes, so that a defect ends the run.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much longer than with BIRD it may take at p50.
const MOST: f64 = 1.2;

/// Answers with the promise that is broken, if any.
pub async fn measure() -> Result<Option<String>> {
    let plane = fabric::prepared().await?;
    let client = plane.client()?;
    let mut fabric = Fabric::new(&plane, &[Make::Bird, Make::Bird]).await?;
    install(&client).await?;
    let account = fabric.account.clone();
    for node in &mut fabric.nodes[..2] {
        node.log_level = "info";
        node.start(&account)?;
    }
    let (routers, nodes) = (&fabric.gates, &fabric.nodes);
    let config = bird::reads_kube_lb0(routers[1].address("."), NODE_AS, ROUTER_AS);
    let _bird = Router::start_with(Make::Bird, &nodes[1].namespace, &config)?;
    for (gate, node) in routers.iter().zip(nodes) {
        gate.router()?.wait_for("its node is in session", |router| router.is_established(node.v4))?;
    }
    let ears = [Ear::new(&routers[0].namespace)?, Ear::new(&routers[1].namespace)?];
    let mut took: [Vec<Duration>; 2] = Default::default();
    for number in 0..WARM_UP + TIMES {
        let (name, address) =
            (format!("one-{number}"), Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 128, 0, 1)) + number));
        let sent = assign(&client, &name, address).await?;
        for (ear, took) in ears.iter().zip(&mut took) {
            let there = ear.when(Change::Come, [address]).with_context(|| fabric.logs())?;
            took.push(there.duration_since(sent));
        }
    }
    println!("\nstatus written -> route in the router, {TIMES} times    p50        p99");
    let [ours, bird] = took.map(|all| all[WARM_UP as usize..].to_vec());
    for (what, values) in [("the agent's own speaker", &ours), ("BIRD on the node reads kube-lb0", &bird)] {
        println!("{what:<44} {:>10} {:>10}", ms(quantile(values, 0.5)), ms(quantile(values, 0.99)));
    }
    let ratio = |share| ratio(quantile(&ours, share), quantile(&bird, share));
    println!("{:<44} {:>10.2} {:>10.2}", "ratio to BIRD", ratio(0.5), ratio(0.99));
    Ok(crate::broken("a Service", ratio(0.5), MOST))
}

/// A Service that waits for its address, and then gets it; answers when that was sent.
async fn assign(client: &Client, name: &str, address: Ipv4Addr) -> Result<Instant> {
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let service = json!({
        "metadata": {"name": name, "annotations": {
            "purelb.io/service-group": "remote",
            "purelb.io/allocated-by": "PureLB",
            "purelb.io/allocated-from": "remote",
        }},
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "purelb.io/purelb",
            "allocateLoadBalancerNodePorts": false,
            "ports": [{"port": 80}],
        },
    });
    services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]}}});
    let sent = Instant::now();
    services.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(sent)
}

/// The group, and the session of the first node with the first router.
async fn install(client: &Client) -> Result<()> {
    let pool = json!({"subnet": "10.128.0.0/16", "pool": "10.128.0.0/16", "aggregation": "/32"});
    create(
        client,
        ["purelb.io", "v2", "ServiceGroup", "servicegroups"],
        "remote",
        json!({"remote": {"v4pools": [pool]}}),
    )
    .await?;
    let spec = json!({
        "global": {"asn": NODE_AS},
        "neighbors": [{
            "config": {"neighborAddress": fabric::v4(251), "peerAsn": ROUTER_AS},
            "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": fabric::NODES[0]}},
            "timers": {"config": {"connectRetry": 2}},
        }],
        "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb0"]},
    });
    create(client, ["bgp.purelb.io", "v1", "BGPConfiguration", "configs"], "default", spec).await
}

async fn create(client: &Client, kind: [&str; 4], name: &str, spec: Value) -> Result<()> {
    let [group, version, kind, plural] = kind;
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), HOME, &resource);
    let object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
    let deadline = Instant::now() + PATIENCE;
    // The API server serves a new kind a moment after it says so.
    while let Err(error) = api.create(&PostParams::default(), &object).await {
        ensure!(Instant::now() < deadline, "cannot create {kind} {name}: {error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
