//! What the allocator writes about BGPConfigurations, and that it does not need them.

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use purelb_api::{BGPConfiguration, crds};
use serde_json::{Value, json};

use crate::cluster::{Cluster, HOME};

fn configurations(cluster: &Cluster) -> Api<BGPConfiguration> {
    Api::namespaced(cluster.client.clone(), HOME)
}

async fn create(cluster: &Cluster, name: &str, metadata: Value) -> Result<()> {
    let mut object = json!({
        "apiVersion": "bgp.purelb.io/v1", "kind": "BGPConfiguration", "metadata": {"name": name},
        "spec": {
            "global": {"asn": 64512},
            "neighbors": [{"config": {"neighborAddress": "192.0.2.254", "peerAsn": 64513}}],
            "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb0"]},
        },
    });
    for (field, value) in metadata.as_object().into_iter().flatten() {
        object["metadata"][field] = value.clone();
    }
    configurations(cluster).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// Waits until the condition Ready has this reason.
async fn told(cluster: &Cluster, name: &str, reason: &str) -> Result<()> {
    cluster
        .until(&format!("{name} is told {reason}"), async || {
            let status = configurations(cluster).get(name).await?.status.unwrap_or_default();
            let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
            Ok(ready.is_some_and(|ready| ready.reason == reason).then_some(()))
        })
        .await
}

#[tokio::test]
async fn without_the_bgp_crds_all_is_well_and_once_they_come_they_are_noticed() -> Result<()> {
    let cluster = Cluster::new().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    definitions.delete("configs.bgp.purelb.io", &DeleteParams::default()).await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let allocator = cluster.allocator();
    cluster.service("web", json!({})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    let crd = crds().into_iter().find(|crd| crd.metadata.name.as_deref() == Some("configs.bgp.purelb.io"));
    definitions.create(&PostParams::default(), &crd.expect("there is such a CRD")).await?;
    create(&cluster, "default", json!({})).await?;
    told(&cluster, "default", "ReconcileSuccess").await?;
    allocator.stop().await
}

#[tokio::test]
async fn the_object_named_default_takes_over_and_gives_back() -> Result<()> {
    let cluster = Cluster::new().await?;
    let allocator = cluster.allocator();
    create(&cluster, "racks", json!({})).await?;
    told(&cluster, "racks", "ReconcileSuccess").await?;
    create(&cluster, "default", json!({})).await?;
    told(&cluster, "default", "ReconcileSuccess").await?;
    told(&cluster, "racks", "BgpConfigurationIgnored").await?;
    configurations(&cluster).delete("default", &DeleteParams::default()).await?;
    told(&cluster, "racks", "ReconcileSuccess").await?;
    let wrong = json!({"spec": {"neighbors": [{"config": {"neighborAddress": "router", "peerAsn": 64513}}]}});
    configurations(&cluster).patch("racks", &PatchParams::default(), &Patch::Merge(&wrong)).await?;
    told(&cluster, "racks", "AddressSyntax").await?;
    allocator.stop().await
}

#[tokio::test]
async fn an_old_finalizer_keeps_no_deleted_object() -> Result<()> {
    let cluster = Cluster::new().await?;
    create(&cluster, "default", json!({"finalizers": ["bgp.purelb.io/finalizer"]})).await?;
    let api = configurations(&cluster);
    api.delete("default", &DeleteParams::default()).await?;
    assert!(api.get("default").await?.metadata.deletion_timestamp.is_some(), "the finalizer keeps it");
    let allocator = cluster.allocator();
    cluster.until("it is gone", async || Ok(api.get_opt("default").await?.is_none().then_some(()))).await?;
    allocator.stop().await
}
