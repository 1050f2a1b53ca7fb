//! One API server for all tests here, taken in turns because CRDs belong to the whole cluster.

use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use futures::future::try_join_all;
use purelb_lab::stories::{Past, PatchType};
use purelb_lab::{ControlPlane, Ground};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

static SERVER: OnceCell<Result<ControlPlane>> = OnceCell::const_new();
static TURN: Mutex<()> = Mutex::const_new(());

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const PLURALS: [&str; 2] = ["servicegroups", "lbnodeagents"];

/// A cluster that belongs to one test as long as this lives.
pub struct Cluster {
    plane: &'static ControlPlane,
    ground: Ground,
    _turn: MutexGuard<'static, ()>,
}

/// A file under `lab/tests/data`.
pub fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

/// Our CRDs, as shipped.
pub fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds")
}

impl Cluster {
    /// A cluster that has never heard of PureLB.
    pub async fn bare() -> Result<Self> {
        let turn = TURN.lock().await;
        let plane = SERVER.get_or_init(ControlPlane::start).await.as_ref().map_err(|error| anyhow!("{error:#}"))?;
        let ground = Ground::fresh(plane.client()?, Past::default()).await?;
        for path in PLURALS.map(|plural| format!("{CRDS}/{plural}.purelb.io")) {
            if ground.get(&path).await.is_ok() {
                ground.delete(&path).await?;
                ground.gone(&path).await?;
            }
        }
        Ok(Self { plane, ground, _turn: turn })
    }

    /// A cluster with the CRDs of this release.
    pub async fn of_release(release: &str) -> Result<Self> {
        let cluster = Self::bare().await?;
        cluster.apply(&data(release).join("crds")).await?;
        cluster.serves(&[version_of(release)]).await?;
        Ok(cluster)
    }

    /// A user of that release: a namespace of its own in which all objects of the release are stored.
    pub async fn tenant(&self, release: &str) -> Result<Tenant<'_>> {
        let ground = self.ground.neighbour().await?;
        let mut tenant = Tenant { cluster: self, ground, before: Vec::new() };
        tenant.kubectl(&["apply", "-f", &data(release).join("objects.yaml").display().to_string()]).await?;
        tenant.before = tenant.objects(version_of(release)).await?;
        Ok(tenant)
    }

    /// Replaces the CRDs, as an operator does, by ours.
    pub async fn upgrade(&self) -> Result<()> {
        self.apply(&shipped()).await?;
        self.serves(&["v1", "v2"]).await
    }

    /// Replaces our CRDs by those of 0.17.
    pub async fn go_back(&self) -> Result<()> {
        self.apply(&data("0.17/crds")).await?;
        for plural in PLURALS {
            self.ground.gone(&self.ground.group("purelb.io/v1", plural)).await?;
        }
        self.serves(&["v2"]).await
    }

    /// Waits for all at once: the API server takes a second to fill the cache of each kind it has just learnt.
    async fn serves(&self, versions: &[&str]) -> Result<()> {
        let paths = versions
            .iter()
            .flat_map(|version| PLURALS.map(|plural| self.ground.group(&format!("purelb.io/{version}"), plural)));
        try_join_all(paths.map(async |path| self.ground.served(&path).await)).await.map(drop)
    }

    /// The versions in which the cluster may hold objects of this kind.
    pub async fn stored_versions(&self, plural: &str) -> Result<Value> {
        let mut crd = self.ground.get(&format!("{CRDS}/{plural}.purelb.io")).await?;
        Ok(crd["status"]["storedVersions"].take())
    }

    /// `kubectl apply -f`.
    pub async fn apply(&self, file: &Path) -> Result<String> {
        self.kubectl(&["apply", "-f", &file.display().to_string()], "").await
    }

    /// Runs `kubectl` with this on standard input and returns what it printed; an error is what it complained about.
    pub async fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut manifest = tempfile::tempfile()?;
        manifest.write_all(input.as_bytes())?;
        manifest.rewind()?;
        let output = self.plane.kubectl().args(arguments).stdin(manifest).output().await?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {} failed: {complaint}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }
}

fn version_of(release: &str) -> &'static str {
    if release == "0.13" { "v1" } else { "v2" }
}

/// Whether an object is a ServiceGroup; if not, it is an LBNodeAgent.
pub fn is_group(object: &Value) -> bool {
    object["kind"] == "ServiceGroup"
}

/// One namespace with objects that an older release has stored.
pub struct Tenant<'a> {
    pub cluster: &'a Cluster,
    pub ground: Ground,
    /// All objects as they were when the release stored them.
    pub before: Vec<Value>,
}

impl Tenant<'_> {
    /// All objects of PureLB, as this API version shows them.
    pub async fn objects(&self, version: &str) -> Result<Vec<Value>> {
        let mut objects = Vec::new();
        for plural in PLURALS {
            let mut list = self.ground.get(&self.ground.group(&format!("purelb.io/{version}"), plural)).await?;
            objects.append(list["items"].as_array_mut().context("a list has items")?);
        }
        ensure!(!objects.is_empty(), "there is nothing to test with");
        Ok(objects)
    }

    /// The path of an object in this API version.
    pub fn path(&self, version: &str, object: &Value) -> String {
        let plural = PLURALS[usize::from(!is_group(object))];
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        self.ground.group(&format!("purelb.io/{version}"), &format!("{plural}/{name}"))
    }

    /// Writes a status as the allocator does: one merge patch through v2.
    pub async fn judge(&self, object: &Value) -> Result<Value> {
        let condition = json!({
            "type": "Valid",
            "status": "True",
            "reason": "Parsed",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let mut status = json!({"conditions": [condition]});
        if is_group(object) {
            status["allocatedIPv4"] = json!(1);
            status["allocatedIPv6"] = json!(2);
        }
        let path = format!("{}/status", self.path("v2", object));
        let written = self.ground.patch(&path, PatchType::Merge, &json!({"status": status})).await;
        written.with_context(|| format!("no status can be written on {}", object["metadata"]["name"]))
    }

    /// Runs `kubectl` in this namespace.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let all = [&["--namespace", &self.ground.namespace], arguments].concat();
        self.cluster.kubectl(&all, "").await
    }

    /// `kubectl VERB -f -` in this namespace.
    pub async fn send(&self, verb: &str, manifest: &str) -> Result<String> {
        let arguments = ["--namespace", &self.ground.namespace, verb, "-f", "-"];
        self.cluster.kubectl(&arguments, manifest).await
    }
}
