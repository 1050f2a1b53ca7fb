//! What an operator's tools see of an agent.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result};
use purelb_lab::Daemon;
use purelb_lab::net::Namespace;
use serde_json::json;

use crate::groups;
use crate::site::{HOME, register};
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
