//! Who is where: the addresses of everything in the demo.

use std::net::IpAddr;

/// The AS of the nodes.
pub const NODE_AS: u32 = 65000;
/// The AS of the router.
pub const ROUTER_AS: u32 = 65001;
/// The router on the nodes' segment.
pub const ROUTER: [&str; 2] = ["192.168.7.1/24", "fd00:7::1/64"];
/// The API server on the nodes' segment.
pub const CONTROL: [&str; 2] = ["192.168.7.2/24", "fd00:7::2/64"];
/// Where the daemons find the API server.
pub const DOOR: ([u8; 4], u16) = ([192, 168, 7, 2], 6443);
/// A client on the nodes' segment.
pub const DESK: [&str; 2] = ["192.168.7.9/24", "fd00:7::9/64"];
/// The router on the other side.
pub const ROUTER_OUTSIDE: [&str; 2] = ["10.9.0.1/24", "fd00:9::1/64"];
/// A client behind the router.
pub const CLIENT: [&str; 2] = ["10.9.0.2/24", "fd00:9::2/64"];

/// Which of the addresses for pods of a node is the node's own.
pub const GATEWAY: u8 = 1;

/// A node, and where it is.
#[derive(Clone, Debug)]
pub struct Place {
    /// From 1.
    pub number: u8,
    /// Its name in the cluster.
    pub name: String,
    /// Its IPv4 address on the segment.
    pub v4: IpAddr,
    /// Its IPv6 address on the segment.
    pub v6: IpAddr,
}

impl Place {
    /// `node1` has the addresses .11 and ::11, and so on.
    pub fn of(number: u8) -> Self {
        let v4 = IpAddr::from([192, 168, 7, 10 + number]);
        let v6 = IpAddr::from([0xfd00, 7, 0, 0, 0, 0, 0, 0x10 + u16::from(number)]);
        Self { number, name: format!("node{number}"), v4, v6 }
    }

    /// The subnets of its pods.
    pub fn pod_subnets(&self) -> [String; 2] {
        [format!("10.1.{}.0/24", self.number), format!("fd98:0:0:{}::/64", self.number)]
    }

    /// What its pods take for their router.
    pub fn pod_gateways(&self) -> [IpAddr; 2] {
        self.pod_addresses(GATEWAY)
    }

    /// The addresses of one of its pods.
    pub fn pod_addresses(&self, pod: u8) -> [IpAddr; 2] {
        let v6 = [0xfd98, 0, 0, u16::from(self.number), 0, 0, 0, u16::from(pod)];
        [IpAddr::from([10, 1, self.number, pod]), IpAddr::from(v6)]
    }

    /// The Ethernet address of one of its pods, or of the bridge that they take for their router.
    pub fn pod_ethernet(&self, pod: u8) -> String {
        format!("02:00:0a:01:{:02x}:{pod:02x}", self.number)
    }

    /// Whether a request with this source came in through the node: it was given one of the node's own addresses.
    pub fn let_in(&self, source: IpAddr) -> bool {
        [self.v4, self.v6].contains(&source) || self.pod_gateways().contains(&source)
    }
}
