//! What operators see of an agent: Events, metrics and its lease.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use purelb_core::plan::Step;
use serde_json::json;

use crate::line::Weather;
use crate::stories::{with_local, with_virtual};
use crate::town::{HOME, Town};

/// Waits until a node's metrics show this state of the selector, and none of the others.
async fn state(town: &Town, node: usize, is: &str) -> Result<()> {
    town.until(&format!("node{} is {is}", node + 1), async |town| {
        for state in ["default", "configured", "deselected", "invalid"] {
            let line = format!(r#"purelb_lbnodeagent_selector_state{{state="{state}"}} {}"#, i32::from(state == is));
            if !town.counts(node, &line)? {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn s08_a19_c07_every_state_of_the_selector_is_in_the_metrics_and_told() -> Result<()> {
    let town = with_virtual(2).await?;
    state(&town, 0, "configured").await?;

    let only_the_other = json!({"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "node2"}}});
    town.patch_node_agent("default", only_the_other).await?;
    state(&town, 0, "deselected").await?;
    state(&town, 1, "configured").await?;
    town.told("node1", "NodeDeselected", "node1").await?;

    town.patch_node_agent("default", json!({"nodeSelector": null, "local": {"localInterface": "["}})).await?;
    state(&town, 0, "invalid").await?;
    state(&town, 1, "invalid").await?;
    town.told("default", "ConfigError", "node1").await?;

    town.patch_node_agent("default", json!({"local": {"localInterface": "default"}})).await?;
    state(&town, 0, "configured").await?;
    town.everywhere(&["172.30.0.0/32"]).await?;

    let agents: Api<purelb_api::LBNodeAgent> = Api::namespaced(town.client.clone(), HOME);
    agents.delete("default", &DeleteParams::default()).await?;
    for node in 0..2 {
        state(&town, node, "default").await?;
        town.told(&town.nodes[node].name, "NoNodeAgent", &town.nodes[node].name).await?;
    }
    town.everywhere(&[]).await
}

#[tokio::test(start_paused = true)]
async fn c06_the_node_is_watched_and_no_edit_of_the_configuration_waits_for_an_answer() -> Result<()> {
    let town = with_virtual(2).await?;
    town.patch_node_agent("default", json!({"nodeSelector": {"matchLabels": {"rack": "1"}}})).await?;
    town.everywhere(&[]).await?;
    let label = json!({"metadata": {"labels": {"rack": "1"}}});
    let nodes: Api<Node> = Api::all(town.client.clone());
    nodes.patch("node1", &PatchParams::default(), &Patch::Merge(label)).await?;
    state(&town, 0, "configured").await?;
    state(&town, 1, "deselected").await?;
    town.until("node1 has it again", async |town| Ok((town.on(0, "kube-lb0") == ["172.30.0.0/32"]).then_some(())))
        .await?;

    // Watches go on; whoever had to ask for its Node now would get no answer.
    for node in &town.nodes {
        node.weather.send_replace(Weather::Refused);
    }
    town.patch_node_agent("default", json!({"nodeSelector": null})).await?;
    state(&town, 1, "configured").await?;
    town.everywhere(&["172.30.0.0/32"]).await?;
    for node in &town.nodes {
        node.weather.send_replace(Weather::Fair);
    }
    town.pass(Duration::from_secs(30)).await;
    let told = town.events("default").await?;
    assert!(!told.iter().any(|(reason, _)| reason == "ConfigError"), "{told:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn c07_a_virtual_interface_that_the_kernel_refuses_is_told_once_and_as_good_as_no_configuration() -> Result<()> {
    let mut town = Town::new(1).await?;
    town.remote_group("edge", "/32").await?;
    town.service("web", json!({"purelb.io/service-group": "edge"}), json!({})).await?;
    town.nodes[0].kernel.refuse(|step| matches!(step, Step::MakeLink { .. }));
    town.start(0);
    let told = town.told("default", "InterfaceRefused", "kube-lb0").await?;
    assert!(told.contains("node1") && told.contains("Operation not permitted"), "{told}");
    state(&town, 0, "invalid").await?;
    town.pass(Duration::from_secs(60)).await;
    let events = town.events("default").await?;
    assert_eq!(events.iter().filter(|(reason, _)| reason == "InterfaceRefused").count(), 1, "{events:?}");
    town.nodes[0].kernel.refuse(|_| false);
    town.everywhere(&["172.30.0.0/32"]).await?;
    state(&town, 0, "configured").await
}

#[tokio::test(start_paused = true)]
async fn b19_b24_b32_taking_an_address_is_counted_and_told_to_neighbours_once() -> Result<()> {
    let (town, addr, holder) = with_local(2).await?;
    let line = |name: &str, labels: &str, count: u32| format!("purelb_{name}_total{{{labels}}} {count}");
    let [taken, changed] = [1, 2].map(|count| {
        (
            line("lbnodeagent_addresses_taken", r#"kind="local""#, 1),
            line("election_winner_changes", r#"service="test/web""#, count),
        )
    });
    town.pass(Duration::from_secs(60)).await;
    town.patch_service("web", json!({"metadata": {"annotations": {"example.net/note": "touched"}}})).await?;
    town.pass(Duration::from_secs(60)).await;
    assert_eq!(town.nodes[holder].kernel.take_told(), [addr], "without garpConfig, and not again");
    assert!(town.counts(holder, &taken.0)? && town.counts(holder, &taken.1)?);
    let packets = town.counts(holder, "purelb_lbnodeagent_garp_sent_total 1")?;
    assert!(packets && town.counts(holder, "purelb_lbnodeagent_election_wins_total 1")?);

    town.nodes[holder].kernel.meddle(|kernel| kernel.set_carrier("eth0", false));
    let lost = line("lbnodeagent_addresses_lost", r#"kind="local",reason="noLocalInterface""#, 1);
    town.until("the loss is counted, with its reason", async |town| Ok(town.counts(holder, &lost)?.then_some(())))
        .await?;
    assert!(town.counts(holder, &changed.1)?);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn b17_a_lease_that_an_earlier_release_left_gets_our_duration_and_our_labels() -> Result<()> {
    let mut town = Town::new(1).await?;
    let spec =
        json!({"holderIdentity": "node1", "leaseDurationSeconds": 3600, "renewTime": "2025-12-31T23:00:00.000000Z"});
    let metadata = json!({"name": "purelb-node-node1", "namespace": HOME});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec});
    town.create("leases", lease).await?;
    town.start(0);
    town.until("it is ours", async |town| {
        let lease = town.leases().await?.remove(0);
        let seconds = lease.spec.and_then(|spec| spec.lease_duration_seconds);
        let component = lease.metadata.labels.and_then(|mut labels| labels.remove("app.kubernetes.io/component"));
        Ok((seconds == Some(7) && component.as_deref() == Some("lbnodeagent")).then_some(()))
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn e23_an_address_whose_endpoints_are_where_nobody_serves_it_is_counted_once() -> Result<()> {
    let (town, addr, holder) = with_local(3).await?;
    let off = (holder + 1) % 3;
    town.nodes[off].kernel.meddle(|kernel| kernel.set_carrier("eth0", false));
    town.endpoints("web", &[&town.nodes[off].name]).await?;
    let follow = json!({"metadata": {"annotations": {"purelb.io/node-affinity": "service-endpoints"}}});
    town.patch_service("web", follow).await?;
    let line = format!(r#"purelb_election_affinity_fallback_total{{service="{addr}"}} 1"#);
    town.until("it is counted", async |town| Ok(town.counts(holder, &line)?.then_some(()))).await?;
    town.pass(Duration::from_secs(60)).await;
    assert!(town.counts(holder, &line)?, "once");
    assert_eq!((town.holders_of(addr), town.losses_of(addr)), (vec![holder], vec![]), "somebody holds it all the same");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_killed_and_started_shows_what_is_as_before() -> Result<()> {
    let mut town = Town::new(2).await?;
    town.nodes[0].kernel.meddle(|kernel| {
        kernel.has_dummy = false;
        Vec::new()
    });
    for node in 0..2 {
        town.start(node);
    }
    let lines = [
        "purelb_election_member_count 2",
        "purelb_election_subnet_count 2",
        "purelb_election_local_subnet_count 2",
        "purelb_election_lease_healthy 1",
        "purelb_lbnodeagent_virtual_interface_is_ifb 1",
    ];
    for _ in 0..2 {
        for line in lines {
            town.until(line, async |town| Ok(town.counts(0, line)?.then_some(()))).await?;
        }
        assert!(town.counts(1, "purelb_lbnodeagent_virtual_interface_is_ifb 0")?, "a dummy is none");
        town.kill(0);
        town.start(0);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_service_that_begins_to_share_an_address_is_told_although_the_address_was_adopted() -> Result<()> {
    let (mut town, addr, holder) = with_local(2).await?;
    let share = json!({"metadata": {"annotations": {"purelb.io/allow-shared-ip": "key"}}});
    town.patch_service("web", share).await?;
    town.pass(Duration::from_secs(5)).await;
    let told = town.events("web").await?.len();
    town.kill(holder);
    town.start(holder);
    town.pass(Duration::from_secs(20)).await;
    let annotations = json!({"purelb.io/allow-shared-ip": "key", "purelb.io/addresses": addr.to_string()});
    let port = json!({"ipFamilyPolicy": "SingleStack", "ports": [{"port": 81}]});
    town.service("beside", annotations, port).await?;
    town.told("beside", "AnnouncingLocal", &addr.to_string()).await?;
    town.pass(Duration::from_secs(5)).await;
    assert_eq!(town.events("web").await?.len(), told, "who had it before needs not hear it again");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_address_that_the_kernel_refuses_is_told_once() -> Result<()> {
    let (town, ..) = with_local(1).await?;
    town.nodes[0].kernel.refuse(|step| matches!(step, Step::PutAddr { refresh: false, .. }));
    town.service("more", json!({}), json!({"ipFamilyPolicy": "SingleStack"})).await?;
    let told = town.told("more", "AnnouncementFailed", "node1").await?;
    assert!(told.contains("eth0") && told.contains("Operation not permitted"), "{told}");
    town.pass(Duration::from_secs(60)).await;
    let events = town.events("more").await?;
    assert_eq!(events.iter().filter(|(reason, _)| reason == "AnnouncementFailed").count(), 1, "{events:?}");
    town.nodes[0].kernel.refuse(|_| false);
    town.told("more", "AnnouncingLocal", "node1").await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_node_that_gives_an_address_up_for_nobody_removes_its_own_entry() -> Result<()> {
    let (town, addr, _) = with_local(1).await?;
    let said = async |town: &Town| {
        Ok::<_, anyhow::Error>(town.shown("web").await?["metadata"]["annotations"]["purelb.io/announcing-IPv4"].clone())
    };
    let announced = format!("node1,eth0,{addr}");
    for _ in 0..2 {
        town.until("it says who announces it", async |town| Ok((said(town).await? == announced).then_some(()))).await?;
        town.nodes[0].kernel.meddle(|kernel| kernel.set_carrier("eth0", false));
        town.until("nobody announces it", async |town| Ok(said(town).await?.is_null().then_some(()))).await?;
        assert!(town.holders_of(addr).is_empty());
        town.nodes[0].kernel.meddle(|kernel| kernel.set_carrier("eth0", true));
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn b28_who_keeps_deleting_the_virtual_interface_is_told_of() -> Result<()> {
    let town = with_virtual(1).await?;
    for _ in 0..2 {
        town.nodes[0].kernel.meddle(|kernel| kernel.delete_link("kube-lb0"));
        town.everywhere(&["172.30.0.0/32"]).await?;
    }
    town.told("default", "InterfaceKeepsDisappearing", "kube-lb0").await?;
    Ok(())
}
