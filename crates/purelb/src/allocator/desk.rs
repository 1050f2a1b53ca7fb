//! The allocator's desk: everything one leader knows in one term, and what it wants done next.
//!
//! ```text
//! watches ──▶ hear ──▶ what is known ──▶ next_job ──▶ jobs under way ──▶ done ──┐
//!                          ▲                                                    │
//!                          └────────────────────────────────────────────────────┘
//! ```
//!
//! A desk does no I/O and reads no clock. It lives for one term: a new leader starts with an empty one and fills it from
//! fresh lists. Three rules keep addresses unique:
//!
//! - Before the first decision, every Service that an earlier leader may still be writing to is *touched*: a write of
//!   that leader which is still under way then meets another version of the object and fails (`fence`).
//! - What a wish takes is claimed in the book before it is written, together with what the Service still shows (`look`).
//! - A write whose fate is unknown is sent again as it is until its fate is known, and keeps its claim meanwhile
//!   (`settle`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use purelb_api::read::{self, GroupObject, NodeView, ServiceRecord};
use purelb_core::alloc::{Scope, Wish};
use purelb_core::book::{Book, Holding, Surroundings};
use purelb_core::pool::ServiceKey;
use purelb_core::reason::Reason;
use purelb_core::report::Stock;
use tokio::time::Instant;

use super::groups::Groups;
use super::job::{Done, Job};
use super::known::{Known, Noted};
use crate::cluster::watch::Change;
use externals::Externals;
use pauses::Pauses;
pub(in crate::allocator) use settle::newer;

mod external;
mod externals;
mod fence;
mod look;
pub(super) mod pauses;
mod settle;

/// What the desk hears from outside.
#[derive(Clone, Debug)]
pub enum News {
    /// About Services of type LoadBalancer.
    Service(Change<Box<ServiceRecord>>),
    /// About ServiceGroups.
    Group(Change<Box<GroupObject>>),
    /// About Nodes.
    Node(Change<NodeView>),
    /// About the Leases of node agents.
    Lease(Change<Box<Lease>>),
}

/// Something to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tally {
    /// A Service was refused something; with the group it asked, `None` if it named none.
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
}

impl Busy {
    fn with(job: Job) -> Self {
        Self { job, wish: None, shown: (Vec::new(), None), left: false, unsure: false }
    }
}

/// Everything one leader knows.
pub struct Desk {
    scope: Scope,
    term: u64,
    services: Known<ServiceKey, ServiceRecord>,
    groups: Groups,
    nodes: Known<String, NodeView>,
    leases: Known<String, Lease>,
    surroundings: Surroundings,
    book: Book,
    phase: Phase,
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
    outdated: bool,
    /// What happened since it was last asked for.
    tallies: Vec<Tally>,
}

impl Desk {
    /// An empty desk for a term.
    pub fn new(scope: Scope, install_namespace: &str, term: u64) -> Self {
        Self {
            scope,
            term,
            services: Known::default(),
            groups: Groups::new(install_namespace),
            nodes: Known::default(),
            leases: Known::default(),
            surroundings: Surroundings::default(),
            book: Book::default(),
            phase: Phase::Gathering,
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            busy: BTreeMap::new(),
            ready: VecDeque::new(),
            waiting: BTreeSet::new(),
            pauses: Pauses::default(),
            paces: BTreeMap::new(),
            externals: Externals::default(),
            outdated: false,
            tallies: Vec::new(),
        }
    }

    /// Takes news in.
    pub fn hear(&mut self, news: News, now: Timestamp) {
        match news {
            News::Service(change) => self.hear_of_services(change),
            News::Group(change) => {
                self.outdated |= self.groups.take(change);
                self.resume_parked();
            }
            News::Node(change) => {
                self.outdated |= !self.nodes.take(change.map(|node| (node.name.clone(), node))).is_empty();
            }
            News::Lease(change) => {
                let change = change.map(|lease| (lease.metadata.name.clone().unwrap_or_default(), *lease));
                self.outdated |= !self.leases.take(change).is_empty();
            }
        }
        self.advance(now);
        self.refresh(now);
    }

    /// The watch may be behind what the API server has answered: what is older than what is known says nothing.
    fn hear_of_services(&mut self, change: Change<Box<ServiceRecord>>) {
        if let Change::Here(record) | Change::Gone(record) = &change
            && let Some(known) = self.services.at(&record.view.key)
            && !newer(&record.resource_version, &known.resource_version)
        {
            return self.services.confirm(&record.view.key);
        }
        for noted in self.services.take(change.map(|record| (record.view.key.clone(), *record))) {
            match noted {
                Noted::Here(key) => self.notice(&key),
                Noted::Gone(key, record) => self.forget(&key, &record),
                Noted::Missing(key, _) => self.miss(&key),
            }
        }
    }

