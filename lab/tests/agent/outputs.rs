//! What an operator's tools see of an agent.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result};
use purelb_lab::Daemon;
use purelb_lab::net::Namespace;
use serde_json::json;

use crate::groups;
use crate::local_addresses::{length, ranking};
use crate::site::{HOME, NODES, register};
use crate::story::Story;

#[tokio::test]
async fn metrics_say_what_is_announced_and_why() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let addresses = story.service("web", "remote", json!({})).await?;
    for (address, length) in addresses.iter().zip([32, 128]) {
        story.everywhere(*address, length).await?;
    }
    for node in &story.site().nodes {
        let name = node.name();
        assert_eq!(node.ask("/healthz")?.trim(), "ok");
        assert_eq!(node.ask("/readyz")?.trim(), "ok");
        for sample in [
            r#"purelb_lbnodeagent_selector_state{state="configured"} 1"#.to_owned(),
            "purelb_election_lease_healthy 1".to_owned(),
            "purelb_election_member_count 3".to_owned(),
            "purelb_k8s_client_config_loaded_bool 1".to_owned(),
        ] {
            let there = async |_: &Story| Ok(node.ask("/metrics")?.lines().any(|line| line == sample));
            story.until(&format!("{name} shows {sample}"), there).await?;
        }
        for address in &addresses {
            let labels = [format!(r#"service="{}/web""#, story.ground.namespace), format!(r#"ip="{address}""#)];
            let line = |line: &str| {
                line.starts_with("purelb_lbnodeagent_announced{") && labels.iter().all(|label| line.contains(label))
            };
            let there =
                async |_: &Story| Ok(node.ask("/metrics")?.lines().any(|text| line(text) && text.ends_with("} 1")));
            story.until(&format!("{name} announces {address}"), there).await?;
        }
        assert!(node.ask("/debug/state").is_ok_and(|text| !text.contains(name)), "the state is for the machine only");
    }
    story.close().await
}

#[tokio::test]
async fn e09_the_lease_says_who_where_and_for_how_long() -> Result<()> {
    let story = Story::begin().await?;
    for node in &story.site().nodes {
        let lease = story.lease(node.name()).await?;
        let owner = story.ground.get(&format!("/api/v1/nodes/{}", node.name())).await?;
        assert_eq!(lease["spec"]["holderIdentity"], node.name());
        assert_eq!(lease["spec"]["leaseDurationSeconds"], crate::site::LEASE.as_secs());
        let labels = json!({"app.kubernetes.io/component": "lbnodeagent", "app.kubernetes.io/name": "purelb"});
        assert_eq!(lease["metadata"]["labels"], labels);
        assert_eq!(lease["metadata"]["namespace"], HOME);
        let reference = &lease["metadata"]["ownerReferences"][0];
        assert_eq!((&reference["kind"], &reference["uid"]), (&json!("Node"), &owner["metadata"]["uid"]));
    }
    story.close().await
}

#[tokio::test]
async fn i17_b18_a_node_without_ipv4_serves_and_is_watched_like_any_other() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let address = story.service("web", "remote", json!({})).await?[1];
    register(&story.ground, "node-six", 14).await?;
    let node = Namespace::new("node-six")?;
    story.site().lan.plug(&node, "eth0", &["fd00:7::14/64"])?;
    node.batch("route add ::/0 via fd00:7::1\n")?;
    let arguments = ["agent", "--node-name", "node-six", "--namespace", HOME, "--lease-duration", "3s"];
    let agent = Daemon::start_in(&node, &story.site().account_v6, &arguments, &[])?;
    let there = async |_: &Story| {
        let shown = node.ip(&["-j", "-6", "addr"])?.to_string();
        Ok(shown.contains(&format!(r#""local":"{address}""#)))
    };
    let answer = story.until("the address is there", there).await;
    answer.with_context(|| agent.log())?;
    let metrics = node.run(|| -> Result<String> {
        let mut stream = TcpStream::connect("[fd00:7::14]:7472")?;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    })?;
    assert!(metrics.contains("purelb_lbnodeagent_announced"), "{metrics}");
    agent.stop().await?;
    story.ground.delete("/api/v1/nodes/node-six").await?;
    story.close().await
}

#[tokio::test]
async fn logs_have_the_words_that_operators_look_for() -> Result<()> {
    let mut story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let address = story.service("near", "local", json!({})).await?[0];
    let nodes = ranking(address);
    story.held(address, &[(nodes[0], "eth0", length(address))]).await?;
    says(&story, nodes[0], &["electionWon", &address.to_string()]).await?;
    for other in &nodes[1..] {
        says(&story, other, &["notWinner", &address.to_string()]).await?;
    }
    // The second takes over, and gives back to the first.
    story.site_mut().node_mut(nodes[0])?.take()?.stop().await?;
    story.held(address, &[(nodes[1], "eth0", length(address))]).await?;
    story.site_mut().start(nodes[0])?;
    story.held(address, &[(nodes[0], "eth0", length(address))]).await?;
    says(&story, nodes[1], &["withdrawAddress", "lostElection", &address.to_string()]).await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let address = story.service("far", "remote", json!({})).await?[0];
    story.everywhere(address, 32).await?;
    for node in NODES {
        says(&story, node, &["announcingNonLocal", &address.to_string()]).await?;
    }
    story.delete("far").await?;
    for node in NODES {
        says(&story, node, &["withdrawAddress", "noService", &address.to_string()]).await?;
    }
    let mut elsewhere = groups::local();
    elsewhere["spec"]["local"] =
        json!({"v4pools": [{"pool": "192.168.99.1-192.168.99.9", "subnet": "192.168.99.0/24"}]});
    story.group("elsewhere", elsewhere).await?;
    let one = json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]});
    let address = story.service("lost", "elsewhere", one).await?[0];
    for node in NODES {
        says(&story, node, &["noLocalInterface", &address.to_string()]).await?;
    }
    story.site().node("node-c")?.namespace.batch("addr add 192.168.98.3/24 dev eth0\n")?;
    says(&story, "node-c", &["subnetsChanged", "192.168.98.0/24"]).await?;
    story.site().node("node-c")?.namespace.batch("addr del 192.168.98.3/24 dev eth0\n")?;
    for node in NODES {
        let log = story.site().node(node)?.agent()?.log();
        for word in ["panic", "fatal error", "runtime error"] {
            assert!(!log.contains(word), "{node} says {word}\n{log}");
        }
    }
    story.close().await
}

