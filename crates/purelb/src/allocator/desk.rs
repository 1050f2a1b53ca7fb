//! The allocator's desk: everything one leader knows in one term, and what it wants done next.
//!
//! ```text
//! watches ──▶ hear ──▶ what is known ──▶ next_job ──▶ jobs under way ──▶ done ──┐
//!                          ▲                                                    │
//!                          └────────────────────────────────────────────────────┘
//! ```
//!
//! A desk does no I/O and reads no clock. It lives for one term: a new leader starts with an empty one and fills it from
//! fresh lists. Four rules keep addresses unique:
//!
//! - Before the first decision, every Service that an earlier leader may still be writing to is *touched*: a write of
//!   that leader which is still under way then meets another version of the object and fails (`fence`).
//! - What a wish takes is claimed in the book before it is written, together with what the Service still shows (`look`).
//! - A write whose fate is unknown is sent again as it is until its fate is known, and keeps its claim meanwhile
//!   (`settle`).
//! - Who reads that a later term has begun does nothing more before the lease says that it is not so (`rival`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use jiff::Timestamp;
use purelb_api::LBNodeAgent;
use purelb_api::read::{AgentLease, BgpObject, GroupObject, NodeView, ServiceRecord};
use purelb_core::alloc::{Scope, Wish};
use purelb_core::book::{Book, Surroundings};
use purelb_core::pool::ServiceKey;
use purelb_core::reason::Reason;
use purelb_core::report::Stock;
use tokio::time::Instant;

use super::agents::Agents;
use super::bgp::Configurations;
use super::groups::Groups;
use super::job::{Done, Job};
use crate::cluster::known::Known;
use crate::cluster::watch::Change;
use externals::Externals;
use pauses::Pauses;
use record::Record;
use rival::Rival;
pub(in crate::allocator) use settle::newer;
use sweep::Sweep;

mod external;
mod externals;
mod fence;
mod look;
mod origin;
pub(super) mod pauses;
mod record;
mod rival;
mod services;
mod settle;
mod sweep;
mod tidy;

/// What the desk hears from outside.
#[derive(Clone, Debug)]
pub enum News {
    /// About Services of type LoadBalancer.
    Service(Change<Box<ServiceRecord>>),
    /// About ServiceGroups.
    Group(Change<Box<GroupObject>>),
    /// About Nodes.
    Node(Change<NodeView>),
    /// About Leases; `None` for those that are no node agent's.
    Lease(Change<Option<AgentLease>>),
    /// About LBNodeAgents.
    Agent(Change<Box<LBNodeAgent>>),
    /// About BGPConfigurations.
    Bgp(Change<Box<BgpObject>>),
}

/// Something to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tally {
    /// A Service was refused an address; with the group that was asked for it, `None` if it named none and none was found.
    Refused(Option<String>, Reason),
    /// A Service got addresses of every range of a group; partial when a range had none for it.
    MultiPool {
        /// The group.
        group: String,
        /// Whether a range had none for it.
        partial: bool,
    },
    /// A Service got an address of the least used range of this group.
    Balanced(String),
}

/// What the book may be behind.
#[derive(Clone, Copy, Debug, Default)]
struct Outdated {
    groups: bool,
    surroundings: bool,
}

/// How far a term has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The first lists are being read.
    Gathering,
    /// These Services have not been touched yet.
    Fencing(BTreeSet<ServiceKey>),
    /// Decisions are taken.
    Deciding,
}

/// What is under way about one Service.
#[derive(Debug)]
struct Busy {
    /// The job, to be done again as it is if nobody knows what became of it.
    job: Job,
    /// The wish behind a patch; `None` for a touch, which changes no address.
    wish: Option<Wish>,
    /// What the Service showed when the job was made: its addresses, and the group they are from.
    shown: (Vec<IpAddr>, Option<String>),
    /// Whether the Service has left the watch meanwhile.
    left: bool,
    /// Whether an earlier attempt at the same patch may have arrived, or may still do so.
    unsure: bool,
    /// Whether an IPAM has just given what the wish says.
    answered: bool,
    /// Of which forms of the groups the wish is, counted as in [`Desk::forms`].
    forms: u64,
}

