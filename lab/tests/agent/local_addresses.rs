//! Local addresses: on the NIC of exactly one node, and everybody knows which.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

use anyhow::{Context, Result};
use purelb_lab::net::{Capture, Lan};
use purelb_lab::stories::PatchType;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::groups;
use crate::site::{HOME, LEASE, NODES};
use crate::story::Story;

/// The nodes in the order in which they may have an address: SHA-256 of `node#address`, smallest first.
pub fn ranking(address: IpAddr) -> Vec<&'static str> {
    let mut nodes = NODES.to_vec();
    nodes.sort_by_key(|node| Sha256::digest(format!("{node}#{address}")).to_vec());
    nodes
}

/// The prefix length of the segment.
pub fn length(address: IpAddr) -> u64 {
    if address.is_ipv4() { 24 } else { 64 }
}

/// Waits until the first choice has the address and its kernel answers for it; returns that node.
///
/// For a moment another may have it: a node that has just joined waits until the others have seen it. And an IPv6
/// address is tentative for a moment even if nobody is asked for duplicates, and solicitations are not answered.
pub async fn owned(story: &Story, address: IpAddr) -> Result<&'static str> {
    let owner = ranking(address)[0];
    story.held(address, &[(owner, "eth0", length(address))]).await?;
    let settled = async |story: &Story| Ok(story.views(address)?.iter().all(|(_, shown)| !shown.has("tentative")));
    story.until("it is not tentative", settled).await?;
    Ok(owner)
}

/// The kernel that answers for an IPv4 address on the segment.
fn answering(story: &Story, address: IpAddr) -> Result<BTreeSet<String>> {
    let mut arping = story.site().client.command("arping");
    // It asks by broadcast each time, so that a second owner would be heard.
    let answer = arping.args(["-b", "-c", "2", "-w", "2", "-I", "eth0", &address.to_string()]).output()?;
    let text = String::from_utf8(answer.stdout)?;
    let replies = text.lines().filter_map(|line| line.split_once('[')?.1.split_once(']'));
    Ok(replies.map(|(mac, _)| mac.to_lowercase()).collect())
}

/// The MAC address of a node's NIC.
pub fn mac(story: &Story, node: &str) -> Result<String> {
    let link = story.site().node(node)?.namespace.ip(&["-j", "link", "show", "dev", "eth0"])?;
    Ok(link[0]["address"].as_str().context("a NIC has an address")?.to_owned())
}

#[tokio::test]
async fn e12_an_address_is_on_the_elected_node_only() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let mut winners = BTreeSet::new();
    for name in ["one", "two", "three", "four", "five", "six"] {
        for address in story.service(name, "local", json!({})).await? {
            let winner = ranking(address)[0];
            winners.insert(winner);
            story.held(address, &[(winner, "eth0", length(address))]).await?;
            story
                .event(name, "AnnouncingLocal", &format!("Node {winner} announcing {address} on interface eth0"))
                .await?;
            let key = if address.is_ipv4() { "purelb.io/announcing-IPv4" } else { "purelb.io/announcing-IPv6" };
            let entry = format!("{winner},eth0,{address}");
            story
                .until(&format!("{key} is {entry}"), async |story| {
                    Ok(story.annotation(name, key).await?.as_ref() == Some(&entry))
                })
                .await?;
        }
    }
    assert!(winners.len() > 1, "twelve addresses spread over the nodes: {winners:?}");
    story.close().await
}

#[tokio::test]
async fn a_local_address_looks_as_the_spec_says_and_ends_with_the_lease() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    for address in story.service("web", "local", json!({})).await? {
        owned(&story, address).await?;
        let (_, shown) = story.views(address)?.remove(0);
        assert!(shown.has("dynamic") && shown.has("noprefixroute"), "{shown:?}");
        assert_eq!(shown.has("deprecated"), address.is_ipv6(), "{shown:?}");
        let left = shown.valid_for().context("it has a lifetime")?;
        assert!(left <= LEASE.as_secs(), "a peer may take it before it is gone here: {shown:?}");
    }
    story.close().await
}

#[tokio::test]
async fn clients_find_the_one_node_in_both_families() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    for address in story.service("web", "local", json!({})).await? {
        let owner = owned(&story, address).await?;
        let _servers = story.serve(address)?;
        let report = story.reach(address).await?;
        assert_eq!((report.lost(), &report.path[..]), (0, &[owner.to_owned()][..]), "{report:?}");
        if address.is_ipv4() {
            assert_eq!(answering(&story, address)?, [mac(&story, owner)?].into());
        }
    }
    story.close().await
}

#[tokio::test]
async fn taking_an_address_over_is_told_to_the_segment() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let heard = Capture::start(&story.site().client, "eth0", "arp or icmp6")?;
    for address in story.service("web", "local", json!({})).await? {
        let mac = mac(&story, ranking(address)[0])?;
        let words = match address {
            IpAddr::V4(_) => format!("{address} is-at {mac}"),
            // tcpdump tells the target on the line after that of the frame.
            IpAddr::V6(_) => format!("tgt is {address}, Flags [override]"),
        };
        heard.wait_for(&words, |line| line.contains(&words))?;
    }
    story.close().await
}

#[tokio::test]
async fn a_deleted_service_leaves_the_segment() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let addresses = story.service("web", "local", json!({})).await?;
    for address in &addresses {
        story.held(*address, &[(ranking(*address)[0], "eth0", length(*address))]).await?;
    }
    let asked = Instant::now();
    story.delete("web").await?;
    for address in addresses {
        story.held(address, &[]).await?;
    }
    println!("a deleted Service's addresses are gone after {:?}", asked.elapsed());
    story.close().await
}

#[tokio::test]
async fn a_second_nic_serves_the_addresses_of_its_subnet() -> Result<()> {
    let story = Story::begin().await?;
    let (site, storage) = (story.site(), Lan::new()?);
    for (node, number) in site.nodes[..2].iter().zip(1..) {
        storage.plug(&node.namespace, "eth1", &[&format!("10.9.0.{number}/24")])?;
    }
    let path = format!("/apis/purelb.io/v2/namespaces/{HOME}/lbnodeagents/default");
    let interfaces = |names: Value| json!({"spec": {"local": {"interfaces": names}}});
    story.ground.patch(&path, PatchType::Merge, &interfaces(json!(["eth1"]))).await?;
    let pool = json!({"subnet": "10.9.0.0/24", "pool": "10.9.0.100-10.9.0.120"});
    story.group("storage", json!({"apiVersion": "purelb.io/v2", "spec": {"local": {"v4pools": [pool]}}})).await?;
    let single = json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]});
    for name in ["one", "two", "three"] {
        let address = story.service(name, "storage", single.clone()).await?[0];
        let mut order = ranking(address);
        // The third node is not on that segment.
        order.retain(|node| *node != "node-c");
        story.held(address, &[(order[0], "eth1", 24)]).await?;
    }
    story.ground.patch(&path, PatchType::Merge, &interfaces(Value::Null)).await?;
    for node in &site.nodes[..2] {
        node.namespace.batch("link del eth1\n")?;
    }
    story.members(&NODES).await?;
    story.close().await
}
