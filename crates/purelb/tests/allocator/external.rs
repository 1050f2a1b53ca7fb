//! Groups of an external IPAM, over a real socket with the reference sidecar.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use purelb_api::ServiceGroupStatus;
use purelb_api::holders::{Holders, RECORD};
use purelb_ipam::{Ipam, Stats};
use purelb_ipam_sidecar::{Config, Sidecar};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster::{Cluster, HOME, ips};

const BOTH: [&str; 2] = ["IPv4", "IPv6"];

/// A folder for a sidecar that may or may not be there.
struct Place {
    folder: TempDir,
    pool: &'static str,
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
        Self::with("192.0.2.0/28")
    }

    fn with(pool: &'static str) -> Result<Self> {
        Ok(Self { folder: tempfile::tempdir()?, pool })
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("ipam.sock")
    }

    fn start(&self) -> Result<Running> {
        let sidecar = Sidecar::bind(&config(self.folder.path(), self.pool)?)?;
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

fn config(folder: &Path, pool: &str) -> Result<Config> {
    let path = |name: &str| folder.join(name).to_str().map(str::to_owned);
    Config::from_env(|name| match name {
        "SIDECAR_SOCKET" => path("ipam.sock"),
        "SIDECAR_STATE" => path("state.json"),
        "SIDECAR_POOL_CIDR" => Some(pool.to_owned()),
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

/// Waits until the record names these holders of addresses of a group.
async fn on_record(cluster: &Cluster, group: &str, wanted: &[(&str, &[&str])]) -> Result<()> {
    let wanted: Vec<_> = wanted.iter().map(|(service, addrs)| json!([service, addrs])).collect();
    let api: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), HOME);
    cluster
        .until(&format!("{wanted:?} are on record"), async || {
            let record = api.get_opt(RECORD).await?.map(|object| Holders::read(&object)).unwrap_or_default();
            let services = record.groups.get(group).map(|group| group.services.clone()).unwrap_or_default();
            let named: Vec<_> = services.iter().map(|(service, addrs)| json!([service, addrs])).collect();
            Ok((named == wanted).then_some(()))
        })
        .await
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
    on_record(&cluster, "default", &[("test/web", &["192.0.2.1"])]).await?;
    cluster.services().delete("web", &DeleteParams::default()).await?;
    place.in_use(&cluster, "default", 0, 0).await?;
    let shown = status(&cluster, "default", |status| status.allocated_ipv4 == 0).await?;
    assert_eq!(shown.available_ipv4, Some(15));
    on_record(&cluster, "default", &[]).await?;
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
    let kept = ips(&before);
    on_record(&cluster, "default", &[("test/stays", &kept)]).await?;
    assert_eq!(ips(&cluster.shown("stays").await?), kept);
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
    on_record(&cluster, "default", &[("test/web", &[])]).await.context("it is still owed")?;
    first.stop().await?;
    let second = cluster.allocator();
    let sidecar = place.start()?;
    place.in_use(&cluster, "default", 0, 0).await?;
    second.stop().await?;
    sidecar.stop().await
}

#[tokio::test]
async fn b28_a_group_deleted_while_no_allocator_ran_leaks_no_address() -> Result<()> {
    let (cluster, place) = (Cluster::new().await?, Place::new()?);
    let sidecar = place.start()?;
    place.group(&cluster, "default").await?;
    let first = cluster.allocator();
    for name in ["stays", "goes"] {
        cluster.service(name, json!({})).await?;
        cluster.told(name, "Assigned").await?;
    }
    first.kill();
    cluster.services().delete("goes", &DeleteParams::default()).await?;
    cluster.groups().delete("default", &DeleteParams::default()).await?;
    let second = cluster.allocator();
    place.in_use(&cluster, "default", 1, 0).await?;
    cluster.told("stays", "NoGroups").await?;
    assert_eq!(ips(&cluster.shown("stays").await?).len(), 1, "an assigned address stays");
    cluster.services().delete("stays", &DeleteParams::default()).await?;
    place.in_use(&cluster, "default", 0, 0).await?;
    second.stop().await?;
    sidecar.stop().await
}

#[tokio::test]
async fn a_group_whose_status_cannot_be_written_still_gives_back_what_it_gave() -> Result<()> {
    let (cluster, place) = (Cluster::new().await?, Place::new()?);
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut definition = crds.get("servicegroups.purelb.io").await?;
    definition.spec.versions.iter_mut().for_each(|version| version.subresources = None);
    crds.replace("servicegroups.purelb.io", &PostParams::default(), &definition).await?;
    let sidecar = place.start()?;
    place.group(&cluster, "default").await?;
    let first = cluster.allocator();
    cluster.service("web", json!({})).await?;
    cluster.has("web", &["192.0.2.1"]).await?;
    first.kill();
    cluster.services().delete("web", &DeleteParams::default()).await?;
    let second = cluster.allocator();
    place.in_use(&cluster, "default", 0, 0).await?;
    second.stop().await?;
    sidecar.stop().await
}

#[tokio::test]
async fn an_annotation_that_names_another_ipam_frees_nothing_there_or_here() -> Result<()> {
    let (cluster, left, right) = (Cluster::new().await?, Place::new()?, Place::with("198.51.100.0/28")?);
    let sidecars = [left.start()?, right.start()?];
    left.group(&cluster, "default").await?;
    right.group(&cluster, "right").await?;
    let mut allocator = cluster.allocator();
    cluster.service("web", json!({})).await?;
    cluster.has("web", &["192.0.2.1"]).await?;
    on_record(&cluster, "default", &[("test/web", &["192.0.2.1"])]).await?;
    for restart in [false, true] {
        let edit = json!({"metadata": {"annotations": {"purelb.io/allocated-from": "right"}}});
        if restart {
            allocator.stop().await?;
            cluster.patch("web", edit).await?;
            allocator = cluster.allocator();
        } else {
            cluster.patch("web", edit).await?;
        }
        cluster
            .until("the annotation is put right", async || {
                let web = cluster.shown("web").await?;
                assert_eq!(ips(&web), ["192.0.2.1"]);
                Ok((web["metadata"]["annotations"]["purelb.io/allocated-from"] == "default").then_some(()))
            })
            .await?;
        assert_eq!(left.stats("default").await?.in_use_v4, 1, "it is not free");
    }
    cluster.services().delete("web", &DeleteParams::default()).await?;
    left.in_use(&cluster, "default", 0, 0).await?;
    on_record(&cluster, "right", &[]).await?;
    allocator.stop().await?;
    for sidecar in sidecars {
        sidecar.stop().await?;
    }
    Ok(())
}

/// A socket in front of a sidecar, whose answers can be held.
struct Slow {
    socket: PathBuf,
    held: watch::Sender<bool>,
    asked: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Slow {
    fn before(place: &Place) -> Result<Self> {
        let socket = place.folder.path().join("slow.sock");
        let listener = UnixListener::bind(&socket)?;
        let (held, news) = watch::channel(true);
        let (asked, behind) = (Arc::<AtomicUsize>::default(), place.socket());
        let mut task = JoinSet::new();
        let count = asked.clone();
        task.spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                links.spawn(link(near, behind.clone(), news.clone(), count.clone()));
            }
        });
        Ok(Self { socket, held, asked, _task: task })
    }
}

