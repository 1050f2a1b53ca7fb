//! A node with two cables: when one fails, nothing happens to its addresses.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use purelb_lab::net::Namespace;
use purelb_lab::vm::Machine;

use crate::site::{Site, local};

const CARDS: &str = "
set -e
modprobe bonding max_bonds=0
ip link add bond0 type bond mode active-backup miimon 100
ip link set eth0 master bond0
ip link set eth1 master bond0
ip addr add 192.168.7.11/24 dev bond0
ip link set bond0 up
ip route add default via 192.168.7.1
echo hello >/etc/greeting
httpd -p 80 -h /etc
";

/// This story is about the bond: a machine that this computer does not give its time must not lose its lease meanwhile.
const PATIENT: [&str; 2] = ["--lease-duration", "15s"];

#[test]
fn when_a_slave_of_a_bond_fails_the_local_address_stays_and_is_reached() -> Result<()> {
    let site = Site::build()?;
    let node = site.node("node-a")?.nic(&site.lan).nic(&site.lan).boot()?;
    node.run(CARDS)?;
    site.agent_with(&node, &PATIENT)?;
    // Somebody who could take the address.
    let (other, _agent) = site.outside("node-b", 12, &site.lan, &PATIENT)?;
    site.group("lan", &local("192.168.7.0/24", "192.168.7.100-192.168.7.110"))?;
    let address = held_by_the_machine(&site, &node, &other)?;
    let answers = || Ok(site.fetch(address).is_ok_and(|text| text.ends_with("hello\n")));
    site.until_on(&node, "it is reached", answers)?;
    node.start("addresses", "ip monitor address")?;

    let active = || node.run("cat /sys/class/net/bond0/bonding/active_slave");
    let (card, left) = if active()?.trim() == "eth0" { (0, "eth1") } else { (1, "eth0") };
    node.unplug(card)?;
    site.until_on(&node, "the other card takes over", || Ok(active()?.trim() == left))?;
    site.until_on(&node, "it is reached over the other card", answers)?;
    node.plug(card)?;
    let up = format!("cat /sys/class/net/eth{card}/operstate");
    site.until_on(&node, "the cable is back", || Ok(node.run(&up)?.trim() == "up"))?;
    site.until_on(&node, "it is still reached", answers)?;

    let changes = node.run("cat /log/addresses")?;
    let lost = changes.lines().find(|line| line.starts_with("Deleted") && line.contains(&address.to_string()));
    assert_eq!(lost, None, "{changes}");
    ensure!(is_on(&node, address)? && !is_in(&other, address)?, "it has moved");
    Ok(())
}

/// Which node an address falls to depends on the names only: of a few, one falls to the machine.
fn held_by_the_machine(site: &Site, node: &Machine, other: &Namespace) -> Result<IpAddr> {
    let leases = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases";
    let serving = |lease: &&serde_json::Value| lease["metadata"]["annotations"]["purelb.io/subnets"].is_string();
    site.until_on(node, "both are candidates", || Ok(site.list(leases)?.iter().filter(serving).count() == 2))?;
    for number in 0..10 {
        let address = site.service(&format!("web-{number}"), "lan", &["IPv4"])?[0];
        site.until_on(node, "somebody holds it", || Ok(is_on(node, address)? || is_in(other, address)?))?;
        if is_on(node, address)? {
            return Ok(address);
        }
    }
    None.context("none falls to the machine")
}

fn is_on(node: &Machine, address: IpAddr) -> Result<bool> {
    Ok(node.run("ip -o addr show dev bond0")?.contains(&format!("inet {address}/24 ")))
}

fn is_in(node: &Namespace, address: IpAddr) -> Result<bool> {
    Ok(node.ip(&["-j", "addr"])?.to_string().contains(&format!("\"{address}\"")))
}
