//! The BGP half of the desk: which configuration counts, what it means for this node, and what the speaker is to do.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use purelb_core::bgp::status::{NodeReport, SessionState};
use purelb_core::bgp::{
    self, Candidate, Configuration, NodeBgp, NodeFacts, RouterIdSource, awaits_addresses, for_node, wanted_secrets,
};
use purelb_core::moment::Moment;
use purelb_core::want::State;
use tracing::info;

use crate::agent::bgp::secrets::Wanted;
use crate::agent::bgp::wish::{Identity, wish};
use crate::agent::bgp::{ConfigurationNews, PeerNews, SecretNews, Speak, SpeakerNews};
use crate::cluster::known::Known;
use crate::cluster::scope::Key;
use crate::cluster::watch::Change;
use pace::Pace;
use tell::Told;
use waiting::Waiting;

mod pace;
mod report;
mod tell;
mod waiting;

/// What BGP needs to know, and what follows from it.
pub(super) struct Bgp {
    me: String,
    install_namespace: String,
    objects: Known<Key, ConfigurationNews>,
    node: Option<NodeFacts>,
    secrets: SecretNews,
    /// A predecessor has left addresses, so that routers may still have their routes.
    pub restarting: bool,
    /// The object that counts, in its last usable form.
    in_force: Option<InForce>,
    /// How often what counts has changed.
    revision: u64,
    /// What the speaker was last asked.
    asked: Option<Asked>,
    speaker: SpeakerNews,
    told: Told,
    waiting: Waiting,
    pace: Pace,
    last_report: Option<NodeReport>,
    /// Something may have changed since the metrics were brought up to date, and when that was.
    uncounted: bool,
    counted: Option<Moment>,
    /// The router ID that was last counted, or that there was none.
    counted_router_id: Option<Option<Ipv4Addr>>,
}

/// A configuration that counts.
#[derive(PartialEq)]
struct InForce {
    object: ConfigurationNews,
    configuration: Configuration,
    /// Whether that is a form without a mistake.
    sound: bool,
    /// What it means for this node; `None` until everything it needs was looked up.
    meaning: Option<NodeBgp>,
}

/// What distinguishes one wish from the next.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Asked {
    routes: u64,
    revision: u64,
    complete: bool,
}

impl Bgp {
    /// Nothing is known yet.
    pub fn new(me: &str, install_namespace: &str) -> Self {
        Self {
            me: me.to_owned(),
            install_namespace: install_namespace.to_owned(),
            objects: Known::default(),
            node: None,
            secrets: SecretNews::default(),
            restarting: false,
            in_force: None,
            revision: 0,
            asked: None,
            speaker: SpeakerNews::default(),
            told: Told::default(),
            waiting: Waiting::default(),
            pace: Pace::default(),
            last_report: None,
            uncounted: false,
            counted: None,
            counted_router_id: None,
        }
    }

    /// Takes a change of a BGPConfiguration in; whether it matters.
    pub fn take(&mut self, change: Change<Box<ConfigurationNews>>) -> bool {
        if let Change::Here(news) = &change
            && self.objects.at(&news.key) == Some(&**news)
        {
            // Only its status is different.
            self.objects.confirm(&news.key);
            return false;
        }
        let completes = matches!(change, Change::Complete);
        let noted = self.objects.take(change.map(|news| (news.key.clone(), *news)));
        self.objects.is_complete() && (completes || !noted.is_empty())
    }

    /// What this node's Node says; whether it is new.
    pub fn set_node(&mut self, node: Option<&NodeFacts>) -> bool {
        let news = self.node.as_ref() != node;
        self.node = node.cloned();
        news
    }

    /// What was found in Secrets.
    pub fn set_secrets(&mut self, secrets: SecretNews) {
        self.secrets = secrets;
    }

    /// Finds out anew what counts and what it means for this node. Before all objects are known, nothing does.
    pub fn configure(&mut self) {
        if !self.objects.is_complete() {
            return;
        }
        let mut in_force = self.chosen();
        if let Some(in_force) = &mut in_force {
            let last = || self.last_meaning(&in_force.object.key);
            in_force.meaning = self.meaning(&in_force.configuration).or_else(last);
        }
        if in_force == self.in_force {
            return;
        }
        self.in_force = in_force;
        self.revision += 1;
        self.changed();
        let object = self.in_force.as_ref().map(|in_force| in_force.object.key.1.as_str());
        info!(object, sessions = self.sessions().len(), "what bgp does on this node has changed");
    }

