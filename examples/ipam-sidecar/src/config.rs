//! What the environment says.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use purelb_core::addr::{AddrRange, Aggregation, Family, parse_subnet};
use purelb_core::group::{Entry, Ranges};

/// Everything a sidecar has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `SIDECAR_SOCKET`: where to listen.
    pub socket: PathBuf,
    /// `SIDECAR_STATE`: the file that remembers who holds what.
    pub state: PathBuf,
    /// `SIDECAR_PROVIDER`: what it calls itself.
    pub provider: String,
    /// `SIDECAR_POOL_CIDR` and `SIDECAR_POOL_CIDR6`: the addresses to give out.
    pub ranges: Ranges,
}

impl Config {
    /// Reads the variables; one that is there and empty counts as said, so that a pool can do without IPv4.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let or = |name, default: &str| var(name).unwrap_or_else(|| default.to_owned());
        Ok(Self {
            socket: or("SIDECAR_SOCKET", "/var/run/purelb/ipam.sock").into(),
            state: or("SIDECAR_STATE", "/var/lib/purelb/ipam.json").into(),
            provider: or("SIDECAR_PROVIDER", "test"),
            ranges: Ranges {
                v4: entries("SIDECAR_POOL_CIDR", &or("SIDECAR_POOL_CIDR", "10.20.30.0/24"), Family::V4)?,
                v6: entries("SIDECAR_POOL_CIDR6", &or("SIDECAR_POOL_CIDR6", ""), Family::V6)?,
                ..Ranges::default()
            },
        })
    }

    /// The ranges as they were written.
    pub fn cidrs(&self) -> Vec<String> {
        self.ranges.v4.iter().chain(&self.ranges.v6).map(|entry| entry.text.clone()).collect()
    }
}

fn entries(name: &str, text: &str, family: Family) -> Result<Vec<Entry>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let subnet = parse_subnet(text).with_context(|| format!("{name} cannot be read"))?;
    let range = usable(subnet)?;
    ensure!(range.family() == family, "{name} is {text}, which is not {family}");
    Ok(vec![Entry { field: name.to_owned(), text: text.to_owned(), range, subnet, aggregation: Aggregation::Subnet }])
}

/// All addresses but the first, which names the network, unless there is hardly another.
fn usable(subnet: IpNet) -> Result<AddrRange> {
    let tiny = subnet.prefix_len() + 1 >= subnet.max_prefix_len();
    let first = match subnet.network() {
        first if tiny => first,
        IpAddr::V4(network) => IpAddr::V4((network.to_bits() + 1).into()),
        IpAddr::V6(network) => IpAddr::V6((network.to_bits() + 1).into()),
    };
    Ok(AddrRange::new(first, subnet.broadcast())?)
}
