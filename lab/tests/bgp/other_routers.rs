//! BIRD, or FRR, on every node reads `kube-lb0` and advertises it; the agents have no BGP of their own. The files are
//! those of `docs/how-to/other-routers.md`, and, for the routers upstream, of `docs/how-to/bgp.md`.

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context, Result};
use purelb_lab::router::{Make, Router};

use crate::configured::neighbors;
use crate::routes::{AGGREGATES, aggregates, policy_local, single_addresses};
use crate::story::Story;

/// The node's configuration as the documents have it; only the router ID of FRR differs from node to node.
fn config(make: Make, own: IpAddr) -> Result<String> {
    let text = document(if make == Make::Bird { "examples/bird.conf" } else { "examples/frr.conf" })?;
    Ok(text.replace("router-id 192.168.7.11", &format!("router-id {own}")))
}

fn document(name: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

async fn advertises(make: Make, program: &str, name: &'static str) -> Result<()> {
    let mut story = Story::begin(name).await?;
    for node in &mut story.fabric_mut().nodes {
        node.router = Some(Router::start_with(make, &node.namespace, &config(make, node.v4)?)?);
    }
    let gates: Vec<_> = story.forwarding().collect();
    single_addresses(&story, &gates).await?;
    // The direct protocol of BIRD 2 forgets an IPv6 network when any of its addresses goes; the document says so.
    aggregates(&story, &gates, if make == Make::Bird { &AGGREGATES[..1] } else { &AGGREGATES }).await?;
    policy_local(&story, &gates).await?;
    for node in story.nodes() {
        let listeners = node.bgp_listeners()?;
        assert!(!listeners.is_empty() && listeners.iter().all(|line| line.contains(program)), "{listeners:?}");
    }
    story.fabric_mut().nodes.iter_mut().for_each(|node| node.router = None);
    story.close()
}

#[tokio::test]
async fn bird_on_the_nodes_advertises_kube_lb0() -> Result<()> {
    advertises(Make::Bird, "\"bird\"", "bird_on_the_nodes_advertises_kube_lb0").await
}

#[tokio::test]
async fn frr_on_the_nodes_advertises_kube_lb0() -> Result<()> {
    advertises(Make::Frr, "\"bgpd\"", "frr_on_the_nodes_advertises_kube_lb0").await
}

/// The routers upstream as `docs/how-to/bgp.md` has them, and the speaker in the agents.
#[tokio::test]
async fn routers_that_are_configured_as_documented_spread_traffic_over_the_nodes() -> Result<()> {
    let mut story = Story::begin("routers_that_are_configured_as_documented_spread_traffic_over_the_nodes").await?;
    for gate in story.fabric_mut().gates.iter_mut().filter(|gate| gate.make != Make::GoBgp) {
        let name = if gate.make == Make::Bird { "upstream-bird.conf" } else { "upstream-frr.conf" };
        let own = gate.address(".").to_string();
        gate.restart_with(&document(&format!("examples/{name}"))?.replace("192.168.7.251", &own))?;
    }
    let gates: Vec<_> = story.forwarding().collect();
    story.configure(neighbors(story.gates(), |_| ())).await?;
    single_addresses(&story, &gates).await?;
    aggregates(&story, &gates, &AGGREGATES).await?;
    policy_local(&story, &gates).await?;
    // What is not of a ServiceGroup's subnet goes no further.
    story.nodes()[0].namespace.batch("addr add 10.66.0.1/32 dev kube-lb0\naddr add 172.23.9.9/32 dev kube-lb0\n")?;
    story.routed(&gates, "172.23.9.9/32", &[0])?;
    for gate in &gates {
        assert_eq!(gate.router()?.next_hops("10.66.0.1/32")?, [] as [IpAddr; 0], "{:?}", gate.make);
    }
    story.nodes()[0].namespace.batch("addr del 10.66.0.1/32 dev kube-lb0\naddr del 172.23.9.9/32 dev kube-lb0\n")?;
    for gate in &mut story.fabric_mut().gates {
        gate.restart()?;
    }
    story.close()
}

#[tokio::test]
async fn without_a_configuration_nobody_listens_on_the_port_of_bgp() -> Result<()> {
    let story = Story::begin("without_a_configuration_nobody_listens_on_the_port_of_bgp").await?;
    for node in story.nodes() {
        assert_eq!(node.bgp_listeners()?, Vec::<String>::new());
    }
    story.close()
}

#[test]
fn the_document_shows_the_files_that_were_tested() -> Result<()> {
    let text = document("how-to/other-routers.md")?;
    for name in ["examples/bird.conf", "examples/frr.conf"] {
        assert!(text.contains(&document(name)?), "docs/how-to/other-routers.md does not show docs/{name} as it is");
    }
    let text = document("how-to/bgp.md")?;
    for name in ["examples/upstream-bird.conf", "examples/upstream-frr.conf"] {
        assert!(text.contains(&document(name)?), "docs/how-to/bgp.md does not show docs/{name} as it is");
    }
    Ok(())
}
