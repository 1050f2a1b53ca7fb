//! Groups of an external IPAM, over a real socket with the reference sidecar.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::api::DeleteParams;
use purelb_api::ServiceGroupStatus;
use purelb_ipam::{Ipam, Stats};
use purelb_ipam_sidecar::{Config, Sidecar};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, ips};

const BOTH: [&str; 2] = ["IPv4", "IPv6"];

/// A folder for a sidecar that may or may not be there.
struct Place {
    folder: TempDir,
}

/// A sidecar that runs.
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<()>>,
}

impl Running {
    async fn stop(self) -> Result<()> {
        self.stop.send(()).ok();
        self.task.await?
    }
}

impl Place {
    fn new() -> Result<Self> {
        Ok(Self { folder: tempfile::tempdir()? })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("ipam.sock")
    }

    fn start(&self) -> Result<Running> {
        let sidecar = Sidecar::bind(&config(self.folder.path())?)?;
        let (stop, stopped) = oneshot::channel::<()>();
        Ok(Running { stop, task: tokio::spawn(sidecar.run(async { drop(stopped.await) })) })
    }

    /// What the IPAM itself says.
    async fn stats(&self, group: &str) -> Result<Stats> {
        Ok(Ipam::new(self.socket().to_str().context("a path")?).stats(group).await?)
    }

    async fn group(&self, cluster: &Cluster, name: &str) -> Result<()> {
        cluster
            .group(name, json!({"external": {"provider": "acme", "socket": self.socket(), "announce": "local"}}))
            .await
    }

    /// Waits until the IPAM has so many addresses in use.
    async fn in_use(&self, cluster: &Cluster, group: &str, v4: u64, v6: u64) -> Result<()> {
        cluster
            .until(&format!("the IPAM has {v4} and {v6} addresses in use"), async || {
                let stats = self.stats(group).await?;
                Ok(((stats.in_use_v4, stats.in_use_v6) == (v4, v6)).then_some(()))
            })
            .await
    }
}

fn config(folder: &Path) -> Result<Config> {
    let path = |name: &str| folder.join(name).to_str().map(str::to_owned);
    Config::from_env(|name| match name {
        "SIDECAR_SOCKET" => path("ipam.sock"),
        "SIDECAR_STATE" => path("state.json"),
        "SIDECAR_POOL_CIDR" => Some("192.0.2.0/28".to_owned()),
        "SIDECAR_POOL_CIDR6" => Some("2001:db8::/120".to_owned()),
        _ => None,
    })
}

async fn status(
    cluster: &Cluster,
    name: &str,
    wanted: impl Fn(&ServiceGroupStatus) -> bool,
) -> Result<ServiceGroupStatus> {
    cluster
        .until(&format!("the status of {name} is as wanted"), async || {
            Ok(cluster.groups().get(name).await?.status.filter(|status| wanted(status)))
        })
        .await
}

fn holders(status: &ServiceGroupStatus) -> Vec<&str> {
    status.holders.iter().map(|holder| holder.service.as_str()).collect()
}

#[tokio::test]
async fn ext_1_an_address_comes_from_the_sidecar_and_goes_back_to_it() -> Result<()> {
    let (cluster, place) = (Cluster::new().await?, Place::new()?);
    let sidecar = place.start()?;
    place.group(&cluster, "default").await?;
    let allocator = cluster.allocator();
    cluster.service("web", json!({})).await?;
    let web = cluster.has("web", &["192.0.2.1"]).await?;
    assert_eq!(web["metadata"]["annotations"]["purelb.io/allocated-from"], "default");
    assert_eq!(web["metadata"]["annotations"]["purelb.io/pool-type"], "local");
    let shown = status(&cluster, "default", |status| status.allocated_ipv4 == 1).await?;
    assert_eq!((shown.ipam.as_str(), shown.available_ipv4), ("acme", Some(14)));
    assert_eq!(shown.addresses, ["192.0.2.0/28", "2001:db8::/120"]);
    let shown =
        status(&cluster, "default", |status| status.holders.first().is_some_and(|holder| !holder.addresses.is_empty()))
            .await?;
    assert_eq!((holders(&shown), &shown.holders[0].addresses[..]), (vec!["test/web"], &["192.0.2.1".to_owned()][..]));
    cluster.services().delete("web", &DeleteParams::default()).await?;
    place.in_use(&cluster, "default", 0, 0).await?;
    let shown = status(&cluster, "default", |status| status.allocated_ipv4 == 0).await?;
    assert_eq!(shown.available_ipv4, Some(15));
    status(&cluster, "default", |status| status.holders.is_empty()).await?;
    allocator.stop().await?;
    sidecar.stop().await
}

