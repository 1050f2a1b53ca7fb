//! Virtual addresses: on `kube-lb0` of every node, with the mask the group asks for.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use purelb_lab::net::Capture;
use serde_json::json;

use crate::groups;
use crate::site::NODES;
use crate::story::Story;

/// What the spec allows for "at once".
const A_MOMENT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn seed_000_a_dual_service_is_announced_from_every_node() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remotedual", groups::remotedual()).await?;
    let addresses = story.service("kuard-svc-dual-remote", "remotedual", json!({})).await?;
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["172.32.100.225", "fc00:370:155:0:8000::"]);
    story.everywhere(addresses[0], 32).await?;
    story.everywhere(addresses[1], 128).await?;
    for node in NODES {
        for address in &texts {
            let message = format!("Announcing {address} from node {node} interface kube-lb0");
            let event = story.event("kuard-svc-dual-remote", "AnnouncingNonLocal", &message).await?;
            assert_eq!(event["type"], "Normal");
            assert_eq!(event["source"]["component"], "purelb-lbnodeagent");
        }
        looks_like_the_seed(&story, node)?;
    }
    let shown = story.shown("kuard-svc-dual-remote").await?;
    let annotations = shown["metadata"]["annotations"].as_object().context("it has annotations")?;
    let keys: Vec<&str> = annotations.keys().map(String::as_str).collect();
    assert_eq!(keys, ["purelb.io/allocated-by", "purelb.io/allocated-from", "purelb.io/service-group"]);
    story.close().await
}

/// The flags and lifetimes that seed 000 prints.
fn looks_like_the_seed(story: &Story, node: &str) -> Result<()> {
    let node = story.site().node(node)?;
    let link = node.namespace.ip(&["-j", "addr", "show", "dev", "kube-lb0"])?;
    let flags: BTreeSet<&str> =
        link[0]["flags"].as_array().into_iter().flatten().filter_map(|flag| flag.as_str()).collect();
    assert_eq!(flags, ["BROADCAST", "LOWER_UP", "NOARP", "UP"].into());
    assert_eq!(link[0]["mtu"], 1500);
    for shown in node.shown()?.into_iter().filter(|shown| shown.interface == "kube-lb0") {
        assert_eq!(shown.valid_for(), None, "{shown:?}");
        assert!(!shown.has("noprefixroute") && !shown.has("tentative") && !shown.has("deprecated"), "{shown:?}");
    }
    Ok(())
}

#[tokio::test]
async fn clients_are_answered_whichever_node_the_router_chooses() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remotedual", groups::remotedual()).await?;
    let addresses = story.service("web", "remotedual", json!({})).await?;
    for (address, network, length) in [(addresses[0], "172.32.100.0/24", 32), (addresses[1], "fc00:370:155::/64", 128)]
    {
        story.everywhere(address, length).await?;
        let _servers = story.serve(address)?;
        for node in NODES {
            story.route(network, node)?;
            let report = story.reach(address).await?;
            assert_eq!((report.lost(), report.path), (0, vec![node.to_owned()]));
        }
    }
    story.close().await
}

#[tokio::test]
async fn seed_001_the_mask_of_the_subnet_gives_the_route() -> Result<()> {
    let story = Story::begin().await?;
    story.group("virtualaddrange", groups::remote(["default", "default"])).await?;
    let addresses = story.service("echoserver", "virtualaddrange", json!({})).await?;
    story.everywhere(addresses[0], 24).await?;
    story.everywhere(addresses[1], 64).await?;
    for node in &story.site().nodes {
        let shown = node.shown()?.into_iter().find(|shown| shown.address == addresses[0]).context("it is there")?;
        assert_eq!(shown.entry["broadcast"], "172.22.0.255");
        for (family, network) in [("-4", "172.22.0.0/24"), ("-6", "fc00:22::/64")] {
            let routes = node.namespace.ip(&[family, "-j", "route", "show", "dev", "kube-lb0"])?;
            assert!(routes.as_array().is_some_and(|all| all.iter().any(|route| route["dst"] == network)), "{routes}");
        }
    }
    story.close().await
}

#[tokio::test]
async fn i07_a_new_aggregation_replaces_the_old_prefix() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let addresses = story.service("web", "remote", json!({})).await?;
    story.everywhere(addresses[0], 32).await?;
    story.everywhere(addresses[1], 128).await?;
    for (aggregation, v4, v6) in
        [(["default", "default"], 24, 64), (["/25", "/80"], 25, 80), (["/32", "/128"], 32, 128)]
    {
        story.edit_group("remote", &groups::remote(aggregation)["spec"]).await?;
        // Exactly this prefix and no other: the old one is gone.
        let took = story.everywhere(addresses[0], v4).await? + story.everywhere(addresses[1], v6).await?;
        assert!(took < A_MOMENT, "{aggregation:?} took {took:?}");
    }
    story.close().await
}

