//! An agent that ends and comes back: its virtual addresses never leave.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use purelb_lab::net::Report;
use serde_json::{Value, json};

use crate::groups;
use crate::node::Node;
use crate::site::{HOME, NODES};
use crate::story::Story;

/// The counted promise: enough packets for as long as the client got to send any, and every one of them answered.
pub fn nothing_lost(what: &str, report: &Report) {
    let rate = report.sent as f64 / report.lasted.saturating_sub(report.stalled).as_secs_f64();
    println!("{what}: {} packets at {rate:.0}/s, {} lost", report.sent, report.lost());
    assert!(rate >= 1000.0, "too few packets to tell: {report:?}");
    assert_eq!(report.lost(), 0, "{report:?}");
}

#[tokio::test]
async fn i04_a_killed_agent_comes_back_without_a_lost_packet() -> Result<()> {
    let mut story = Story::begin().await?;
    let address = story.dual().await?[0];
    let (_servers, probe) = story.asked(address).await?;
    story.site_mut().node_mut("node-a")?.take()?.kill();
    story.site_mut().start("node-a")?;
    story.members(&NODES).await?;
    let before = probe.answers();
    story.until("it still answers", async |_| Ok(probe.answers() > before + 1000)).await?;
    let report = probe.finish()?;
    nothing_lost("kill -9 and restart", &report);
    story.everywhere(address, 32).await?;
    story.close().await
}

#[tokio::test]
async fn a_replaced_agent_keeps_its_virtual_addresses_for_its_successor() -> Result<()> {
    let mut story = Story::begin().await?;
    let addresses = story.dual().await?;
    let (_servers, probe) = story.asked(addresses[0]).await?;
    let took = story.site_mut().node_mut("node-a")?.take()?.stop().await?;
    assert!(took < Duration::from_secs(1), "it took {took:?} to stop");
    assert_eq!(story.lease("node-a").await?, Value::Null);
    let left = |story: &Story| -> Result<Vec<Option<u64>>> {
        let node = story.site().node("node-a")?;
        let on_link = node.shown()?.into_iter().filter(|shown| addresses.contains(&shown.address));
        Ok(on_link.map(|shown| shown.valid_for()).collect())
    };
    assert!(left(&story)?.iter().all(|left| left.is_some_and(|left| (50..=70).contains(&left))), "{:?}", left(&story)?);
    story.site_mut().start("node-a")?;
    story.until("they are permanent again", async |story| Ok(left(story)? == [None, None])).await?;
    let before = probe.answers();
    story.until("it still answers", async |_| Ok(probe.answers() > before + 1000)).await?;
    let report = probe.finish()?;
    nothing_lost("SIGTERM and restart", &report);
    story.close().await
}

#[tokio::test]
async fn an_agent_that_is_uninstalled_takes_everything_along() -> Result<()> {
    let mut story = Story::begin().await?;
    story.group("remotedual", groups::remotedual()).await?;
    story.group("local", groups::local()).await?;
    let mut all = story.service("far", "remotedual", json!({})).await?;
    story.everywhere(all[0], 32).await?;
    all.extend(story.service("near", "local", json!({})).await?);
    uninstalled(&mut story).await?;
    for address in all {
        assert_eq!(story.holders(address)?, []);
    }
    story.close().await
}

#[tokio::test]
async fn thousands_of_addresses_are_taken_along() -> Result<()> {
    const SERVICES: usize = 1_200;
    let mut story = Story::begin().await?;
    let group = json!({
        "apiVersion": "purelb.io/v2",
        "spec": {"remote": {
            "v4pools": [{"pool": "172.23.0.1-172.23.7.254", "subnet": "172.23.0.0/16", "aggregation": "/32"}],
            "v6pools": [{"pool": "fc00:23::1-fc00:23::7fff", "subnet": "fc00:23::/64", "aggregation": "/128"}],
        }},
    });
    story.group("many", group).await?;
    let made = (0..SERVICES).map(|number| story.create(format!("many-{number}"), "many", json!({})));
    stream::iter(made).buffer_unordered(32).try_collect::<()>().await?;
    story
        .until("every node has all of them", async |story| {
            let held = story.site().nodes.iter().map(|node| Ok(node.on("kube-lb0")?.len()));
            Ok(held.collect::<Result<Vec<_>>>()?.into_iter().all(|held| held == 2 * SERVICES))
        })
        .await?;
    uninstalled(&mut story).await?;
    story.ground.delete(&story.ground.core("services")).await?;
    story.close().await
}

