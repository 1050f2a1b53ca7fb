//! How a daemon finds the API server: a kubeconfig file, or the account of its pod.

use std::fs;
use std::path::Path;

use anyhow::Context;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Where a pod finds the namespace it runs in.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The way to the API server; an empty path is none.
pub async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            config.with_context(|| format!("cannot use {}", path.display()))
        }
        None => Config::incluster().context("not in a pod: say where the cluster is with --kubeconfig"),
    }
}

/// The install namespace: what was said, or else what the pod knows. Blanks do not count.
pub fn install_namespace(said: Option<&str>) -> String {
    let said = said.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    said.or_else(|| fs::read_to_string(POD_NAMESPACE).ok().map(|name| name.trim().to_owned())).unwrap_or_default()
}
