//! The owner of a local address is lost: one other node takes over, and never are there two.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use purelb_lab::net::{Echo, Probe, Report};
use serde_json::{Value, json};

use crate::groups;
use crate::local_addresses::{length, owned, ranking};
use crate::site::{LEASE, NODES};
use crate::story::Story;

/// A client that asks an address, and who should have it before and after.
struct Watched {
    address: IpAddr,
    probe: Probe,
    owner: &'static str,
    heir: &'static str,
    _servers: Vec<Echo>,
}

/// An address that its first choice has and a client uses.
async fn watched(story: &Story) -> Result<Watched> {
    story.group("local", groups::local()).await?;
    let address =
        story.service("web", "local", json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]})).await?[0];
    watch(story, address).await
}

async fn watch(story: &Story, address: IpAddr) -> Result<Watched> {
    let (owner, heir) = (owned(story, address).await?, ranking(address)[1]);
    let servers = story.serve(address)?;
    let probe = story.ask(address)?;
    story.until("the owner answers", async |_| Ok(probe.answers_of(owner) > 100)).await?;
    Ok(Watched { address, probe, owner, heir, _servers: servers })
}

impl Watched {
    /// Waits for the heir to answer. At no moment may `ip` show two holders.
    async fn inherited(&self, story: &Story) -> Result<()> {
        story
            .until("the heir answers", async |story| {
                let holders = story.holders(self.address)?;
                ensure!(holders.len() <= 1, "two nodes hold {}: {holders:?}", self.address);
                Ok(self.probe.answers_of(self.heir) > 100)
            })
            .await
    }

    /// Ends the client and prints what it saw.
    fn report(self, what: &str) -> Result<Report> {
        let report = self.probe.finish()?;
        println!(
            "{what}: the client saw {} of {} packets lost, a gap of {:.1?} (lease {LEASE:?}), {:?}",
            report.lost(),
            report.sent,
            report.longest_gap,
            report.path,
        );
        assert_eq!(report.path, [self.owner, self.heir], "{report:?}");
        Ok(report)
    }
}

#[tokio::test]
async fn i19_b1_b34_an_owner_that_is_stopped_hands_over_in_a_moment() -> Result<()> {
    let mut story = Story::begin().await?;
    let watched = watched(&story).await?;
    let mut released = stopped(&mut story, watched.owner).await?;
    watched.inherited(&story).await?;
    let entry = format!("{},eth0,{}", watched.heir, watched.address);
    let told =
        async |story: &Story| Ok(story.annotation("web", "purelb.io/announcing-IPv4").await?.as_ref() == Some(&entry));
    story.until("the annotation names the heir", told).await?;
    let owner = watched.owner;
    let report = watched.report("SIGTERM of the owner")?;
    assert!(report.longest_gap < Duration::from_secs(1), "{report:?}");
    for node in NODES.into_iter().filter(|node| *node != owner) {
        released = released.min(stopped(&mut story, node).await?);
    }
    assert!(released < Duration::from_millis(200), "the best of three took {released:?}");
    story.close().await
}

/// Stops a node's agent; tells after how long its lease was released.
async fn stopped(story: &mut Story, node: &str) -> Result<Duration> {
    let agent = story.site_mut().node_mut(node)?.take()?;
    let told = Instant::now();
    let released = async {
        story.until("the lease is released", async |story| Ok(story.lease(node).await? == Value::Null)).await?;
        anyhow::Ok(told.elapsed())
    };
    let (ended, released) = tokio::join!(agent.stop(), released);
    let (ended, released) = (ended?, released?);
    println!("SIGTERM of {node}: the lease was released after {released:.1?}, the process ended after {ended:.1?}");
    assert!(released < LEASE / 3, "peers must not wait for the lease to expire: {released:?}");
    Ok(released)
}

#[tokio::test]
async fn an_owner_that_is_killed_is_replaced_within_a_lease() -> Result<()> {
    let mut story = Story::begin().await?;
    let watched = watched(&story).await?;
    story.site_mut().node_mut(watched.owner)?.take()?.kill();
    watched.inherited(&story).await?;
    let report = watched.report("kill -9 of the owner")?;
    assert!(report.longest_gap <= LEASE, "{report:?}");
    story.close().await
}

