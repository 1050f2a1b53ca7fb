//! kube-proxy on every node.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::{Node, addresses};
use crate::ControlPlane;
use crate::control_plane::credentials;
use crate::control_plane::programs::Programs;
use crate::control_plane::watchdog::Watchdog;
use crate::net::Namespace;

/// Where it says on the node whether its rules are in force.
const HEALTH: u16 = 10256;

/// How kube-proxy does its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// With nftables.
    #[default]
    Nftables,
    /// With iptables.
    Iptables,
}

impl Proxy {
    /// Its name in kube-proxy's settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nftables => "nftables",
            Self::Iptables => "iptables",
        }
    }
}

impl FromStr for Proxy {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "nftables" => Ok(Self::Nftables),
            "iptables" => Ok(Self::Iptables),
            other => bail!("kube-proxy knows nftables and iptables, not {other}"),
        }
    }
}

/// What all kube-proxies of a cluster have in common.
pub(super) struct Setup {
    program: PathBuf,
    kubeconfig: PathBuf,
    proxy: Proxy,
}

impl Setup {
    pub(super) fn new(programs: &Programs, plane: &ControlPlane, proxy: Proxy) -> Result<Self> {
        let server = format!("{}:{}", addresses::CONTROL.0, plane.port());
        let kubeconfig = credentials::write_for(plane.place(), "system:kube-proxy", &server)?;
        Ok(Self { program: programs.path("kube-proxy"), kubeconfig, proxy })
    }

    pub(super) fn start(&self, node: &Node, folder: &Path, watchdog: &mut Watchdog) -> Result<()> {
        let file = folder.join(format!("kube-proxy-{}.json", node.name));
        fs::write(&file, self.config(node).to_string())?;
        let command = node.namespace.command(&self.program.display().to_string());
        let mut line: Vec<OsString> = command.get_args().map(OsString::from).collect();
        line.push(format!("--config={}", file.display()).into());
        let log = folder.join(format!("logs/kube-proxy-{}.log", node.name));
        watchdog.start(Path::new(command.get_program()), &log, line)?;
        Ok(())
    }

    fn config(&self, node: &Node) -> Value {
        // The kernel's limits belong to the whole machine, and stay as they are.
        let unlimited = json!({"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"});
        json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": self.kubeconfig},
            "clusterCIDR": addresses::PODS.join(","),
            "detectLocalMode": "ClusterCIDR",
            "mode": self.proxy.name(),
            "hostnameOverride": node.name,
            "healthzBindAddress": format!("0.0.0.0:{HEALTH}"),
            "metricsBindAddress": "127.0.0.1:10249",
            "conntrack": unlimited,
        })
    }
}

/// Whether the kube-proxy of this node has its rules in force.
pub(super) fn is_synced(node: &Namespace) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, HEALTH)))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    node.run(ask).is_ok_and(|text| text.split_whitespace().nth(1) == Some("200"))
}
