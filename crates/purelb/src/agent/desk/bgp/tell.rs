//! What the author of a BGPConfiguration is told, once each: the router ID, what is wrong here, and sessions that fall or come up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use purelb_core::alloc::{Notice, Severity};
use purelb_core::bgp::status::SessionState;
use purelb_core::moment::Moment;
use purelb_core::reason::{Problem, Reason};
use tracing::warn;

use super::Bgp;

/// How long a session that fell must be up before that is said: a router that resets it all the time is told of once.
const STEADY: Duration = Duration::from_secs(60);
/// How many kinds of fault are told of a session before it was steady again.
const FAULTS: usize = 8;

/// What was told already.
#[derive(Default)]
pub(super) struct Told {
    /// The UID of the object it was told about.
    about: String,
    router_id: Option<String>,
    problems: BTreeSet<(String, String)>,
    /// The sessions that fell, or never came up.
    fallen: BTreeMap<IpAddr, Fallen>,
}

/// A session that was said to be down.
#[derive(Default)]
struct Fallen {
    /// The kinds of fault that were told.
    faults: BTreeSet<String>,
    /// Since when it is up, by the speaker's clock and ours.
    up: Option<(Option<i64>, Moment)>,
}

impl Fallen {
    /// Whether a session that is up, since this time by the speaker's clock, has been so for long enough to say it.
    fn is_back(&mut self, since: Option<i64>, now: Moment) -> bool {
        let begun = match self.up {
            Some((before, begun)) if before == since => begun,
            _ => now,
        };
        self.up = Some((since, begun));
        begun + STEADY <= now
    }

    /// Whether a fault is to be told.
    fn is_new(&mut self, kind: &str) -> bool {
        self.up = None;
        self.faults.len() < FAULTS && self.faults.insert(kind.to_owned())
    }
}

impl Bgp {
    /// What is new to the author of the configuration.
    pub fn notices(&mut self, now: Moment) -> Vec<(ObjectReference, Notice)> {
        let Some(about) = self.reference() else {
            self.told = Told::default();
            return Vec::new();
        };
        if Some(&self.told.about) != about.uid.as_ref() {
            self.told = Told { about: about.uid.clone().unwrap_or_default(), ..Told::default() };
        }
        let mut notices = Vec::new();
        notices.extend(self.tell_router_id());
        notices.extend(self.tell_sessions(now));
        notices.extend(self.tell_problems());
        notices.into_iter().map(|notice| (about.clone(), notice)).collect()
    }

    fn tell_router_id(&mut self) -> Option<Notice> {
        let (id, source) = self.router_id()?;
        let sentence = format!("Node {} goes by router ID {id} ({})", self.me, source.name());
        if self.told.router_id.as_ref() == Some(&sentence) {
            return None;
        }
        self.told.router_id = Some(sentence.clone());
        Some(normal("RouterIDResolved", sentence))
    }

    /// What no longer holds may be told again one day; of a session that falls again and again only when it was steady.
    fn tell_problems(&mut self) -> Vec<Notice> {
        let mark = |problem: &Problem| (problem.field.clone(), problem.reason.to_string());
        let mut problems = self.problems();
        problems.extend(self.unselected());
        let fallen = self.sessions().iter().filter(|session| self.told.fallen.contains_key(&session.neighbor.address));
        let fallen: BTreeSet<_> = fallen.map(|session| session.neighbor.path.as_str()).collect();
        let kept = self.told.problems.iter().filter(|(field, _)| fallen.contains(field.as_str())).cloned();
        let marks: BTreeSet<_> = problems.iter().map(mark).chain(kept).collect();
        let told = std::mem::replace(&mut self.told.problems, marks);
        let news: Vec<_> = problems.into_iter().filter(|problem| !told.contains(&mark(problem))).collect();
        for problem in &news {
            warn!(field = problem.field, reason = problem.reason.name(), "{}", problem.reason);
        }
        news.iter().map(|problem| self.warned(&problem.reason)).collect()
    }

    /// The speaker brings news every few seconds, so that the end of a wait needs no clock of its own.
    fn tell_sessions(&mut self, now: Moment) -> Vec<Notice> {
        let addresses: Vec<_> = self.peers().collect();
        self.told.fallen.retain(|address, _| addresses.contains(address));
        let mut notices = Vec::new();
        for peer in addresses {
            let Some(news) = self.speaker.peers.get(&peer) else { continue };
            if news.state == SessionState::Established {
                // What was never down needs no word.
                if self.told.fallen.get_mut(&peer).is_some_and(|fallen| fallen.is_back(news.since, now)) {
                    self.told.fallen.remove(&peer);
                    notices.push(normal("BgpSessionUp", format!("Node {}: the session with {peer} is up", self.me)));
                }
            } else if let Some(fault) = &news.fault
                && self.told.fallen.entry(peer).or_default().is_new(&news.kind)
            {
                let reason = Reason::BgpSessionDown { peer, why: fault.clone() };
                notices.push(self.warned(&reason));
            }
        }
        notices
    }

    fn warned(&self, reason: &Reason) -> Notice {
        let message = format!("Node {}: {reason}", self.me);
        let name = match reason {
            // The counterpart of RouterIDResolved has always had this name.
            Reason::RouterIdUnresolved { .. } | Reason::NodeWithoutAddresses { .. } => "RouterIDResolutionFailed",
            reason => reason.name(),
        };
        Notice { severity: Severity::Warning, reason: name, message }
    }

    /// The object that counts.
    fn reference(&self) -> Option<ObjectReference> {
        let object = &self.in_force.as_ref()?.object;
        Some(ObjectReference {
            api_version: Some("bgp.purelb.io/v1".to_owned()),
            kind: Some("BGPConfiguration".to_owned()),
            namespace: Some(object.key.0.clone()),
            name: Some(object.key.1.clone()),
            uid: Some(object.uid.clone()),
            ..ObjectReference::default()
        })
    }
}

fn normal(reason: &'static str, message: String) -> Notice {
    Notice { severity: Severity::Normal, reason, message }
}
