//! Addresses of an external IPAM, with the rights and the record of a real cluster.

use std::path::Path;

use anyhow::{Context, Result};
use purelb_ipam_sidecar::{Config, Sidecar};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::{Cluster, HOME};

fn config(folder: &Path) -> Result<Config> {
    let path = |name: &str| folder.join(name).to_str().map(str::to_owned);
    Config::from_env(|name| match name {
        "SIDECAR_SOCKET" => path("ipam.sock"),
        "SIDECAR_STATE" => path("state.json"),
        "SIDECAR_POOL_CIDR" => Some("192.0.2.0/28".to_owned()),
        _ => None,
    })
}

/// Who is on record as a holder of addresses of a group.
async fn holders(cluster: &Cluster, group: &str) -> Result<Value> {
    let record = cluster.ground.get(&format!("/api/v1/namespaces/{HOME}/configmaps/purelb-external-holders")).await?;
    match record["data"][group].as_str() {
        Some(text) => Ok(serde_json::from_str::<Value>(text)?["services"].take()),
        None => Ok(json!({})),
    }
}

async fn on_record(cluster: &Cluster, wanted: Value) -> Result<()> {
    cluster
        .until(&format!("{wanted} is on record"), async || {
            let holders = holders(cluster, "ext").await?;
            Ok(if holders == wanted { Ok(()) } else { Err(holders) })
        })
        .await
}

#[tokio::test]
async fn b28_a_group_and_a_service_deleted_while_no_allocator_ran_leak_no_address() -> Result<()> {
    let (cluster, folder) = (Cluster::new().await?, TempDir::new()?);
    let sidecar = Sidecar::bind(&config(folder.path())?)?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(sidecar.run(async { drop(stopped.await) }));
    let socket = folder.path().join("ipam.sock");
    cluster.group("ext", json!({"external": {"provider": "lab", "socket": socket, "announce": "remote"}})).await?;
    let allocator = cluster.allocator()?;
    let from = json!({"purelb.io/service-group": "ext"});
    cluster.service("web", from, json!({})).await?;
    cluster.has("web", &["192.0.2.1"]).await?;
    let name = format!("{}/web", cluster.ground.namespace);
    on_record(&cluster, json!({name.clone(): ["192.0.2.1"]})).await?;
    cluster.close(allocator).await?;
    cluster.delete("web").await?;
    cluster.ground.delete(&format!("/apis/purelb.io/v2/namespaces/{HOME}/servicegroups/ext")).await?;
    let successor = cluster.allocator()?;
    on_record(&cluster, json!({})).await?;
    let state = std::fs::read_to_string(folder.path().join("state.json")).context("the sidecar keeps its books")?;
    assert!(!state.contains("192.0.2.1"), "{state}");
    cluster.close(successor).await?;
    stop.send(()).ok();
    serving.await?
}
