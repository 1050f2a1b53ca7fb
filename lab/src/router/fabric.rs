//! Three nodes with agents, routers on their segment, and a client behind each router: how virtual addresses reach the
//! world.
//!
//! ```text
//!  client ── router (251) ──┐           ┌── node-a (11)  agent, kube-lb0
//!  client ── router (252) ──┼── segment ┼── node-b (12)
//!  client ── router (253) ──┘           └── node-c (13)      control (2): the door to the API server
//! ```

mod cluster;
mod gate;
mod node;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result};

use super::Make;
use crate::daemon::Account;
use crate::net::{Lan, Namespace, relay};
use crate::{ControlPlane, Daemon};

pub use cluster::{HOME, prepared};
pub use gate::Gate;
pub use node::Node;

/// The names of the nodes; the first has the number 11.
pub const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];
/// The AS of the nodes.
pub const NODE_AS: u32 = 64512;
/// The AS of the routers.
pub const ROUTER_AS: u32 = 64513;

/// Where the nodes find the API server: on their segment.
const DOOR: &str = "192.168.7.2:6443";

/// The IPv4 address of whoever has this number on the segment.
#[must_use]
pub fn v4(number: u8) -> IpAddr {
    Ipv4Addr::new(192, 168, 7, number).into()
}

/// The IPv6 address of whoever has this number on the segment, written with the same digits.
#[must_use]
pub fn v6(number: u8) -> IpAddr {
    let digits = u16::from_str_radix(&number.to_string(), 16).expect("decimal digits are hexadecimal ones");
    Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, digits).into()
}

/// The segment and everybody on it.
pub struct Fabric {
    /// The nodes, by name.
    pub nodes: Vec<Node>,
    /// The routers, with the numbers 251 and so on.
    pub gates: Vec<Gate>,
    /// The agents' rights, at the nodes' door to the API server.
    pub account: Account,
    /// The wire.
    pub lan: Lan,
    _control: Namespace,
}

impl Fabric {
    /// The wires, routers of these makes, and nodes on which nothing runs yet. The cluster must be [`prepared`].
    ///
    /// # Errors
    /// When the machine does not let us, or a router is not installed.
    pub async fn new(plane: &ControlPlane, makes: &[Make]) -> Result<Self> {
        let lan = Lan::new()?;
        let control = Namespace::new("control")?;
        lan.plug(&control, "eth0", &["192.168.7.2/24", "fd00:7::2/64"])?;
        let account = Account::of(plane, HOME, "lbnodeagent").await?;
        relay::open(&control, DOOR.parse()?, account.server())?;
        let account = account.at(DOOR.parse::<SocketAddr>()?);
        let nodes = NODES.into_iter().zip(11..).map(|(name, number)| Node::new(&lan, name, number));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let gates = makes.iter().zip(251..).map(|(make, number)| Gate::new(&lan, *make, number));
        let gates = gates.collect::<Result<Vec<_>>>()?;
        for gate in &gates {
            nodes.iter().try_for_each(|node| gate.know(node))?;
        }
        Ok(Self { nodes, gates, account, lan, _control: control })
    }

    /// Starts the agents that do not run.
    ///
    /// # Errors
    /// When the program does not build.
    pub fn start_agents(&mut self) -> Result<()> {
        let idle = self.nodes.iter_mut().filter(|node| node.agent.as_ref().is_none_or(Daemon::has_ended));
        idle.into_iter().try_for_each(|node| node.start(&self.account))
    }

    /// The node with this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn node(&mut self, name: &str) -> Result<&mut Node> {
        let found = self.nodes.iter_mut().find(|node| node.name() == name);
        found.with_context(|| format!("there is no node {name}"))
    }

    /// The ends of all agents' logs.
    #[must_use]
    pub fn logs(&self) -> String {
        self.nodes.iter().map(Node::log).collect()
    }
}
