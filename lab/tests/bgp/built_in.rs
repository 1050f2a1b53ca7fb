//! The speaker in the agents: three nodes, three makes of routers, both families.

use std::net::TcpListener;

use anyhow::{Result, ensure};
use purelb_lab::router::Make;
use purelb_lab::router::fabric::{Gate, NODE_AS};
use serde_json::json;

use crate::configured::{flaps, neighbors};
use crate::routes::{AGGREGATES, aggregates, host, policy_local, single_addresses};
use crate::story::Story;

#[tokio::test]
async fn routers_of_every_make_reach_services_through_three_nodes() -> Result<()> {
    let story = Story::begin("routers_of_every_make_reach_services_through_three_nodes").await?;
    story.configure(neighbors(story.gates(), |_| ())).await?;
    story.established(6).await?;
    let gates: Vec<_> = story.gates().iter().collect();
    single_addresses(&story, &gates).await?;
    aggregates(&story, &gates, &AGGREGATES).await?;
    policy_local(&story, &gates).await?;
    story.close()
}

#[tokio::test]
async fn the_report_of_a_node_says_what_each_router_was_told() -> Result<()> {
    let story = Story::begin("the_report_of_a_node_says_what_each_router_was_told").await?;
    let advertise = json!({"communities": ["65100:7"], "med": 55, "prepend": 1});
    story.configure(neighbors(story.gates(), |one| one["advertise"] = advertise.clone())).await?;
    story.group_in("wide", ["default", "default"], 23).await?;
    story.service("web", "wide", "Cluster").await?;
    story.established(6).await?;
    // An aggregate counts as advertised, although the address itself is not a route.
    let healthy = async |story: &Story| {
        let status = story.node_status("node-a").await?;
        let routes = status["rib"]["localRoutes"].as_array().cloned().unwrap_or_default();
        let told = |prefix: &str| {
            let route = routes.iter().find(|route| route["prefix"] == prefix);
            route.is_some_and(|route| route["advertisedTo"].as_array().is_some_and(|to| to.len() == 3))
        };
        Ok(status["healthy"] == true && told("172.23.0.0/24") && told("fc00:23::/64"))
    };
    story.until("node-a is healthy and has told all routers", healthy).await?;
    let status = story.node_status("node-a").await?;
    assert_eq!(status["routerID"], "192.168.7.11");
    assert_eq!(status["conditions"][0]["type"], "Ready");
    assert_eq!(status["conditions"][0]["reason"], "AllHealthy");
    for gate in story.gates() {
        sees_what_was_written(gate)?;
    }
    story.close()
}

/// The router sees the attributes that the BGPConfiguration asks for.
fn sees_what_was_written(gate: &Gate) -> Result<()> {
    let (question, [community, med]) = match gate.make {
        Make::Bird => ("show route all for 172.23.0.0/24", ["(65100,7)", "BGP.med: 55"]),
        Make::Frr => ("show bgp ipv4 unicast 172.23.0.0/24", ["65100:7", "metric 55"]),
        Make::GoBgp => ("global rib -a ipv4", ["65100:7", "{Med: 55}"]),
    };
    let words = gate.router()?.ask(question)?;
    for part in [community, med, &format!("{NODE_AS} {NODE_AS}")] {
        ensure!(words.contains(part), "{part:?} is not in {words}");
    }
    Ok(())
}

/// What somebody else puts on `kube-lb0` is advertised, too.
#[tokio::test]
async fn a_thousand_addresses_of_the_operator_are_advertised_and_withdrawn() -> Result<()> {
    let story = Story::begin("a_thousand_addresses_of_the_operator_are_advertised_and_withdrawn").await?;
    story.configure(neighbors(story.gates(), |_| ())).await?;
    story.established(6).await?;
    let all: Vec<String> = (0..1000).map(|n| format!("10.66.{}.{}/32", n / 250, 1 + n % 250)).collect();
    let batch =
        |verb: &str| all.iter().map(|address| format!("addr {verb} {address} dev kube-lb0\n")).collect::<String>();
    let node = &story.nodes()[0];
    for (verb, count) in [("add", 1000), ("del", 0)] {
        node.namespace.batch(&batch(verb))?;
        for gate in story.gates() {
            let what = format!("{count} routes are there");
            gate.router()?.wait_for(&what, |router| router.route_count("-4").is_ok_and(|found| found == count))?;
        }
    }
    story.close()
}

#[tokio::test]
async fn a_port_that_is_taken_leaves_sessions_that_the_node_dials() -> Result<()> {
    let story = Story::begin("a_port_that_is_taken_leaves_sessions_that_the_node_dials").await?;
    let taken = story.nodes()[0].namespace.run(|| TcpListener::bind("[::]:179"))?;
    story.configure(neighbors(story.gates(), |_| ())).await?;
    story.established(6).await?;
    let said = async |story: &Story| {
        let status = story.node_status("node-a").await?;
        Ok(status["healthy"] != true && status["conditions"].to_string().contains("179"))
    };
    story.until("a condition of node-a names the port", said).await?;
    drop(taken);
    story.close()
}

/// Waits until the first node's session with each router fell so often.
async fn fallen(story: &Story, times: u64) -> Result<()> {
    for gate in story.gates() {
        let fell = async |story: &Story| Ok(flaps(&story.nodes()[0], gate.address("."))? >= times);
        story.until(&format!("the session with {:?} fell {times} times", gate.make), fell).await?;
    }
    Ok(())
}

#[tokio::test]
async fn routers_that_clear_or_restart_their_sessions_learn_everything_again() -> Result<()> {
    let mut story = Story::begin("routers_that_clear_or_restart_their_sessions_learn_everything_again").await?;
    story.configure(neighbors(story.gates(), |_| ())).await?;
    story.group("single", ["/32", "/128"]).await?;
    let addresses = story.service("web", "single", "Cluster").await?;
    for address in addresses {
        story.routed(story.gates(), &host(address), &[0, 1, 2])?;
    }
    story.established(6).await?;
    for gate in story.gates() {
        gate.router()?.clear(story.nodes()[0].v4)?;
    }
    fallen(&story, 1).await?;
    for address in addresses {
        story.routed(story.gates(), &host(address), &[0, 1, 2])?;
    }
    story.established(6).await?;
    for gate in &mut story.fabric_mut().gates {
        gate.restart()?;
    }
    fallen(&story, 2).await?;
    for address in addresses {
        story.routed(story.gates(), &host(address), &[0, 1, 2])?;
    }
    story.close()
}

#[tokio::test]
async fn a_neighbor_of_one_node_is_talked_to_by_that_node_alone() -> Result<()> {
    let story = Story::begin("a_neighbor_of_one_node_is_talked_to_by_that_node_alone").await?;
    let only = json!({"matchLabels": {"kubernetes.io/hostname": "node-b"}});
    story.configure(neighbors(story.gates(), |one| one["nodeSelector"] = only.clone())).await?;
    story.group("single", ["/32", "/128"]).await?;
    for address in story.service("web", "single", "Cluster").await? {
        story.routed(story.gates(), &host(address), &[1])?;
    }
    story.close()
}
