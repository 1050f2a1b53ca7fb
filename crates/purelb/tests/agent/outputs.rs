//! What operators see of an agent: Events, metrics and its lease.

use std::time::Duration;

use anyhow::Result;
use kube::Api;
use kube::api::DeleteParams;
use purelb_core::plan::Step;
use serde_json::json;

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
async fn c07_every_state_of_the_selector_is_in_the_metrics_and_told() -> Result<()> {
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
        Ok((seconds == Some(10) && component.as_deref() == Some("lbnodeagent")).then_some(()))
    })
    .await
}
