//! The node agents as their Leases and LBNodeAgents show them: who is alive, in which subnets, and what their objects'
//! statuses should say.
//!
//! No clock of another machine counts: a node lives until its Lease has not changed for its duration *as seen by this
//! process*. And it is dead only once the same watch has told of something later, such as this leader's own Lease: a
//! watch that stands still kills nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use kube::ResourceExt;
use purelb_api::read::{self, AgentLease, NodeView};
use purelb_api::{LBNodeAgent, write};
use purelb_core::reserved::Guard;
use tokio::time::Instant;

use super::desk::newer;
use super::job::{Job, StatusOutcome};
use super::ledger::Ledger;
use crate::cluster::known::{Known, Noted};
use crate::cluster::scope::Key;
use crate::cluster::watch::Change;

/// At first sight, a Lease that is older than this many of its durations is dead.
const OLD: u32 = 3;
/// How long an agent may be away, such as for an update, before it counts as gone for good.
const ABSENCE: Duration = Duration::from_secs(30);

/// What is known of the node agents.
#[derive(Debug)]
pub struct Agents {
    leases: Known<String, Member>,
    /// The addresses that each node last said nobody may announce. An agent that restarts takes its Lease along, and not
    /// its gateway.
    guarded: BTreeMap<String, BTreeMap<IpAddr, Guard>>,
    /// When the watch of the Leases last told something.
    heard: Instant,
    /// Nodes whose Lease is gone, and until when that may be a restart.
    away: BTreeMap<String, Instant>,
    /// From when on it is known who is away, and whether that time has come.
    acquainted: (Option<Instant>, bool),
    objects: Known<Key, LBNodeAgent>,
    ledger: Ledger,
}

/// One node, as its Lease shows it.
#[derive(Debug)]
struct Member {
    lease: AgentLease,
    /// Until when it lives without a change.
    until: Instant,
    live: bool,
}

impl Agents {
    /// Nobody is known yet.
    pub fn new(at: Instant) -> Self {
        Self {
            leases: Known::default(),
            guarded: BTreeMap::new(),
            heard: at,
            away: BTreeMap::new(),
            acquainted: (None, false),
            objects: Known::default(),
            ledger: Ledger::default(),
        }
    }

    /// Whether the first list of Leases is complete.
    pub fn is_complete(&self) -> bool {
        self.leases.is_complete()
    }

    /// Takes news of a Lease in; `None` stands for one that is no agent's. Whether other subnets may be served
    /// now, or other addresses are somebody's.
    pub fn hear(&mut self, change: Change<Option<AgentLease>>, now: Timestamp, at: Instant) -> bool {
        self.heard = at;
        let change = match change {
            Change::Restarted => Change::Restarted,
            Change::Complete => {
                self.acquainted.0.get_or_insert(at + ABSENCE);
                Change::Complete
            }
            Change::Here(Some(lease)) => return self.see(lease, now, at),
            Change::Gone(Some(lease)) => {
                let (node, until) = (lease.node.clone(), at);
                Change::Gone((node, Member { lease, until, live: false }))
            }
            Change::Here(None) | Change::Gone(None) => return false,
        };
        let mut changed = false;
        for noted in self.leases.take(change) {
            if let Noted::Gone(node, member) | Noted::Missing(node, member) = noted {
                self.away.insert(node, at + ABSENCE);
                changed |= member.live;
            }
        }
        self.note(changed);
        changed
    }

    /// A Lease as it is now. Most of the time it was only renewed, which says nothing new.
    fn see(&mut self, lease: AgentLease, now: Timestamp, at: Instant) -> bool {
        self.away.remove(&lease.node);
        let guards = self.guarded.insert(lease.node.clone(), lease.guarded.clone());
        let other_guards = guards.unwrap_or_default() != lease.guarded;
        let before = self.leases.at(&lease.node);
        let until = match (lease.renewed, before) {
            (None, _) => at,
            (renewed, Some(before)) if before.lease.renewed == renewed => before.until,
            (Some((_, duration)), Some(_)) => at + duration,
            (Some((renewed, duration)), None) => {
                let age = now.duration_since(renewed).try_into().unwrap_or(Duration::ZERO);
                if age > duration * OLD { at } else { at + duration }
            }
        };
        let live = until > at;
        let changed = match before {
            Some(before) => before.live != live || before.lease.subnets != lease.subnets,
            None => live,
        };
        let member = Member { live, until, lease };
        drop(self.leases.take(Change::Here((member.lease.node.clone(), member))));
        self.note(changed);
        changed || other_guards
    }

    /// Time has passed: those die whose Lease the watch would have shown if it had been renewed. Whether anybody did.
    pub fn expire(&mut self) -> bool {
        let heard = self.heard;
        let mut died = false;
        for member in self.leases.values_mut().filter(|member| member.live && member.until <= heard) {
            member.live = false;
            died = true;
        }
        self.note(died);
        died
    }

    /// The subnets in which some live node can announce.
    pub fn active_subnets(&self) -> BTreeSet<IpNet> {
        self.live().flat_map(|member| &member.lease.subnets).copied().collect()
    }

