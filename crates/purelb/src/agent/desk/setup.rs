//! What ServiceGroups and LBNodeAgents mean for this node, and what their authors are told.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;
use purelb_api::LBNodeAgent;
use purelb_api::read::{self, AgentChoice, Chosen};
use purelb_core::agent::AgentConfig;
use purelb_core::alloc::Notice;
use purelb_core::bgp::NodeFacts;
use purelb_core::group::{Forms, Group, Placement, settle};
use purelb_core::reason::{Problem, Reason};
use purelb_core::want::Setup;
use tracing::{info, warn};

use super::notices;
use crate::agent::event::NodeNews;
use crate::cluster::known::Known;
use crate::cluster::scope::{Key, out_of_scope};
use crate::cluster::watch::Change;

/// What was chosen.
pub(super) struct Choice {
    /// What counts from now on; `None` leaves everything as it is, because what should count cannot be used.
    pub setup: Option<Setup>,
    /// The word of the metric.
    pub selector_state: &'static str,
    /// Whether local addresses outlive the lease of a killed agent, because the object says so.
    pub outlives_lease: bool,
    /// What the authors are told.
    pub notices: Vec<(ObjectReference, Notice)>,
}

/// The objects that configure this node.
pub(super) struct Choices {
    me: String,
    install_namespace: String,
    /// How long this node's lease is good for.
    lease: Duration,
    node: Known<String, NodeNews>,
    groups: Known<Key, Forms>,
    usable: Option<Vec<Group>>,
    agents: Known<Key, LBNodeAgent>,
    /// The object that counts.
    chosen: Option<ObjectReference>,
    /// It as it was when it could last be used; the last good form stays in force if it is edited so that it cannot.
    in_force: Option<LBNodeAgent>,
    /// Whether some configuration was good before.
    has_good: bool,
    selector_state: Option<&'static str>,
    /// What was told about which object, so that it is not told again.
    told: BTreeSet<(String, &'static str, String)>,
}

impl Choices {
    /// Nothing is known yet.
    pub fn new(me: &str, install_namespace: &str, lease: Duration) -> Self {
        Self {
            me: me.to_owned(),
            install_namespace: install_namespace.to_owned(),
            lease,
            node: Known::default(),
            groups: Known::default(),
            usable: None,
            agents: Known::default(),
            chosen: None,
            in_force: None,
            has_good: false,
            selector_state: None,
            told: BTreeSet::new(),
        }
    }

    /// Whether everything that configures this node is known.
    pub fn is_complete(&self) -> bool {
        self.node.is_complete() && self.groups.is_complete() && self.agents.is_complete()
    }

    /// Takes a change of this node's Node in; whether it matters.
    pub fn take_node(&mut self, change: Change<Box<NodeNews>>) -> bool {
        // Annotations change often, and say nothing about addresses.
        let essence = |node: &NodeNews| (node.uid.clone(), node.labels.clone(), node.addresses.clone());
        let before = self.own_node().map(essence);
        let was_complete = self.node.is_complete();
        self.node.take(change.map(|node| (node.name.clone(), *node)));
        before != self.own_node().map(essence) || was_complete != self.node.is_complete()
    }

    /// What BGP needs of this node's Node.
    pub fn facts(&self) -> Option<&NodeFacts> {
        self.own_node().map(|node| &node.facts)
    }

    /// Takes a change of an LBNodeAgent in; whether it matters.
    pub fn take_agent(&mut self, change: Change<Box<LBNodeAgent>>) -> bool {
        if let Change::Here(object) = &change
            && self.agents.at(&key(object)).is_some_and(|known| known.spec == object.spec)
        {
            // Only its status is different.
            self.agents.confirm(&key(object));
            return false;
        }
        let completes = matches!(change, Change::Complete);
        let noted = self.agents.take(change.map(|object| (key(&object), *object)));
        completes || !noted.is_empty()
    }

