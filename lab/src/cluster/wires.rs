//! The two segments, and everybody on them.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::{Node, addresses};
use crate::control_plane::watchdog::Watchdog;
use crate::net::{Lan, Namespace, Plug};

/// How much of the segment's traffic is kept, in millions of bytes, twice.
const CAPTURE: &str = "20";

/// Segments and namespaces that are not nodes.
pub(super) struct Wires {
    lan: Lan,
    _far_lan: Lan,
    pub(super) router: Namespace,
    pub(super) client: Namespace,
    pub(super) far_client: Namespace,
    pub(super) control: Namespace,
}

impl Wires {
    pub(super) fn lay() -> Result<Self> {
        let (lan, far_lan) = (Lan::new()?, Lan::new()?);
        let (router, client) = (Namespace::new("router")?, Namespace::new("client")?);
        let (far_client, control) = (Namespace::new("far-client")?, Namespace::new("control")?);
        forward(&router)?;
        // Connections, not just hosts, are spread over equal routes.
        router.sysctl("net.ipv4.fib_multipath_hash_policy", "1")?;
        router.sysctl("net.ipv6.fib_multipath_hash_policy", "1")?;
        plug(&lan, &router, "eth0", addresses::ROUTER)?;
        plug(&far_lan, &router, "eth1", addresses::FAR_ROUTER)?;
        plug(&lan, &client, "eth0", addresses::LAN_CLIENT)?;
        plug(&far_lan, &far_client, "eth0", addresses::FAR_CLIENT)?;
        plug(&lan, &control, "eth0", addresses::CONTROL)?;
        default_route(&client, addresses::ROUTER)?;
        default_route(&control, addresses::ROUTER)?;
        default_route(&far_client, addresses::FAR_ROUTER)?;
        Ok(Self { lan, _far_lan: far_lan, router, client, far_client, control })
    }

    /// Another machine on the nodes' segment.
    pub(super) fn guest(&self, name: &str, host: u8) -> Result<Namespace> {
        let namespace = Namespace::new(name)?;
        plug(&self.lan, &namespace, "eth0", addresses::guest(host))?;
        default_route(&namespace, addresses::ROUTER)?;
        Ok(namespace)
    }

    /// `node1` and so on, each with routes to the Pods of the others.
    pub(super) fn nodes(&self, count: u8) -> Result<Vec<Node>> {
        ensure!((1..=80).contains(&count), "a cluster has between 1 and 80 nodes");
        (1..=count).map(|number| self.node(number, count)).collect()
    }

    fn node(&self, number: u8, count: u8) -> Result<Node> {
        let namespace = Namespace::new(&format!("node{number}"))?;
        forward(&namespace)?;
        for (key, value) in [
            ("net.ipv4.conf.all.arp_ignore", "1"),
            ("net.ipv4.conf.all.arp_announce", "2"),
            // The kernel's own defaults, whatever this machine has.
            ("net.ipv4.conf.all.promote_secondaries", "0"),
            ("net.ipv4.conf.default.promote_secondaries", "0"),
        ] {
            namespace.sysctl(key, value)?;
        }
        let plug = plug(&self.lan, &namespace, "eth0", addresses::node(number))?;
        default_route(&namespace, addresses::ROUTER)?;
        let routes = (1..=count).filter(|other| *other != number).map(|other| {
            let ((pods4, pods6), (via4, via6)) = (addresses::pod_networks(other), addresses::node(other));
            format!("route add {pods4} via {via4}\nroute add {pods6} via {via6}\n")
        });
        namespace.batch(&routes.collect::<String>())?;
        masquerade(&namespace, number)?;
        Ok(Node { name: namespace.name().to_owned(), namespace, plug, number, runner: None })
    }

    /// Keeps the last of the traffic on the nodes' segment in `lan.pcap` files.
    pub(super) fn watch(&self, folder: &Path, watchdog: &mut Watchdog) -> Result<()> {
        let command = self.lan.switch().command("tcpdump");
        let mut line: Vec<OsString> = command.get_args().map(OsString::from).collect();
        // Not what the nodes and the API server have to say to each other: it would push out all else.
        let filter = format!("not host {} and not host {}", addresses::CONTROL.0, addresses::CONTROL.1);
        line.extend(
            ["-i", "lan0", "-n", "-U", "-s", "160", "-Z", "root", "-C", CAPTURE, "-W", "2", "-w"].map(Into::into),
        );
        line.extend([folder.join("lan.pcap").into(), filter.into()]);
        watchdog.start(Path::new(command.get_program()), &folder.join("logs/tcpdump.log"), line)?;
        Ok(())
    }
}

fn plug(lan: &Lan, namespace: &Namespace, interface: &str, pair: addresses::Pair) -> Result<Plug> {
    let [v4, v6] = addresses::with_lengths(pair);
    lan.plug(namespace, interface, &[&v4, &v6])
}

fn forward(namespace: &Namespace) -> Result<()> {
    namespace.sysctl("net.ipv4.ip_forward", "1")?;
    namespace.sysctl("net.ipv6.conf.all.forwarding", "1")?;
    // A packet may come in where its answer would not go out: that is what load balancing is.
    namespace.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
    namespace.sysctl("net.ipv4.conf.default.rp_filter", "0")
}

fn default_route(namespace: &Namespace, (v4, v6): addresses::Pair) -> Result<()> {
    namespace.batch(&format!("route add default via {v4}\nroute add ::/0 via {v6}\n"))
}

/// Pods speak to the world with the address of their node, as with most network plugins.
fn masquerade(node: &Namespace, number: u8) -> Result<()> {
    let (pods4, pods6) = addresses::pod_networks(number);
    let [all4, all6] = addresses::PODS;
    let rules = format!(
        "table inet lab {{
           chain out {{
             type nat hook postrouting priority 110;
             ip saddr {pods4} ip daddr != {all4} masquerade
             ip6 saddr {pods6} ip6 daddr != {all6} masquerade
           }}
         }}"
    );
    let mut nft = node.command("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().context("cannot run nft")?;
    nft.stdin.take().context("the input is a pipe")?.write_all(rules.as_bytes())?;
    ensure!(nft.wait()?.success(), "nft refused the rules of {}", node.name());
    Ok(())
}
