//! One node: a namespace on the segment, the agent and perhaps a router on it.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{HOME, v4, v6};
use crate::Daemon;
use crate::daemon::Account;
use crate::net::{Lan, Namespace, Plug};
use crate::router::Router;

/// The port of the agent's metrics.
const METRICS: u16 = 7472;

/// One node.
pub struct Node {
    /// Its network.
    pub namespace: Namespace,
    /// The end of its wire.
    pub plug: Plug,
    /// The agent that runs there.
    pub agent: Option<Daemon>,
    /// How much the next agent says: `debug`, unless told otherwise.
    pub log_level: &'static str,
    /// The router that the operator runs there.
    pub router: Option<Router>,
    /// Its own IPv4 address.
    pub v4: IpAddr,
    /// Its own IPv6 address.
    pub v6: IpAddr,
    /// Its link-local address on the segment: some routers prefer it as a next hop (RFC 2545).
    pub link_local: IpAddr,
}

impl Node {
    pub(super) fn new(lan: &Lan, name: &str, number: u8) -> Result<Self> {
        let namespace = Namespace::new(name)?;
        for (key, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv4.conf.all.arp_ignore", "1"),
            ("net.ipv4.conf.all.arp_announce", "2"),
        ] {
            namespace.sysctl(key, value)?;
        }
        let (v4, v6) = (v4(number), v6(number));
        let plug = lan.plug(&namespace, "eth0", &[&format!("{v4}/24"), &format!("{v6}/64")])?;
        namespace.batch("route add default via 192.168.7.1\nroute add ::/0 via fd00:7::1\n")?;
        let link_local = link_local(&namespace)?;
        Ok(Self { namespace, plug, agent: None, log_level: "debug", router: None, v4, v6, link_local })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Whether a router that uses this next hop sends packets here.
    #[must_use]
    pub fn is_behind(&self, hop: IpAddr) -> bool {
        [self.v4, self.v6, self.link_local].contains(&hop)
    }

    /// Starts the agent, as a new Pod.
    ///
    /// # Errors
    /// When the program does not build.
    pub fn start(&mut self, account: &Account) -> Result<()> {
        static PODS: AtomicUsize = AtomicUsize::new(1);
        let pod = format!("pod-{}", PODS.fetch_add(1, Ordering::Relaxed));
        let arguments = ["agent", "--node-name", self.name(), "--namespace", HOME, "--pod-uid", &pod];
        let variables = [("DEFAULT_ANNOUNCER", "PureLB"), ("PURELB_LOG_LEVEL", self.log_level)];
        self.agent = Some(Daemon::start_in(&self.namespace, account, &arguments, &variables)?);
        Ok(())
    }

    /// Takes the agent, to end it.
    ///
    /// # Errors
    /// When none runs.
    pub fn take(&mut self) -> Result<Daemon> {
        self.agent.take().with_context(|| format!("no agent runs on {}", self.name()))
    }

    /// The end of the agent's log.
    #[must_use]
    pub fn log(&self) -> String {
        let log = self.agent.as_ref().map(Daemon::log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("--- {}\n{}\n", self.name(), lines[lines.len().saturating_sub(25)..].join("\n"))
    }

    /// The addresses of `kube-lb0` as `ip` shows them, with their lengths and without link-local ones.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn virtual_addresses(&self) -> Result<BTreeSet<String>> {
        let links = self.namespace.ip(&["-j", "addr"])?;
        let ours = links.as_array().into_iter().flatten().filter(|link| link["ifname"] == "kube-lb0");
        let entries = ours.flat_map(|link| link["addr_info"].as_array().into_iter().flatten());
        let global = entries.filter(|entry| entry["scope"] != "link");
        Ok(global.map(|entry| format!("{}/{}", plain(&entry["local"]), entry["prefixlen"])).collect())
    }

    /// The programs that listen on the port of BGP, in the words of `ss`.
    ///
    /// # Errors
    /// When `ss` fails.
    pub fn bgp_listeners(&self) -> Result<Vec<String>> {
        let output = self.namespace.command("ss").args(["-ltnHp", "sport = :179"]).output().context("cannot run ss")?;
        ensure!(output.status.success(), "ss failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    }

    /// What the agent answers on its port, without the head.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn ask(&self, path: &str) -> Result<String> {
        let answer = self.namespace.run(|| -> Result<String> {
            let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], METRICS)))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })?;
        Ok(answer.split_once("\r\n\r\n").context("no HTTP answer")?.1.to_owned())
    }
}

fn link_local(namespace: &Namespace) -> Result<IpAddr> {
    let shown = namespace.ip(&["-j", "addr", "show", "dev", "eth0"])?;
    let entries = shown[0]["addr_info"].as_array().into_iter().flatten();
    let mut local = entries.filter(|entry| entry["scope"] == "link").map(|entry| plain(&entry["local"]));
    local.next_back().context("eth0 has no link-local address")?.parse().context("ip shows no address")
}

fn plain(text: &Value) -> &str {
    text.as_str().unwrap_or_default()
}
