//! A real cluster with PureLB's manifests in it, and what a user sees there.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use purelb_lab::daemon::Account;
use purelb_lab::stories::{Past, PatchType};
use purelb_lab::{ControlPlane, Daemon, Ground};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

static SERVER: OnceCell<Result<ControlPlane>> = OnceCell::const_new();
static TURN: Mutex<()> = Mutex::const_new(());

/// Where PureLB is installed.
pub const HOME: &str = "purelb-system";
/// Only a guard against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// Short, so that a story need not wait long for the lease of one that was killed.
const LEASE_SECONDS: &str = "2";

/// A cluster that belongs to one test as long as this lives: an allocator sees all Services of a cluster.
pub struct Cluster {
    pub plane: &'static ControlPlane,
    /// The namespace of the story's Services.
    pub ground: Ground,
    pub account: Account,
    /// Requests that were forbidden before this story.
    forbidden_before: f64,
    _turn: MutexGuard<'static, ()>,
}

/// A file or folder of the manifests.
fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path)
}

fn group_path(name: &str) -> String {
    format!("/apis/purelb.io/v2/namespaces/{HOME}/servicegroups/{name}")
}

impl Cluster {
    /// A cluster with our CRDs and rights, without groups, and with an empty namespace.
    pub async fn new() -> Result<Self> {
        let turn = TURN.lock().await;
        let plane = SERVER.get_or_init(prepared).await.as_ref().map_err(|error| anyhow!("{error:#}"))?;
        let ground = Ground::fresh(plane.client()?, Past::default()).await?;
        let account = Account::of(plane, HOME, "allocator").await?;
        let mut cluster = Self { plane, ground, account, forbidden_before: 0.0, _turn: turn };
        cluster.sweep().await?;
        cluster.forbidden_before = cluster.forbidden().await?;
        Ok(cluster)
    }

    /// Removes what earlier stories left.
    async fn sweep(&self) -> Result<()> {
        let groups = format!("/apis/purelb.io/v2/namespaces/{HOME}/servicegroups");
        self.ground.delete(&groups).await?;
        let services = self.ground.get("/api/v1/services?fieldSelector=spec.type=LoadBalancer").await?;
        for service in services["items"].as_array().into_iter().flatten() {
            self.ground.delete(&path_of(service)).await?;
        }
        Ok(())
    }

    /// Starts an allocator.
    pub fn allocator(&self) -> Result<Daemon> {
        start(&self.account, "allocator-0", 0)
    }

    /// Ends an allocator as Kubernetes does; a request that its rights did not allow fails the story.
    pub async fn close(&self, allocator: Daemon) -> Result<()> {
        let log = allocator.log();
        let took = allocator.stop().await?;
        ensure!(took < Duration::from_secs(1), "it took {took:?} to stop");
        let forbidden = self.forbidden().await? - self.forbidden_before;
        ensure!(forbidden == 0.0, "deploy/rbac/allocator.yaml lacks something: {forbidden} requests forbidden\n{log}");
        Ok(())
    }

    /// A v2 group in PureLB's own namespace.
    pub async fn group(&self, name: &str, spec: Value) -> Result<()> {
        let object =
            json!({"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": {"name": name}, "spec": spec});
        self.ground.create(group_path("").trim_end_matches('/'), &object).await?;
        Ok(())
    }

    /// A local group with one IPv4 range, in a /16.
    pub async fn local(&self, name: &str, pool: &str) -> Result<()> {
        self.group(name, local(pool)).await
    }

    pub async fn edit_group(&self, name: &str, spec: &Value) -> Result<()> {
        self.ground.patch(&group_path(name), PatchType::Merge, &json!({"spec": spec})).await?;
        Ok(())
    }

    /// The group once its status is as wanted.
    pub async fn group_status(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        self.until(&format!("the status of {name} is as wanted"), async || {
            let status = self.ground.get(&group_path(name)).await?["status"].take();
            Ok(if wanted(&status) { Ok(status) } else { Err(status) })
        })
        .await
    }

