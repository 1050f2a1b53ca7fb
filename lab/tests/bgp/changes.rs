//! What an operator changes while sessions are up: a password, a mistake in an edit, and everything there is to say of a neighbor.

use std::net::IpAddr;

use anyhow::Result;
use purelb_lab::net::Capture;
use purelb_lab::router::Router;
use purelb_lab::router::fabric::{HOME, NODES, ROUTER_AS, v4};
use purelb_lab::stories::PatchType;
use serde_json::{Value, json};

use crate::configured::{flaps, neighbor, neighbors};
use crate::mistakes::nothing_said;
use crate::routes::host;
use crate::story::Story;

const OLD: &str = "correct-horse-battery";
const NEW: &str = "staple-donkey-charger";
const CONFIGURATION: &str = "/apis/bgp.purelb.io/v1/namespaces/purelb-system/configs/default";

#[tokio::test]
async fn a_password_changes_while_its_session_is_up_and_no_other_session_notices() -> Result<()> {
    let mut story = Story::begin("a_password_changes_while_its_session_is_up_and_no_other_session_notices").await?;
    story.fabric_mut().gates[0].change(|neighbour| neighbour.password = Some(OLD.into()))?;
    let secrets = format!("/api/v1/namespaces/{HOME}/secrets");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bgp"}, "stringData": {"password": OLD},
    });
    story.ground.create(&secrets, &secret).await?;
    let (guarded, other) = (story.gates()[0].address("."), story.gates()[1].address("."));
    let mut both = [guarded, other].map(neighbor);
    both[0]["config"]["authPasswordSecretRef"] = json!({"name": "bgp", "key": "password"});
    story.configure(both.into()).await?;
    story.group("single", ["/32", "/128"]).await?;
    let prefix = host(story.service("web", "single", "Cluster").await?[0]);
    story.routed(&story.gates()[..2], &prefix, &[0, 1, 2])?;
    // The router does not know the new password yet: the session that was up is given up for it.
    let patch = json!({"stringData": {"password": NEW}});
    story.ground.patch(&format!("{secrets}/bgp"), PatchType::Merge, &patch).await?;
    for node in NODES {
        story.says(node, guarded, "the passwords of the two sides may differ").await?;
    }
    story.routed(&story.gates()[..1], &prefix, &[])?;
    story.fabric_mut().gates[0].change(|neighbour| neighbour.password = Some(NEW.into()))?;
    story.routed(&story.gates()[..2], &prefix, &[0, 1, 2])?;
    for node in story.nodes() {
        assert_eq!((flaps(node, guarded)?, flaps(node, other)?), (1, 0), "{}", node.name());
    }
    nothing_said(&story, &[OLD, NEW]).await?;
    story.ground.delete(&format!("{secrets}/bgp")).await?;
    story.fabric_mut().gates[0].change(|_| ())?;
    story.close()
}

/// What the condition Ready of the configuration says, once it has this reason.
async fn ready(story: &Story, reason: &str) -> Result<String> {
    let mut said = String::new();
    let told = async |story: &Story| {
        let status = story.ground.get(CONFIGURATION).await?["status"].take();
        said = status["message"].as_str().unwrap_or_default().to_owned();
        Ok(status["conditions"][0]["reason"] == reason)
    };
    story.until(&format!("the configuration is told {reason}"), told).await?;
    Ok(said)
}

