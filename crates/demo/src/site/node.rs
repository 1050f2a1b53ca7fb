//! One node: a namespace on the segment with a bridge for its pods, and the agent that runs there.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use purelb_net::{Lan, Namespace, Plug};

use super::plan::{GATEWAY, Place};
use crate::cluster::HOME;
use crate::process::Process;

/// How long the others wait for a sign of life of a node. The shortest there is, so that the demo need not wait long.
pub const LEASE: &str = "3s";

/// A node, alive or not.
pub struct Node {
    /// Where it is.
    pub place: Place,
    /// Its network.
    pub namespace: Namespace,
    plug: Plug,
    agent: Option<Process>,
    log: PathBuf,
}

impl Node {
    /// A node with its wire and its routes to the pods of all others; nothing runs there yet.
    pub fn build(lan: &Lan, place: Place, all: &[Place], logs: &Path) -> Result<Self> {
        let namespace = Namespace::new(&place.name)?;
        for (key, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            // What kube-proxy and PureLB ask for: a node answers for an address on the interface that has it.
            ("net.ipv4.conf.all.arp_ignore", "1"),
            ("net.ipv4.conf.all.arp_announce", "2"),
            ("net.ipv4.conf.all.rp_filter", "0"),
            ("net.ipv4.conf.default.rp_filter", "0"),
        ] {
            namespace.sysctl(key, value)?;
        }
        let plug = lan.plug(&namespace, "eth0", &[&format!("{}/24", place.v4), &format!("{}/64", place.v6)])?;
        // A bridge without an address of its own takes the lowest of its ports: a pod that ends would change it, and
        // those that stay would answer to nobody until they ask for their router again.
        let ethernet = place.pod_ethernet(GATEWAY);
        namespace.batch(&format!("link add pods0 address {ethernet} type bridge mcast_snooping 0\n"))?;
        // Until its link-local address is known to be unique, a node finds no neighbours: too long for a first request.
        namespace.sysctl("net.ipv6.conf.pods0.dad_transmits", "0")?;
        let [v4, v6] = place.pod_gateways();
        let mut lines = format!(
            "route add default via 192.168.7.1\nroute add ::/0 via fd00:7::1\n\
             addr add {v4}/24 dev pods0\naddr add {v6}/64 dev pods0 nodad\nlink set pods0 up\n"
        );
        for other in all.iter().filter(|other| other.number != place.number) {
            lines += &other.routes();
        }
        namespace.batch(&lines)?;
        let log = logs.join(format!("agent-{}.log", place.name));
        Ok(Self { place, namespace, plug, agent: None, log })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// Whether its agent runs.
    pub fn is_up(&mut self) -> bool {
        self.agent.as_mut().is_some_and(|agent| !agent.has_ended())
    }

    /// Starts the agent, as a new pod would.
    pub fn start(&mut self, program: &Path, kubeconfig: &Path) -> Result<()> {
        static PODS: AtomicUsize = AtomicUsize::new(1);
        let uid = format!("pod-{}-{}", self.name(), PODS.fetch_add(1, Ordering::Relaxed));
        let mut command = self.namespace.command(&program.display().to_string());
        command.args(["agent", "--node-name", self.name(), "--namespace", HOME, "--pod-uid", &uid]);
        command.args(["--lease-duration", LEASE, "--retry-period", "500ms", "--on-stop", "leave"]);
        command.arg("--kubeconfig").arg(kubeconfig).env("DEFAULT_ANNOUNCER", "PureLB");
        self.agent = Some(Process::start(&mut command, &self.log)?);
        Ok(())
    }

    /// A machine without power: no wire, no agent, and nothing left in its kernel.
    pub fn kill(&mut self) -> Result<()> {
        self.plug.cut()?;
        self.agent = None;
        // Not there if no virtual address is.
        let _ = self.namespace.batch("link del kube-lb0\n");
        Ok(())
    }

    /// A planned stop: the agent gives everything up and ends.
    pub fn stop(&mut self) -> Result<()> {
        self.agent.take().map_or(Ok(()), Process::stop)
    }

    /// Power again: the wire is mended, and the agent starts.
    pub fn revive(&mut self, program: &Path, kubeconfig: &Path) -> Result<()> {
        self.plug.mend()?;
        self.start(program, kubeconfig)
    }
}

impl Place {
    /// How others on the segment reach its pods.
    pub fn routes(&self) -> String {
        let [v4, v6] = self.pod_subnets();
        format!("route add {v4} via {}\nroute add {v6} via {}\n", self.v4, self.v6)
    }
}
