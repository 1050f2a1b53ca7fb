//! Addresses of an external IPAM that are announced to routers: on the virtual interface of every node.

use anyhow::Result;
use purelb_ipam_sidecar::{Config, Sidecar};
use serde_json::json;
use tempfile::TempDir;

use crate::story::Story;

#[tokio::test]
async fn i15_an_external_pool_announced_remotely_is_on_every_virtual_interface() -> Result<()> {
    let (story, folder) = (Story::begin().await?, TempDir::new()?);
    let path = |name: &str| folder.path().join(name).to_str().map(str::to_owned);
    let config = Config::from_env(|name| match name {
        "SIDECAR_SOCKET" => path("ipam.sock"),
        "SIDECAR_STATE" => path("state.json"),
        "SIDECAR_POOL_CIDR" => Some("192.0.2.0/28".to_owned()),
        "SIDECAR_POOL_CIDR6" => Some("2001:db8:15::/124".to_owned()),
        _ => None,
    })?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(Sidecar::bind(&config)?.run(async { drop(stopped.await) }));
    let external = json!({"provider": "lab", "socket": path("ipam.sock"), "announce": "remote"});
    story.group("ext", json!({"apiVersion": "purelb.io/v2", "spec": {"external": external}})).await?;
    let addresses = story.service("web", "ext", json!({})).await?;
    for (address, length) in addresses.iter().zip([32, 128]) {
        story.everywhere(*address, length).await?;
        story.event("web", "AnnouncingNonLocal", &format!("Announcing {address} from node node-a")).await?;
    }
    story.delete("web").await?;
    for address in addresses {
        story.held(address, &[]).await?;
    }
    stop.send(()).ok();
    serving.await??;
    story.close().await
}