    /// Takes a change of a ServiceGroup in; the groups that count, if they are others now.
    pub fn take_group(&mut self, change: Change<(Key, Box<Forms>)>) -> Option<Vec<Group>> {
        let completes = matches!(change, Change::Complete);
        let noted = self.groups.take(change.map(|(key, forms)| (key.clone(), self.remembering(&key, *forms))));
        if !self.groups.is_complete() || (noted.is_empty() && !completes) {
            return None;
        }
        let usable = self.usable();
        for forms in self.groups.values_mut().filter(|forms| forms.sound) {
            if forms.written.as_ref().is_some_and(|written| usable.contains(written)) {
                forms.earlier = forms.written.clone();
            }
        }
        if self.usable.as_ref() == Some(&usable) {
            return None;
        }
        self.usable = Some(usable.clone());
        Some(usable)
    }

    /// A group whose status keeps no earlier form, because the CRD has no place for it, is remembered as it was in use.
    fn remembering(&self, key: &Key, forms: Forms) -> Forms {
        let before = || self.groups.at(key).and_then(|before| before.earlier.clone());
        Forms { earlier: forms.earlier.or_else(before), ..forms }
    }

    /// The same groups count as at the allocator, in the same form.
    fn usable(&self) -> Vec<Group> {
        let automatic = |forms: &Forms| forms.best().is_some_and(|group| group.placement == Placement::Auto);
        let outside =
            out_of_scope(self.groups.iter().map(|(key, forms)| (key, automatic(forms))), &self.install_namespace);
        let inside = self.groups.iter().filter(|(key, _)| !outside.contains(*key));
        let forms: Vec<Forms> = inside.map(|(_, forms)| forms.clone()).collect();
        settle(&forms).into_iter().filter_map(|standing| standing.group.cloned()).collect()
    }

    fn own_node(&self) -> Option<&NodeNews> {
        self.node.at(&self.me)
    }

    /// The UID of this node's Node.
    pub fn node_uid(&self) -> Option<&str> {
        self.own_node().map(|node| node.uid.as_str())
    }

    /// The addresses of this node's Node.
    pub fn node_addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.own_node().into_iter().flat_map(|node| node.addresses.iter().copied())
    }

