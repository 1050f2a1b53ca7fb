//! The true dummy interface: what the documentation shows is what operators see.

use anyhow::{Context, Result};
use purelb_lab::vm::Machine;
use rstest::rstest;
use serde_json::json;

use crate::site::Site;

/// As the documentation shows it, index and MAC aside.
const DOCUMENTED: &str = "\
N: kube-lb0: <BROADCAST,NOARP,UP,LOWER_UP> mtu 1500 qdisc noqueue state UNKNOWN group default qlen 1000
    link/ether MAC brd ff:ff:ff:ff:ff:ff
    inet 172.32.100.225/32 scope global kube-lb0
       valid_lft forever preferred_lft forever
    inet6 fc00:370:155:0:8000::/128 scope global
       valid_lft forever preferred_lft forever
    inet6 LINK-LOCAL/64 scope link
       valid_lft forever preferred_lft forever";

const DOCUMENTED_AGGREGATE: [&str; 2] = [
    "    inet 172.22.0.11/24 brd 172.22.0.255 scope global kube-lb0",
    "       valid_lft forever preferred_lft forever",
];

/// The plainest CPU, and one with everything that QEMU knows.
#[rstest]
fn virtual_addresses_on_a_true_dummy_look_as_documented(#[values("qemu64", "max")] cpu: &str) -> Result<()> {
    let site = Site::build()?;
    let node = site.node("node-a")?.cpu(cpu).nic(&site.lan).boot()?;
    node.run(
        "ip addr add 192.168.7.11/24 dev eth0 && ip link set eth0 up && ip route add default via 192.168.7.1 && \
         ip addr add fd00:7::11/64 dev eth0 nodad",
    )?;
    site.agent(&node)?;

    let pools = json!({
        "v4pools": [{"aggregation": "/32", "pool": "172.32.100.225-172.32.100.229", "subnet": "172.32.100.0/24"}],
        "v6pools": [{"aggregation": "/128", "pool": "fc00:370:155:0:8000::/126", "subnet": "fc00:370:155::/64"}],
    });
    site.group("remotedual", &json!({"remote": pools}))?;
    site.service("kuard-svc-dual-remote", "remotedual", &["IPv4", "IPv6"])?;
    let both = |shown: &str| shown.contains("172.32.100.225") && shown.contains("fc00:370:155:0:8000::");
    site.until_on(&node, "both addresses are there", || Ok(both(&shown(&node)?)))?;
    assert_eq!(shown(&node)?.lines().map(anonymous).collect::<Vec<_>>().join("\n"), DOCUMENTED);
    let kind = node.run("ip -d link show dev kube-lb0")?;
    assert!(kind.contains(" dummy "), "{kind}");

    let pools = json!({"v4pools": [{"aggregation": "default", "pool": "172.22.0.11", "subnet": "172.22.0.0/24"}]});
    site.group("aggregated", &json!({"remote": pools}))?;
    site.delete("kuard-svc-dual-remote")?;
    site.service("aggregate", "aggregated", &["IPv4"])?;
    let moved = |shown: &str| shown.contains("172.22.0.11") && !shown.contains("172.32.100.225");
    site.until_on(&node, "the aggregate takes their place", || Ok(moved(&shown(&node)?)))?;
    let shown = shown(&node)?;
    let lines: Vec<_> = shown.lines().map(str::trim_end).collect();
    let start = lines.iter().position(|line| line.contains("inet ")).with_context(|| shown.clone())?;
    assert_eq!(lines[start..start + 2], DOCUMENTED_AGGREGATE);
    Ok(())
}

/// What an operator sees; nothing where there is no such interface.
fn shown(node: &Machine) -> Result<String> {
    Ok(node.attempt("ip addr show dev kube-lb0")?.output)
}

/// Without what differs from node to node, and without the space that `ip` prints at the end of some lines.
fn anonymous(line: &str) -> String {
    let words = line.trim_end().split(' ').map(|word| match word {
        _ if line.contains(": kube-lb0:") && word.trim_end_matches(':').parse::<u32>().is_ok() => "N:".to_owned(),
        word if word.starts_with("fe80:") => "LINK-LOCAL/64".to_owned(),
        word if word.len() == 17 && word.matches(':').count() == 5 && word != "ff:ff:ff:ff:ff:ff" => "MAC".to_owned(),
        word => word.to_owned(),
    });
    let line = words.collect::<Vec<_>>().join(" ");
    if line.starts_with("N:") { line.replace("mtu N:", "mtu 1500").replace("qlen N:", "qlen 1000") } else { line }
}
