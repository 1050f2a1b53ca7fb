//! What this node's BGPNodeStatus says.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use purelb_core::bgp::status::{
    ImportReport, ImportedAddress, InterfaceReport, LocalRoute, NeighborReport, NodeReport, SessionState,
};
use purelb_core::bgp::{Neighbor, NodeStatus, import_matches, imported};
use purelb_core::moment::Moment;
use purelb_core::reason::{Problem, Reason};
use purelb_core::want::State;

use super::pace::APART;
use super::{Bgp, InForce};
use crate::agent::bgp::PeerNews;
use crate::agent::metrics::BgpMetrics;

impl Bgp {
    /// Brings the metrics up to date, whether anybody is reported to or not; answers with when to ask again.
    pub fn count(&mut self, state: &State, metrics: &BgpMetrics, now: Moment) -> Option<Moment> {
        let due = self.counted.filter(|_| self.uncounted).map(|counted| counted + APART);
        if !self.uncounted || due.is_some_and(|due| due > now) {
            return due;
        }
        (self.uncounted, self.counted) = (false, Some(now));
        let report = self.report(state, Duration::ZERO, false);
        metrics.observe(self.in_force.as_ref().map(|in_force| &in_force.object.key), &report, &self.speaker);
        self.count_router_id(metrics);
        None
    }

    /// Counts when the node gets a router ID, another one, or none where it should have one.
    fn count_router_id(&mut self, metrics: &BgpMetrics) {
        let found = self.router_id().map(|(id, _)| id);
        if (found.is_some() || self.nameless().is_some()) && self.counted_router_id.replace(found) != Some(found) {
            metrics.router_id_resolved(found.is_some());
        }
    }

    /// The report that is to be written now, if any, and when to ask again.
    pub fn report_due(&mut self, state: &State, now: Moment) -> (Option<Box<NodeReport>>, Option<Moment>) {
        let settings = self.in_force.as_ref().map(|in_force| in_force.configuration.node_status);
        let NodeStatus { enabled, heartbeat } = settings.unwrap_or_default();
        // Without a configuration there is one last report, if there was any before.
        let said = self.last_report.as_ref().is_some_and(|last| last.asn.is_some());
        let something = self.is_understood() || self.nameless().is_some();
        if !(something || settings.is_none() && said) {
            return (None, None);
        }
        match self.pace.due(heartbeat) {
            Some(due) if due <= now => {}
            later => return (None, later),
        }
        let report = self.report(state, heartbeat, false);
        let same = self.last_report.as_ref().is_some_and(|last| is_same(last, &report));
        if !enabled || same && !self.pace.is_beat(heartbeat, now) {
            self.pace.nothing_new(now);
            return (None, self.pace.due(heartbeat));
        }
        self.last_report = Some(report.clone());
        self.pace.sending(now);
        (Some(Box::new(report)), None)
    }

    fn is_understood(&self) -> bool {
        self.in_force.as_ref().is_some_and(|in_force| in_force.meaning.is_some())
    }

    /// What is reported at the end, if anything was reported before.
    pub fn last_report(&self, state: &State) -> Option<NodeReport> {
        let last = self.last_report.as_ref().filter(|last| last.asn.is_some())?;
        Some(self.report(state, last.heartbeat, true))
    }

    /// Everything that this node has to say.
    pub(super) fn report(&self, state: &State, heartbeat: Duration, leaving: bool) -> NodeReport {
        let in_force = self.in_force.as_ref();
        let neighbors: Vec<_> = in_force.map(|in_force| self.neighbors(in_force)).unwrap_or_default();
        NodeReport {
            node: self.me.clone(),
            router_id: self.router_id(),
            asn: in_force.map(|in_force| in_force.configuration.asn),
            heartbeat,
            received: neighbors.iter().map(|neighbor| neighbor.prefixes_received).sum(),
            neighbors,
            import: in_force.map(|in_force| self.import(in_force, state)).unwrap_or_default(),
            routes: self.routes(state),
            problems: self.mistake().into_iter().chain(self.problems()).collect(),
            leaving,
        }
    }

    /// Every neighbor that is for this node, with or without a session.
    fn neighbors(&self, in_force: &InForce) -> Vec<NeighborReport> {
        let labels = self.node.as_ref().map(|node| &node.labels);
        let mine = in_force.configuration.neighbors.iter();
        let mine = mine.filter(|neighbor| labels.is_some_and(|labels| neighbor.nodes.matches(labels)));
        mine.map(|neighbor| self.neighbor(in_force, neighbor)).collect()
    }

    fn neighbor(&self, in_force: &InForce, neighbor: &Neighbor) -> NeighborReport {
        let has_session = self.sessions().iter().any(|session| session.neighbor.path == neighbor.path);
        let peer = self.speaker.peers.get(&neighbor.address).filter(|_| has_session);
        let state = peer.map_or(SessionState::Idle, |peer| peer.state);
        let up = state == SessionState::Established;
        NeighborReport {
            address: neighbor.address,
            peer_as: neighbor.peer_as,
            local_as: neighbor.our_as(&in_force.configuration),
            state,
            up_since: peer.filter(|_| up).and_then(|peer| peer.since),
            prefixes_sent: peer.map_or(0, |peer| peer.told.len() as u64),
            prefixes_received: peer.map_or(0, |peer| peer.heard),
            description: neighbor.description.clone(),
            last_error: if up { String::new() } else { self.last_error(in_force, neighbor, peer) },
            admin_down: neighbor.admin_down,
        }
    }