    /// The addresses that nobody may announce, as the agents of Nodes say that are there.
    pub fn guarded(&self, exists: impl Fn(&str) -> bool) -> BTreeMap<IpAddr, Guard> {
        let there = self.guarded.iter().filter(|(node, _)| self.leases.at(*node).is_some() || exists(node));
        there.flat_map(|(_, guards)| guards).map(|(addr, guard)| (*addr, *guard)).collect()
    }

    /// Whether a node is gone for good and no live node could announce an address in its place.
    pub fn is_deserted(&self, node: &str, addr: IpAddr, at: Instant) -> bool {
        let alive = self.leases.at(node).is_some_and(|member| member.live);
        let away = self.away.get(node).is_some_and(|until| *until > at);
        // Asked last: it costs a look at every node, and nearly all announcers are alive.
        let taken_over = || self.live().any(|member| member.lease.subnets.iter().any(|subnet| subnet.contains(&addr)));
        self.acquainted.1 && !alive && !away && !taken_over()
    }

    /// Whether since the last time somebody has become known as gone for good.
    pub fn take_departures(&mut self, at: Instant) -> bool {
        let before = self.away.len();
        self.away.retain(|_, until| *until > at);
        let due = self.acquainted.0.is_some_and(|since| since <= at);
        let first = due && !std::mem::replace(&mut self.acquainted.1, due);
        self.away.len() < before || first
    }

    /// Statuses count live nodes.
    fn note(&mut self, changed: bool) {
        if changed {
            self.ledger.touched();
        }
    }

    fn live(&self) -> impl Iterator<Item = &Member> {
        self.leases.values().filter(|member| member.live)
    }

    /// Takes news of an LBNodeAgent in.
    pub fn take(&mut self, change: Change<Box<LBNodeAgent>>) {
        if let Change::Here(object) = &change
            && self.objects.at(&key(object)).is_some_and(|known| !newer(version(object), version(known)))
        {
            return self.objects.confirm(&key(object));
        }
        drop(self.objects.take(change.map(|object| (key(&object), *object))));
        self.ledger.touched();
    }

    /// Nodes have other labels.
    pub fn touched(&mut self) {
        self.ledger.touched();
    }

    /// Whether some status may have to be written.
    pub fn is_stale(&self, at: Instant) -> bool {
        self.ledger.is_stale(at)
    }

    /// When a status that could not be written is tried again.
    pub fn next_wake(&self, at: Instant) -> Option<Instant> {
        self.ledger.next_wake(at)
    }

    /// The statuses that differ from what the objects show.
    pub fn statuses(&mut self, nodes: &Known<String, NodeView>, now: Timestamp, at: Instant) -> Vec<Job> {
        self.ledger.looked(at);
        let ready = |key: &&Key| self.ledger.is_free(key, at);
        let keys: Vec<Key> = self.objects.iter().map(|(key, _)| key).filter(ready).cloned().collect();
        let jobs: Vec<_> = keys.iter().filter_map(|key| Some((key, self.status(key, nodes, now)?))).collect();
        let news = |(key, job): (&Key, Job)| {
            let Job::PatchAgent { patch, .. } = &job else { return None };
            self.ledger.send(key, patch).then_some(job)
        };
        jobs.into_iter().filter_map(news).collect()
    }

    fn status(&self, key: &Key, nodes: &Known<String, NodeView>, now: Timestamp) -> Option<Job> {
        let object = self.objects.at(key)?;
        let selected = self
            .live()
            .filter(|member| nodes.at(&member.lease.node).is_some_and(|node| read::selects(object, &node.labels)));
        let wanted = write::agent_status(object, &read::agent(object), self.shadow(key), selected.count(), now);
        let patch = write::agent_patch(object, &wanted)?;
        Some(Job::PatchAgent { agent: Box::new(object.metadata.clone()), patch })
    }

    /// An object without a selector is followed only if it is the first of its kind.
    fn shadow(&self, key: &Key) -> Option<String> {
        let for_all = |object: &LBNodeAgent| object.spec.node_selector.is_none() && object.spec.local.is_some();
        let first = self.objects.iter().find(|(_, object)| for_all(object))?.0;
        (first < key && for_all(self.objects.at(key)?)).then(|| format!("{}/{}", first.0, first.1))
    }

    /// A status was written, or could not be.
    pub fn written(&mut self, namespace: &str, name: &str, outcome: StatusOutcome<LBNodeAgent>, at: Instant) {
        let key = (namespace.to_owned(), name.to_owned());
        match outcome {
            StatusOutcome::Is(object) => {
                self.ledger.written(&key, object.status.as_ref());
                if self.objects.at(&key).is_some_and(|known| newer(version(&object), version(known))) {
                    self.objects.put(key, *object);
                }
            }
            StatusOutcome::Failed => drop(self.ledger.failed(&key, at)),
        }
    }
}

fn key(object: &LBNodeAgent) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn version(object: &LBNodeAgent) -> &str {
    object.metadata.resource_version.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