async fn link(near: UnixStream, behind: PathBuf, mut held: watch::Receiver<bool>, asked: Arc<AtomicUsize>) {
    let Ok(far) = UnixStream::connect(behind).await else { return };
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
    let questions = async {
        let mut buffer = vec![0; 4096];
        while let Ok(length @ 1..) = near_in.read(&mut buffer).await {
            asked.fetch_add(length, Ordering::Relaxed);
            if held.wait_for(|held| !held).await.is_err() || far_out.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = questions => {}
        _ = tokio::io::copy(&mut far_in, &mut near_out) => {}
    }
}

#[tokio::test]
async fn b6_a_sidecar_that_is_slow_delays_only_its_own_group() -> Result<()> {
    let (cluster, place, quick) = (Cluster::new().await?, Place::new()?, Place::with("198.51.100.0/28")?);
    let sidecars = [place.start()?, quick.start()?];
    let slow = Slow::before(&place)?;
    let spec = json!({"external": {"provider": "slow", "socket": slow.socket, "announce": "local"}});
    cluster.group("slow", spec).await?;
    quick.group(&cluster, "quick").await?;
    cluster.local("default", "10.0.0.0/24").await?;
    let allocator = cluster.allocator();
    for n in 0..8 {
        cluster.service(&format!("s{n}"), json!({"purelb.io/service-group": "slow"})).await?;
    }
    cluster
        .until("the slow sidecar is asked", async || Ok((slow.asked.load(Ordering::Relaxed) > 0).then_some(())))
        .await?;
    for n in 0..20 {
        cluster.service(&format!("l{n}"), json!({})).await?;
    }
    cluster.service("q", json!({"purelb.io/service-group": "quick"})).await?;
    for name in (0..20).map(|n| format!("l{n}")).chain(["q".to_owned()]) {
        cluster.told(&name, "Assigned").await?;
    }
    let waiting = cluster.shown("s0").await?;
    assert!(ips(&waiting).is_empty(), "it is still thinking");
    slow.held.send_replace(false);
    for n in 0..8 {
        cluster.told(&format!("s{n}"), "Assigned").await?;
    }
    place.in_use(&cluster, "slow", 8, 0).await?;
    allocator.stop().await?;
    for sidecar in sidecars {
        sidecar.stop().await?;
    }
    Ok(())
}
