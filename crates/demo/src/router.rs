//! The router between the nodes and the world: BIRD, which learns from the nodes by BGP, and the kernel's ECMP.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use purelb_net::{Lan, Namespace};
use serde_json::Value;

use crate::process::Process;
use crate::site::plan::{NODE_AS, Place, ROUTER, ROUTER_AS, ROUTER_OUTSIDE};

/// All next hops of a route go to the kernel; nothing of ours goes to the nodes.
const HEAD: &str = "\
log stderr all;
router id 192.168.7.1;
protocol device { scan time 1; }
protocol kernel { ipv4 { export all; import none; }; merge paths on; }
protocol kernel { ipv6 { export all; import none; }; merge paths on; }
";

/// The router at work.
pub struct Router {
    /// Its network.
    pub namespace: Namespace,
    _bird: Process,
}

impl Router {
    /// Starts it between the two segments.
    pub fn start(folder: &Path, inside: &Lan, outside: &Lan, nodes: &[Place]) -> Result<Self> {
        let namespace = Namespace::new("router")?;
        for (key, value) in
            [("net.ipv4.ip_forward", "1"), ("net.ipv6.conf.all.forwarding", "1"), ("net.ipv4.conf.all.rp_filter", "0")]
        {
            namespace.sysctl(key, value)?;
        }
        spread_by_port(&namespace)?;
        inside.plug(&namespace, "eth0", &ROUTER)?;
        outside.plug(&namespace, "eth1", &ROUTER_OUTSIDE)?;
        let file = folder.join("bird.conf");
        fs::write(&file, config(nodes))?;
        let mut command = namespace.command("bird");
        command.args(["-f", "-c"]).arg(&file).arg("-s").arg(folder.join("bird.ctl"));
        let bird = Process::start(&mut command, &folder.join("bird.log"))?;
        Ok(Self { namespace, _bird: bird })
    }

    /// The next hops of an address in the router's kernel.
    pub fn next_hops(&self, address: IpAddr) -> Result<BTreeSet<IpAddr>> {
        let family = if address.is_ipv4() { "-4" } else { "-6" };
        let shown = self.namespace.ip(&[family, "-j", "route", "show", &address.to_string()])?;
        Ok(shown.as_array().into_iter().flatten().flat_map(gateways).collect())
    }
}

/// Spreads by port, not by address only: the demo has but one client.
///
/// Policy 1 would do so too, but by a number that the client's kernel puts beside the packet. It never leaves a real
/// machine, and changes when a packet is sent again: a connection would change its node. Kernels before 5.13 have no other.
fn spread_by_port(namespace: &Namespace) -> Result<()> {
    for family in ["ipv4", "ipv6"] {
        let set = |key: &str, value: &str| namespace.sysctl(&format!("net.{family}.fib_multipath_hash_{key}"), value);
        // Both addresses, the protocol and both ports.
        set("fields", "55").and_then(|()| set("policy", "3")).or_else(|_| set("policy", "1"))?;
    }
    Ok(())
}

fn gateways(route: &Value) -> Vec<IpAddr> {
    let gateway = |hop: &Value| hop["gateway"].as_str().and_then(|address| address.parse().ok());
    match route["nexthops"].as_array() {
        Some(hops) => hops.iter().filter_map(gateway).collect(),
        None => gateway(route).into_iter().collect(),
    }
}

fn config(nodes: &[Place]) -> String {
    nodes.iter().fold(HEAD.to_owned(), |text, node| text + &session(node, node.v4) + &session(node, node.v6))
}

/// A session per node and family; the node dials.
fn session(node: &Place, address: IpAddr) -> String {
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    format!(
        "protocol bgp {}_{family} {{
  local as {ROUTER_AS};
  neighbor {address} as {NODE_AS};
  direct;
  passive on;
  hold time 3;
  error wait time 1, 2;
  {family} {{ import all; export none; }};
}}
",
        node.name
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bird_hears_every_node_over_both_families() {
        let text = config(&[Place::of(1), Place::of(2)]);
        for part in ["protocol bgp node1_ipv4", "neighbor 192.168.7.12 as 65000", "neighbor fd00:7::11 as 65000"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert_eq!(text.matches("protocol bgp").count(), 4);
    }

    #[test]
    fn next_hops_are_read_from_routes_with_one_and_with_many() {
        assert_eq!(gateways(&json!({"gateway": "192.168.7.11"})), ["192.168.7.11".parse::<IpAddr>().unwrap()]);
        assert_eq!(gateways(&json!({"nexthops": [{"gateway": "fd00:7::11"}, {"gateway": "fd00:7::12"}]})).len(), 2);
        assert!(gateways(&json!({"dst": "default"})).is_empty());
    }
}
