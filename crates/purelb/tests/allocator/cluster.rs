//! A cluster in memory with any number of allocators.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use purelb::allocator::metrics::Metrics;
use purelb::allocator::{Settings, inspect, lead};
use purelb::cluster::leader::Timing;
use purelb::http::Readiness;
use purelb_api::{LBNodeAgent, LBNodeAgentStatus, ServiceGroup, annotations, crds};
use purelb_core::alloc::Scope;
use purelb_kubelite::Kubelite;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Where PureLB is installed.
pub const HOME: &str = "purelb-system";

/// A cluster with our CRDs and the namespaces of the stories.
pub struct Cluster {
    pub server: Kubelite,
    pub client: Client,
}

/// One running allocator.
pub struct Allocator {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    /// Its name, which it holds the lease by.
    replica: String,
    /// What it still waits for before it calls itself ready.
    pub readiness: Readiness,
}

impl Allocator {
    /// As SIGTERM would.
    pub async fn stop(self) -> Result<()> {
        self.stop.send_replace(true);
        self.task.await.context("the allocator panicked")
    }

    /// As SIGKILL would.
    pub fn kill(self) {
        self.task.abort();
    }
}

impl Cluster {
    pub async fn new() -> Result<Self> {
        Self::on(Kubelite::new()).await
    }

