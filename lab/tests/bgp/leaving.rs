//! Agents that stop, are killed, or are replaced: what clients behind the routers notice of it.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use purelb_lab::net::{Echo, Probe, Report};
use purelb_lab::router::Router;
use purelb_lab::router::fabric::{HOME, NODES, Node};
use serde_json::json;

use crate::configured::neighbors;
use crate::routes::host;
use crate::story::{PORT, Story};

/// Packets to an address from behind every router that forwards, answered by whichever node they reach.
struct Clients {
    _servers: Vec<Echo>,
    probes: Vec<Probe>,
}

impl Clients {
    async fn begin(story: &Story, address: IpAddr) -> Result<Self> {
        let at = SocketAddr::new(address, PORT);
        let servers = story.nodes().iter().map(|node| Echo::start(&node.namespace, at)).collect::<Result<_>>()?;
        let probes = story.forwarding().map(|gate| Probe::start(&gate.client, at)).collect::<Result<Vec<_>>>()?;
        let clients = Self { _servers: servers, probes };
        clients.go_on(story, 200).await?;
        Ok(clients)
    }

    /// Waits until each has so many more answers.
    async fn go_on(&self, story: &Story, more: usize) -> Result<()> {
        let before: Vec<usize> = self.probes.iter().map(Probe::answers).collect();
        let enough = async |_: &Story| {
            Ok(self.probes.iter().zip(&before).all(|(probe, before)| probe.answers() >= before + more))
        };
        story.until("clients are answered", enough).await
    }

    /// The node that answers the first client.
    fn server(&self) -> Result<&'static str> {
        NODES.into_iter().find(|node| self.probes[0].answers_of(node) > 0).context("nobody answers")
    }

    fn finish(self) -> Result<Vec<Report>> {
        self.probes.into_iter().map(Probe::finish).collect()
    }
}

/// The counted promise: enough packets from every client, and every one of them answered.
fn nothing_lost(what: &str, reports: &[Report]) {
    for report in reports {
        println!(
            "{what}: {} packets at {:.0}/s, {} lost, {:?}",
            report.sent,
            report.rate(),
            report.lost(),
            report.path
        );
        assert_eq!(report.lost(), 0, "{report:?}");
        assert!(report.rate() >= 1000.0, "too few packets to tell: {report:?}");
    }
}

/// A story in which every router reaches one Service of this policy through all three nodes, or through `node-a` alone.
async fn told(story: &Story, policy: &str, change: impl Fn(&mut serde_json::Value)) -> Result<[IpAddr; 2]> {
    story.configure(neighbors(story.gates(), change)).await?;
    story.group("single", ["/32", "/128"]).await?;
    story.pods("web", &["node-a"]).await?;
    let addresses = story.service("web", "single", policy).await?;
    let hops = if policy == "Local" { &[0][..] } else { &[0, 1, 2] };
    addresses.into_iter().try_for_each(|address| story.routed(story.gates(), &host(address), hops))?;
    Ok(addresses)
}

/// The route is withdrawn before the address leaves: a packet that came in between would be lost.
#[tokio::test]
async fn a_node_that_is_taken_out_loses_no_packet() -> Result<()> {
    let mut story = Story::begin("a_node_that_is_taken_out_loses_no_packet").await?;
    let addresses = told(&story, "Cluster", |_| ()).await?;
    let clients = Clients::begin(&story, addresses[0]).await?;
    let path = format!("/apis/apps/v1/namespaces/{HOME}/daemonsets");
    let mut set = story.ground.get(&format!("{path}/lbnodeagent")).await?;
    story.ground.delete(&format!("{path}/lbnodeagent")).await?;
    let gone = clients.server()?;
    story.fabric_mut().node(gone)?.take()?.stop().await?;
    assert!(story.fabric_mut().node(gone)?.virtual_addresses()?.is_empty(), "it took its addresses along");
    set["metadata"] = json!({"name": "lbnodeagent"});
    story.ground.create(&path, &set).await?;
    let left: Vec<usize> = (0..3).filter(|number| NODES[*number] != gone).collect();
    for address in addresses {
        story.routed(story.gates(), &host(address), &left)?;
    }
    clients.go_on(&story, 1000).await?;
    nothing_lost("SIGTERM, for good", &clients.finish()?);
    story.close()
}

#[tokio::test]
async fn a_pod_that_moves_takes_the_route_along_without_a_lost_packet() -> Result<()> {
    let story = Story::begin("a_pod_that_moves_takes_the_route_along_without_a_lost_packet").await?;
    let addresses = told(&story, "Local", |_| ()).await?;
    let clients = Clients::begin(&story, addresses[0]).await?;
    for (nodes, hops) in [(&["node-a", "node-b"][..], &[0, 1][..]), (&["node-b"], &[1])] {
        story.pods("web", nodes).await?;
        for address in addresses {
            story.routed(story.gates(), &host(address), hops)?;
        }
    }
    clients.go_on(&story, 1000).await?;
    nothing_lost("a pod moves", &clients.finish()?);
    story.close()
}

#[tokio::test]
async fn a_killed_agent_costs_its_routes_and_no_packet() -> Result<()> {
    let mut story = Story::begin("a_killed_agent_costs_its_routes_and_no_packet").await?;
    let addresses = told(&story, "Cluster", |_| ()).await?;
    let clients = Clients::begin(&story, addresses[0]).await?;
    let gone = clients.server()?;
    story.fabric_mut().node(gone)?.take()?.kill();
    let left: Vec<usize> = (0..3).filter(|number| NODES[*number] != gone).collect();
    for address in addresses {
        story.routed(story.gates(), &host(address), &left)?;
    }
    story.fabric_mut().start_agents()?;
    for address in addresses {
        story.routed(story.gates(), &host(address), &[0, 1, 2])?;
    }
    clients.go_on(&story, 1000).await?;
    nothing_lost("SIGKILL", &clients.finish()?);
    story.close()
}

/// With graceful restart the one route there is in each family stays while its agent is replaced.
#[tokio::test]
async fn an_upgrade_with_graceful_restart_loses_no_packet() -> Result<()> {
    let mut story = Story::begin("an_upgrade_with_graceful_restart_loses_no_packet").await?;
    for gate in &mut story.fabric_mut().gates {
        gate.change(|neighbour| neighbour.graceful_restart = true)?;
    }
    let graceful = json!({"enabled": true, "restartTime": 60});
    let addresses = told(&story, "Local", |one| one["gracefulRestart"] = graceful.clone()).await?;
    for address in addresses {
        let clients = Clients::begin(&story, address).await?;
        story.fabric_mut().node("node-a")?.take()?.stop().await?;
        for gate in story.gates() {
            let Node { v4, v6, .. } = story.nodes()[0];
            let down = |router: &Router| !router.is_established(v4) && !router.is_established(v6);
            gate.router()?.wait_for("the sessions are seen to be down", down)?;
        }
        story.fabric_mut().start_agents()?;
        story.established(6).await?;
        clients.go_on(&story, 2000).await?;
        nothing_lost(&format!("an upgrade, {address}"), &clients.finish()?);
    }
    for address in addresses {
        story.routed(story.gates(), &host(address), &[0])?;
    }
    for gate in &mut story.fabric_mut().gates {
        gate.change(|_| ())?;
    }
    story.close()
}
