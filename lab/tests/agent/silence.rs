//! Connections that die without a word, as when a firewall forgets them or the machine at the other end loses its power.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::endpoints::{change, slice};
use crate::groups;
use crate::site::NODES;
use crate::story::Story;

/// Five seconds of silence, two questions two seconds apart, and what a busy machine takes to begin a new watch.
const NOTICED: Duration = Duration::from_secs(15);

/// The ports of a node's connections to the API server as they are now.
fn connections(story: &Story, node: &str) -> Result<Vec<String>> {
    let mut ss = story.site().node(node)?.namespace.command("ss");
    let output = ss.args(["-Htn", "state", "established", "dport", "=", ":6443"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    let ports = text.lines().map(|line| {
        let local = line.split_whitespace().nth(2).with_context(|| format!("what is {line:?}?"))?;
        Ok(local.rsplit_once(':').with_context(|| format!("no port in {local}"))?.1.to_owned())
    });
    ports.collect()
}

#[tokio::test]
async fn a_watch_whose_connection_died_without_a_word_is_back_within_seconds() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let path = story.ground.group("discovery.k8s.io/v1", "endpointslices");
    story.ground.create(&path, &slice(&[("node-a", json!({"ready": true}))])).await?;
    let single = json!({"externalTrafficPolicy": "Local", "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]});
    let address = story.service("web", "remote", single).await?[0];
    story.held(address, &[("node-a", "kube-lb0", 32)]).await?;
    // Nothing comes back on the connections that there are; new ones work.
    let ports = connections(&story, "node-b")?;
    ensure!(ports.len() > 5, "each watch has its own connection: {ports:?}");
    let rules = |verb: &str| -> String {
        let rule = |port: &String| format!("rule {verb} pref 7 ipproto tcp sport 6443 dport {port} blackhole\n");
        ports.iter().map(rule).collect()
    };
    story.site().control.batch(&rules("add"))?;
    change(&story, &[("node-b", json!({"ready": true}))]).await?;
    let took = story.held(address, &[("node-b", "kube-lb0", 32)]).await?;
    println!("endpoints that moved while all connections were dead were noticed after {took:.1?}");
    assert!(took < NOTICED, "{took:?}");
    story.site().control.batch(&rules("del"))?;
    story.members(&NODES).await?;
    story.close().await
}
