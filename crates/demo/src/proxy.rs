//! What kube-proxy does in a cluster, in one readable file per node: who asks a Service is sent to a back-end.

use std::fmt::Write;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use purelb_net::Namespace;

/// One port of a Service at its load balancer addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// The Service, as `namespace/name`.
    pub service: String,
    /// Its load balancer addresses.
    pub addresses: Vec<IpAddr>,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The port that clients ask.
    pub port: u16,
    /// Whether `externalTrafficPolicy` is `Local`.
    pub local: bool,
    /// Who can answer.
    pub backends: Vec<Target>,
}

/// A back-end of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The node it runs on.
    pub node: String,
    /// Whether it is ready; one that is not, but still serves while it ends, is used when no other is there.
    pub ready: bool,
}

/// Deleting a table that is not there is an error, hence the empty one before it.
const HEAD: &str = "\
table inet demo
delete table inet demo
table inet demo {
  chain services {
";

const TAIL: &str = "  }

  chain prerouting {
    type nat hook prerouting priority dstnat
    jump services
  }

  # Programs on the node itself ask Services too.
  chain output {
    type nat hook output priority -100
    jump services
  }

  # Marked connections take the node's own address, so that answers from other nodes come back through it.
  chain postrouting {
    type nat hook postrouting priority srcnat
    ct mark 1 masquerade
  }
}
";

/// The whole file for a node.
pub fn rules(node: &str, fronts: &[Front]) -> String {
    let mut text = format!("# The Services as {node} serves them.\n{HEAD}");
    for front in fronts {
        let policy = if front.local { "Local" } else { "Cluster" };
        writeln!(text, "    # {}: externalTrafficPolicy {policy}", front.service).expect("a string takes all");
        for address in &front.addresses {
            writeln!(text, "    {}", rule(node, front, *address)).expect("a string takes all");
        }
    }
    text + TAIL
}

fn rule(node: &str, front: &Front, address: IpAddr) -> String {
    let family = if address.is_ipv4() { "ip" } else { "ip6" };
    let seen = format!("{family} daddr {address} {} dport {}", front.protocol, front.port);
    let targets = chosen(node, front, address);
    if targets.is_empty() {
        return format!("{seen} drop");
    }
    let mark = if front.local { "" } else { "ct mark set 1 " };
    let numbered = targets.iter().enumerate();
    let entries: Vec<String> =
        numbered.map(|(number, target)| format!("{number} : {} . {}", target.address, target.port)).collect();
    let (count, entries) = (targets.len(), entries.join(", "));
    format!("{seen} {mark}dnat {family} to numgen random mod {count} map {{ {entries} }}")
}

/// With policy Local only back-ends of this node; and of those, the ready ones if there are any.
fn chosen<'a>(node: &str, front: &'a Front, address: IpAddr) -> Vec<&'a Target> {
    let fits =
        |target: &&Target| target.address.is_ipv4() == address.is_ipv4() && (!front.local || target.node == node);
    let all: Vec<&Target> = front.backends.iter().filter(fits).collect();
    let ready: Vec<&Target> = all.iter().copied().filter(|target| target.ready).collect();
    if ready.is_empty() { all } else { ready }
}

/// Puts the rules of a node in force, all at once.
pub fn apply(node: &Namespace, rules: &str) -> Result<()> {
    let mut command = node.command("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run nft")?;
    child.stdin.take().context("the input is a pipe")?.write_all(rules.as_bytes())?;
    let output = child.wait_with_output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nft refused the rules of {}: {complaint}\n{rules}", node.name());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(address: &str, node: &str, ready: bool) -> Target {
        Target { address: address.parse().unwrap(), port: 8080, node: node.into(), ready }
    }

    fn front(local: bool) -> Front {
        let backends = [("10.1.1.2", "node1"), ("10.1.2.2", "node2"), ("fd98:0:0:1::2", "node1")];
        Front {
            service: "test/kuard".into(),
            addresses: ["172.32.100.225", "fc00:370:155:0:8000::"].map(|text| text.parse().unwrap()).into(),
            protocol: "tcp".into(),
            port: 80,
            local,
            backends: backends.map(|(address, node)| target(address, node, true)).into(),
        }
    }

    fn lines(node: &str, front: Front) -> Vec<String> {
        let text = rules(node, &[front]);
        text.lines().filter(|line| line.contains(" daddr ")).map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn policy_cluster_spreads_over_all_nodes_and_hides_the_client() {
        let expected = [
            "ip daddr 172.32.100.225 tcp dport 80 ct mark set 1 dnat ip to numgen random mod 2 \
             map { 0 : 10.1.1.2 . 8080, 1 : 10.1.2.2 . 8080 }",
            "ip6 daddr fc00:370:155:0:8000:: tcp dport 80 ct mark set 1 dnat ip6 to numgen random mod 1 \
             map { 0 : fd98:0:0:1::2 . 8080 }",
        ];
        assert_eq!(lines("node2", front(false)), expected);
        assert_eq!(lines("node1", front(false)), expected);
    }

    #[test]
    fn policy_local_stays_on_the_node_and_keeps_the_clients_address() {
        let [v4, v6] = &lines("node2", front(true))[..] else { panic!("a rule for each family") };
        assert_eq!(
            v4,
            "ip daddr 172.32.100.225 tcp dport 80 dnat ip to numgen random mod 1 map { 0 : 10.1.2.2 . 8080 }"
        );
        assert!(v6.ends_with("dport 80 drop"), "there is no back-end for IPv6 on node2: {v6}");
    }

    #[test]
    fn a_back_end_that_ends_is_used_only_when_no_other_is_there() {
        let mut ending = front(true);
        ending.backends = vec![target("10.1.2.2", "node2", false)];
        assert!(lines("node2", ending.clone())[0].contains("10.1.2.2"));
        ending.backends.push(target("10.1.2.3", "node2", true));
        assert!(!lines("node2", ending)[0].contains("10.1.2.2 ."));
    }

    #[test]
    fn the_file_reads_from_top_to_bottom() {
        let text = rules("node1", &[front(false)]);
        assert!(text.starts_with("# The Services as node1 serves them.\n"), "{text}");
        assert!(text.contains("# test/kuard: externalTrafficPolicy Cluster\n"), "{text}");
        assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
    }
}