/// Waits until one line of a node's log has all these words.
async fn says(story: &Story, node: &str, words: &[&str]) -> Result<()> {
    let said = async |story: &Story| {
        let log = story.site().node(node)?.agent()?.log();
        Ok(log.lines().any(|line| words.iter().all(|word| line.contains(word))))
    };
    story.until(&format!("the log of {node} says {words:?}"), said).await
}

/// In the lab, as on any kernel without the module `dummy`, an ifb stands in: that is said once, and shown for as long as it
/// is so, also by an agent that finds it there.
#[tokio::test]
async fn users_see_that_an_ifb_stands_in_for_a_dummy() -> Result<()> {
    let mut story = Story::begin().await?;
    story.dual().await?;
    let link = story.site().node("node-a")?.namespace.ip(&["-j", "-d", "link", "show", "kube-lb0"])?;
    let is_ifb = link[0]["linkinfo"]["info_kind"] == "ifb";
    let gauge = format!("purelb_lbnodeagent_virtual_interface_is_ifb {}", u8::from(is_ifb));
    let shown = async |story: &Story| {
        Ok(story.site().node("node-a")?.ask("/metrics").is_ok_and(|text| text.lines().any(|line| line == gauge)))
    };
    story.until(&format!("the metrics say {gauge}"), shown).await?;
    if is_ifb {
        story.event("default", "NoDummyInterface", "so kube-lb0 is an ifb").await?;
    }
    story.site_mut().node_mut("node-a")?.take()?.kill();
    story.site_mut().start("node-a")?;
    story.until(&format!("the metrics say {gauge} after a restart"), shown).await?;
    story.members(&NODES).await?;
    story.close().await
}