#[tokio::test]
async fn a_bad_edit_takes_no_route_away_not_even_when_agents_restart() -> Result<()> {
    let mut story = Story::begin("a_bad_edit_takes_no_route_away_not_even_when_agents_restart").await?;
    story.configure(neighbors(story.gates(), |_| ())).await?;
    story.group("single", ["/32", "/128"]).await?;
    let addresses = story.service("web", "single", "Cluster").await?;
    let routed = |story: &Story| {
        addresses.into_iter().try_for_each(|address| story.routed(story.gates(), &host(address), &[0, 1, 2]))
    };
    routed(&story)?;
    ready(&story, "ReconcileSuccess").await?;
    for (edit, reason) in [
        (json!({"spec": {"global": {"routerID": "nonsense"}}}), "RouterIdSyntax"),
        (
            json!({"spec": {"netlinkImport": {"interfaceList": ["kube-lb[0"]}, "global": {"routerID": null}}}),
            "GlobSyntax",
        ),
    ] {
        story.ground.patch(CONFIGURATION, PatchType::Merge, &edit).await?;
        let said = ready(&story, reason).await?;
        assert!(said.ends_with("the last valid form of the object is in use"), "{said}");
        for node in NODES {
            story.fabric_mut().node(node)?.take()?.kill();
        }
        addresses.into_iter().try_for_each(|address| story.routed(story.gates(), &host(address), &[]))?;
        story.fabric_mut().start_agents()?;
        routed(&story)?;
    }
    story.configure(neighbors(story.gates(), |_| ())).await?;
    ready(&story, "ReconcileSuccess").await?;
    story.close()
}

/// Waits until a router has exactly this next hop.
fn goes_through(router: &Router, prefix: &str, hops: &[IpAddr]) -> Result<()> {
    let what = format!("{prefix} goes through {hops:?}");
    router.wait_for(&what, |router| router.next_hops(prefix).is_ok_and(|found| found == hops))
}

/// Each router has another wish, and one node talks to all of them.
#[tokio::test]
async fn what_is_written_of_a_neighbor_is_what_its_router_sees() -> Result<()> {
    let mut story = Story::begin("what_is_written_of_a_neighbor_is_what_its_router_sees").await?;
    let second = v4(111);
    story.nodes()[0].namespace.batch(&format!("addr add {second}/24 dev eth0\n"))?;
    story.fabric_mut().gates[0].change(|node| {
        if node.address == v4(11) {
            (node.address, node.passive) = (second, true);
        }
    })?;
    story.fabric_mut().gates[1].change(|node| {
        if node.address == v4(11) {
            node.asn = ROUTER_AS;
        }
    })?;
    let mut all: Vec<Value> = story.gates().iter().map(|gate| neighbor(gate.address("."))).collect();
    for one in &mut all {
        one["nodeSelector"] = json!({"matchLabels": {"kubernetes.io/hostname": "node-a"}});
    }
    all[0]["transport"] = json!({"localAddress": second, "bindInterface": "eth0"});
    all[0]["ebgpMultihop"] = json!({"enabled": true, "multihopTtl": 7});
    all[1]["config"]["localAsn"] = json!(ROUTER_AS);
    all[1]["advertise"] = json!({"localPref": 250});
    all[2]["nextHop"] = json!({"ipv4": v4(12)});
    let own_words = format!("tcp port 179 and src host {second}");
    let wire = Capture::start(&story.nodes()[0].namespace, "eth0", &own_words)?;
    story.configure(all.clone()).await?;
    story.group("single", ["/32", "/128"]).await?;
    let prefix = host(story.service("web", "single", "Cluster").await?[0]);
    let [bird, frr, gobgp] = story.gates() else { unreachable!("there are three routers") };
    goes_through(bird.router()?, &prefix, &[second])?;
    wire.wait_for("a packet that may go seven hops", |line| line.contains("ttl 7,"))?;
    goes_through(frr.router()?, &prefix, &[v4(11)])?;
    let shown = frr.router()?.ask(&format!("show bgp ipv4 unicast {prefix}"))?;
    assert!(shown.contains("localpref 250"), "{shown}");
    goes_through(gobgp.router()?, &prefix, &[v4(12)])?;
    all[2]["config"]["adminDown"] = json!(true);
    story.configure(all).await?;
    goes_through(gobgp.router()?, &prefix, &[])?;
    let kept_down = async |story: &Story| {
        let status = story.node_status("node-a").await?;
        let state = story.reported("node-a", story.gates()[2].address(".")).await?["state"].take();
        Ok(state == "Idle" && status["healthy"] == true)
    };
    story.until("a session that is kept down is not missed", kept_down).await?;
    story.nodes()[0].namespace.batch(&format!("addr del {second}/24 dev eth0\n"))?;
    for gate in &mut story.fabric_mut().gates[..2] {
        gate.change(|_| ())?;
    }
    story.close()
}
