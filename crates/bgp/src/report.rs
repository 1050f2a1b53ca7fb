//! What the speaker says about itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use ipnet::IpNet;

use crate::fault::Fault;
use crate::wish::Families;

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Whether routers can connect to us.
    pub listening: Listening,
    /// Each peer of the wish.
    pub peers: BTreeMap<IpAddr, PeerReport>,
}

impl Report {
    /// Whether some peer in session has this route from us, or is just being told otherwise.
    #[must_use]
    pub fn is_told(&self, prefix: &IpNet) -> bool {
        self.peers.values().any(|peer| peer.told.contains(prefix))
    }
}

/// Whether routers can connect to us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Listening {
    /// Not asked to.
    #[default]
    Off,
    /// On all addresses asked for.
    On,
    /// Not on all of them; sessions that we dial are not affected. A sentence says why.
    Failed(String),
}

/// The states of RFC 4271 §8.2.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Not trying: switched off, or pausing after an error.
    #[default]
    Idle,
    /// Dialling.
    Connect,
    /// Waiting to dial again, or to be dialled.
    Active,
    /// Connected; the peer has not said who it is.
    OpenSent,
    /// The peer has said who it is and not yet that it agrees.
    OpenConfirm,
    /// In session.
    Established,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerReport {
    /// The number of the wish that the peer's task acts on. What earlier ones asked for and this one does not is in `told`
    /// for as long as the peer may have it.
    pub wish: u64,
    /// Where the session stands.
    pub state: State,
    /// Since when it is in this state, by the wall clock.
    pub since: Option<SystemTime>,
    /// Why it last fell, and why it is not up. Kept while a new attempt runs; gone once in session.
    pub fault: Option<Fault>,
    /// What does not work although the session is up: families without a next hop, for example.
    pub limits: Vec<Fault>,
    /// What both sides speak, while in session.
    pub families: Families,
    /// How long the peer keeps our routes when we leave without a word, in seconds; 0 is not at all.
    pub restart_time: u16,
    /// What the peer was told and not told otherwise. Empty when not in session.
    pub told: Arc<BTreeSet<IpNet>>,
    /// Whether nothing is left to say.
    pub converged: bool,
    /// Numbers since the peer was configured.
    pub counts: Counts,
}

/// Numbers about one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often it came into session.
    pub ups: u64,
    /// How often it fell out of session.
    pub flaps: u64,
    /// UPDATE messages sent.
    pub updates_sent: u64,
    /// UPDATE messages heard.
    pub updates_heard: u64,
    /// Routes announced to us in this session.
    pub routes_heard: u64,
    /// Routes withdrawn in this session.
    pub routes_withdrawn: u64,
    /// UPDATE messages that made no sense (RFC 7606).
    pub malformed: u64,
    /// Notifications sent.
    pub notifications_sent: u64,
    /// Notifications heard.
    pub notifications_heard: u64,
    /// The last notification with its code and subcode. Kept when the next session comes up.
    pub last_notification: Option<(Direction, u8, u8)>,
}

/// Who told whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// We told the peer.
    Sent,
    /// The peer told us.
    Heard,
}
