//! The cluster addresses and node ports that Services hold.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde_json::Value;

/// Node ports that a Service may have.
const NODE_PORTS: std::ops::RangeInclusive<i32> = 30_000..=32_767;
/// The low node ports are left to people who choose their own.
const FIRST_DYNAMIC_PORT: i32 = 30_086;

/// Why a wanted address or port is not to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unavailable {
    Taken,
    OutOfRange,
}

/// What is held, and the ranges it comes from.
#[derive(Debug)]
pub(crate) struct Allocations {
    /// The first is the family of Services that ask for none.
    ranges: Vec<IpNet>,
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<i32>,
    /// Where the search for the next free address of each range goes on, so that it stays short.
    cursors: Vec<u128>,
    port_cursor: i32,
}

impl Default for Allocations {
    fn default() -> Self {
        let v4 = IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 0)), 16);
        let v6 = IpNet::new_assert(IpAddr::V6(Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 0)), 112);
        Self::new(vec![v4, v6])
    }
}

impl Allocations {
    /// Nothing held in these service ranges.
    pub(crate) fn new(ranges: Vec<IpNet>) -> Self {
        let cursors = ranges.iter().map(first_dynamic).collect();
        Self { ranges, addresses: BTreeSet::new(), ports: BTreeSet::new(), cursors, port_cursor: FIRST_DYNAMIC_PORT }
    }

    /// The families that are configured, the default one first.
    pub(crate) fn families(&self) -> Vec<&'static str> {
        self.ranges.iter().map(|range| family(range.addr())).collect()
    }

    /// The address of the API server itself: the first of the default range.
    pub(crate) fn first_address(&self) -> IpAddr {
        let range = &self.ranges[0];
        address(range, bounds(range).0.saturating_add(1).min(bounds(range).1))
    }

    /// Whether an address can be given to a Service that asks for it.
    pub(crate) fn check_address(&self, address: IpAddr) -> Result<(), Unavailable> {
        if !self.ranges.iter().any(|range| range.contains(&address)) {
            return Err(Unavailable::OutOfRange);
        }
        if self.addresses.contains(&address) { Err(Unavailable::Taken) } else { Ok(()) }
    }

    /// A free address of a family, those that people choose for themselves last.
    pub(crate) fn next_address(&self, wanted: &str) -> Option<IpAddr> {
        let index = self.ranges.iter().position(|range| family(range.addr()) == wanted)?;
        let range = &self.ranges[index];
        let (first, last) = bounds(range);
        let (dynamic, cursor) = (first_dynamic(range), self.cursors[index]);
        let candidates = (cursor..=last).chain(dynamic..cursor).chain(first + 1..dynamic);
        candidates.map(|number| address(range, number)).find(|it| !self.addresses.contains(it))
    }

    /// Whether a node port can be given to a Service that asks for it.
    pub(crate) fn check_port(&self, port: i32) -> Result<(), Unavailable> {
        if !NODE_PORTS.contains(&port) {
            return Err(Unavailable::OutOfRange);
        }
        if self.ports.contains(&port) { Err(Unavailable::Taken) } else { Ok(()) }
    }

    /// A free node port that the same request has not taken yet.
    pub(crate) fn next_port(&self, taken: &[i32]) -> Option<i32> {
        let (low, high) = (*NODE_PORTS.start(), *NODE_PORTS.end());
        let cursor = self.port_cursor;
        let mut candidates = (cursor..=high).chain(FIRST_DYNAMIC_PORT..cursor).chain(low..FIRST_DYNAMIC_PORT);
        candidates.find(|port| !self.ports.contains(port) && !taken.contains(port))
    }

    /// Books the difference between a Service before and after a write; either may be absent.
    pub(crate) fn replace(&mut self, before: Option<&Value>, after: Option<&Value>) {
        for address in before.into_iter().flat_map(held_addresses) {
            self.addresses.remove(&address);
        }
        for port in before.into_iter().flat_map(held_ports) {
            self.ports.remove(&port);
        }
        for address in after.into_iter().flat_map(held_addresses) {
            self.addresses.insert(address);
            self.advance(address);
        }
        for port in after.into_iter().flat_map(held_ports) {
            self.ports.insert(port);
            if port >= self.port_cursor {
                self.port_cursor = if port < *NODE_PORTS.end() { port + 1 } else { FIRST_DYNAMIC_PORT };
            }
        }
    }

    fn advance(&mut self, address: IpAddr) {
        for (range, cursor) in self.ranges.iter().zip(&mut self.cursors).filter(|(range, _)| range.contains(&address)) {
            if number(address) >= *cursor {
                *cursor = if number(address) < bounds(range).1 { number(address) + 1 } else { first_dynamic(range) };
            }
        }
    }
}