    /// Takes the end of a job in.
    pub fn done(&mut self, done: Done, now: Timestamp, at: Instant) {
        match done {
            Done::Service(key, outcome) => self.settle(&key, outcome, now, at),
            Done::Released(release, result) => self.released(&release, result.is_ok(), at),
            Done::Counted(socket, group, result) => self.counted(&socket, &group, result.ok(), at),
            Done::Group(namespace, name, outcome) => {
                self.groups.written(&namespace, &name, outcome, at);
                self.resume_parked();
            }
        }
        self.advance(now);
    }

    /// The next thing to ask of the API server, if there is one.
    pub fn next_job(&mut self, now: Timestamp, at: Instant) -> Option<Job> {
        self.wake(at);
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

    /// Group statuses to write, once there is nothing more urgent to do.
    pub fn statuses(&mut self, now: Timestamp, at: Instant) -> Vec<Job> {
        if !self.has_status(at) {
            return Vec::new();
        }
        let services = self.services.values().map(|record| (&record.view, record.external_traffic_policy_local));
        let holders = self.externals.holders(&self.services);
        self.groups.statuses(&self.book, services, &holders, &self.externals.stocks, now, at)
    }

    /// Whether some group's status may have to be written.
    pub fn has_status(&self, at: Instant) -> bool {
        self.phase == Phase::Deciding && self.groups.is_stale(at)
    }

    /// Whether a Service waits for a group's status to be written before its IPAM is asked.
    pub fn has_urgent_status(&self, at: Instant) -> bool {
        !self.externals.parked.is_empty() && self.has_status(at)
    }

    /// When something is to be done although nothing happens.
    pub fn next_wake(&self) -> Option<Instant> {
        [self.pauses.next(), self.externals.next_wake(), self.groups.next_wake()].into_iter().flatten().min()
    }

    /// Whether decisions are taken: everything is known and the fence stands.
    pub fn is_deciding(&self) -> bool {
        self.phase == Phase::Deciding
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

    /// Leases expire without news; the subnets of dead nodes count no longer.
    pub fn tick(&mut self, now: Timestamp, at: Instant) {
        self.paces.retain(|_, (last, _)| *last + look::SHORT > at);
        self.outdated = true;
        self.refresh(now);
    }

    /// Builds the book anew when groups or surroundings have changed.
    fn refresh(&mut self, now: Timestamp) {
        if self.phase == Phase::Gathering || !std::mem::take(&mut self.outdated) {
            return;
        }
        let surroundings = self.surroundings(now);
        if self.groups.refresh() || surroundings != self.surroundings {
            self.surroundings = surroundings;
            let (groups, refused) = self.groups.assembled();
            self.book = std::mem::take(&mut self.book).rebuilt(groups, refused, self.surroundings.clone());
            self.count_new_groups();
            self.enqueue_all();
        }
    }

    fn surroundings(&self, now: Timestamp) -> Surroundings {
        let addresses =
            self.nodes.values().flat_map(|node| node.addresses.iter().map(|addr| (*addr, node.name.clone())));
        Surroundings {
            node_addresses: addresses.collect(),
            active_subnets: read::active_subnets(self.leases.values(), now),
        }
    }

    /// A Service was seen; while something is under way about it, the claim stands as it is.
    fn notice(&mut self, key: &ServiceKey) {
        if self.phase == Phase::Gathering {
            return;
        }
        if !self.busy.contains_key(key) {
            self.enter(key);
        }
        self.enqueue(key);
    }

    /// A Service has left the watch: deleted, or retyped. What it held is free at once, unless a write is under way.
    fn forget(&mut self, key: &ServiceKey, gone: &ServiceRecord) {
        if self.leave(key) {
            self.let_go(key);
            if gone.view.brand.ours {
                self.read(key);
            }
            self.review(key);
        }
    }

    /// A list does not name a Service: whether it is gone for good, only the API server can tell.
    fn miss(&mut self, key: &ServiceKey) {
        if self.leave(key) {
            self.read(key);
        }
    }

    /// Notes that a Service has left the watch; whether that can be dealt with now, because nothing is under way.
    fn leave(&mut self, key: &ServiceKey) -> bool {
        if self.phase == Phase::Gathering {
            return false;
        }
        self.waiting.remove(key);
        self.externals.forget(key);
        if let Some(busy) = self.busy.get_mut(key) {
            busy.left = true;
            return false;
        }
        self.pauses.forget(key);
        true
    }

    /// Enters in the book what a Service shows that it has, whoever gave it: nobody else may get that.
    fn enter(&mut self, key: &ServiceKey) {
        let Some(record) = self.services.at(key) else { return };
        let (uid, claim, addrs) = (record.view.uid.clone(), record.view.claim(), record.view.addresses());
        let before = self.book.holding(key).map(|holding| holding.addrs.clone()).unwrap_or_default();
        let freed = before.iter().any(|addr| !addrs.contains(addr));
        let changed = before != addrs;
        self.book.hold(Holding { uid, claim, addrs });
        if changed {
            self.groups.touched();
        }
        if freed {
            self.wake_waiting();
        }
    }

    /// Takes everything from a Service that is gone.
    fn let_go(&mut self, key: &ServiceKey) {
        if self.book.release(key, None).is_some() {
            self.groups.touched();
            self.wake_waiting();
        }
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