    /// The word of the metric, once something was chosen.
    pub fn selector_state(&self) -> Option<&'static str> {
        self.selector_state
    }

    /// The LBNodeAgent that counts, for Events.
    pub fn reference(&self) -> Option<ObjectReference> {
        self.chosen.clone()
    }

    /// Chooses anew, once this node's labels and all LBNodeAgents are known.
    pub fn choose(&mut self) -> Option<Choice> {
        if !self.node.is_complete() || !self.agents.is_complete() {
            return None;
        }
        let Some(node) = self.own_node() else {
            warn!(node = self.me, "there is no Node of this name yet; the agent waits for it");
            return None;
        };
        let (objects, broken) = self.candidates();
        let AgentChoice { chosen, passed_over } = read::choose_agent(objects, &self.me, &node.labels);
        let mut saying: Vec<(ObjectReference, Notice)> =
            passed_over.iter().map(|(object, reason)| (reference(object), notices::warned(reason))).collect();
        let mut in_force = None;
        let (setup, state, object) = match chosen {
            Chosen::Nothing => (Some(Setup::None), "default", None),
            Chosen::Deselected => (Some(Setup::Deselected), "deselected", None),
            Chosen::Object(object) => match usable_config(object, broken.as_ref()) {
                Ok(config) => {
                    in_force = Some(object.clone());
                    (Some(Setup::Config(config)), "configured", Some(reference(object)))
                }
                Err(problem) => {
                    in_force.clone_from(&self.in_force);
                    let notice = notices::config_error(&self.me, &problem, self.has_good);
                    warn!(
                        object = object.name_any(),
                        field = problem.field,
                        reason = problem.reason.name(),
                        "{}",
                        problem.reason
                    );
                    saying.push((reference(object), notice));
                    (None, "invalid", Some(reference(object)))
                }
            },
        };
        let beyond = setup.as_ref().and_then(|setup| lifetime_beyond(setup, self.lease));
        if let (Some(reason), Some(object)) = (&beyond, &object) {
            saying.push((object.clone(), notices::warned(reason)));
        }
        let silent = match state {
            "default" => Some(Reason::NoNodeAgent { node: self.me.clone() }),
            "deselected" => Some(Reason::NodeDeselected { node: self.me.clone() }),
            _ => None,
        };
        saying.extend(silent.map(|reason| (node_reference(node), notices::warned(&reason))));
        self.has_good |= setup.is_some();
        (self.chosen, self.in_force) = (object, in_force);
        if self.selector_state.replace(state) != Some(state) {
            info!(event = "selectorState", op = "configChanged", state, "which LBNodeAgent counts on this node");
        }
        let outlives_lease = beyond.is_some();
        Some(Choice { setup, selector_state: state, outlives_lease, notices: self.news_only(saying) })
    }

    /// All LBNodeAgents; where nobody can tell any more for which nodes the one in force is, as it was before, and why.
    fn candidates(&self) -> (Vec<&LBNodeAgent>, Option<(Key, Reason)>) {
        let (mut objects, mut broken) = (Vec::new(), None);
        for object in self.agents.values() {
            let before = self.in_force.as_ref().filter(|before| before.metadata.uid == object.metadata.uid);
            match before.zip(read::invalid_selector(object)) {
                Some((before, reason)) => {
                    objects.push(before);
                    broken = Some((key(object), reason));
                }
                None => objects.push(object),
            }
        }
        (objects, broken)
    }

    /// What was not told before. What no longer holds may be told again one day.
    fn news_only(&mut self, saying: Vec<(ObjectReference, Notice)>) -> Vec<(ObjectReference, Notice)> {
        let mark = |(about, notice): &(ObjectReference, Notice)| {
            (about.uid.clone().unwrap_or_default(), notice.reason, notice.message.clone())
        };
        let marks: BTreeSet<_> = saying.iter().map(mark).collect();
        let told = std::mem::replace(&mut self.told, marks);
        saying.into_iter().filter(|said| !told.contains(&mark(said))).collect()
    }
}

/// Why local addresses would outlive the lease: who wrote a lifetime gets it, and hears what it means.
fn lifetime_beyond(setup: &Setup, lease: Duration) -> Option<Reason> {
    let Setup::Config(config) = setup else { return None };
    let valid = config.on_nic.valid_lifetime?;
    let beyond = valid == 0 || Duration::from_secs(valid.into()) > lease;
    let written = if valid == 0 { "0 (for ever)".to_owned() } else { format!("{valid}s") };
    beyond.then_some(Reason::LifetimeBeyondLease { written, lease })
}

/// The configuration in an object, or the first thing that is wrong with it: half of one is none.
fn usable_config(object: &LBNodeAgent, broken: Option<&(Key, Reason)>) -> Result<AgentConfig, Box<Problem>> {
    if let Some((_, reason)) = broken.filter(|(broken, _)| *broken == key(object)) {
        return Err(Box::new(Problem::new("spec.nodeSelector", reason.clone())));
    }
    let reading = read::agent(object);
    match (reading.problems.into_iter().next(), reading.value) {
        (None, Some(config)) => Ok(config),
        (Some(problem), _) => Err(Box::new(problem)),
        (None, None) => {
            Err(Box::new(Problem::new("spec.local", Reason::FieldMissing { field: "local", example: "local: {}" })))
        }
    }
}

fn key(object: &LBNodeAgent) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn node_reference(node: &NodeNews) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.clone()),
        uid: Some(node.uid.clone()),
        ..ObjectReference::default()
    }
}

fn reference(object: &LBNodeAgent) -> ObjectReference {
    ObjectReference {
        api_version: Some("purelb.io/v2".to_owned()),
        kind: Some("LBNodeAgent".to_owned()),
        namespace: object.namespace(),
        name: object.metadata.name.clone(),
        uid: object.uid(),
        resource_version: object.resource_version(),
        field_path: None,
    }
}