fn held_addresses(service: &Value) -> Vec<IpAddr> {
    let texts = service["spec"]["clusterIPs"].as_array().into_iter().flatten();
    texts.filter_map(|text| text.as_str()?.parse().ok()).collect()
}

fn held_ports(service: &Value) -> Vec<i32> {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
    let ports = ports.chain([&spec["healthCheckNodePort"]]);
    ports.filter_map(|port| i32::try_from(port.as_i64()?).ok()).collect()
}

/// The family of an address in Kubernetes' words.
pub(crate) fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

fn address(range: &IpNet, number: u128) -> IpAddr {
    match range {
        IpNet::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
        IpNet::V6(_) => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

fn bounds(range: &IpNet) -> (u128, u128) {
    (number(range.network()), number(range.broadcast()))
}

/// The first address given out unasked: Kubernetes keeps the low part of a range for fixed choices.
fn first_dynamic(range: &IpNet) -> u128 {
    let (first, last) = bounds(range);
    let size = last - first;
    if size < 16 { first + 1 } else { first + (size / 16).clamp(16, 256).min(size) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(address: &str, port: i32) -> Value {
        json!({"spec": {"clusterIPs": [address], "ports": [{"nodePort": port}]}})
    }

    #[test]
    fn addresses_are_given_once_and_come_back_after_release() {
        let mut all = Allocations::new(vec!["10.0.0.0/30".parse().expect("a network")]);
        let mut held = Vec::new();
        while let Some(address) = all.next_address("IPv4") {
            let service = service(&address.to_string(), 31_000);
            all.replace(None, Some(&service));
            held.push((address, service));
        }
        assert_eq!(held.len(), 3, "all but the network address: {held:?}");
        let (address, service) = held.remove(1);
        assert_eq!(all.check_address(address), Err(Unavailable::Taken));
        all.replace(Some(&service), None);
        assert_eq!(all.next_address("IPv4"), Some(address));
        assert_eq!(all.check_address("10.1.0.1".parse().expect("an address")), Err(Unavailable::OutOfRange));
    }

    #[test]
    fn ports_stay_in_their_range_and_spare_the_low_ones() {
        let mut all = Allocations::default();
        assert_eq!(all.next_port(&[]), Some(FIRST_DYNAMIC_PORT));
        assert_eq!(all.next_port(&[FIRST_DYNAMIC_PORT]), Some(FIRST_DYNAMIC_PORT + 1));
        all.replace(None, Some(&service("10.96.0.9", 32_767)));
        assert_eq!(all.next_port(&[]), Some(FIRST_DYNAMIC_PORT));
        assert_eq!(all.check_port(32_767), Err(Unavailable::Taken));
        assert_eq!(all.check_port(80), Err(Unavailable::OutOfRange));
    }

    #[test]
    fn a_range_as_large_as_all_of_ipv6_is_no_trouble() {
        let all = Allocations::new(vec!["::/0".parse().expect("a network")]);
        assert!(all.next_address("IPv6").is_some());
    }
}
