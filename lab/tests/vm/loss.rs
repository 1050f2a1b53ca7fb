//! A bad wire: every fifth packet is lost, and the others are late by up to a tenth of a second.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use purelb_lab::Daemon;
use purelb_lab::net::{Lan, Namespace};
use purelb_lab::vm::Plan;

use crate::site::{Site, local};

/// How long the trouble lasts: several leases.
const TROUBLE: Duration = Duration::from_secs(25);

/// The machine is the switch between the nodes and everybody else, the API server included.
const SWITCH: &str = "
set -e
ip link add name bridge0 type bridge
for card in eth0 eth1; do
  ip link set $card master bridge0 up
done
ip link set bridge0 up
";

#[test]
fn with_a_fifth_of_all_packets_lost_a_local_address_never_has_two_holders() -> Result<()> {
    let site = Site::build()?;
    let far = Lan::new()?;
    let switch = Plan::new("switch").tools(&["ip", "tc"])?.nic(&site.lan).nic(&far).boot()?;
    switch.run(SWITCH)?;
    let nodes = [("node-a", 11), ("node-b", 12), ("node-c", 13)];
    let nodes: Vec<_> =
        nodes.iter().map(|(name, number)| site.outside(name, *number, &far, &[])).collect::<Result<_>>()?;
    site.group("lan", &local("192.168.7.0/24", "192.168.7.100"))?;
    let address = site.service("web", "lan", &["IPv4"])?[0].to_string();
    site.until("somebody holds it", || Ok(!holders(&nodes, &address)?.is_empty()))?;

    for card in ["eth0", "eth1"] {
        switch.run(&format!("tc qdisc add dev {card} root netem delay 50ms 50ms loss 20%"))?;
    }
    let (begun, mut looks, mut held) = (Instant::now(), 0_u32, 0_u32);
    while begun.elapsed() < TROUBLE {
        let holders = holders(&nodes, &address)?;
        let both = format!("{holders:?} hold it at once\n{}", logs(&nodes));
        // It may have moved while we looked: the first one must still have it for that to be two.
        ensure!(holders.len() < 2 || !is_held(&nodes[holders[0]].0, &address)?, both);
        looks += 1;
        held += u32::from(!holders.is_empty());
        std::thread::sleep(Duration::from_millis(20));
    }
    let dropped = switch.run("tc -s qdisc show dev eth0; tc -s qdisc show dev eth1")?;
    assert_eq!(dropped.matches("netem").count(), 2, "{dropped}");
    assert!(!dropped.contains("dropped 0,"), "the wire was good: {dropped}");
    assert!(held * 2 > looks, "nobody held it most of the time: {held} of {looks} looks\n{}", logs(&nodes));

    for card in ["eth0", "eth1"] {
        switch.run(&format!("tc qdisc del dev {card} root"))?;
    }
    site.until("exactly one holds it afterwards", || Ok(holders(&nodes, &address)?.len() == 1))
}

/// Which of the nodes show it, one looked at after the other.
fn holders(nodes: &[(Namespace, Daemon)], address: &str) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    for (number, (node, _)) in nodes.iter().enumerate() {
        if is_held(node, address)? {
            found.push(number);
        }
    }
    Ok(found)
}

fn is_held(node: &Namespace, address: &str) -> Result<bool> {
    Ok(node.ip(&["-j", "addr", "show", "dev", "eth0"])?.to_string().contains(&format!("\"{address}\"")))
}

fn logs(nodes: &[(Namespace, Daemon)]) -> String {
    nodes.iter().map(|(node, agent)| format!("--- {}\n{}\n", node.name(), agent.log())).collect()
}