impl Busy {
    fn with(job: Job) -> Self {
        Self { job, wish: None, shown: (Vec::new(), None), left: false, unsure: false, answered: false, forms: 0 }
    }

    /// A look at the Service, to see what became of this.
    fn then_read(self, key: &ServiceKey) -> Self {
        Self { shown: self.shown, ..Self::with(Job::Read { service: key.clone() }) }
    }

    /// Whether the job may be about the object with this uid, and not about a namesake.
    fn is_about(&self, uid: &str) -> bool {
        match &self.job {
            Job::Patch { patch, .. } => patch["metadata"]["uid"] == uid,
            _ => true,
        }
    }
}

/// Everything one leader knows.
pub struct Desk {
    scope: Scope,
    term: u64,
    services: Known<ServiceKey, ServiceRecord>,
    groups: Groups,
    nodes: Known<String, NodeView>,
    agents: Agents,
    configurations: Configurations,
    surroundings: Surroundings,
    book: Book,
    phase: Phase,
    /// The time as it was last told.
    now: Timestamp,
    /// Until when a write of an earlier leader may still arrive; `None` once that time was seen to be over.
    late_until: Option<Instant>,
    /// Services that could not be touched, and were waited for until no earlier leader could be writing to them.
    untouched: Vec<ServiceKey>,
    /// Services to look at, in the order in which they came.
    queue: VecDeque<ServiceKey>,
    queued: BTreeSet<ServiceKey>,
    busy: BTreeMap<ServiceKey, Busy>,
    /// Jobs that are ready to go.
    ready: VecDeque<Job>,
    /// Services that want something they could not get: looked at again whenever something becomes free.
    waiting: BTreeSet<ServiceKey>,
    /// Services in trouble with the API server.
    pauses: Pauses<ServiceKey>,
    /// When Services were last written to, and how often in short succession.
    paces: BTreeMap<ServiceKey, (Instant, u32)>,
    externals: Externals,
    sweep: Sweep,
    /// Who is on record as a holder of external addresses.
    record: Record,
    /// Whether groups, or what surrounds them, may be others than the book says.
    outdated: Outdated,
    /// Whether another may lead by now.
    rival: Rival,
    /// How often the groups have changed in this term.
    forms: u64,
    /// What happened since it was last asked for.
    tallies: Vec<Tally>,
    /// Whether something has changed that metrics show.
    unshown: bool,
}

impl Desk {
    /// An empty desk for a term.
    pub fn new(scope: Scope, install_namespace: &str, term: u64, at: Instant) -> Self {
        Self {
            scope,
            term,
            services: Known::default(),
            groups: Groups::new(install_namespace),
            nodes: Known::default(),
            agents: Agents::new(at),
            configurations: Configurations::new(install_namespace),
            surroundings: Surroundings::default(),
            book: Book::default(),
            phase: Phase::Gathering,
            now: Timestamp::UNIX_EPOCH,
            late_until: Some(at + fence::LATEST_ARRIVAL),
            untouched: Vec::new(),
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            busy: BTreeMap::new(),
            ready: VecDeque::new(),
            waiting: BTreeSet::new(),
            pauses: Pauses::default(),
            paces: BTreeMap::new(),
            externals: Externals::default(),
            sweep: Sweep::default(),
            record: Record::new(term),
            outdated: Outdated::default(),
            rival: Rival::default(),
            forms: 0,
            tallies: Vec::new(),
            unshown: true,
        }
    }

    /// Takes news in.
    pub fn hear(&mut self, news: News, now: Timestamp, at: Instant) {
        self.now = now;
        match news {
            News::Service(change) => self.hear_of_services(change),
            News::Group(change) => self.outdated.groups |= self.groups.take(change),
            News::Node(change) => self.hear_of_nodes(change),
            News::Lease(change) => self.outdated.surroundings |= self.agents.hear(change, now, at),
            News::Agent(change) => self.agents.take(change),
            News::Bgp(change) => self.configurations.take(change),
        }
        self.advance(at);
        self.refresh();
    }

