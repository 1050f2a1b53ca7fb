//! A node whose segment for Services is a VLAN.

use anyhow::Result;

use crate::site::{Site, local};

/// The API server is reached untagged; the default route, and with it local addresses, are on VLAN 100. The client is behind
/// another card of the same machine: its frames cross the wire with their tags.
const CARDS: &str = "
set -e
ip addr add 192.168.7.11/24 dev eth0
ip link set eth0 up
ip link add link eth0 name eth0.100 type vlan id 100
ip addr add 192.168.100.11/24 dev eth0.100
ip link set eth0.100 up
ip route add default via 192.168.100.1
ip netns add client
ip link set eth1 netns client
ip -n client link set eth1 up
ip -n client link add link eth1 name eth1.100 type vlan id 100
ip -n client addr add 192.168.100.1/24 dev eth1.100
ip -n client link set eth1.100 up
echo hello >/etc/greeting
httpd -p 80 -h /etc
";

#[test]
fn a_local_address_goes_on_a_vlan_interface_and_is_reached_there() -> Result<()> {
    let site = Site::build()?;
    let node = site.node("node-a")?.nic(&site.lan).nic(&site.lan).boot()?;
    node.run(CARDS)?;
    site.agent(&node)?;
    site.group("vlan", &local("192.168.100.0/24", "192.168.100.100-192.168.100.110"))?;
    let address = site.service("web", "vlan", &["IPv4"])?[0];
    let shown = || node.run("ip -o addr show dev eth0.100");
    site.until_on(&node, "it is there", || Ok(shown()?.contains(&format!("inet {address}/24 "))))?;
    let elsewhere = node.run("ip -o addr show dev eth0")?;
    assert!(!elsewhere.contains(&address.to_string()), "{elsewhere}");
    let ask =
        format!("printf 'GET /greeting HTTP/1.0\\r\\n\\r\\n' | ip netns exec client nc -w 5 {address} 80 | tail -n 1");
    site.until_on(&node, "a client on the VLAN is answered", || Ok(node.attempt(&ask)?.output == "hello\n"))?;
    let own = node.run("ip -o addr show dev eth0.100")?;
    assert!(own.contains("inet 192.168.100.11/24 "), "{own}");
    site.delete("web")?;
    site.until_on(&node, "it is gone", || Ok(!shown()?.contains(&address.to_string())))
}
