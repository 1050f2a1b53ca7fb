//! One node: a namespace on the segment, its agent, and what an operator sees when logged in there.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use purelb_lab::Daemon;
use purelb_lab::daemon::Account;
use purelb_lab::net::{Lan, Namespace, Plug};
use serde_json::Value;

use crate::site::{HOME, LEASE};

pub struct Node {
    pub namespace: Namespace,
    pub plug: Plug,
    pub agent: Option<Daemon>,
    /// What the lease should say of the agent that runs now.
    pub instance: String,
    pub v4: IpAddr,
    pub v6: IpAddr,
}

impl Node {
    /// `node-a` has the addresses .11 and ::11, and so on.
    pub fn new(lan: &Lan, name: &str, number: u8) -> Result<Self> {
        let namespace = Namespace::new(name)?;
        for (key, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            ("net.ipv4.conf.all.arp_ignore", "1"),
            ("net.ipv4.conf.all.arp_announce", "2"),
            // The kernel's own default, whatever this machine has.
            ("net.ipv4.conf.all.promote_secondaries", "0"),
            ("net.ipv4.conf.default.promote_secondaries", "0"),
        ] {
            namespace.sysctl(key, value)?;
        }
        let (v4, v6) = (format!("192.168.7.{number}"), format!("fd00:7::{number}"));
        let plug = lan.plug(&namespace, "eth0", &[&format!("{v4}/24"), &format!("{v6}/64")])?;
        namespace.batch("route add default via 192.168.7.1\nroute add ::/0 via fd00:7::1\n")?;
        Ok(Self { namespace, plug, agent: None, instance: String::new(), v4: v4.parse()?, v6: v6.parse()? })
    }

    pub fn name(&self) -> &str {
        self.namespace.name()
    }

    /// Starts the agent, as a new Pod.
    pub fn start(&mut self, account: &Account) -> Result<()> {
        self.start_with(account, &[])
    }

    /// The same with more variables in its environment.
    pub fn start_with(&mut self, account: &Account, more: &[(&str, &str)]) -> Result<()> {
        let seconds = format!("{}s", LEASE.as_secs());
        self.launch(account, &["--lease-duration", &seconds, "--retry-period", "200ms"], more)
    }

    /// The same with the times that are shipped.
    pub fn start_as_shipped(&mut self, account: &Account) -> Result<()> {
        self.launch(account, &[], &[])
    }

    fn launch(&mut self, account: &Account, flags: &[&str], more: &[(&str, &str)]) -> Result<()> {
        static PODS: AtomicUsize = AtomicUsize::new(1);
        self.instance = format!("pod-{}", PODS.fetch_add(1, Ordering::Relaxed));
        let arguments = ["agent", "--node-name", self.name(), "--namespace", HOME, "--pod-uid", &self.instance];
        let arguments = [&arguments[..], flags].concat();
        let variables = [&[("DEFAULT_ANNOUNCER", "PureLB"), ("PURELB_LOG_LEVEL", "debug")], more].concat();
        self.agent = Some(Daemon::start_in(&self.namespace, account, &arguments, &variables)?);
        Ok(())
    }

    /// The agent, which must run.
    pub fn agent(&self) -> Result<&Daemon> {
        self.agent.as_ref().with_context(|| format!("no agent runs on {}", self.name()))
    }

    /// Takes the agent, to end it.
    pub fn take(&mut self) -> Result<Daemon> {
        self.agent.take().with_context(|| format!("no agent runs on {}", self.name()))
    }

    /// The end of the agent's log.
    pub fn log(&self) -> String {
        let log = self.agent.as_ref().map(Daemon::log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("--- {}\n{}\n", self.name(), lines[lines.len().saturating_sub(25)..].join("\n"))
    }

    /// Every address that `ip` shows on the node.
    pub fn shown(&self) -> Result<Vec<Shown>> {
        let links = self.namespace.ip(&["-j", "addr"])?;
        let mut all = Vec::new();
        for link in links.as_array().into_iter().flatten() {
            for entry in link["addr_info"].as_array().into_iter().flatten() {
                all.push(Shown::read(&link["ifname"], entry)?);
            }
        }
        Ok(all)
    }

    /// All addresses of one interface but link-local ones, as `address/length`; none where it does not exist.
    pub fn on(&self, interface: &str) -> Result<BTreeSet<String>> {
        let here = self.shown()?.into_iter().filter(|shown| shown.interface == interface && !shown.is_link_local());
        Ok(here.map(|shown| shown.cidr()).collect())
    }

    /// What is on its NIC without PureLB, as [`Node::on`] shows it.
    pub fn own(&self) -> BTreeSet<String> {
        [format!("{}/24", self.v4), format!("{}/64", self.v6)].into()
    }

    /// What the agent answers on its port, without the head.
    pub fn ask(&self, path: &str) -> Result<String> {
        let answer = self.namespace.run(|| -> Result<String> {
            let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], 7472)))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })?;
        Ok(answer.split_once("\r\n\r\n").context("no HTTP answer")?.1.to_owned())
    }
}

/// An address as `ip -j addr` shows it.
#[derive(Clone, Debug)]
pub struct Shown {
    pub interface: String,
    pub address: IpAddr,
    pub length: u64,
    pub entry: Value,
}

impl Shown {
    fn read(interface: &Value, entry: &Value) -> Result<Self> {
        let address = entry["local"].as_str().context("an address has no text")?.parse()?;
        let length = entry["prefixlen"].as_u64().context("an address has no length")?;
        let interface = interface.as_str().unwrap_or_default().to_owned();
        Ok(Self { interface, address, length, entry: entry.clone() })
    }

    pub fn cidr(&self) -> String {
        format!("{}/{}", self.address, self.length)
    }

    pub fn is_link_local(&self) -> bool {
        self.entry["scope"] == "link"
    }

    /// Whether `ip` shows this word beside the address.
    pub fn has(&self, flag: &str) -> bool {
        self.entry[flag] == true
    }

    /// Seconds until the kernel removes it; `None` means never.
    pub fn valid_for(&self) -> Option<u64> {
        self.entry["valid_life_time"].as_u64().filter(|seconds| *seconds != u64::from(u32::MAX))
    }
}
