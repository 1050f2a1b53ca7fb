//! The processes of Pods, to be sent signals as a kernel or an impatient operator does.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::Cluster;

impl Cluster {
    /// Sends a signal to the first process of a Pod's only container. What becomes of it is the runner's business, as it is
    /// a kubelet's.
    ///
    /// # Errors
    /// When there is no such Pod, or its container does not run.
    pub async fn signal(&self, namespace: &str, pod: &str, signal: Signal) -> Result<()> {
        let what = "jsonpath={.spec.nodeName}/{.metadata.uid}";
        let place = self.kubectl(&["get", "pod", "-n", namespace, pod, "-o", what]).await?;
        let pid = process(self.folder.join(&place)).with_context(|| format!("no process of {namespace}/{pod}"))?;
        kill_process(pid, signal).with_context(|| format!("cannot send {signal:?} to {namespace}/{pod}"))
    }
}

/// The runner keeps one folder for each start of a container, and removes it when the container has ended.
fn process(folder: PathBuf) -> Result<Pid> {
    let starts = fs::read_dir(&folder)?.filter_map(|entry| entry.ok().map(|entry| entry.path().join("pid")));
    let pids = starts.filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok().and_then(Pid::from_raw));
    pids.last().with_context(|| format!("nothing runs in {}", folder.display()))
}
