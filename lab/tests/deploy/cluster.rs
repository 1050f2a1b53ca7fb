//! An API server of its own for each test, because an install is one for the whole cluster.

use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use purelb_lab::ControlPlane;
use serde_json::Value;

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the lab is in the repository")
}

/// A file under `deploy`.
pub fn shipped(path: &str) -> String {
    root().join("deploy").join(path).display().to_string()
}

/// A file under `lab/tests/data`.
pub fn data(path: &str) -> String {
    let path: PathBuf = root().join("lab/tests/data").join(path);
    path.display().to_string()
}

/// How an operator applies; both ways are common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `kubectl apply`
    Client,
    /// `kubectl apply --server-side`
    Server,
}

/// A cluster and a person with all rights in it.
pub struct Cluster {
    plane: ControlPlane,
}

impl Cluster {
    /// A cluster that knows our kinds.
    pub async fn with_our_kinds() -> Result<Self> {
        let cluster = Self::bare().await?;
        cluster.learn(&["-f", &shipped("install-crds.yaml")]).await?;
        Ok(cluster)
    }

    /// A cluster that has never heard of PureLB.
    pub async fn bare() -> Result<Self> {
        Ok(Self { plane: ControlPlane::start().await? })
    }

    /// Applies definitions of kinds and waits until they can be used.
    pub async fn learn(&self, what: &[&str]) -> Result<()> {
        self.kubectl(&[&["apply"], what].concat()).await?;
        let wait = ["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"];
        self.kubectl(&wait).await.map(drop)
    }

    /// Applies a file and accepts no unknown field and no warning.
    pub async fn apply(&self, way: Way, file: &str) -> Result<String> {
        let mut arguments = vec!["apply", "--validate=strict", "--warnings-as-errors", "-f", file];
        if way == Way::Server {
            // What the API server has from somebody else's apply becomes ours, as in an upgrade.
            arguments.extend(["--server-side", "--force-conflicts"]);
        }
        self.kubectl(&arguments).await
    }

    /// What the API server holds: `kubectl get … -o json`.
    pub async fn get(&self, what: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl(&[&["get", "-o", "json"], what].concat()).await?)?)
    }

    /// Whether a ServiceAccount (`namespace:name`) may do something: `kubectl auth can-i`.
    pub async fn can(&self, account: &str, what: &[&str]) -> Result<bool> {
        let account = format!("--as=system:serviceaccount:{account}");
        let output = self.plane.kubectl().args(["auth", "can-i", &account]).args(what).output().await?;
        match String::from_utf8_lossy(&output.stdout).trim() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(anyhow!("kubectl auth can-i: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// Runs `kubectl` and returns what it printed; an error is what it complained about.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.send(arguments, "").await
    }

    /// The same with something on standard input.
    pub async fn send(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut file = tempfile::tempfile()?;
        file.write_all(input.as_bytes())?;
        file.rewind()?;
        let output = self.plane.kubectl().args(arguments).stdin(file).output().await?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl {}: {complaint}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// The only container of a workload.
pub fn container(workload: &Value) -> Result<&Value> {
    let containers =
        workload["spec"]["template"]["spec"]["containers"].as_array().context("a workload has containers")?;
    let names: Vec<_> = containers.iter().map(|container| &container["name"]).collect();
    ensure!(containers.len() == 1, "there is more than one container: {names:?}");
    Ok(&containers[0])
}