    /// A Node tells every few seconds that it is there; only other addresses or labels are news.
    fn hear_of_nodes(&mut self, change: Change<NodeView>) {
        if let Change::Here(node) = &change
            && self.nodes.at(&node.name) == Some(node)
        {
            return self.nodes.confirm(&node.name);
        }
        if !self.nodes.take(change.map(|node| (node.name.clone(), node))).is_empty() {
            self.outdated.surroundings = true;
            self.agents.touched();
        }
    }

    /// Takes the end of a job in.
    pub fn done(&mut self, done: Done, now: Timestamp, at: Instant) {
        self.now = now;
        match done {
            Done::Service(key, outcome) => self.settle(&key, outcome, now, at),
            Done::Released(release, result) => self.released(&release, result.err(), at),
            Done::Counted(socket, group, result) => self.counted(&socket, &group, result.ok(), at),
            Done::Agent(namespace, name, outcome) => self.agents.written(&namespace, &name, outcome, at),
            Done::Bgp(namespace, name, outcome) => self.configurations.written(&(namespace, name), outcome, at),
            Done::Swept(outcome) => self.swept(outcome, at),
            Done::Told => {}
            Done::Confirmed(answer) => self.rival.answered(answer, at),
            Done::Record(outcome) => self.recorded(outcome, at),
            Done::Group(namespace, name, outcome) => self.groups.written(&namespace, &name, outcome, at),
        }
        self.advance(at);
    }

    /// The next thing to ask of the API server, if there is one.
    pub fn next_job(&mut self, now: Timestamp, at: Instant) -> Option<Job> {
        self.now = now;
        if self.has_rival() {
            return self.rival.next_job(at);
        }
        self.wake(at);
        self.advance(at);
        if let Some(job) = self.ready.pop_front() {
            return Some(job);
        }
        while self.phase == Phase::Deciding
            && let Some(key) = self.queue.pop_front()
        {
            self.queued.remove(&key);
            if let Some(job) = self.look(&key, now, at) {
                return Some(job);
            }
        }
        None
    }

    /// Statuses of groups, LBNodeAgents and BGPConfigurations to write, once there is nothing more urgent to do.
    pub fn statuses(&mut self, now: Timestamp, at: Instant) -> Vec<Job> {
        if self.phase != Phase::Deciding {
            return Vec::new();
        }
        let mut jobs = Vec::new();
        if self.agents.is_stale(at) {
            jobs = self.agents.statuses(&self.nodes, now, at);
        }
        if self.configurations.is_stale(at) {
            jobs.extend(self.configurations.statuses(now, at));
        }
        if self.groups.is_stale(at) {
            jobs.extend(self.group_statuses(now, at));
        }
        jobs
    }

    fn group_statuses(&mut self, now: Timestamp, at: Instant) -> Vec<Job> {
        let unsettled = self.unsettled_groups();
        let services = self.services.values().map(|record| (&record.view, record.external_traffic_policy_local));
        self.groups.statuses(&self.book, services, &self.externals.stocks, &unsettled, now, at)
    }

    /// Whether some status may have to be written.
    pub fn has_status(&self, at: Instant) -> bool {
        let stale = self.groups.is_stale(at) || self.agents.is_stale(at) || self.configurations.is_stale(at);
        self.phase == Phase::Deciding && stale
    }