    /// The same on an API server with other habits.
    pub async fn on(server: Kubelite) -> Result<Self> {
        let client = server.client();
        for crd in crds() {
            Api::<CustomResourceDefinition>::all(client.clone()).create(&PostParams::default(), &crd).await?;
        }
        let cluster = Self { server, client };
        for namespace in [HOME, "test", "tenant"] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            cluster.create("namespaces", "", object).await?;
        }
        Ok(cluster)
    }

    pub fn settings() -> Settings {
        Settings {
            namespace: HOME.to_owned(),
            scope: Scope {
                classes: [annotations::CLASS, annotations::CLASS_V2].map(str::to_owned).to_vec(),
                default_announcer: true,
            },
            replica: "allocator".to_owned(),
            timing: Timing {
                lease: Duration::from_millis(1500),
                renew: Duration::from_millis(100),
                margin: Duration::from_millis(500),
            },
        }
    }

    pub fn allocator(&self) -> Allocator {
        self.allocator_with(self.client.clone(), Self::settings())
    }

    /// One of several, with a name of its own.
    pub fn replica(&self, name: &str) -> Allocator {
        self.allocator_with(self.client.clone(), Settings { replica: name.to_owned(), ..Self::settings() })
    }

    pub fn allocator_with(&self, client: Client, settings: Settings) -> Allocator {
        let (stop, stopped) = watch::channel(false);
        let metrics = Arc::new(Metrics::new(&mut Registry::default()));
        let (_, questions) = inspect::channel();
        let readiness = Readiness::default();
        let ready = readiness.register("a look at the lease");
        let replica = settings.replica.clone();
        let task = tokio::spawn(async move {
            lead(client, &settings, metrics, ready, questions, stopped).await;
        });
        Allocator { stop, task, replica, readiness }
    }

    async fn create(&self, plural: &str, namespace: &str, object: Value) -> Result<()> {
        let (group, version) = object["apiVersion"].as_str().unwrap_or_default().rsplit_once('/').unwrap_or(("", "v1"));
        let kind = object["kind"].as_str().unwrap_or_default();
        let resource = kube::core::ApiResource::from_gvk_with_plural(
            &kube::core::GroupVersionKind::gvk(group, version, kind),
            plural,
        );
        let api: Api<DynamicObject> = match namespace {
            "" => Api::all_with(self.client.clone(), &resource),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &resource),
        };
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    /// A v2 group in PureLB's own namespace.
    pub async fn group(&self, name: &str, spec: Value) -> Result<()> {
        let metadata = json!({"name": name, "namespace": HOME});
        let object = json!({"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": metadata, "spec": spec});
        self.create("servicegroups", HOME, object).await
    }

    pub async fn agent(&self, name: &str, spec: Value) -> Result<()> {
        let metadata = json!({"name": name, "namespace": HOME});
        let object = json!({"apiVersion": "purelb.io/v2", "kind": "LBNodeAgent", "metadata": metadata, "spec": spec});
        self.create("lbnodeagents", HOME, object).await
    }

    /// Waits until an LBNodeAgent has the wanted status.
    pub async fn agent_status(
        &self,
        name: &str,
        wanted: impl Fn(&LBNodeAgentStatus) -> bool,
    ) -> Result<LBNodeAgentStatus> {
        let api: Api<LBNodeAgent> = Api::namespaced(self.client.clone(), HOME);
        self.until(&format!("the status of {name} is as wanted"), async || {
            Ok(api.get(name).await?.status.filter(|status| wanted(status)))
        })
        .await
    }

    pub async fn node(&self, name: &str, labels: Value) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        self.create("nodes", "", object).await
    }

    /// The Lease of a node's agent, renewed just now.
    pub async fn lease(&self, node: &str, subnets: &str) -> Result<()> {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": format!("purelb-node-{node}"),
                "namespace": HOME,
                "annotations": {"purelb.io/subnets": subnets},
            },
            "spec": {"holderIdentity": node, "renewTime": now, "leaseDurationSeconds": 600},
        });
        self.create("leases", HOME, object).await
    }

    /// A local group of IPv4 ranges in a /16.
    pub async fn local(&self, name: &str, pool: &str) -> Result<()> {
        let subnet = format!("{}/16", pool.split(['-', '/']).next().unwrap_or_default());
        self.group(name, json!({"local": {"v4pools": [{"pool": pool, "subnet": subnet}]}})).await
    }

    pub async fn service(&self, name: &str, annotations: Value) -> Result<()> {
        self.service_with(name, annotations, json!({})).await
    }

    pub async fn service_with(&self, name: &str, annotations: Value, extra: Value) -> Result<()> {
        let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        for (field, value) in extra.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let metadata = json!({"name": name, "namespace": "test", "annotations": annotations});
        self.create(
            "services",
            "test",
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}),
        )
        .await
    }

    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "test")
    }

    pub fn groups(&self) -> Api<ServiceGroup> {
        Api::namespaced(self.client.clone(), HOME)
    }

    pub async fn patch(&self, name: &str, patch: Value) -> Result<()> {
        self.services().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// The Service as JSON.
    pub async fn shown(&self, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.services().get(name).await?)?)
    }

    /// Waits until one of these allocators leads, and tells which.
    pub async fn leader(&self, allocators: &[Allocator]) -> Result<usize> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), HOME);
        self.until("an allocator leads", async || {
            let lease = leases.get_opt("purelb-allocator").await?;
            let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            let replica = holder.rsplit_once('_').map(|(replica, _)| replica);
            Ok(allocators.iter().position(|allocator| Some(allocator.replica.as_str()) == replica))
        })
        .await
    }

    /// Waits until the Service has these addresses, then returns it.
    pub async fn has(&self, name: &str, addresses: &[&str]) -> Result<Value> {
        self.until(&format!("{name} has {addresses:?}"), async || {
            let shown = self.shown(name).await?;
            Ok((ips(&shown) == addresses).then_some(shown))
        })
        .await
    }

    /// Waits until the Service's condition has this reason, then returns its message.
    pub async fn told(&self, name: &str, reason: &str) -> Result<String> {
        self.until(&format!("{name} is told {reason}"), async || {
            let shown = self.shown(name).await?;
            let condition = &shown["status"]["conditions"][0];
            Ok((condition["reason"] == reason).then(|| condition["message"].as_str().unwrap_or_default().to_owned()))
        })
        .await
    }

    /// Reasons of the Events about an object, oldest first.
    pub async fn events(&self, about: &str) -> Result<Vec<(String, String)>> {
        let events: Api<Event> = Api::all(self.client.clone());
        let mut found: Vec<_> = events.list(&ListParams::default()).await?.items;
        found.retain(|event| event.involved_object.name.as_deref() == Some(about));
        found.sort_by_key(|event| event.metadata.name.clone());
        Ok(found
            .into_iter()
            .map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect())
    }

    /// Asks again and again until there is an answer; the time is only a guard against waiting for ever.
    pub async fn until<T: Debug>(&self, what: &str, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(answer) = ask().await? {
                return Ok(answer);
            }
            if tokio::time::Instant::now() > deadline {
                let services = self.services().list(&ListParams::default()).await?;
                bail!("it never came true that {what}; {:#}", serde_json::to_value(services.items)?);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The addresses in a Service's status.
pub fn ips(service: &Value) -> Vec<&str> {
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
    ingress.into_iter().flatten().filter_map(|entry| entry["ip"].as_str()).collect()
}
