//! What the first documents of PureLB show, told again.

use anyhow::Result;
use purelb_core::addr::Family;
use purelb_core::links::Links;
use serde_json::json;

use crate::town::Town;

fn permanent(links: &Links, link: &str) -> bool {
    let link = links.by_index.values().find(|shown| shown.name == link);
    link.is_some_and(|link| {
        link.up && link.addrs.iter().all(|held| held.valid_until.is_none() && !held.no_prefix_route)
    })
}

#[tokio::test(start_paused = true)]
async fn seed_000_a_virtual_dual_stack_address_is_on_every_node_and_an_event_of_each_says_so() -> Result<()> {
    let town = Town::running(3).await?;
    let v4 = json!([{"aggregation": "/32", "pool": "172.32.100.225-172.32.100.229", "subnet": "172.32.100.0/24"}]);
    let v6 = json!([{"aggregation": "/128", "pool": "fc00:370:155:0:8000::/126", "subnet": "fc00:370:155::/64"}]);
    town.group("v1", "remotedual", json!({"local": {"v4pools": v4, "v6pools": v6}})).await?;
    let dual = json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]});
    town.service("kuard", json!({"purelb.io/service-group": "remotedual"}), dual).await?;
    town.until("every node has both", async |town| {
        let all = (0..3).all(|node| town.on(node, "kube-lb0") == ["172.32.100.225/32", "fc00:370:155:0:8000::/128"]);
        Ok(all.then_some(()))
    })
    .await?;
    assert!((0..3).all(|node| permanent(&town.nodes[node].kernel.links(), "kube-lb0")));
    let mut expected: Vec<_> = ["172.32.100.225", "fc00:370:155:0:8000::"]
        .iter()
        .flat_map(|addr| (1..=3).map(move |node| format!("Announcing {addr} from node node{node} interface kube-lb0")))
        .collect();
    expected.sort();
    let told = town
        .until("all events are there", async |town| {
            let mut told: Vec<_> = town.events("kuard").await?;
            told.retain(|(reason, _)| reason == "AnnouncingNonLocal");
            Ok((told.len() >= 6).then_some(told))
        })
        .await?;
    let mut told: Vec<_> = told.into_iter().map(|(_, message)| message).collect();
    told.sort();
    assert_eq!(told, expected);
    let annotations = &town.shown("kuard").await?["metadata"]["annotations"];
    assert_eq!(annotations["purelb.io/announcing-IPv4"], json!(null), "everybody announces it: {annotations}");
    town.check()
}

#[tokio::test(start_paused = true)]
async fn seed_001_the_subnet_decides_the_mask_unless_the_author_does() -> Result<()> {
    let town = Town::running(2).await?;
    let flat = json!({"subnet": "172.22.0.0/24", "pool": "172.22.0.10-172.22.0.25", "aggregation": "default"});
    town.group("v1", "virtaddrange", flat).await?;
    town.service("echo", json!({"purelb.io/service-group": "virtaddrange"}), json!({})).await?;
    town.until("both nodes have it", async |town| {
        Ok((0..2).all(|node| town.on(node, "kube-lb0") == ["172.22.0.10/24"]).then_some(()))
    })
    .await?;
    town.check()
}

#[tokio::test(start_paused = true)]
async fn seed_002_a_local_address_is_on_exactly_one_node_and_the_service_says_which() -> Result<()> {
    let town = Town::running(3).await?;
    town.local_group().await?;
    let dual = json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]});
    town.service("web", json!({}), dual).await?;
    for (family, prefix, key) in
        [(Family::V4, 24, "purelb.io/announcing-IPv4"), (Family::V6, 64, "purelb.io/announcing-IPv6")]
    {
        let addr = town.address("web", family).await?;
        let holder = town.holder(addr).await?;
        assert!(town.on(holder, "eth0").contains(&format!("{addr}/{prefix}")), "with the mask of the NIC");
        assert_eq!(town.nodes[holder].kernel.take_told(), [addr], "and the neighbours are told");
        let name = town.nodes[holder].name.clone();
        let written = format!("{name},eth0,{addr}");
        town.until("the Service says who", async |town| {
            Ok((town.shown("web").await?["metadata"]["annotations"][key] == written.as_str()).then_some(()))
        })
        .await?;
        let told = format!("Node {name} announcing {addr} on interface eth0");
        town.until("an event tells of it", async |town| {
            let events = town.events("web").await?;
            Ok(events.contains(&("AnnouncingLocal".to_owned(), told.clone())).then_some(()))
        })
        .await?;
    }
    town.check()
}
