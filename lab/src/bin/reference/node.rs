//! What the old programs do to their node, by the `ip` of their image.

use std::net::IpAddr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use serde_json::Value;

/// The interface with the default route.
pub const NIC: &str = "eth0";
/// Where virtual addresses are.
pub const VIRTUAL: &str = "kube-lb0";

/// The addresses of the node itself, with their networks.
pub fn networks() -> Result<Vec<IpNet>> {
    let shown: Value = serde_json::from_str(&ip(&["-j", "addr", "show", "dev", NIC])?)?;
    let own = shown[0]["addr_info"].as_array().into_iter().flatten().filter(|entry| entry["scope"] == "global");
    own.map(|entry| {
        let text = format!("{}/{}", entry["local"].as_str().unwrap_or_default(), entry["prefixlen"]);
        text.parse().with_context(|| format!("no network: {text}"))
    })
    .collect()
}

/// Makes the virtual interface. Small kernels have no dummy; an ifb looks almost the same.
pub fn make_virtual() -> Result<()> {
    if ip(&["link", "show", "dev", VIRTUAL]).is_err() {
        let made = ip(&["link", "add", VIRTUAL, "type", "dummy"]);
        made.or_else(|_| ip(&["link", "add", VIRTUAL, "type", "ifb"]))?;
    }
    ip(&["link", "set", VIRTUAL, "up"]).map(drop)
}

/// Removes it with everything on it.
pub fn drop_virtual() -> Result<()> {
    ip(&["link", "del", VIRTUAL]).map(drop)
}

/// A virtual address, for good and with a route of its own.
pub fn put_virtual(address: IpAddr) -> Result<()> {
    let length = if address.is_ipv4() { 32 } else { 128 };
    ip(&["addr", "replace", &format!("{address}/{length}"), "dev", VIRTUAL]).map(drop)
}

/// A local address: for good in 0.13, for five minutes and without a route in 0.17.
pub fn put_local(address: IpAddr, length: u8, for_good: bool) -> Result<()> {
    let text = format!("{address}/{length}");
    let mut line = vec!["addr", "replace", &text, "dev", NIC];
    if !for_good {
        let preferred = if address.is_ipv4() { "300" } else { "0" };
        line.extend(["valid_lft", "300", "preferred_lft", preferred, "noprefixroute"]);
    }
    ip(&line).map(drop)
}

/// Takes an address off the network card.
pub fn drop_local(address: IpAddr, length: u8) -> Result<()> {
    ip(&["addr", "del", &format!("{address}/{length}"), "dev", NIC]).map(drop)
}

fn ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("/ip").args(arguments).output().context("the image has no ip")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {complaint}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}
