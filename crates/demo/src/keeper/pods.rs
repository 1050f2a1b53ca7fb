//! The pods that run: each a namespace behind its node, with a back-end in it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use purelb_net::Namespace;
use serde_json::Value;

use super::Ground;
use super::prober::Prober;
use crate::ask::Backend;
use crate::site::plan::Place;
use crate::slices::Pod;

/// How long a deleted pod still serves, so that the network has time to stop sending.
const GRACE: Duration = Duration::from_secs(2);

/// One pod.
struct Running {
    pod: Pod,
    /// Its last part on its node, from 2.
    number: u8,
    deleted: Option<Instant>,
    node: Namespace,
    _backend: Backend,
}

impl Running {
    /// Unplugs it. Its namespace goes by itself, but later: the name of its wire is wanted again before that.
    fn end(&self) -> bool {
        self.node.batch(&format!("link del pod{}\n", self.number)).is_ok()
    }
}

/// All pods, by the UID that the cluster gave them.
#[derive(Default)]
pub struct Pods {
    running: BTreeMap<String, Running>,
}

impl Pods {
    /// Starts the pods that are wanted and do not run, and ends those that nobody wants any more.
    pub fn run(&mut self, wanted: &[Value], grounds: &[Ground]) -> Result<()> {
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        for pod in wanted {
            if self.running.contains_key(&uid(pod)) {
                continue;
            }
            let ground = grounds.iter().find(|(place, _)| pod["spec"]["nodeName"] == place.name.as_str());
            // A pod without one of our nodes waits for ever, as it would in any cluster.
            if let Some((place, node)) = ground {
                let started = self
                    .start(pod, place, node)
                    .with_context(|| format!("cannot start {}", pod["metadata"]["name"]))?;
                self.running.insert(uid(pod), started);
            }
        }
        for (known, running) in &mut self.running {
            if running.deleted.is_none() && wanted.iter().all(|pod| uid(pod) != *known) {
                running.deleted = Some(Instant::now());
                running.pod.leaving = true;
            }
        }
        self.running
            .retain(|_, running| running.deleted.is_none_or(|deleted| deleted.elapsed() < GRACE) || !running.end());
        Ok(())
    }

    fn start(&self, object: &Value, place: &Place, node: &Namespace) -> Result<Running> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let taken =
            |number: &u8| self.running.values().all(|other| (&other.pod.node, other.number) != (&place.name, *number));
        let number = (2..=254).find(taken).context("the node has no address left for a pod")?;
        let namespace = Namespace::new(&text("name"))?;
        namespace.sysctl("net.ipv6.conf.default.dad_transmits", "0")?;
        let (addresses, [gate4, gate6]) = (place.pod_addresses(number), place.pod_gateways());
        let [v4, v6] = addresses;
        // An address has one Ethernet address, whichever pod has it: the node may still know that of a pod that went.
        let ethernet = place.pod_ethernet(number);
        node.batch(&format!(
            "link add pod{number} type veth peer name eth0 address {ethernet} netns {}\n\
             link set pod{number} master pods0 up\n",
            namespace.path()
        ))?;
        namespace.batch(&format!(
            "link set eth0 up\naddr add {v4}/24 dev eth0\naddr add {v6}/64 dev eth0 nodad\n\
             route add default via {gate4}\nroute add ::/0 via {gate6}\n"
        ))?;
        let backend = Backend::start(&namespace, &place.name)?;
        let pod = Pod {
            namespace: text("namespace"),
            name: text("name"),
            labels: object["metadata"]["labels"].clone(),
            node: place.name.clone(),
            addresses,
            ready: false,
            leaving: false,
        };
        Ok(Running { pod, number, deleted: None, node: node.clone(), _backend: backend })
    }

    /// The pods as the prober finds them: ready are those that answer over both families.
    pub fn shown(&self, prober: &Prober) -> Vec<Pod> {
        let pods = self.running.values().map(|running| running.pod.clone());
        let answers = |pod: &Pod| pod.addresses.iter().all(|address| prober.is_ready(*address));
        let mut pods: Vec<Pod> = pods.map(|pod| Pod { ready: answers(&pod), ..pod }).collect();
        pods.sort_by(|one, other| one.name.cmp(&other.name));
        prober.aim(pods.iter().flat_map(|pod| pod.addresses));
        pods
    }
}