    /// The object that counts. While it has a mistake it keeps the form without one that was last in force here, which may
    /// be younger than the one in its status, or the only one there is.
    fn chosen(&self) -> Option<InForce> {
        let objects: Vec<_> = self.objects.values().collect();
        let candidates: Vec<_> = objects.iter().map(|news| candidate(news)).collect();
        let object = objects[bgp::choose(&candidates, &self.install_namespace).chosen?];
        let same = |before: &&InForce| (&before.object.key, &before.object.uid) == (&object.key, &object.uid);
        let before = self.in_force.as_ref().filter(same).filter(|_| object.mistake.is_some());
        let (configuration, sound) = match (before, &object.configuration) {
            (Some(before), now) if before.sound || now.is_none() => (before.configuration.clone(), before.sound),
            (_, now) => (now.clone()?, object.is_sound()),
        };
        Some(InForce { object: object.clone(), configuration, sound, meaning: None })
    }

    /// What a configuration means for this node, once the Node and the Secrets are known.
    fn meaning(&self, configuration: &Configuration) -> Option<NodeBgp> {
        let SecretNews { asked, unread, found } = &self.secrets;
        let looked = |name: &&str| asked.contains(*name) || unread.contains(*name);
        let looked = wanted_secrets(configuration).iter().all(looked);
        let node = self.node.as_ref().filter(|node| looked && !awaits_addresses(configuration, node))?;
        Some(for_node(configuration, node, found, unread))
    }

    fn last_meaning(&self, key: &Key) -> Option<NodeBgp> {
        self.in_force.as_ref().filter(|before| before.object.key == *key)?.meaning.clone()
    }

    fn sessions(&self) -> &[bgp::Session] {
        let meaning = self.in_force.as_ref().and_then(|in_force| in_force.meaning.as_ref());
        meaning.filter(|meaning| meaning.router_id.is_ok()).map_or(&[], |meaning| &meaning.sessions)
    }

    fn router_id(&self) -> Option<(Ipv4Addr, RouterIdSource)> {
        self.in_force.as_ref()?.meaning.as_ref()?.router_id.as_ref().ok().copied()
    }

    /// The routers that this node talks to.
    pub fn peers(&self) -> impl Iterator<Item = IpAddr> {
        self.sessions().iter().map(|session| session.neighbor.address)
    }

    /// The interfaces whose addresses are told.
    pub fn imported(&self) -> Vec<String> {
        let import = self.in_force.as_ref().map(|in_force| &in_force.configuration.import);
        let told = import.filter(|import| import.enabled && !self.sessions().is_empty());
        told.map_or(Vec::new(), |import| import.interfaces.clone())
    }

    /// The Secrets that are to be read.
    pub fn secrets_wanted(&self) -> Wanted {
        let Some(in_force) = &self.in_force else { return Wanted::default() };
        let names: BTreeSet<_> = wanted_secrets(&in_force.configuration).into_iter().map(str::to_owned).collect();
        let found = names.iter().all(|name| self.secrets.found.contains_key(name));
        let up = |session: &bgp::Session| {
            session.password.is_none() || self.speaker.peers.get(&session.neighbor.address).is_some_and(is_up)
        };
        Wanted { anxious: !found || !self.sessions().iter().all(up), names }
    }

    /// What the speaker is to do, if that is anything else than before.
    ///
    /// Only a `complete` wish tells routers that they have heard everything.
    pub fn speak(&mut self, state: &State, complete: bool) -> Option<Speak> {
        let talk = self.in_force.as_ref().zip(self.router_id()).filter(|_| !self.sessions().is_empty());
        let Some((in_force, (router_id, _))) = talk else {
            return self.asked.take().map(|_| Speak::Quiet);
        };
        let asked = Asked { routes: state.routes_version(), revision: self.revision, complete };
        if self.asked == Some(asked) {
            return None;
        }
        let identity = Identity { router_id, node: &self.me, restarting: self.restarting };
        let wish = wish(&in_force.configuration, self.sessions(), &identity, state, complete);
        self.asked = Some(asked);
        Some(Speak::Wish { wish: Arc::new(wish), version: asked.routes })
    }

    /// Takes in what the speaker says of itself.
    pub fn hear(&mut self, news: SpeakerNews) {
        if news != self.speaker {
            self.speaker = news;
            self.changed();
        }
    }

    /// What the speaker last said of itself.
    pub fn speaker(&self) -> &SpeakerNews {
        &self.speaker
    }

    fn changed(&mut self) {
        self.pace.hurry();
        self.uncounted = true;
    }

    /// Something that reports are about may have changed.
    pub fn touch(&mut self) {
        if self.in_force.is_some() {
            self.changed();
        }
    }

    /// A report was written, or not.
    pub fn written(&mut self, well: bool, now: Moment) {
        self.pace.written(well, now);
    }
}

fn is_up(peer: &PeerNews) -> bool {
    peer.state == SessionState::Established
}

fn candidate(news: &ConfigurationNews) -> Candidate {
    let (namespace, name) = news.key.clone();
    Candidate { namespace, name, created: news.created, leaving: news.leaving }
}

#[cfg(test)]
mod tests;
