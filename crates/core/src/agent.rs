//! What an LBNodeAgent says once it is understood.

use std::time::Duration;

/// The configuration of the agents on the nodes that an LBNodeAgent selects.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AgentConfig {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Which interfaces take local addresses.
    pub local_interface: LocalInterface,
    /// Further interfaces for local addresses, by exact name, tried in this order.
    pub interfaces: Vec<String>,
    /// The interface for virtual addresses.
    pub virtual_interface: String,
    /// How a taken-over local address is announced; `None` where the author said nothing.
    pub garp: Option<Garp>,
    /// How addresses are put on a NIC.
    pub on_nic: AddressOptions,
    /// How addresses are put on the virtual interface.
    pub on_virtual: AddressOptions,
}

/// Which interfaces take local addresses.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LocalInterface {
    /// The interface of the default route.
    DefaultRoute,
    /// Every interface whose name the regular expression finds a match in.
    Matching(String),
}

/// Gratuitous ARP and unsolicited neighbour advertisements after taking an address over.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Garp {
    /// Whether any are sent.
    pub enabled: bool,
    /// How long to wait before the first one.
    pub initial_delay: Duration,
    /// How many are sent.
    pub count: u8,
    /// The pause between two of them.
    pub interval: Duration,
    /// Look whether the address is still ours before each one.
    pub verify_before_send: bool,
}

/// What the author wrote about addresses on one kind of interface; unset fields leave the choice to the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AddressOptions {
    /// Seconds until the kernel removes the address unless it is renewed; 0 is never.
    pub valid_lifetime: Option<u32>,
    /// Seconds until the kernel stops choosing the address as a source.
    pub preferred_lifetime: Option<u32>,
    /// Whether the kernel leaves the subnet's route away.
    pub no_prefix_route: Option<bool>,
}
