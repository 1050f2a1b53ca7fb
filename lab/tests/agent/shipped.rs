//! What is promised of the times that are shipped, told on these times: other stories have shorter leases and wait less.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use crate::groups;
use crate::local_addresses::ranking;
use crate::site::NODES;
use crate::story::Story;

/// A dead node's addresses are elsewhere by then.
const REPLACED: Duration = Duration::from_secs(8);
/// How often the API server stands still, and for how long each time.
const TRIALS: u32 = 10;
const STANDS: [Duration; 2] = [Duration::from_millis(2_500), Duration::from_secs(3)];
/// Longer than a node may hold an address without a renewal.
const AFTERWARDS: Duration = Duration::from_millis(3_500);

/// All agents anew, as they are shipped, and a local address that is where it belongs.
async fn shipped(story: &mut Story) -> Result<IpAddr> {
    let account = story.site().account.clone();
    for name in NODES {
        story.site_mut().node_mut(name)?.take()?.stop().await?;
    }
    for name in NODES {
        story.site_mut().node_mut(name)?.start_as_shipped(&account)?;
    }
    story.members(&NODES).await?;
    story.group("local", groups::local()).await?;
    let single = json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]});
    let address = story.service("web", "local", single).await?[0];
    story.held(address, &[(ranking(address)[0], "eth0", 24)]).await?;
    Ok(address)
}

/// The agents end, so that the next story starts them with its own times.
async fn over(mut story: Story) -> Result<()> {
    for name in NODES {
        if let Ok(agent) = story.site_mut().node_mut(name)?.take() {
            agent.stop().await?;
        }
    }
    story.close().await
}

/// Whether an address leaves its NIC while the API server stands still, or soon after.
async fn leaves(story: &Story, address: IpAddr, time: Duration) -> Result<bool> {
    let plane = story.site().plane;
    let looking = async {
        let (end, mut left) = (Instant::now() + time + AFTERWARDS, false);
        while Instant::now() < end {
            left |= story.holders(address)?.is_empty();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(left)
    };
    let (frozen, left) = tokio::join!(plane.freeze_server(time), looking);
    frozen?;
    left
}

#[tokio::test]
async fn an_api_server_that_stands_still_for_three_seconds_moves_no_local_address() -> Result<()> {
    let mut story = Story::begin().await?;
    let address = shipped(&mut story).await?;
    for time in STANDS {
        let mut left = 0;
        for trial in 0..TRIALS {
            // At another phase of the renewals each time.
            tokio::time::sleep(Duration::from_millis(u64::from(trial) * 100)).await;
            left += u32::from(leaves(&story, address, time).await?);
            story.held(address, &[(ranking(address)[0], "eth0", 24)]).await?;
        }
        println!("the API server stood still for {time:?}: the address left its NIC in {left} of {TRIALS} cases");
        assert_eq!(left, 0, "{}", story.site().logs());
    }
    over(story).await
}

#[tokio::test]
async fn a_dead_node_is_replaced_within_eight_seconds() -> Result<()> {
    let mut story = Story::begin().await?;
    let address = shipped(&mut story).await?;
    let dead = Instant::now();
    story.site_mut().node_mut(ranking(address)[0])?.take()?.kill();
    story.held(address, &[(ranking(address)[1], "eth0", 24)]).await?;
    println!("a dead node was replaced after {:.1?}", dead.elapsed());
    assert!(dead.elapsed() < REPLACED, "{:?}", dead.elapsed());
    over(story).await
}

#[tokio::test]
async fn a_restarted_agent_lists_its_subnets_and_has_its_address_back_in_a_moment() -> Result<()> {
    let mut story = Story::begin().await?;
    let address = shipped(&mut story).await?;
    let owner = ranking(address)[0];
    // Neighbours that have just begun themselves cannot say yet that nobody else is there.
    tokio::time::sleep(REPLACED).await;
    story.site_mut().node_mut(owner)?.take()?.stop().await?;
    story.held(address, &[(ranking(address)[1], "eth0", 24)]).await?;
    let (account, started) = (story.site().account.clone(), Instant::now());
    story.site_mut().node_mut(owner)?.start_as_shipped(&account)?;
    let listed = async |story: &Story| {
        let lease = story.lease(owner).await?;
        let subnets = &lease["metadata"]["annotations"]["purelb.io/subnets"];
        Ok(lease != Value::Null && subnets.as_str().is_some_and(|subnets| !subnets.is_empty()))
    };
    story.until("its subnets are listed", listed).await?;
    println!("the subnets of a restarted agent were listed after {:.1?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    story.held(address, &[(owner, "eth0", 24)]).await?;
    println!("its address was back after {:.1?}", started.elapsed());
    over(story).await
}