#[tokio::test]
async fn an_owner_that_stands_still_loses_the_address_before_another_takes_it() -> Result<()> {
    let story = Story::begin().await?;
    let watched = watched(&story).await?;
    story.site().node(watched.owner)?.agent()?.freeze()?;
    watched.inherited(&story).await?;
    story.site().node(watched.owner)?.agent()?.thaw()?;
    let address = watched.address;
    let report = watched.report("SIGSTOP of the owner")?;
    assert!(report.longest_gap <= LEASE, "{report:?}");
    story.members(&NODES).await?;
    story.held(address, &[(ranking(address)[0], "eth0", 24)]).await?;
    story.close().await
}

#[tokio::test]
async fn i14_an_owner_without_the_api_server_lets_go_before_another_takes_it() -> Result<()> {
    let story = Story::begin().await?;
    let watched = watched(&story).await?;
    let owner = &story.site().node(watched.owner)?.namespace;
    // Nothing comes back, as behind a broken switch; the segment itself works.
    owner.batch("route add blackhole 192.168.7.2/32\n")?;
    watched.inherited(&story).await?;
    owner.batch("route del blackhole 192.168.7.2/32\n")?;
    let address = watched.address;
    let report = watched.report("the owner is cut off from the API server")?;
    assert!(report.longest_gap <= LEASE, "{report:?}");
    story.held(address, &[(ranking(address)[0], "eth0", 24)]).await?;
    story.close().await
}

#[tokio::test]
async fn an_owner_without_carrier_gives_the_address_up_at_once() -> Result<()> {
    let story = Story::begin().await?;
    let watched = watched(&story).await?;
    let owner = story.site().node(watched.owner)?;
    let cut = Instant::now();
    owner.plug.cut()?;
    let mine = |story: &Story| -> Result<bool> {
        Ok(story.holders(watched.address)?.iter().any(|(node, ..)| node == watched.owner))
    };
    story.until("the owner has given it up", async |story| Ok(!mine(story)?)).await?;
    let gave_up = cut.elapsed();
    watched.inherited(&story).await?;
    owner.plug.mend()?;
    let address = watched.address;
    // The kernel itself tells of a lost carrier up to a second late.
    println!("the owner gave the address up {gave_up:?} after the cut");
    assert!(gave_up < Duration::from_millis(1500), "{gave_up:?}");
    let report = watched.report("the owner's wire is cut")?;
    assert!(report.longest_gap < LEASE + Duration::from_millis(500), "{report:?}");
    story.members(&NODES).await?;
    story.held(address, &[(ranking(address)[0], "eth0", 24)]).await?;
    story.close().await
}

#[tokio::test]
async fn i10_a_lease_deleted_by_hand_is_written_again() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let addresses = story.service("web", "local", json!({})).await?;
    for address in &addresses {
        story.held(*address, &[(ranking(*address)[0], "eth0", length(*address))]).await?;
    }
    let deleted = Instant::now();
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", crate::site::HOME);
    for node in NODES {
        story.ground.delete(&format!("{path}/purelb-node-{node}")).await?;
    }
    story.members(&NODES).await?;
    println!("leases deleted by hand were back after {:?}", deleted.elapsed());
    assert!(deleted.elapsed() < LEASE / 2 + Duration::from_millis(300), "{:?}", deleted.elapsed());
    for address in addresses {
        story.held(address, &[(ranking(address)[0], "eth0", length(address))]).await?;
    }
    story.close().await
}

#[tokio::test]
async fn an_ipv6_address_moves_like_an_ipv4_one() -> Result<()> {
    let mut story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let address =
        story.service("web", "local", json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]})).await?[0];
    let watched = watch(&story, address).await?;
    story.site_mut().node_mut(watched.owner)?.take()?.stop().await?;
    watched.inherited(&story).await?;
    let report = watched.report("SIGTERM of the owner of an IPv6 address")?;
    assert!(report.longest_gap < Duration::from_secs(1), "{report:?}");
    story.close().await
}
