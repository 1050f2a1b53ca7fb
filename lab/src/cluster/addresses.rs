//! Who has which address: one plan for all clusters of the lab, which never meet.

use std::net::{Ipv4Addr, Ipv6Addr};

/// One address of each family.
pub type Pair = (Ipv4Addr, Ipv6Addr);

/// The addresses of Pods, both families.
pub const PODS: [&str; 2] = ["10.244.0.0/16", "fd00:244::/48"];
/// The router on the nodes' segment.
pub const ROUTER: Pair = lan(1);
/// The API server, as the nodes see it.
pub const CONTROL: Pair = lan(2);
/// The client on the nodes' segment.
pub const LAN_CLIENT: Pair = lan(100);
/// The router on the segment behind it.
pub const FAR_ROUTER: Pair = far(1);
/// The client behind the router.
pub const FAR_CLIENT: Pair = far(100);

/// The addresses of the node with this number, counted from 1: 192.168.7.11 and fd00:7::11 and so on.
#[must_use]
pub const fn node(number: u8) -> Pair {
    lan(10 + number)
}

/// The addresses of somebody else on the nodes' segment; from 101 they are free.
#[must_use]
pub const fn guest(host: u8) -> Pair {
    lan(host)
}

/// The addresses of a Pod of a node: 10.244.1.2 and fd00:244:0:1::2 and so on. Host 1 is the node itself.
#[must_use]
pub const fn pod(node: u8, host: u8) -> Pair {
    (Ipv4Addr::new(10, 244, node, host), Ipv6Addr::new(0xfd00, 0x244, 0, node as u16, 0, 0, 0, host as u16))
}

/// The networks of a node's Pods.
#[must_use]
pub fn pod_networks(node: u8) -> (String, String) {
    let (v4, v6) = pod(node, 0);
    (format!("{v4}/24"), format!("{v6}/64"))
}

/// Addresses with the length of their segment, as `ip` takes them.
#[must_use]
pub fn with_lengths((v4, v6): Pair) -> [String; 2] {
    [format!("{v4}/24"), format!("{v6}/64")]
}

const fn lan(host: u8) -> Pair {
    (Ipv4Addr::new(192, 168, 7, host), Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, as_written(host)))
}

const fn far(host: u8) -> Pair {
    (Ipv4Addr::new(192, 168, 8, host), Ipv6Addr::new(0xfd00, 8, 0, 0, 0, 0, 0, as_written(host)))
}

/// 11 becomes 0x11, so that both families read alike.
const fn as_written(host: u8) -> u16 {
    let host = host as u16;
    host / 100 * 256 + host / 10 % 10 * 16 + host % 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_read_alike() {
        let (v4, v6) = node(1);
        assert_eq!((v4.to_string(), v6.to_string()), ("192.168.7.11".to_owned(), "fd00:7::11".to_owned()));
        assert_eq!(FAR_CLIENT.1.to_string(), "fd00:8::100");
    }
}
