//! What an agent wants to know of the data path on its node, kube-proxy's rules above all, and what it learns.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::pool::Port;

/// How kube-proxy brings traffic to endpoints, as far as it makes a difference for asking.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::EnumString,
    serde::Serialize,
    serde::Deserialize,
)]
#[strum(serialize_all = "lowercase")]
pub enum Mode {
    /// A table of its own, with a map that has one element for each address and port.
    Nftables,
    /// Rules among those of others, and a health port that says when they were last written.
    Iptables,
    /// Virtual servers of the kernel.
    Ipvs,
}

/// Whether this node has a kube-proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Seen {
    /// None has been seen since the node booted.
    #[default]
    None,
    /// One is there, or has left its rules.
    Proxy(Mode),
}

/// One question: does this node bring traffic for one address of one Service to its endpoints?
///
/// Services that share an address have a question each: what one of them waits for says nothing about the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Question {
    /// The address.
    pub addr: IpAddr,
    /// The ports clients connect to.
    pub ports: Vec<Port>,
    /// Whether traffic from outside that comes in here has somewhere to go: an endpoint anywhere, or, with
    /// externalTrafficPolicy Local, one on this node. Where it has not, kube-proxy has rules that reject or drop it, and
    /// those are asked for.
    pub endpoints: bool,
    /// `spec.healthCheckNodePort`, where a *ready* endpoint of it is on this node: kube-proxy answers 200 only then, and
    /// not for one that is about to end.
    pub health_check_node_port: Option<u16>,
}

/// Everything an agent wants to know at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Questions {
    /// The questions.
    pub all: BTreeSet<Question>,
    /// This node's own addresses: kube-proxy may listen on some of them only.
    pub node: BTreeSet<IpAddr>,
}

/// What the data path says to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Answer {
    /// Its rules are in place.
    Ready,
    /// They are not yet.
    NotYet,
    /// Nobody can say: there is no kube-proxy, or it cannot be asked.
    Unknown,
}
