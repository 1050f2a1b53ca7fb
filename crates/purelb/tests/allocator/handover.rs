//! Several allocators, one address each: restarts, kills and races.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, ips};

async fn holders(cluster: &Cluster) -> Result<BTreeMap<String, Vec<String>>> {
    let mut holders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for service in cluster.services().list(&ListParams::default()).await?.items {
        let service: Value = serde_json::to_value(service)?;
        for ip in ips(&service) {
            holders.entry(ip.to_owned()).or_default().push(service["metadata"]["name"].to_string());
        }
    }
    Ok(holders)
}

#[tokio::test]
async fn bug_11_a_successor_gives_nobody_an_address_that_is_taken() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/29").await?;
    let first = cluster.allocator();
    cluster.service("b", json!({})).await?;
    cluster.has("b", &["10.0.0.8"]).await?;
    first.stop().await?;
    cluster.service("a", json!({})).await?;
    let second = cluster.allocator();
    cluster.has("a", &["10.0.0.9"]).await?;
    assert_eq!(ips(&cluster.shown("b").await?), ["10.0.0.8"]);
    second.stop().await
}

#[tokio::test]
async fn bug_7_who_is_retyped_while_nobody_leads_loses_our_marks_when_somebody_does() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/32").await?;
    let first = cluster.allocator();
    cluster.service("held", json!({})).await?;
    cluster.has("held", &["10.0.0.8"]).await?;
    cluster.service("waited", json!({})).await?;
    cluster.told("waited", "Exhausted").await?;
    first.stop().await?;
    // More than one page of others' Services.
    for n in 0..250 {
        let name = format!("plain{n:03}");
        cluster.service_with(&name, json!({"keep": "me"}), json!({"type": "ClusterIP"})).await?;
    }
    for name in ["held", "waited"] {
        cluster.patch(name, json!({"spec": {"type": "ClusterIP"}})).await?;
    }
    let before = cluster.shown("plain000").await?;
    let second = cluster.allocator();
    for name in ["held", "waited"] {
        cluster
            .until(&format!("our marks on {name} are gone"), async || {
                let shown = cluster.shown(name).await?;
                let clean = shown["metadata"]["annotations"].as_object().is_none_or(serde_json::Map::is_empty);
                Ok((clean && shown["status"]["conditions"].as_array().is_none_or(Vec::is_empty)).then_some(()))
            })
            .await?;
    }
    cluster
        .until("the release is told", async || {
            let told = ("AddressReleased".to_owned(), "Service is Type ClusterIP, not LoadBalancer".to_owned());
            Ok(cluster.events("held").await?.contains(&told).then_some(()))
        })
        .await?;
    assert!(cluster.events("waited").await?.iter().all(|(reason, _)| reason != "AddressReleased"), "it held nothing");
    assert_eq!(cluster.shown("plain000").await?, before);
    second.stop().await
}

#[tokio::test]
async fn a_killed_leader_is_followed_and_nothing_is_given_twice() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.0/24").await?;
    let mut allocators: Vec<_> = ["a", "b", "c"].map(|name| cluster.replica(name)).into();
    for round in 0..3 {
        for n in 0..20 {
            cluster.service(&format!("s{round}-{n}"), json!({})).await?;
        }
        let leader = allocators.remove(cluster.leader(&allocators).await?);
        if round % 2 == 0 {
            leader.kill()
        } else {
            leader.stop().await?
        }
        allocators.push(cluster.replica(&format!("successor{round}")));
    }
    cluster
        .until("every Service has an address", async || {
            let holders = holders(&cluster).await?;
            for (ip, services) in &holders {
                assert_eq!(services.len(), 1, "{ip} has two holders");
            }
            Ok((holders.len() == 60).then_some(()))
        })
        .await?;
    for allocator in allocators {
        allocator.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn bug_13_deleted_and_recreated_in_one_breath_the_address_stays_its_own() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/29").await?;
    let allocator = cluster.allocator();
    for _ in 0..5 {
        cluster.service("web", json!({})).await?;
        cluster.has("web", &["10.0.0.8"]).await?;
        cluster.services().delete("web", &DeleteParams::default()).await?;
    }
    cluster.service("web", json!({})).await?;
    cluster.service("other", json!({})).await?;
    cluster.until("both have an address", async || Ok((holders(&cluster).await?.len() == 2).then_some(()))).await?;
    allocator.stop().await
}

#[tokio::test]
async fn a_leader_that_cannot_list_groups_is_not_ready_and_says_so() -> Result<()> {
    let cluster = Cluster::new().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let groups = definitions.get("servicegroups.purelb.io").await?;
    definitions.delete(&groups.name_any(), &DeleteParams::default()).await?;
    let allocator = cluster.allocator();
    let waits_for = async |what: &[&str]| {
        let missing = async || Ok((allocator.readiness.missing() == what).then_some(()));
        cluster.until(&format!("it waits for {what:?}"), missing).await
    };
    waits_for(&["the list of ServiceGroups"]).await?;
    let metadata = ObjectMeta { name: groups.metadata.name, ..ObjectMeta::default() };
    let anew = CustomResourceDefinition { metadata, spec: groups.spec, status: None };
    definitions.create(&PostParams::default(), &anew).await?;
    waits_for(&[]).await?;
    allocator.stop().await
}

#[tokio::test]
async fn those_who_stand_by_are_ready_too() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/29").await?;
    let leader = cluster.allocator();
    cluster.service("web", json!({})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    let standby = cluster.allocator();
    cluster.until("it is ready", async || Ok(standby.readiness.missing().is_empty().then_some(()))).await?;
    assert!(leader.readiness.missing().is_empty());
    standby.stop().await?;
    leader.stop().await
}
