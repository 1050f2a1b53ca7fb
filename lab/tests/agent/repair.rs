//! Somebody's hand on a node: what it removes comes back.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use crate::groups;
use crate::local_addresses::{length, ranking};
use crate::story::Story;

/// What the spec allows each time.
const SOON: Duration = Duration::from_secs(1);
/// What we promise; of several times the best shows it, whatever else the machine does meanwhile.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Does this to a node and waits until it has both addresses again, on an interface that is up; tells how long it took.
async fn repaired(story: &Story, node: &str, command: &str, addresses: &[IpAddr]) -> Result<Duration> {
    let node = &story.site().node(node)?.namespace;
    node.batch(&format!("{command}\n"))?;
    let began = Instant::now();
    let whole = async |_: &Story| {
        let links = node.ip(&["-j", "addr", "show", "up"])?;
        let link = links.as_array().into_iter().flatten().find(|link| link["ifname"] == "kube-lb0");
        let there =
            |address: &IpAddr| link.is_some_and(|link| link["addr_info"].to_string().contains(&address.to_string()));
        Ok(addresses.iter().all(there))
    };
    story.until("the node has all of it again", whole).await?;
    let took = began.elapsed();
    println!("repaired {took:?} after `ip {command}`");
    assert!(took < SOON, "{command}: {took:?}");
    Ok(took)
}

// In a story an address, or a node's interface, goes once: what goes again and again comes back ever later.

#[tokio::test]
async fn i06_addresses_come_back() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let addresses = story.service("web", "remote", json!({})).await?;
    story.everywhere(addresses[0], 32).await?;
    story.everywhere(addresses[1], 128).await?;
    let mut best = repaired(&story, "node-c", "addr flush dev kube-lb0", &addresses).await?;
    for node in ["node-a", "node-b"] {
        for (address, length) in addresses.iter().zip([32, 128]) {
            let command = format!("addr del {address}/{length} dev kube-lb0");
            best = best.min(repaired(&story, node, &command, &addresses).await?);
        }
    }
    assert!(best < AT_ONCE, "the best of five took {best:?}");
    story.everywhere(addresses[0], 32).await?;
    story.everywhere(addresses[1], 128).await?;
    story.close().await
}

#[tokio::test]
async fn i06_the_interface_comes_back() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remotedual", groups::remotedual()).await?;
    let addresses = story.service("web", "remotedual", json!({})).await?;
    story.everywhere(addresses[0], 32).await?;
    story.everywhere(addresses[1], 128).await?;
    let mut best = repaired(&story, "node-a", "link set kube-lb0 down", &addresses).await?;
    for node in ["node-b", "node-c"] {
        best = best.min(repaired(&story, node, "link del kube-lb0", &addresses).await?);
    }
    assert!(best < AT_ONCE, "the best of three took {best:?}");
    story.everywhere(addresses[0], 32).await?;
    story.everywhere(addresses[1], 128).await?;
    story.close().await
}

#[tokio::test]
async fn i06_a_local_address_comes_back() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let mut best = Duration::MAX;
    let mut addresses = story.service("web", "local", json!({})).await?;
    addresses.extend(story.service("mail", "local", json!({})).await?);
    for address in addresses {
        let owner = ranking(address)[0];
        story.held(address, &[(owner, "eth0", length(address))]).await?;
        story.site().node(owner)?.namespace.batch(&format!("addr del {address}/{} dev eth0\n", length(address)))?;
        let took = story.held(address, &[(owner, "eth0", length(address))]).await?;
        println!("{address} was back after {took:?}");
        assert!(took < SOON, "{took:?}");
        best = best.min(took);
    }
    assert!(best < AT_ONCE, "the best of four took {best:?}");
    story.close().await
}

#[tokio::test]
async fn whoever_keeps_deleting_is_told_of_and_does_not_keep_us_busy() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let address = story.service("web", "remote", json!({})).await?[0];
    story.everywhere(address, 32).await?;
    let node = story.site().node("node-b")?;
    let (mut deleted, began) = (0, Instant::now());
    while began.elapsed() < Duration::from_secs(3) {
        if node.on("kube-lb0")?.contains(&format!("{address}/32")) {
            node.namespace.batch(&format!("addr del {address}/32 dev kube-lb0\n"))?;
            deleted += 1;
        }
    }
    println!("in 3 s it was put back {deleted} times");
    assert!(deleted < 60, "no back-off: it was put back {deleted} times in 3 s");
    story.event("web", "KeepsDisappearing", &address.to_string()).await?;
    story.everywhere(address, 32).await?;
    story.close().await
}
