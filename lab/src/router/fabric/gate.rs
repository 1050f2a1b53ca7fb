//! A router on the nodes' segment, and the client behind it.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};

use super::{NODE_AS, NODES, Node, ROUTER_AS, v4, v6};
use crate::net::{Lan, Namespace, Plug};
use crate::router::{Make, Neighbour, Router, Settings};

/// Removes what routers put into their kernel, in the words of `ip`.
const FORGET: [&str; 5] = [
    "-4 route flush proto bird",
    "-6 route flush proto bird",
    "-4 route flush proto bgp",
    "-6 route flush proto bgp",
    "nexthop flush",
];

/// A router on the nodes' segment, and the client behind it.
pub struct Gate {
    /// Whose program it is.
    pub make: Make,
    /// What the router is told at its next start. It begins with each node once in each family, without passwords.
    pub settings: Settings,
    /// The router's network.
    pub namespace: Namespace,
    /// The end of its wire on the segment.
    pub plug: Plug,
    /// A machine behind the router.
    pub client: Namespace,
    router: Option<Router>,
    number: u8,
    _behind: Lan,
}

impl Gate {
    pub(super) fn new(lan: &Lan, make: Make, number: u8) -> Result<Self> {
        let namespace = Namespace::new(&format!("router-{make:?}"))?;
        let plug = lan.plug(&namespace, "eth0", &[&format!("{}/24", v4(number)), &format!("{}/64", v6(number))])?;
        let (behind, client) = (Lan::new()?, Namespace::new(&format!("client-{make:?}"))?);
        behind.plug(&namespace, "eth1", &[&format!("10.{number}.0.1/24"), &format!("fd00:{number}::1/64")])?;
        behind.plug(&client, "eth0", &[&format!("10.{number}.0.2/24"), &format!("fd00:{number}::2/64")])?;
        client.batch(&format!("route add default via 10.{number}.0.1\nroute add ::/0 via fd00:{number}::1\n"))?;
        for (key, value) in [
            ("net.ipv4.ip_forward", "1"),
            ("net.ipv6.conf.all.forwarding", "1"),
            // Connections are spread by their ports too, not by their addresses alone.
            ("net.ipv4.fib_multipath_hash_policy", "1"),
            ("net.ipv6.fib_multipath_hash_policy", "1"),
        ] {
            namespace.sysctl(key, value)?;
        }
        let settings = settings(number);
        let router = Some(Router::start(make, &namespace, &settings)?);
        Ok(Self { make, settings, namespace, plug, client, router, number, _behind: behind })
    }

    /// Tells a node the way back to the client.
    pub(super) fn know(&self, node: &Node) -> Result<()> {
        let number = self.number;
        node.namespace.batch(&format!(
            "route add 10.{number}.0.0/24 via {}\nroute add fd00:{number}::/64 via {}\n",
            v4(number),
            v6(number)
        ))
    }

    /// The router's address on the segment, in the family of this prefix or address.
    #[must_use]
    pub fn address(&self, like: &str) -> IpAddr {
        if like.contains(':') { v6(self.number) } else { v4(self.number) }
    }

    /// The router, which must run.
    ///
    /// # Errors
    /// When it was stopped.
    pub fn router(&self) -> Result<&Router> {
        self.router.as_ref().context("the router does not run")
    }

    /// The router's machine loses power, and its kernel forgets all routes with it.
    pub fn kill(&mut self) {
        self.router = None;
        for line in FORGET {
            // That there is nothing to flush is no matter.
            let _ = self.namespace.command("ip").args(line.split(' ')).output();
        }
    }

    /// Starts the router again with what `settings` says now.
    ///
    /// # Errors
    /// When it refuses its settings.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        self.router = Some(Router::start(self.make, &self.namespace, &self.settings)?);
        Ok(())
    }

    /// Starts the router again with a configuration in its own language; `restart` goes back to `settings`.
    ///
    /// # Errors
    /// When it refuses the configuration.
    pub fn restart_with(&mut self, config: &str) -> Result<()> {
        self.kill();
        self.router = Some(Router::start_with(self.make, &self.namespace, config)?);
        Ok(())
    }

    /// Restarts the router with other settings for all its neighbours.
    ///
    /// # Errors
    /// When it refuses them.
    pub fn change(&mut self, change: impl Fn(&mut Neighbour)) -> Result<()> {
        self.settings = settings(self.number);
        self.settings.neighbours.iter_mut().for_each(change);
        self.restart()
    }

    /// Waits until the router reaches a prefix through exactly these nodes.
    ///
    /// # Errors
    /// When it never does, with its log.
    pub fn has(&self, prefix: &str, nodes: &[&Node]) -> Result<()> {
        let names: Vec<&str> = nodes.iter().map(|node| node.name()).collect();
        let through = |hops: &[IpAddr]| {
            hops.len() == nodes.len() && nodes.iter().all(|node| hops.iter().any(|hop| node.is_behind(*hop)))
        };
        let router = self.router()?;
        let done = router.wait_for(&format!("{prefix} goes through {names:?}"), |router| {
            router.next_hops(prefix).is_ok_and(|hops| through(&hops))
        });
        done.with_context(|| format!("it goes through {:?}", router.next_hops(prefix)))
    }
}

fn settings(number: u8) -> Settings {
    let node = |own: u8| {
        [
            Neighbour { v6: false, ..Neighbour::new(v4(own), NODE_AS) },
            Neighbour { v4: false, ..Neighbour::new(v6(own), NODE_AS) },
        ]
    };
    let neighbours = NODES.iter().zip(11..).flat_map(|(_, own)| node(own)).collect();
    Settings { asn: ROUTER_AS, id: Ipv4Addr::new(192, 168, 7, number), neighbours }
}
