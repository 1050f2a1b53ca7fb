//! The network of a node's Pods: an address of each family, and a wire of their own to the node.
//!
//! There is no bridge: a Pod that reaches its neighbour by a Service must come through the node both ways, or the node
//! cannot translate the answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Mutex;

use anyhow::{Context, Result};

use super::Seat;
use crate::cluster::addresses;
use crate::net::Namespace;

/// The hosts of a node's network that are Pods; the first is the node.
const FIRST: u8 = 2;
const LAST: u8 = 250;

/// The wires of one node.
pub(super) struct Wiring {
    node: Namespace,
    number: u8,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    hosts: BTreeSet<u8>,
    last: u8,
}

/// The network of one Pod. The wire is cut by [`Wiring::release`].
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) namespace: Namespace,
    pub(super) addresses: [IpAddr; 2],
    host: u8,
}

impl Wiring {
    pub(super) fn new(seat: &Seat) -> Self {
        Self { node: seat.namespace.clone(), number: seat.number, taken: Mutex::default() }
    }

    /// Makes a namespace for a Pod and connects it.
    pub(super) fn connect(&self, name: &str) -> Result<Wire> {
        let host = self.take()?;
        let (v4, v6) = addresses::pod(self.number, host);
        let (gateway, _) = addresses::pod(self.number, 1);
        let namespace = Namespace::new(name)?;
        namespace.sysctl("net.ipv6.conf.default.accept_dad", "0")?;
        self.node.batch(&format!(
            "link add pod{host} type veth peer name eth0 netns {}\n\
             addr add {gateway}/32 dev pod{host}\n\
             addr add fe80::1/64 dev pod{host} nodad\n\
             link set pod{host} up\n\
             route add {v4}/32 dev pod{host}\n\
             route add {v6}/128 dev pod{host}\n",
            namespace.path()
        ))?;
        namespace.batch(&format!(
            "addr add {v4}/32 dev eth0\n\
             addr add {v6}/128 dev eth0 nodad\n\
             link set eth0 up\n\
             route add {gateway} dev eth0 scope link\n\
             route add default via {gateway} dev eth0\n\
             route add ::/0 via fe80::1 dev eth0\n"
        ))?;
        Ok(Wire { namespace, addresses: [v4.into(), v6.into()], host })
    }

    /// Cuts a Pod's wire and gives its addresses back.
    pub(super) fn release(&self, wire: &Wire) -> Result<()> {
        let cut = self.node.batch(&format!("link del pod{}\n", wire.host));
        self.taken.lock().expect("nobody panics while holding it").hosts.remove(&wire.host);
        cut
    }

    fn take(&self) -> Result<u8> {
        let host = self.taken.lock().expect("nobody panics while holding it").next();
        host.context("the node has no address left for a Pod")
    }
}

impl Taken {
    /// The next free address after the last one given: an address does not come back at once in another Pod.
    fn next(&mut self) -> Option<u8> {
        let later = self.last.max(FIRST - 1).saturating_add(1)..=LAST;
        let host = later.chain(FIRST..=LAST).find(|host| !self.hosts.contains(host))?;
        self.last = host;
        self.hosts.insert(host);
        Some(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_last() {
        let mut taken = Taken::default();
        assert_eq!((taken.next(), taken.next()), (Some(FIRST), Some(FIRST + 1)));
        taken.hosts.remove(&FIRST);
        assert_eq!(taken.next(), Some(FIRST + 2));
        taken.last = LAST;
        assert_eq!(taken.next(), Some(FIRST));
    }

    #[test]
    fn a_full_node_has_none() {
        let mut taken = Taken::default();
        assert_eq!(std::iter::from_fn(|| taken.next()).count(), usize::from(LAST - FIRST) + 1);
    }
}
