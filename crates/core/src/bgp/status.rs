//! What a node reports about its sessions, before it is written as a BGPNodeStatus.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::RouterIdSource;
use crate::reason::Problem;

/// Everything a node has to say. Lists are whole; the writer shortens what would make the object too large.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// The node.
    pub node: String,
    /// Its identifier and where it was found; `None` while there is none.
    pub router_id: Option<(Ipv4Addr, RouterIdSource)>,
    /// Our AS; `None` while there is no configuration.
    pub asn: Option<u32>,
    /// How often a report is written that has nothing new to say.
    pub heartbeat: Duration,
    /// Every neighbor that is for this node, with or without a session.
    pub neighbors: Vec<NeighborReport>,
    /// Where routes come from.
    pub import: ImportReport,
    /// What is advertised.
    pub routes: Vec<LocalRoute>,
    /// How many routes the neighbors have told us. They are counted and dropped.
    pub received: u64,
    /// What keeps this node from doing as it is told, by field.
    pub problems: Vec<Problem>,
    /// The agent is about to end.
    pub leaving: bool,
}

/// One neighbor, as its session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighborReport {
    /// Its address.
    pub address: IpAddr,
    /// Its AS.
    pub peer_as: u32,
    /// Our AS towards it.
    pub local_as: u32,
    /// How far the session is.
    pub state: SessionState,
    /// Since when the session is up, in seconds since 1970; only when it is.
    pub up_since: Option<i64>,
    /// How many prefixes it was told.
    pub prefixes_sent: u64,
    /// How many prefixes it has told us.
    pub prefixes_received: u64,
    /// What its author says of it.
    pub description: String,
    /// Why the session is down, in one sentence; empty if it is up, or was never tried.
    pub last_error: String,
    /// Its author keeps it down, so that it is not missed.
    pub admin_down: bool,
}

impl NeighborReport {
    /// Whether the session is as it should be: up, or kept down.
    pub fn is_well(&self) -> bool {
        self.admin_down || self.state == SessionState::Established
    }
}

/// How far a session is, in the words of RFC 4271.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
pub enum SessionState {
    /// Not tried.
    Idle,
    /// A connection is being made.
    Connect,
    /// Waiting for the next attempt, or for the neighbor's.
    Active,
    /// Our first word is said.
    OpenSent,
    /// The neighbor has answered.
    OpenConfirm,
    /// Up.
    Established,
    /// Nobody knows.
    Unknown,
}

impl SessionState {
    /// The word for it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Where routes come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Whether any interface is looked at.
    pub enabled: bool,
    /// The interfaces that are looked at: those that the configuration names, and those that its globs stand for.
    pub interfaces: Vec<InterfaceReport>,
    /// The addresses found on them that are fit to be advertised.
    pub addresses: Vec<ImportedAddress>,
}

/// One interface that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// Whether the node has it.
    pub exists: bool,
    /// Whether it is up.
    pub up: bool,
}

/// One address that is advertised, or should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedAddress {
    /// The address as the interface has it, with its prefix length.
    pub address: IpNet,
    /// The interface.
    pub interface: String,
    /// Whether the network it is in is among the routes.
    pub advertised: bool,
}

/// One prefix that is advertised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRoute {
    /// The prefix.
    pub prefix: IpNet,
    /// The neighbors that were told.
    pub advertised_to: BTreeSet<IpAddr>,
    /// The communities it was sent with to some neighbor, as `65000:100` or `65000:1:2`.
    pub communities: BTreeSet<String>,
}

impl NodeReport {
    /// Whether all is as it should be: every session that should be up is, every address is advertised, and nothing is
    /// wrong.
    pub fn is_healthy(&self) -> bool {
        !self.leaving
            && self.problems.is_empty()
            && self.neighbors.iter().all(NeighborReport::is_well)
            && self.import.addresses.iter().all(|address| address.advertised)
    }

    /// How many sessions are up.
    pub fn established(&self) -> usize {
        self.neighbors.iter().filter(|neighbor| neighbor.state == SessionState::Established).count()
    }
}
