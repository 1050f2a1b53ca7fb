//! A control plane with one large ServiceGroup, and many Services at once.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client};
use purelb_lab::ControlPlane;
use serde_json::{Value, json};

/// Where PureLB is installed.
pub const HOME: &str = "purelb-system";
/// Where the Services are.
pub const PLACE: &str = "load";
/// How many jobs the allocator has under way at most; the raw client gets as many.
pub const AT_ONCE: usize = 32;

/// Longer than the API server takes to serve a kind, so that a defect ends the run.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than one Event takes to follow another.
const PAUSE: Duration = Duration::from_secs(1);

/// Who is to serve a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server<'a> {
    /// The allocator.
    PureLB,
    /// The allocator, once it has a group of this name.
    PureLBFrom(&'a str),
    /// The raw client: the class is foreign, so that the allocator leaves it alone.
    Raw,
}

/// A running control plane with PureLB's definitions.
pub struct Cluster {
    pub plane: ControlPlane,
    pub client: Client,
}

impl Cluster {
    pub async fn start() -> Result<Self> {
        let plane = ControlPlane::start().await?;
        let cluster = Self { client: plane.client()?, plane };
        let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
        cluster.kubectl(&["apply", "-f", &crds.display().to_string()]).await?;
        cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await?;
        for namespace in [HOME, PLACE] {
            cluster.kubectl(&["create", "namespace", namespace]).await?;
        }
        let deadline = Instant::now() + PATIENCE;
        // The API server serves a new kind a moment after it says so.
        while let Err(error) = cluster.group("default", "10.128.0.0/16").await {
            ensure!(Instant::now() < deadline, "{error:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(cluster)
    }

    /// A group of addresses outside every node's subnet. By the API itself: kubectl takes a while to start, and this is
    /// where a burst begins.
    pub async fn group(&self, name: &str, pool: &str) -> Result<()> {
        self.group_of(name, &[pool]).await
    }

    /// The same with several ranges.
    pub async fn group_of(&self, name: &str, pools: &[&str]) -> Result<()> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("purelb.io", "v2", "ServiceGroup"));
        let entry = |pool: &&str| json!({"subnet": pool, "pool": pool, "aggregation": "default"});
        let pools: Vec<_> = pools.iter().map(entry).collect();
        let group = DynamicObject::new(name, &kind).data(json!({"spec": {"remote": {"v4pools": pools}}}));
        let groups: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), HOME, &kind);
        groups.create(&PostParams::default(), &group).await.with_context(|| format!("cannot create group {name}"))?;
        Ok(())
    }

    async fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        let output = self.plane.kubectl().args(arguments).output().await?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {} failed: {complaint}", arguments.join(" "));
        Ok(())
    }

    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), PLACE)
    }

    /// Creates one Service; node ports are declined because there are not enough of them.
    pub async fn create(&self, name: &str, server: Server<'_>) -> Result<Service> {
        let (class, group) = match server {
            Server::PureLB => ("purelb.io/purelb", "default"),
            Server::PureLBFrom(group) => ("purelb.io/purelb", group),
            Server::Raw => ("example.com/raw", "default"),
        };
        let service = json!({
            "metadata": {"name": name, "annotations": {"purelb.io/service-group": group}},
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": class,
                "allocateLoadBalancerNodePorts": false,
                "selector": {"app": name},
                "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}],
            },
        });
        let service = serde_json::from_value(service)?;
        self.services().create(&PostParams::default(), &service).await.with_context(|| format!("cannot create {name}"))
    }

    /// Creates all of these with as many requests under way as the allocator would have.
    pub async fn create_all(&self, names: &[String], server: Server<'_>) -> Result<Vec<Service>> {
        let creating = stream::iter(names).map(|name| self.create(name, server));
        creating.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Writes to all of these with as many requests under way as the allocator would have.
    pub async fn patch_all(&self, services: impl Stream<Item = Service>) -> Result<()> {
        let patching =
            services.enumerate().map(async |(number, service)| self.patch(&service, &raw_address(number)).await);
        patching.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Writes what the allocator would write, with nothing to think about.
    pub async fn patch(&self, service: &Service, address: &str) -> Result<()> {
        let name = service.metadata.name.as_deref().context("a Service has a name")?;
        let (params, patch) = (PatchParams::default(), patch(service, address));
        self.services().patch_status(name, &params, &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Writes to all of these what the allocator writes to a Service that has to wait; answers with what they are then.
    pub async fn delay_all(&self, services: Vec<Service>) -> Result<Vec<Service>> {
        let delaying = stream::iter(services).map(async |service| {
            let name = service.metadata.name.as_deref().context("a Service has a name")?;
            let (params, patch) = (PatchParams::default(), json!({"status": {"conditions": [waiting()]}}));
            anyhow::Ok(self.services().patch_status(name, &params, &Patch::Merge(&patch)).await?)
        });
        delaying.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Removes all Services and waits until they are gone.
    pub async fn clear(&self) -> Result<()> {
        self.services().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        while !self.services().list(&ListParams::default().limit(1)).await?.items.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Waits until no more Events follow: the allocator has then nothing left to do.
    pub async fn calm(&self) -> Result<()> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), PLACE);
        let mut before = None;
        loop {
            let now = events.list_metadata(&ListParams::default().limit(1)).await?.metadata.remaining_item_count;
            if before.replace(now) == Some(now) {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// As large as the allocator's own patch; the annotations are of another, so that the allocator has nothing to take off.
fn patch(service: &Service, address: &str) -> Value {
    json!({
        "metadata": {
            "resourceVersion": service.metadata.resource_version,
            "uid": service.metadata.uid,
            "annotations": {
                "bench.io/allocated-by": "PureLB",
                "bench.io/allocated-from": "default",
                "bench.io/pool-type": "remote",
            },
        },
        "status": {
            "loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]},
            "conditions": [{
                "type": "bench.io/AddressAssigned",
                "status": "True",
                "reason": "AddressAssigned",
                "message": format!("Assigned {address} from pool default"),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// As large as the condition of a Service whose group is missing.
fn waiting() -> Value {
    json!({
        "type": "bench.io/AddressAssigned",
        "status": "False",
        "reason": "UnknownPool",
        "message": "unknown pool \"group-0\"; create a ServiceGroup of that name in the namespace PureLB runs in, or name \
            an existing one in the annotation purelb.io/service-group",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// Names that no other set has.
pub fn names(set: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{set}-{number}")).collect()
}

/// An address for the raw client to write, outside the group's range.
pub fn raw_address(number: usize) -> String {
    format!("10.77.{}.{}", number / 250, number % 250 + 1)
}
