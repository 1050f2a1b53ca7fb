//! An upgrade: the agent of one node after the other is replaced, while clients go on asking.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::groups;
use crate::local_addresses::owned;
use crate::site::NODES;
use crate::story::Story;

/// The gap that a client of a local address sees ends with hand-over between agents that hear each other; until then it
/// is the time of a kernel step, a lease write, a watch event and a second kernel step, once when the owner goes and once
/// when it is back.
const LONGEST: Duration = Duration::from_secs(1);

#[tokio::test]
async fn i09_b9_a_rollout_costs_local_addresses_short_gaps_and_virtual_ones_nothing() -> Result<()> {
    let mut story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let (near, far) =
        (story.service("near", "local", json!({})).await?, story.service("far", "remote", json!({})).await?);
    for (address, length) in far.iter().zip([32, 128]) {
        story.everywhere(*address, length).await?;
        story.route(&format!("{address}/{length}"), NODES[0])?;
    }
    let (mut servers, mut probes) = (Vec::new(), Vec::new());
    for address in near.iter().chain(&far) {
        if near.contains(address) {
            owned(&story, *address).await?;
        }
        servers.extend(story.serve(*address)?);
        let probe = story.ask(*address)?;
        story.until(&format!("{address} answers"), async |_| Ok(probe.answers() > 100)).await?;
        probes.push((*address, probe));
    }
    for node in NODES {
        story.site_mut().node_mut(node)?.take()?.stop().await?;
        story.site_mut().start(node)?;
        story.members(&NODES).await?;
        for address in &near {
            owned(&story, *address).await?;
        }
    }
    for (address, probe) in probes {
        let answered = probe.answers();
        story.until(&format!("{address} still answers"), async |_| Ok(probe.answers() > answered + 100)).await?;
        let report = probe.finish()?;
        let (lost, gap) = (report.lost(), report.longest_gap);
        println!(
            "rollout of {} agents: {address} lost {lost} of {} packets, the longest gap was {gap:.1?}, {:?}",
            NODES.len(),
            report.sent,
            report.path
        );
        if far.contains(&address) {
            ensure!(lost == 0, "{report:?}");
        } else {
            ensure!(gap < LONGEST, "{report:?}");
        }
    }
    story.close().await
}
