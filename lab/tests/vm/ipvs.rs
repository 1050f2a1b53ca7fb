//! kube-proxy in IPVS mode beside the agent: it puts every address of every Service on an interface of its own.

use std::net::IpAddr;

use anyhow::Result;
use purelb_lab::control_plane::programs::Programs;
use purelb_lab::vm::Machine;
use serde_json::{Value, json};

use crate::site::{Site, local};

/// What kube-proxy runs, and where iptables has its parts.
const TOOLS: [&str; 8] = [
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
    "ipset",
    "nft",
];
const XTABLES: &str = "/usr/lib/x86_64-linux-gnu/xtables";

/// A node with one pod. A distribution that runs kube-proxy in this mode loads these two at boot.
const NODE: &str = "
set -e
modprobe nf_conntrack
modprobe ip_vs_rr
ip addr add 192.168.7.11/24 dev eth0
ip link set eth0 up
ip route add default via 192.168.7.1
ip netns add pod
ip link add pods0 type veth peer name eth0 netns pod
ip addr add 10.244.1.1/24 dev pods0
ip link set pods0 up
ip -n pod addr add 10.244.1.2/24 dev eth0
ip -n pod link set eth0 up
ip -n pod route add default via 10.244.1.1
echo 'hello from the pod' >/etc/greeting
ip netns exec pod httpd -p 8080 -h /etc
";

fn config() -> Value {
    let unlimited = json!({"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"});
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubeconfig", "contentType": "application/json"},
        "clusterCIDR": "10.244.0.0/16",
        "detectLocalMode": "ClusterCIDR",
        "mode": "ipvs",
        "ipvs": {"scheduler": "rr", "strictARP": true},
        "hostnameOverride": "node-a",
        "conntrack": unlimited,
    })
}

#[test]
fn kube_proxy_in_ipvs_mode_and_the_agent_leave_each_other_alone() -> Result<()> {
    let site = Site::build()?;
    let programs = tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(Programs::find())?;
    let plan =
        site.node("node-a")?.tools(&TOOLS)?.folder(XTABLES)?.program("kube-proxy", &programs.path("kube-proxy"))?;
    let node = plan.file("/etc/kube-proxy.json", config().to_string()).nic(&site.lan).boot()?;
    node.run(NODE)?;
    node.start("kube-proxy", "kube-proxy --config /etc/kube-proxy.json")?;
    site.group("lan", &local("192.168.7.0/24", "192.168.7.100"))?;
    let pools = json!({"v4pools": [{"aggregation": "/32", "pool": "172.30.0.1", "subnet": "172.30.0.0/24"}]});
    site.group("routed", &json!({"remote": pools}))?;
    let addresses = [site.service("near", "lan", &["IPv4"])?[0], site.service("far", "routed", &["IPv4"])?[0]];
    for service in ["near", "far"] {
        site.create(&site.namespaced("discovery.k8s.io/v1", "endpointslices"), &endpoints(service))?;
    }
    site.client.batch("route add 172.30.0.0/24 via 192.168.7.11\n")?;
    // It binds every address that no other interface has: what the agent finds when it comes second.
    let bound = |shown: &str| addresses.iter().all(|address| shows(shown, *address));
    site.until_on(&node, "kube-proxy has bound them", || Ok(bound(&on(&node, "kube-ipvs0")?)))?;
    node.start("addresses", "ip monitor address")?;
    let agent = site.agent(&node)?;
    beside(&site, &node, addresses)?;
    // It goes and comes back, which is when it removes what it takes for its own.
    node.run(&format!("kill {agent}"))?;
    site.until_on(&node, "its local address has left", || Ok(!shows(&on(&node, "eth0")?, addresses[0])))?;
    site.agent(&node)?;
    beside(&site, &node, addresses)?;
    // kube-proxy itself takes addresses back that another interface has. Nobody but us would take the others.
    let changes = node.run("cat /log/addresses")?;
    let touched = changes.lines().find(|line| line.contains("kube-ipvs0") && line.contains("inet 10.96."));
    assert_eq!(touched, None, "{changes}");

    for service in ["near", "far"] {
        site.delete(service)?;
    }
    let gone = |link: &str| -> Result<bool> {
        let shown = on(&node, link)?;
        Ok(!addresses.iter().any(|address| shows(&shown, *address)))
    };
    site.until_on(&node, "all is gone", || Ok(gone("eth0")? && gone("kube-lb0")? && gone("kube-ipvs0")?))?;
    assert!(on(&node, "eth0")?.contains("inet 192.168.7.11/24 "), "the node's own");
    Ok(())
}

/// The addresses are where the agent puts them, and the pod answers there.
fn beside(site: &Site, node: &Machine, addresses: [IpAddr; 2]) -> Result<()> {
    let [near, far] = addresses;
    let placed = || Ok(shows(&on(node, "eth0")?, near) && shows(&on(node, "kube-lb0")?, far));
    site.until_on(node, "they are on the agent's interfaces", placed)?;
    for address in addresses {
        let answers = || Ok(site.fetch(address).is_ok_and(|text| text.ends_with("hello from the pod\n")));
        site.until_on(node, &format!("{address} is reached"), answers)?;
    }
    Ok(())
}

/// What a controller would write: the pod serves the Service.
fn endpoints(service: &str) -> Value {
    json!({
        "metadata": {"name": format!("{service}-1"), "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.244.1.2"], "nodeName": "node-a", "conditions": {"ready": true}}],
        "ports": [{"port": 8080, "protocol": "TCP"}],
    })
}

/// The addresses of an interface, one a line; nothing where it does not exist.
fn on(node: &Machine, link: &str) -> Result<String> {
    Ok(node.attempt(&format!("ip -o addr show dev {link} 2>/dev/null"))?.output)
}

fn shows(text: &str, address: IpAddr) -> bool {
    text.contains(&format!("inet {address}/"))
}
