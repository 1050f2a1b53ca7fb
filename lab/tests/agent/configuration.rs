//! LBNodeAgents: an operator changes the configuration, and the nodes follow.

use std::time::Instant;

use anyhow::{Context, Result};
use purelb_lab::stories::PatchType;
use serde_json::{Value, json};

use crate::groups;
use crate::local_addresses::{length, ranking};
use crate::restart::nothing_lost;
use crate::site::{HOME, NODES};
use crate::story::Story;

fn path(name: &str) -> String {
    format!("/apis/purelb.io/v2/namespaces/{HOME}/lbnodeagents/{name}")
}

async fn edit(story: &Story, spec: Value) -> Result<()> {
    story.ground.patch(&path("default"), PatchType::Merge, &json!({"spec": spec})).await?;
    Ok(())
}

#[tokio::test]
async fn i20_lifetimes_and_flags_follow_the_configuration() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let address = story.service("web", "local", json!({})).await?[0];
    let owner = ranking(address)[0];
    story.held(address, &[(owner, "eth0", length(address))]).await?;
    for (lifetime, no_route) in [(json!(300), json!(true)), (json!(0), json!(true)), (json!(300), json!(false))] {
        let addresses = json!({"localInterface": {"validLifetime": lifetime, "noPrefixRoute": no_route}});
        edit(&story, json!({"local": {"addressConfig": addresses}})).await?;
        let began = Instant::now();
        let as_written = async |story: &Story| {
            let views = story.views(address)?;
            let fits = |left: Option<u64>| match lifetime.as_u64() {
                Some(0) => left.is_none(),
                most => left.zip(most).is_some_and(|(left, most)| left + 10 > most && left <= most),
            };
            Ok(views.len() == 1
                && fits(views[0].1.valid_for())
                && views[0].1.has("noprefixroute") == (no_route == true))
        };
        story.until(&format!("{address} has the lifetime {lifetime}, noprefixroute {no_route}"), as_written).await?;
        assert!(began.elapsed().as_secs() < 1, "{:?}", began.elapsed());
    }
    story.event("default", "LifetimeBeyondLease", "300s").await?;
    edit(&story, json!({"local": {"addressConfig": null}})).await?;
    story.close().await
}

#[tokio::test]
async fn b10_a_configuration_that_is_edited_costs_virtual_addresses_not_one_packet() -> Result<()> {
    let story = Story::begin().await?;
    let address = story.dual().await?[0];
    let (_servers, probe) = story.asked(address).await?;
    let lifetimes = async |most: Option<u64>| {
        let as_written = async |story: &Story| {
            let views = story.views(address)?;
            Ok(views.len() == NODES.len()
                && views.iter().all(|(_, shown)| shown.valid_for().is_some() == most.is_some()))
        };
        story.until(&format!("every kube-lb0 shows the lifetime {most:?}"), as_written).await
    };
    for _ in 0..3 {
        let on_virtual = json!({"dummyInterface": {"validLifetime": 120}});
        edit(&story, json!({"local": {"localInterface": "^eth0$", "addressConfig": on_virtual}})).await?;
        lifetimes(Some(120)).await?;
        edit(&story, json!({"local": {"localInterface": "default", "addressConfig": null}})).await?;
        lifetimes(None).await?;
        let before = probe.answers();
        story.until("it still answers", async |_| Ok(probe.answers() > before + 500)).await?;
    }
    let report = probe.finish()?;
    nothing_lost("a configuration edited six times", &report);
    story.close().await
}

#[tokio::test]
async fn a_node_that_no_configuration_selects_announces_nothing() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let address = story.service("web", "remote", json!({})).await?[0];
    story.everywhere(address, 32).await?;
    let but_a = json!([{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-a"]}]);
    edit(&story, json!({"nodeSelector": {"matchExpressions": but_a}})).await?;
    story.held(address, &[("node-b", "kube-lb0", 32), ("node-c", "kube-lb0", 32)]).await?;
    let node = story.site().node("node-a")?;
    let state = r#"purelb_lbnodeagent_selector_state{state="deselected"} 1"#;
    story.until("a metric says so", async |_| Ok(node.ask("/metrics")?.lines().any(|line| line == state))).await?;
    story.event("node-a", "NodeDeselected", "node-a").await?;
    edit(&story, json!({"nodeSelector": null})).await?;
    story.everywhere(address, 32).await?;
    story.members(&NODES).await?;
    story.close().await
}

#[tokio::test]
async fn b23_a_bad_configuration_leaves_the_last_good_one_in_force() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let before = story.service("before", "remote", json!({})).await?[0];
    story.everywhere(before, 32).await?;
    edit(&story, json!({"local": {"localInterface": "["}})).await?;
    let event = story.event("default", "ConfigError", "").await?;
    assert!(event["message"].as_str().context("it has words")?.contains('['), "{event:#}");
    let after = story.service("after", "remote", json!({})).await?[0];
    story.everywhere(after, 32).await?;
    story.everywhere(before, 32).await?;
    edit(&story, json!({"local": {"localInterface": "default"}})).await?;
    story.close().await
}