/// The DaemonSet goes, and all agents are stopped; nothing of theirs may be left on any node. Then the DaemonSet is back.
async fn uninstalled(story: &mut Story) -> Result<()> {
    let path = format!("/apis/apps/v1/namespaces/{HOME}/daemonsets");
    let mut set = story.ground.get(&format!("{path}/lbnodeagent")).await?;
    story.ground.delete(&format!("{path}/lbnodeagent")).await?;
    for name in NODES {
        let took = story.site_mut().node_mut(name)?.take()?.stop().await?;
        println!("the agent of {name} left in {took:.1?}");
    }
    for node in &story.site().nodes {
        assert_eq!(node.on("eth0")?, node.own());
        has_no_virtual_interface(node)?;
    }
    set["metadata"] = json!({"name": "lbnodeagent"});
    story.ground.create(&path, &set).await?;
    Ok(())
}

fn has_no_virtual_interface(node: &Node) -> Result<()> {
    let links = node.namespace.ip(&["-j", "link"])?;
    assert!(!links.as_array().context("links")?.iter().any(|link| link["ifname"] == "kube-lb0"), "{links}");
    Ok(())
}

#[tokio::test]
async fn i05_a_service_deleted_meanwhile_is_flushed_after_the_restart() -> Result<()> {
    let mut story = Story::begin().await?;
    story.group("remote", groups::remote(["default", "default"])).await?;
    let stale = story.service("stale", "remote", json!({})).await?;
    let kept = story.service("kept", "remote", json!({})).await?;
    for address in stale.iter().chain(&kept) {
        story.everywhere(*address, if address.is_ipv4() { 24 } else { 64 }).await?;
    }
    story.site_mut().node_mut("node-b")?.take()?.kill();
    story.delete("stale").await?;
    story.held(stale[0], &[("node-b", "kube-lb0", 24)]).await?;
    story.site_mut().start("node-b")?;
    for address in &stale {
        story.held(*address, &[]).await?;
    }
    for address in kept {
        story.everywhere(address, if address.is_ipv4() { 24 } else { 64 }).await?;
    }
    story.close().await
}

#[tokio::test]
async fn an_agent_that_finds_no_api_server_keeps_what_is_there() -> Result<()> {
    let mut story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let addresses = story.service("web", "remote", json!({})).await?;
    story.everywhere(addresses[0], 32).await?;
    story.everywhere(addresses[1], 128).await?;
    story.site_mut().node_mut("node-c")?.take()?.stop().await?;
    story
        .site()
        .node("node-c")?
        .namespace
        .batch("route add unreachable 192.168.7.2/32\naddr add 10.99.0.1/32 dev kube-lb0\n")?;
    story.site_mut().start("node-c")?;
    let node = story.site().node("node-c")?;
    let permanent = async |_: &Story| {
        let shown = node.shown()?;
        Ok(addresses
            .iter()
            .all(|address| shown.iter().any(|shown| shown.address == *address && shown.valid_for().is_none())))
    };
    story.until("they are permanent again", permanent).await?;
    assert_eq!(node.on("kube-lb0")?.len(), 3, "{:?}", node.on("kube-lb0")?);
    node.namespace.batch("route del unreachable 192.168.7.2/32\naddr del 10.99.0.1/32 dev kube-lb0\n")?;
    story.members(&NODES).await?;
    story.everywhere(addresses[0], 32).await?;
    story.close().await
}

#[tokio::test]
async fn cleanup_removes_what_we_added_and_nothing_else() -> Result<()> {
    let mut story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    story.group("local", groups::local()).await?;
    let far = story.service("far", "remote", json!({})).await?;
    story.everywhere(far[0], 32).await?;
    story.service("near", "local", json!({})).await?;
    story.until("somebody has it", async |story| Ok(!story.holders("192.168.7.100".parse()?)?.is_empty())).await?;
    for name in NODES {
        story.site_mut().node_mut(name)?.take()?.kill();
        let node = story.site().node(name)?;
        node.namespace.batch("addr add 192.168.7.200/24 dev eth0\n")?;
        let program = purelb_lab::daemon::program()?;
        let done = node.namespace.command("env").arg(program).args(["agent", "--cleanup"]).output()?;
        assert!(done.status.success(), "{done:?}");
        let mut own = node.own();
        own.insert("192.168.7.200/24".to_owned());
        assert_eq!(node.on("eth0")?, own);
        has_no_virtual_interface(node)?;
        node.namespace.batch("addr del 192.168.7.200/24 dev eth0\n")?;
    }
    story.close().await
}