    /// A LoadBalancer Service with port 80, unless `spec` says otherwise.
    pub async fn service(&self, name: &str, annotations: Value, spec: Value) -> Result<()> {
        let mut service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            service["spec"][field] = value.clone();
        }
        self.ground.create(&self.ground.core("services"), &service).await?;
        Ok(())
    }

    pub async fn shown(&self, name: &str) -> Result<Value> {
        Ok(self.ground.get(&self.ground.core(&format!("services/{name}"))).await?)
    }

    pub async fn edit(&self, name: &str, patch: Value) -> Result<()> {
        self.ground.patch(&self.ground.core(&format!("services/{name}")), PatchType::Merge, &patch).await?;
        Ok(())
    }

    pub async fn annotate(&self, name: &str, annotations: Value) -> Result<()> {
        self.edit(name, json!({"metadata": {"annotations": annotations}})).await
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        self.ground.delete(&self.ground.core(&format!("services/{name}"))).await?;
        Ok(())
    }

    /// Waits until the Service has these addresses, then returns it.
    pub async fn has(&self, name: &str, addresses: &[&str]) -> Result<Value> {
        self.until(&format!("{name} has {addresses:?}"), async || {
            let shown = self.shown(name).await?;
            Ok(if ips(&shown) == addresses { Ok(shown) } else { Err(shown) })
        })
        .await
    }

    /// Waits until the Service's condition has this reason, then returns its message.
    pub async fn told(&self, name: &str, reason: &str) -> Result<String> {
        self.until(&format!("{name} is told {reason}"), async || {
            let shown = self.shown(name).await?;
            let condition = &shown["status"]["conditions"][0];
            Ok(if condition["reason"] == reason {
                Ok(condition["message"].as_str().unwrap_or_default().to_owned())
            } else {
                Err(shown)
            })
        })
        .await
    }

    /// Waits until an Event with this reason and message is there about an object of this name.
    pub async fn event(&self, about: &str, reason: &str, message: &str) -> Result<()> {
        let query = format!("/api/v1/events?fieldSelector=involvedObject.name={about},reason={reason}");
        self.until(&format!("an Event {reason} says {message:?}"), async || {
            let events = self.ground.get(&query).await?;
            let found = events["items"].as_array().into_iter().flatten().any(|event| event["message"] == message);
            Ok(if found { Ok(()) } else { Err(events) })
        })
        .await
    }

    /// Asks again and again until there is an answer.
    pub async fn until<T>(&self, what: &str, mut ask: impl AsyncFnMut() -> Result<Result<T, Value>>) -> Result<T> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match ask().await? {
                Ok(answer) => return Ok(answer),
                Err(instead) if Instant::now() > deadline => bail!("it never came true that {what}; {instead:#}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// How many requests were forbidden: none of the administrator's can be.
    async fn forbidden(&self) -> Result<f64> {
        self.requests(|labels| labels.contains(r#"code="403""#)).await
    }

    /// How many requests there were about what an allocator works on. A watch counts only when it ends.
    pub async fn work(&self) -> Result<f64> {
        let kinds = ["services", "servicegroups", "events", "nodes"].map(|kind| format!(r#"resource="{kind}""#));
        let asked = |labels: &str| kinds.iter().any(|kind| labels.contains(kind));
        self.requests(|labels| asked(labels) && !labels.contains(r#"verb="WATCH""#)).await
    }

    async fn requests(&self, counts: impl Fn(&str) -> bool) -> Result<f64> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.plane.client()?.request_text(request).await?;
        let lines = text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")?.rsplit_once("} "));
        Ok(lines.filter(|(labels, _)| counts(labels)).filter_map(|(_, count)| count.parse::<f64>().ok()).sum())
    }

    /// Runs `kubectl` in the story's namespace and returns what it prints.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let all = [&["--namespace", &self.ground.namespace], arguments].concat();
        kubectl(self.plane, &all).await
    }
}

/// A spec with one IPv4 range, in a /16.
pub fn local(pool: &str) -> Value {
    let subnet = format!("{}/16", pool.split(['-', '/']).next().unwrap_or_default());
    json!({"local": {"v4pools": [{"pool": pool, "subnet": subnet}]}})
}

/// Starts an allocator of this name; port 0 means any.
pub fn start(account: &Account, name: &str, port: u16) -> Result<Daemon> {
    let port = port.to_string();
    let arguments = ["allocator", "--port", &port, "--namespace", HOME, "--lease-seconds", LEASE_SECONDS];
    Daemon::start(account, &arguments, &[("DEFAULT_ANNOUNCER", "PureLB"), ("HOSTNAME", name)])
}

/// The API server with what an operator applies before the workloads.
async fn prepared() -> Result<ControlPlane> {
    let plane = ControlPlane::start().await?;
    kubectl(&plane, &["create", "namespace", HOME]).await?;
    for path in ["crds", "rbac/allocator.yaml"] {
        kubectl(&plane, &["apply", "-f", &shipped(path).display().to_string()]).await?;
    }
    let ground = Ground::fresh(plane.client()?, Past::default()).await?;
    for version in ["v1", "v2"] {
        ground.served(&format!("/apis/purelb.io/{version}/servicegroups")).await?;
    }
    Ok(plane)
}

async fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> Result<String> {
    let output = plane.kubectl().args(arguments).output().await.context("cannot run kubectl")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {} failed: {complaint}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

fn path_of(service: &Value) -> String {
    let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("/api/v1/namespaces/{}/services/{}", text("namespace"), text("name"))
}

/// The addresses in a Service's status.
pub fn ips(service: &Value) -> Vec<&str> {
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
    ingress.into_iter().flatten().filter_map(|entry| entry["ip"].as_str()).collect()
}