    /// When something is to be done although nothing happens, after `at`, when the desk was last asked for jobs: what was
    /// due by then and did not start waits for room, and is looked at when a job ends.
    pub fn next_wake(&self, at: Instant) -> Option<Instant> {
        [
            self.late_until.filter(|until| *until > at && matches!(self.phase, Phase::Fencing(_))),
            self.pauses.next(at),
            self.rival.next_wake(at),
            self.sweep.pauses.next(at),
            self.externals.next_wake(at),
            self.record.next_wake(at),
            self.groups.next_wake(at),
            self.agents.next_wake(at),
            self.configurations.next_wake(at),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The groups with their pools, for metrics and the curious.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// The groups as objects.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// What an external IPAM last said of a group.
    pub fn stock(&self, group: &str) -> Option<&Stock> {
        self.externals.stocks.get(group)
    }

    /// Services that may hold addresses of external groups, with these groups.
    pub fn external_holders(&self) -> impl Iterator<Item = (&ServiceKey, impl Iterator<Item = &String>)> {
        self.externals.by_service.iter().map(|(service, groups)| (service, groups.keys()))
    }

    /// What happened since it was last asked for.
    pub fn take_tallies(&mut self) -> Vec<Tally> {
        std::mem::take(&mut self.tallies)
    }

    /// Whether something has changed that metrics show.
    pub fn is_unshown(&self) -> bool {
        self.unshown
    }

    /// The same, once.
    pub fn take_unshown(&mut self) -> bool {
        std::mem::take(&mut self.unshown)
    }

    /// Leases expire without news; the subnets of dead nodes count no longer.
    pub fn tick(&mut self, at: Instant) {
        self.paces.retain(|_, (last, _)| *last + look::SHORT > at);
        let died = self.agents.expire();
        self.outdated.surroundings |= died;
        self.refresh();
        if self.agents.take_departures(at) || died {
            let announced = self.services.iter().filter(|(_, record)| !record.announcing.is_empty());
            let announced: Vec<_> = announced.map(|(key, _)| key.clone()).collect();
            announced.iter().for_each(|key| self.enqueue(key));
        }
    }

    /// Builds the book anew when groups or surroundings have changed.
    fn refresh(&mut self) {
        if self.phase == Phase::Gathering {
            return;
        }
        let Outdated { groups, surroundings } = std::mem::take(&mut self.outdated);
        let surroundings = surroundings.then(|| self.surroundings()).filter(|now| *now != self.surroundings);
        let regrouped = groups && self.groups.refresh();
        self.forms += u64::from(regrouped);
        if regrouped || surroundings.is_some() {
            self.surroundings = surroundings.unwrap_or_else(|| std::mem::take(&mut self.surroundings));
            let (groups, refused) = self.groups.assembled();
            self.book = std::mem::take(&mut self.book).rebuilt(groups, refused, self.surroundings.clone());
            self.count_new_groups();
            self.enqueue_all();
            self.unshown = true;
        }
    }

    fn surroundings(&self) -> Surroundings {
        let addresses =
            self.nodes.values().flat_map(|node| node.addresses.iter().map(|addr| (*addr, node.name.clone())));
        let guarded = self.agents.guarded(|node| self.nodes.at(node).is_some());
        Surroundings { node_addresses: addresses.collect(), guarded, active_subnets: self.agents.active_subnets() }
    }

    /// Holdings have changed: what statuses and the record say is compared with it.
    fn touched(&mut self) {
        self.groups.touched();
        self.record.touched();
        self.unshown = true;
    }

    fn read(&mut self, key: &ServiceKey) {
        let job = Job::Read { service: key.clone() };
        self.ready.push_back(job.clone());
        self.busy.insert(key.clone(), Busy::with(job));
    }

    fn enqueue(&mut self, key: &ServiceKey) {
        if self.queued.insert(key.clone()) {
            self.queue.push_back(key.clone());
        }
    }

    fn enqueue_all(&mut self) {
        let all: Vec<_> = self.services.iter().map(|(key, _)| key.clone()).collect();
        all.iter().for_each(|key| self.enqueue(key));
    }

    fn wake_waiting(&mut self) {
        let waiting: Vec<_> = self.waiting.iter().cloned().collect();
        waiting.iter().for_each(|key| self.enqueue(key));
    }

    /// Services whose pause is over.
    fn wake(&mut self, at: Instant) {
        self.wake_sweep(at);
        for key in self.pauses.due(at) {
            match self.busy.get(&key) {
                Some(busy) => self.ready.push_back(busy.job.clone()),
                None => self.enqueue(&key),
            }
        }
        for key in self.externals.ask_pauses.due(at) {
            self.enqueue(&key);
        }
    }
}

#[cfg(test)]
mod tests;
