//! What the author of a BGPConfiguration is told, once each: the router ID, what is wrong here, and sessions that fall or come up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::ObjectReference;
use purelb_core::alloc::{Notice, Severity};
use purelb_core::bgp::status::SessionState;
use purelb_core::reason::{Problem, Reason};
use tracing::warn;

use super::Bgp;

/// What was told already.
#[derive(Default)]
pub(super) struct Told {
    /// The UID of the object it was told about.
    about: String,
    router_id: Option<String>,
    problems: BTreeSet<(String, String)>,
    /// The sentences about each session since it was last up.
    faults: BTreeMap<IpAddr, BTreeSet<String>>,
}

impl Bgp {
    /// What is new to the author of the configuration.
    pub fn notices(&mut self) -> Vec<(ObjectReference, Notice)> {
        let Some(about) = self.reference() else {
            self.told = Told::default();
            return Vec::new();
        };
        if Some(&self.told.about) != about.uid.as_ref() {
            self.told = Told { about: about.uid.clone().unwrap_or_default(), ..Told::default() };
        }
        let mut notices = Vec::new();
        notices.extend(self.tell_router_id());
        notices.extend(self.tell_problems());
        notices.extend(self.tell_sessions());
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

    /// What no longer holds may be told again one day.
    fn tell_problems(&mut self) -> Vec<Notice> {
        let mark = |problem: &Problem| (problem.field.clone(), problem.reason.to_string());
        let mut problems = self.problems();
        problems.extend(self.unselected());
        let marks: BTreeSet<_> = problems.iter().map(mark).collect();
        let told = std::mem::replace(&mut self.told.problems, marks);
        let news: Vec<_> = problems.into_iter().filter(|problem| !told.contains(&mark(problem))).collect();
        for problem in &news {
            warn!(field = problem.field, reason = problem.reason.name(), "{}", problem.reason);
        }
        news.iter().map(|problem| self.warned(&problem.reason)).collect()
    }

    fn tell_sessions(&mut self) -> Vec<Notice> {
        let addresses: Vec<_> = self.peers().collect();
        self.told.faults.retain(|address, _| addresses.contains(address));
        let mut notices = Vec::new();
        for peer in addresses {
            let Some(news) = self.speaker.peers.get(&peer) else { continue };
            if news.state == SessionState::Established {
                // What was never down needs no word.
                let back = self.told.faults.remove(&peer).is_some();
                notices.extend(
                    back.then(|| normal("BgpSessionUp", format!("Node {}: the session with {peer} is up", self.me))),
                );
            } else if let Some(fault) = &news.fault
                && self.told.faults.entry(peer).or_default().insert(fault.clone())
            {
                let reason = Reason::BgpSessionDown { peer, why: fault.clone() };
                notices.push(self.warned(&reason));
            }
        }
        notices
    }

    fn warned(&self, reason: &Reason) -> Notice {
        let message = format!("Node {}: {reason}", self.me);
        Notice { severity: Severity::Warning, reason: reason.name(), message }
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