#[tokio::test]
async fn bug_6_with_a_dead_sidecar_only_its_own_group_waits_until_it_comes_back() -> Result<()> {
    let (cluster, place) = (Cluster::new().await?, Place::new()?);
    place.group(&cluster, "external").await?;
    cluster.local("default", "10.0.0.0/24").await?;
    let allocator = cluster.allocator();
    for n in 0..10 {
        cluster.service(&format!("e{n}"), json!({"purelb.io/service-group": "external"})).await?;
    }
    let why = cluster.told("e9", "ExternalFailed").await?;
    assert!(why.contains("is its container running"), "{why}");
    for n in 0..20 {
        cluster.service(&format!("l{n}"), json!({})).await?;
    }
    cluster
        .until("everybody else is served", async || {
            for n in 0..20 {
                if ips(&cluster.shown(&format!("l{n}")).await?).is_empty() {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })
        .await?;
    let sidecar = place.start()?;
    place.in_use(&cluster, "external", 10, 0).await?;
    for n in 0..10 {
        cluster.told(&format!("e{n}"), "Assigned").await?;
    }
    allocator.stop().await?;
    sidecar.stop().await
}

#[tokio::test]
async fn bug_17_from_one_family_to_two_and_back_without_a_trace() -> Result<()> {
    let (cluster, place) = (Cluster::new().await?, Place::new()?);
    let sidecar = place.start()?;
    place.group(&cluster, "default").await?;
    let allocator = cluster.allocator();
    cluster.service_with("web", json!({}), json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]})).await?;
    cluster.has("web", &["192.0.2.1"]).await?;
    cluster.patch("web", json!({"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": BOTH}})).await?;
    cluster.has("web", &["192.0.2.1", "2001:db8::1"]).await?;
    let first = cluster.shown("web").await?["spec"]["clusterIPs"][0].clone();
    let single = json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIPs": [first]});
    cluster.patch("web", json!({"spec": single})).await?;
    cluster.has("web", &["192.0.2.1"]).await?;
    place.in_use(&cluster, "default", 1, 0).await?;
    cluster.patch("web", json!({"spec": {"type": "ClusterIP"}})).await?;
    place.in_use(&cluster, "default", 0, 0).await?;
    allocator.stop().await?;
    sidecar.stop().await
}

#[tokio::test]
async fn b28_what_was_deleted_while_no_allocator_ran_is_given_back_by_the_next_one() -> Result<()> {
    let (cluster, place) = (Cluster::new().await?, Place::new()?);
    let sidecar = place.start()?;
    place.group(&cluster, "default").await?;
    let first = cluster.allocator();
    for name in ["stays", "goes"] {
        cluster.service(name, json!({})).await?;
        cluster.told(name, "Assigned").await?;
    }
    let before = cluster.shown("stays").await?;
    first.kill();
    cluster.services().delete("goes", &DeleteParams::default()).await?;
    let second = cluster.allocator();
    place.in_use(&cluster, "default", 1, 0).await?;
    let shown = status(&cluster, "default", |status| status.holders.len() == 1).await?;
    assert_eq!(holders(&shown), ["test/stays"]);
    assert_eq!(ips(&cluster.shown("stays").await?), ips(&before));
    second.stop().await?;
    sidecar.stop().await
}

#[tokio::test]
async fn a_release_that_the_sidecar_did_not_hear_is_told_again_also_by_another_allocator() -> Result<()> {
    let (cluster, place) = (Cluster::new().await?, Place::new()?);
    let sidecar = place.start()?;
    place.group(&cluster, "default").await?;
    let first = cluster.allocator();
    cluster.service("web", json!({})).await?;
    cluster.has("web", &["192.0.2.1"]).await?;
    sidecar.stop().await?;
    cluster.services().delete("web", &DeleteParams::default()).await?;
    let shown = status(&cluster, "default", |status| !status.holders.is_empty()).await?;
    assert_eq!(holders(&shown), ["test/web"], "still owed");
    first.stop().await?;
    let second = cluster.allocator();
    let sidecar = place.start()?;
    place.in_use(&cluster, "default", 0, 0).await?;
    second.stop().await?;
    sidecar.stop().await
}
