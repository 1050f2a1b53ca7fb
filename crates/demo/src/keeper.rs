//! What a cluster has beside PureLB: it runs the pods that the API names, knows which of them answer, keeps the
//! EndpointSlices, and gives every node the rules of its service proxy.

mod pods;
mod prober;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use purelb_net::Namespace;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::proxy::{self, Front};
use crate::site::plan::Place;
use crate::slices::{KEEPER, KEPT_BY, Pod, fronts, slices};

use pods::Pods;
use prober::Prober;

/// Between two looks at the cluster.
const PAUSE: Duration = Duration::from_millis(20);

/// A node as the keeper needs it.
pub type Ground = (Place, Namespace);

/// The state of the cluster: its last change, and each pod with whether it is ready and leaving.
type Seen = (u64, Vec<(String, bool, bool)>);

/// All that is kept.
struct Keeper {
    cluster: Arc<Cluster>,
    grounds: Vec<Ground>,
    pods: Pods,
    prober: Prober,
    /// The rules in force on each node.
    rules: BTreeMap<String, String>,
    folder: PathBuf,
    /// What it worked on last; the same again needs no work.
    seen: Option<Seen>,
}

/// Keeps the cluster as long as the process runs. Its complaints go to `keeper.log`.
pub fn start(cluster: Arc<Cluster>, grounds: Vec<Ground>, control: &Namespace, folder: &Path) -> Result<()> {
    let prober = Prober::start(control)?;
    let (pods, rules, folder) = (Pods::default(), BTreeMap::new(), folder.to_owned());
    let mut keeper = Keeper { cluster, grounds, pods, prober, rules, folder, seen: None };
    thread::spawn(move || {
        let mut complaint = String::new();
        loop {
            let said = keeper.keep().err().map(|error| format!("{error:#}")).unwrap_or_default();
            if said != complaint {
                // Seen by whoever looks for the cause of a failed step.
                let _ = fs::write(keeper.folder.join("keeper.log"), &said);
                complaint = said;
            }
            thread::sleep(PAUSE);
        }
    });
    Ok(())
}

impl Keeper {
    fn keep(&mut self) -> Result<()> {
        let revision = self.cluster.revision();
        // A pod that cannot be started is no reason to neglect the others.
        let started = self.pods.run(&self.cluster.list("/api/v1/pods")?, &self.grounds);
        let pods = self.pods.shown(&self.prober);
        let state = pods.iter().map(|pod| (pod.name.clone(), pod.ready, pod.leaving)).collect();
        let now = Some((revision, state));
        if self.seen == now {
            return started;
        }
        self.report(&pods)?;
        let services = self.cluster.list("/api/v1/services")?;
        self.keep_slices(&services, &pods)?;
        self.keep_rules(&services)?;
        self.seen = now;
        started
    }

    /// Writes addresses and readiness of the pods where they differ.
    fn report(&self, pods: &[Pod]) -> Result<()> {
        for pod in pods.iter().filter(|pod| !pod.leaving) {
            let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
            let Some(object) = self.cluster.get(&path)? else { continue };
            let ready = if pod.ready { "True" } else { "False" };
            if object["status"]["conditions"][0]["status"] == ready {
                continue;
            }
            let addresses = pod.addresses.map(|address| json!({"ip": address}));
            let condition = json!({"type": "Ready", "status": ready});
            let running = json!({
                "name": "kuard", "ready": pod.ready, "restartCount": 0, "image": "kuard", "imageID": "",
                "state": {"running": {}},
            });
            let status = json!({
                "phase": "Running", "podIP": pod.addresses[0], "podIPs": addresses, "conditions": [condition],
                "containerStatuses": [running],
            });
            self.cluster.patch(&format!("{path}/status"), &json!({"status": status}))?;
        }
        Ok(())
    }

    fn keep_slices(&self, services: &[Value], pods: &[Pod]) -> Result<()> {
        let wanted: Vec<Value> = services.iter().flat_map(|service| slices(service, pods)).collect();
        let have = self
            .cluster
            .list(&format!("/apis/discovery.k8s.io/v1/endpointslices?labelSelector={KEPT_BY}%3D{KEEPER}"))?;
        for slice in &wanted {
            let kind = collection(slice)?;
            match have.iter().find(|other| named(other) == named(slice)) {
                None => self.cluster.create(&kind, slice)?,
                Some(old) if ["endpoints", "ports"].iter().all(|part| same(&old[part], &slice[part])) => {}
                Some(_) => {
                    let change = json!({"endpoints": slice["endpoints"], "ports": slice["ports"]});
                    self.cluster.patch(&format!("{kind}/{}", named(slice).1), &change)?;
                }
            }
        }
        for old in have.iter().filter(|old| wanted.iter().all(|slice| named(slice) != named(old))) {
            self.cluster.delete(&format!("{}/{}", collection(old)?, named(old).1))?;
        }
        Ok(())
    }

    fn keep_rules(&mut self, services: &[Value]) -> Result<()> {
        let fronts = all_fronts(&self.cluster, services)?;
        for (place, namespace) in &self.grounds {
            let rules = proxy::rules(&place.name, &fronts);
            if self.rules.get(&place.name) != Some(&rules) {
                proxy::apply(namespace, &rules)?;
                fs::write(rules_file(&self.folder, &place.name), &rules)?;
                self.rules.insert(place.name.clone(), rules);
            }
        }
        Ok(())
    }
}

/// A node whose proxy does not serve yet what the API says, with the rules it has; `None` if all do.
pub fn behind(cluster: &Cluster, nodes: &[String], folder: &Path) -> Result<Option<String>> {
    let fronts = all_fronts(cluster, &cluster.list("/api/v1/services")?)?;
    let in_force = |node: &str| fs::read_to_string(rules_file(folder, node)).unwrap_or_default();
    let late = nodes.iter().find(|node| in_force(node) != proxy::rules(node, &fronts));
    Ok(late.map(|node| format!("the proxy of {node} has the rules\n{}", in_force(node))))
}

/// Written when the rules of a node are in force.
fn rules_file(folder: &Path, node: &str) -> PathBuf {
    folder.join(format!("proxy-{node}.nft"))
}

fn all_fronts(cluster: &Cluster, services: &[Value]) -> Result<Vec<Front>> {
    let slices = cluster.list("/apis/discovery.k8s.io/v1/endpointslices")?;
    Ok(services.iter().flat_map(|service| fronts(service, &slices)).collect())
}

/// The API returns no empty lists where we wrote them.
fn same(one: &Value, other: &Value) -> bool {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(one) == list(other)
}

fn named(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

fn collection(slice: &Value) -> Result<String> {
    let namespace = slice["metadata"]["namespace"].as_str().context("a slice has a namespace")?;
    Ok(format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"))
}
