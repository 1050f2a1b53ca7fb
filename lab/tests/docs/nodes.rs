//! The settings that the documents ask of nodes do what they are for.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use purelb_lab::net::{Lan, Namespace};

use crate::page::named;

/// An address of a Service, on an interface of the node that is not on the wire.
const VIRTUAL: &str = "192.168.7.200";

/// The settings as `sysctl` reads them from the file.
fn settings() -> Result<Vec<(String, String)>> {
    let blocks = named("docs/how-to/install.md")?.blocks("ini");
    let [block] = &blocks[..] else { anyhow::bail!("install.md has {} files with settings", blocks.len()) };
    let lines = block.text.lines().filter(|line| !line.starts_with('#'));
    let pair = |line: &str| line.split_once(" = ").map(|(key, value)| (key.to_owned(), value.to_owned()));
    lines.map(|line| pair(line).with_context(|| format!("no setting: {line}"))).collect()
}

/// How many machines on the wire answer when a client asks who has the address.
fn answers(client: &Namespace) -> Result<usize> {
    let mut arping = client.command("arping");
    let output =
        arping.args(["-b", "-c", "2", "-w", "2", "-I", "eth0", VIRTUAL]).output().context("cannot run arping")?;
    let text = String::from_utf8(output.stdout)?;
    let machines = text.lines().filter_map(|line| line.split_once('[')?.1.split_once(']'));
    Ok(machines.map(|(mac, _)| mac).collect::<BTreeSet<_>>().len())
}

#[test]
fn nodes_that_are_set_as_documented_do_not_answer_for_addresses_of_other_interfaces() -> Result<()> {
    let lan = Lan::new()?;
    let client = Namespace::new("client")?;
    lan.plug(&client, "eth0", &["192.168.7.100/24"])?;
    let nodes = [Namespace::new("node-a")?, Namespace::new("node-b")?];
    for (node, own) in nodes.iter().zip(["192.168.7.11/24", "192.168.7.12/24"]) {
        lan.plug(node, "eth0", &[own])?;
        for key in ["arp_ignore", "arp_announce"] {
            node.sysctl(&format!("net.ipv4.conf.all.{key}"), "0")?;
        }
        node.batch(&format!(
            "link add kube-lb0 type bridge\nlink set kube-lb0 up\naddr add {VIRTUAL}/32 dev kube-lb0\n"
        ))?;
    }
    assert_eq!(answers(&client)?, 2, "as Linux comes, both nodes answer");
    let settings = settings()?;
    ensure!(settings.len() == 2, "{settings:?}");
    for node in &nodes {
        settings.iter().try_for_each(|(key, value)| node.sysctl(key, value))?;
    }
    assert_eq!(answers(&client)?, 0, "as documented, none does");
    nodes[0].batch(&format!("addr add {VIRTUAL}/24 dev eth0\n"))?;
    assert_eq!(answers(&client)?, 1, "but for the one that holds it on the wire");
    Ok(())
}