    /// Why a session is down: what the speaker says of it, or why there is none.
    fn last_error(&self, in_force: &InForce, neighbor: &Neighbor, peer: Option<&PeerNews>) -> String {
        let meaning = in_force.meaning.as_ref();
        let own = |problem: &&Problem| problem.field.starts_with(&format!("{}.", neighbor.path));
        let problem =
            || meaning.and_then(|meaning| meaning.problems.iter().find(own)).map(|found| found.reason.to_string());
        let nameless = || self.nameless().map(|reason| reason.to_string());
        peer.and_then(|peer| peer.fault.clone()).or_else(problem).or_else(nameless).unwrap_or_default()
    }

    fn import(&self, in_force: &InForce, state: &State) -> ImportReport {
        let import = &in_force.configuration.import;
        let Some(links) = state.links().filter(|_| import.enabled && !self.sessions().is_empty()) else {
            return ImportReport { enabled: import.enabled, ..ImportReport::default() };
        };
        let matches = |name: &str| import.interfaces.iter().any(|pattern| import_matches(pattern, name));
        let there: Vec<_> = links.by_index.values().filter(|link| matches(&link.name)).collect();
        let found = there.iter().map(|link| InterfaceReport { name: link.name.clone(), exists: true, up: link.up });
        // A name that no interface has is missed; a pattern may match none.
        let is_name = |pattern: &&String| !pattern.contains(['*', '?', '[']);
        let missing =
            import.interfaces.iter().filter(is_name).filter(|name| !there.iter().any(|link| link.name == **name));
        let missing = missing.map(|name| InterfaceReport { name: name.clone(), exists: false, up: false });
        let interfaces = found.chain(missing).collect();
        let mut addresses = Vec::new();
        for link in &there {
            for held in &link.addrs {
                let Ok(address) = IpNet::new(held.addr, held.prefix) else { continue };
                let Some(net) = imported(address) else { continue };
                addresses.push(ImportedAddress {
                    address,
                    interface: link.name.clone(),
                    advertised: state.routes().contains_key(&net),
                });
            }
        }
        ImportReport { enabled: true, interfaces, addresses }
    }

    fn routes(&self, state: &State) -> Vec<LocalRoute> {
        let told_to = |net: &IpNet| -> BTreeSet<IpAddr> {
            let told = self.speaker.peers.iter().filter(|(_, peer)| peer.told.contains(net));
            told.map(|(address, _)| *address).collect()
        };
        let route = |prefix: IpNet| {
            let advertised_to = told_to(&prefix);
            LocalRoute { prefix, communities: self.communities(&advertised_to), advertised_to }
        };
        state.routes().keys().map(|prefix| route(*prefix)).collect()
    }

    /// The communities that routes have for these neighbors.
    fn communities(&self, neighbors: &BTreeSet<IpAddr>) -> BTreeSet<String> {
        let told = self.sessions().iter().filter(|session| neighbors.contains(&session.neighbor.address));
        told.flat_map(|session| {
            let advertise = &session.neighbor.advertise;
            let plain =
                advertise.communities.iter().map(|community| format!("{}:{}", community >> 16, community & 0xffff));
            let large = advertise.large_communities.iter().map(|[a, b, c]| format!("{a}:{b}:{c}"));
            plain.chain(large).collect::<Vec<_>>()
        })
        .collect()
    }

    /// That no neighbor is for this node.
    pub(super) fn unselected(&self) -> Option<Problem> {
        let meaning = self.in_force.as_ref()?.meaning.as_ref()?;
        meaning.problems.iter().find(|problem| is_unselected(problem)).cloned()
    }

    /// That the configuration has a mistake. Its author is told by the object itself, and not by every node.
    fn mistake(&self) -> Option<Problem> {
        let first = self.in_force.as_ref()?.object.mistake.clone()?;
        Some(Problem::new("spec", Reason::BgpConfigurationMistaken { first }))
    }

    /// What keeps this node from doing as it is told.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let Some(in_force) = &self.in_force else { return Vec::new() };
        let found = in_force.meaning.iter().flat_map(|meaning| &meaning.problems);
        let mut problems: Vec<_> = found.filter(|problem| !is_unselected(problem)).cloned().collect();
        problems.extend(self.nameless().map(|reason| Problem::new("spec.global.routerID", reason)));
        let deaf = self.speaker.deaf.clone().map(|why| Reason::BgpNotListening { why });
        problems.extend(deaf.map(|reason| Problem::new("spec.global.listenPort", reason)));
        for session in self.sessions() {
            let address = session.neighbor.address;
            let limits = self.speaker.peers.get(&address).map_or(&[][..], |peer| &peer.limits);
            let limited = |why: &String| Reason::BgpSessionLimited { peer: address, why: why.clone() };
            problems.extend(limits.iter().map(|why| Problem::new(session.neighbor.path.clone(), limited(why))));
        }
        problems
    }
}

/// Whether no neighbor is for this node. Its author is told, but nothing is wrong with the node.
fn is_unselected(problem: &Problem) -> bool {
    matches!(problem.reason, Reason::NoMatchingNeighbors { .. })
}

/// Whether two reports say the same, but for numbers that routers change all the time.
fn is_same(a: &NodeReport, b: &NodeReport) -> bool {
    let quiet = |report: &NodeReport| {
        let mut report = NodeReport { received: 0, ..report.clone() };
        report.neighbors.iter_mut().for_each(|neighbor| neighbor.prefixes_received = 0);
        report
    };
    quiet(a) == quiet(b)
}