#[tokio::test]
async fn i18_siblings_stay_when_the_first_of_a_subnet_goes() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["default", "default"])).await?;
    let mut all = Vec::new();
    for name in ["one", "two", "three"] {
        let addresses = story.service(name, "remote", json!({})).await?;
        story.everywhere(addresses[0], 24).await?;
        story.everywhere(addresses[1], 64).await?;
        all.push(addresses);
    }
    let node = &story.site().nodes[0];
    // The interface decides together with `all`, and an operator may turn that off.
    node.namespace.sysctl("net.ipv4.conf.all.promote_secondaries", "0")?;
    let changes = Capture::addresses(&node.namespace)?;
    story.delete("one").await?;
    for address in &all[0] {
        story.held(*address, &[]).await?;
    }
    changes
        .wait_for("the first to go", |line| line.starts_with("Deleted") && line.contains(&format!("{}/", all[0][0])))?;
    for address in all[1..].iter().flatten() {
        let gone = changes
            .lines()
            .into_iter()
            .find(|line| line.starts_with("Deleted") && line.contains(&format!("{address}/")));
        assert_eq!(gone, None, "a sibling disappeared, if only for a moment");
        story.everywhere(*address, if address.is_ipv4() { 24 } else { 64 }).await?;
    }
    story.close().await
}

#[tokio::test]
async fn i02_what_a_service_gives_up_goes_from_every_node() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let addresses = story.service("web", "remote", json!({})).await?;
    story.everywhere(addresses[0], 32).await?;
    story.everywhere(addresses[1], 128).await?;

    story.edit("web", json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}})).await?;
    let took = story.held(addresses[1], &[]).await?;
    assert!(took < A_MOMENT, "the IPv6 address took {took:?} to go");
    story.everywhere(addresses[0], 32).await?;

    story.edit("web", json!({"spec": {"type": "ClusterIP"}})).await?;
    let took = story.held(addresses[0], &[]).await?;
    assert!(took < A_MOMENT, "the IPv4 address took {took:?} to go");
    story.close().await
}

#[tokio::test]
async fn a20_a_shared_address_stays_until_its_last_service_goes() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let shared = json!({"purelb.io/service-group": "remote", "purelb.io/allow-shared-ip": "together"});
    for (name, port) in [("one", 80), ("two", 81)] {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "annotations": shared},
            "spec": {"type": "LoadBalancer", "ports": [{"port": port}]},
        });
        story.ground.create(&story.ground.core("services"), &service).await?;
    }
    let both = async |story: &Story| {
        let (one, two) = (story.ingress("one").await?, story.ingress("two").await?);
        Ok(one.len() == 1 && one == two)
    };
    story.until("both have the same address", both).await?;
    let address = story.ingress("one").await?[0];
    story.everywhere(address, 32).await?;
    let changes = Capture::addresses(&story.site().nodes[0].namespace)?;
    story.delete("one").await?;
    story.event("two", "AnnouncingNonLocal", &format!("Announcing {address} from node node-a")).await?;
    story.delete("two").await?;
    story.held(address, &[]).await?;
    let gone = changes.lines().iter().filter(|line| line.starts_with("Deleted") && line.contains("kube-lb0")).count();
    assert_eq!(gone, 1, "{:?}", changes.lines());
    story.close().await
}

#[tokio::test]
async fn i12_an_ipv6_address_needs_no_ipv6_default_route() -> Result<()> {
    let story = Story::begin().await?;
    for node in &story.site().nodes {
        node.namespace.batch("route del ::/0 via fd00:7::1\n")?;
    }
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let addresses = story.service("web", "remote", json!({})).await?;
    story.everywhere(addresses[0], 32).await?;
    story.everywhere(addresses[1], 128).await?;
    for node in &story.site().nodes {
        node.namespace.batch("route add ::/0 via fd00:7::1\n")?;
    }
    story.close().await
}

#[tokio::test]
async fn an_aggregate_over_the_nodes_own_network_is_refused() -> Result<()> {
    let story = Story::begin().await?;
    let pool = json!({"subnet": "192.168.0.0/16", "pool": "192.168.200.1-192.168.200.9", "aggregation": "default"});
    let group = json!({"apiVersion": "purelb.io/v2", "spec": {"remote": {"v4pools": [pool]}}});
    story.group("wide", group).await?;
    let single = json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]});
    let address = story.service("web", "wide", single).await?[0];
    story.event("web", "AggregateCaptures", "192.168.0.0/16").await?;
    assert_eq!(story.holders(address)?, []);
    story.close().await
}
