//! By which identifier a node goes.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use super::{Configuration, NodeFacts};
use crate::reason::Reason;

/// The longest text of a `routerID`.
const LONGEST: usize = 256;
/// The longest key of an annotation.
const LONGEST_KEY: usize = 253;

/// What `routerID` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouterIdWish {
    /// Nothing: the node's own IPv4 address, else one made of its name.
    #[default]
    Automatic,
    /// This one, on every node.
    Explicit(Ipv4Addr),
    /// The node's internal IPv4 address: `${NODE_IP}` or `${NODE_IPV4}`.
    NodeIp,
    /// The node's external IPv4 address: `${NODE_EXTERNAL_IP}`.
    NodeExternalIp,
    /// What this annotation of the node says: `${node.annotations['key']}`.
    Annotation(String),
}

impl RouterIdWish {
    /// Reads the text of a `routerID`.
    pub fn parse(text: &str) -> Result<Self, Reason> {
        let wrong = || Reason::RouterIdSyntax { text: text.chars().take(LONGEST).collect() };
        if text.len() > LONGEST {
            return Err(wrong());
        }
        match text {
            "" => Ok(Self::Automatic),
            "${NODE_IP}" | "${NODE_IPV4}" => Ok(Self::NodeIp),
            "${NODE_EXTERNAL_IP}" => Ok(Self::NodeExternalIp),
            _ if text.starts_with("${") => annotation_key(text).map(Self::Annotation).ok_or_else(wrong),
            _ => text.parse().ok().filter(is_usable).map(Self::Explicit).ok_or_else(wrong),
        }
    }
}

fn annotation_key(text: &str) -> Option<String> {
    let key = text.strip_prefix("${node.annotations['")?.strip_suffix("']}")?;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '-');
    ((1..=LONGEST_KEY).contains(&key.len()) && key.chars().all(legal)).then(|| key.to_owned())
}

/// Where an identifier was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RouterIdSource {
    /// It is written in the configuration.
    Explicit,
    /// The configuration says where to look.
    Template,
    /// The node's internal IPv4 address.
    NodeIpv4,
    /// Made of the node's name.
    HashFromNodeName,
}

impl RouterIdSource {
    /// The word that statuses, metrics and annotations have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Template => "template",
            Self::NodeIpv4 => "node-ipv4",
            Self::HashFromNodeName => "hash-from-node-name",
        }
    }
}

/// Finds the identifier of a node.
pub fn router_id(configuration: &Configuration, node: &NodeFacts) -> Result<(Ipv4Addr, RouterIdSource), Reason> {
    let template = |found: Option<Ipv4Addr>, missing: String| {
        let reason = || Reason::RouterIdUnresolved { node: node.name.clone(), missing };
        found.map(|id| (id, RouterIdSource::Template)).ok_or_else(reason)
    };
    match &configuration.router_id {
        RouterIdWish::Explicit(id) => Ok((*id, RouterIdSource::Explicit)),
        RouterIdWish::NodeIp => template(first(&node.internal), "no internal IPv4 address".to_owned()),
        RouterIdWish::NodeExternalIp => template(first(&node.external), "no external IPv4 address".to_owned()),
        RouterIdWish::Annotation(key) => {
            let found = node.annotations.get(key).and_then(|text| text.parse().ok()).filter(is_usable);
            template(found, format!("no annotation {key} with an IPv4 address"))
        }
        RouterIdWish::Automatic => Ok(match first(&node.internal) {
            Some(id) => (id, RouterIdSource::NodeIpv4),
            None => (hashed(configuration, &node.name), RouterIdSource::HashFromNodeName),
        }),
    }
}

/// Whether the identifier hangs on the node's addresses, and nobody has written any into the Node yet.
///
/// Whoever does not wait goes by another identifier a moment later, and every session begins anew.
pub fn awaits_addresses(configuration: &Configuration, node: &NodeFacts) -> bool {
    let elsewhere = matches!(configuration.router_id, RouterIdWish::Explicit(_) | RouterIdWish::Annotation(_));
    !elsewhere && node.internal.is_empty() && node.external.is_empty()
}

/// The first address that can be an identifier.
fn first(addresses: &[IpAddr]) -> Option<Ipv4Addr> {
    addresses.iter().find_map(|addr| match addr.to_canonical() {
        IpAddr::V4(v4) => Some(v4).filter(is_usable),
        IpAddr::V6(_) => None,
    })
}

/// Whether an address can be an identifier that no other router has.
fn is_usable(addr: &Ipv4Addr) -> bool {
    !addr.is_loopback() && !addr.is_link_local() && !addr.is_unspecified()
}

/// An address of the pool, neither its first nor its last, chosen by the node's name.
fn hashed(configuration: &Configuration, name: &str) -> Ipv4Addr {
    let pool = configuration.router_id_pool;
    let size = 1_u64 << (32 - pool.prefix_len());
    let offset = u64::from(fnv1a(name)) % (size - 2) + 1;
    Ipv4Addr::from_bits((u64::from(pool.network().to_bits()) + offset) as u32)
}

/// FNV-1a with 32 bits, by which the names of nodes have always been hashed.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests;
