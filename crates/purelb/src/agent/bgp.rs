//! The BGP speaker in the agent: what it is told, what it says of itself, and what is said of it.
//!
//! ```text
//! BGPConfigurations, Secrets, Node, kernel ──▶ desk ──▶ Speak ──▶ voice ──▶ speaker (a thread of its own)
//!                                               ▲                    │
//!                                               └──── SpeakerNews ◀──┘
//! ```
//!
//! The desk decides; the voice owns the speaker. There is a speaker only while a configuration gives this node a session.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use purelb_bgp::Wish;
use purelb_core::bgp::status::SessionState;
use purelb_core::bgp::{Configuration, Secrets};
use serde::{Deserialize, Serialize};

use crate::cluster::scope::Key;

pub mod secrets;
pub mod status;
pub mod voice;
pub(super) mod wish;

/// A BGPConfiguration with what is needed to choose one and to tell its author something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationNews {
    /// Namespace and name.
    pub key: Key,
    /// The UID, for Events.
    pub uid: String,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// Somebody has deleted it, and only a finalizer keeps it.
    pub leaving: bool,
    /// What it says; `None` if it cannot be used at all.
    pub configuration: Option<Configuration>,
    /// The first mistake in it, if there is one, in a sentence.
    #[serde(default)]
    pub mistake: Option<String>,
    /// Where it has a mistake, `configuration` is a form that it had before and that had none.
    #[serde(default)]
    pub earlier: bool,
}

impl ConfigurationNews {
    /// Whether `configuration` is a form without a mistake.
    pub fn is_sound(&self) -> bool {
        self.configuration.is_some() && (self.mistake.is_none() || self.earlier)
    }
}

/// What was found when the Secrets that the configuration names were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretNews {
    /// Those of which it is known whether they are there.
    pub asked: BTreeSet<String>,
    /// Those that were looked for in vain: nobody knows whether they are there.
    #[serde(default)]
    pub unread: BTreeSet<String>,
    /// Those that are there.
    pub found: Secrets,
}

/// What the speaker is asked to do.
#[derive(Debug)]
pub enum Speak {
    /// Have these sessions, and tell these routes.
    Wish {
        /// The whole wish.
        wish: Arc<Wish>,
        /// The version of the routes in it.
        version: u64,
    },
    /// End: there is nobody to talk to.
    Quiet,
}

/// What the speaker says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpeakerNews {
    /// The version of the routes that every session acts on by now.
    pub acts_on: u64,
    /// Why routers cannot connect to us, if they should be able to.
    pub deaf: Option<String>,
    /// Each session.
    pub peers: BTreeMap<IpAddr, PeerNews>,
}

impl SpeakerNews {
    /// Whether some router has this route from us, or is just being told otherwise.
    pub fn is_told(&self, net: &IpNet) -> bool {
        self.peers.values().any(|peer| peer.told.contains(net))
    }

    /// Whether some session is up.
    pub fn is_anybody_listening(&self) -> bool {
        self.peers.values().any(|peer| peer.state == SessionState::Established)
    }

    /// How long routers keep our routes when we leave without a word, in seconds.
    pub fn restart_time(&self) -> u16 {
        self.peers.values().map(|peer| peer.restart_time).max().unwrap_or(0)
    }
}

/// What the speaker says of one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerNews {
    /// How far it is.
    pub state: SessionState,
    /// Since when, in seconds since 1970.
    pub since: Option<i64>,
    /// Why it is not up, in a sentence.
    pub fault: Option<String>,
    /// What kind of fault that is, in a word: sentences may quote what the peer says.
    #[serde(default)]
    pub kind: String,
    /// What does not work although it is up, in sentences.
    pub limits: Vec<String>,
    /// How long the peer keeps our routes when we leave without a word, in seconds.
    pub restart_time: u16,
    /// What the peer was told and not told otherwise.
    pub told: Arc<BTreeSet<IpNet>>,
    /// How many routes it has told us, and not taken back.
    pub heard: u64,
    /// How often the session fell.
    pub flaps: u64,
    /// The last notification, sent or heard, as `code/subcode`.
    pub notification: Option<String>,
}
