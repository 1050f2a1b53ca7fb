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
//!   that leader which is still under way then meets another version of the object and fails.
//! - What a wish takes is claimed in the book before it is written, together with what the Service still shows.
//! - A write whose fate is unknown is sent again as it is until its fate is known, and keeps its claim meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use purelb_api::ServiceGroup;
use purelb_api::read::{self, NodeView, ServiceRecord};
use purelb_api::write;
use purelb_core::alloc::{Decision, ExternalRequest, Notice, Scope, Severity, Wish, accept, decide};
use purelb_core::book::{Book, Holding, Surroundings};
use purelb_core::group::Source;
use purelb_core::pool::ServiceKey;
use purelb_core::reason::Reason;
use tokio::time::Instant;

use super::groups::Groups;
use super::job::{Done, Job, Outcome, Pending, Release};
use super::known::Known;
use crate::cluster::watch::Change;

/// What the desk hears from outside.
#[derive(Clone, Debug)]
pub enum News {
    /// About Services of type LoadBalancer.
    Service(Change<Box<ServiceRecord>>),
    /// About ServiceGroups.
    Group(Change<Box<ServiceGroup>>),
    /// About Nodes.
    Node(Change<NodeView>),
    /// About the Leases of node agents.
    Lease(Change<Box<Lease>>),
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

/// How long to wait after trouble with one Service: at first, and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

/// What is under way about one Service.
#[derive(Debug, Default)]
struct Busy {
    /// What to settle when the answer comes; nothing while reading or asking.
    pending: Option<Pending>,
    /// The external question, while it is out.
    asked: Option<ExternalRequest>,
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
    /// Services in trouble: when to try again, and how often it went wrong.
    later: BTreeMap<ServiceKey, (Instant, u32)>,
    /// Services whose IPAM gave no address: when to ask again, and how often it did not.
    ask_later: BTreeMap<ServiceKey, (Instant, u32)>,
    /// What external IPAMs have yet to be told, and from when on if not at once.
    releases: BTreeMap<Release, Option<Instant>>,
    outdated: bool,
    /// Reasons to count, since they were last asked for.
    refusals: Vec<(String, Reason)>,
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
            later: BTreeMap::new(),
            ask_later: BTreeMap::new(),
            releases: BTreeMap::new(),
            outdated: false,
            refusals: Vec::new(),
        }
    }

    /// Takes news in.
    pub fn hear(&mut self, news: News, now: Timestamp) {
        match news {
            News::Service(change) => {
                let change = change.map(|record| (record.view.key.clone(), *record));
                let arrived = self.services.take(change);
                for (key, gone) in arrived {
                    match gone {
                        Some(record) => self.forget(&record),
                        None => self.notice(&key),
                    }
                }
            }
            News::Group(change) => self.outdated |= self.groups.take(change),
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

    /// Takes the end of a job in.
    pub fn done(&mut self, done: Done, now: Timestamp, at: Instant) {
        match done {
            Done::Service(key, outcome) => self.settle(&key, outcome, at, now),
            Done::Released(release, Ok(())) => drop(self.releases.remove(&release)),
            Done::Released(release, Err(_)) => drop(self.releases.insert(release, Some(at + PATIENCE.1))),
            Done::Group(namespace, name, result) => self.groups.written(&namespace, &name, result.is_ok()),
        }
        self.advance(now);
    }

    /// The next thing to do, if there is one.
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
        self.next_release(at)
    }

    /// A status to write for some group, once there is nothing more urgent to do.
    pub fn next_status(&mut self, now: Timestamp) -> Option<Job> {
        if self.phase != Phase::Deciding {
            return None;
        }
        let services = self.services.values().map(|record| (&record.view, record.external_traffic_policy_local));
        self.groups.next_status(&self.book, services, now)
    }

    /// Whether some group's status may have to be written.
    pub fn has_status(&self) -> bool {
        self.phase == Phase::Deciding && self.groups.is_stale()
    }

    /// When something is to be done although nothing happens.
    pub fn next_wake(&self) -> Option<Instant> {
        let troubles = self.later.values().chain(self.ask_later.values()).map(|(at, _)| *at);
        troubles.chain(self.releases.values().copied().flatten()).min()
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

    /// Refusals since they were last asked for, each with the group the Service named.
    pub fn take_refusals(&mut self) -> Vec<(String, Reason)> {
        std::mem::take(&mut self.refusals)
    }

    /// Leases expire without news; the subnets of dead nodes count no longer.
    pub fn tick(&mut self, now: Timestamp) {
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
            let all: Vec<_> = self.services.iter().map(|(key, _)| key.clone()).collect();
            all.iter().for_each(|key| self.enqueue(key));
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

    /// From gathering to fencing to deciding.
    fn advance(&mut self, now: Timestamp) {
        if self.phase == Phase::Gathering && self.is_complete() {
            self.groups.refresh();
            let (groups, refused) = self.groups.assembled();
            self.surroundings = self.surroundings(now);
            self.book = Book::new(groups, refused, self.surroundings.clone());
            let records: Vec<_> = self.services.values().map(facts).collect();
            records.into_iter().for_each(|holding| self.book.hold(holding));
            self.fence();
        }
        if matches!(&self.phase, Phase::Fencing(left) if left.is_empty()) {
            self.phase = Phase::Deciding;
            let all: Vec<_> = self.services.iter().map(|(key, _)| key.clone()).collect();
            all.iter().for_each(|key| self.enqueue(key));
        }
    }

    fn is_complete(&self) -> bool {
        self.services.is_complete()
            && self.groups.is_complete()
            && self.nodes.is_complete()
            && self.leases.is_complete()
    }

    /// Touches every Service to which an earlier leader may still be writing an address.
    fn fence(&mut self) {
        let keys = self.services.iter().filter(|(_, record)| self.may_receive(record)).map(|(key, _)| key.clone());
        let keys: BTreeSet<_> = keys.collect();
        for key in &keys {
            self.touch(key);
        }
        self.phase = Phase::Fencing(keys);
    }

    /// Whether an address may be on its way to this Service: it is ours and lacks something, or is about to change.
    fn may_receive(&self, record: &ServiceRecord) -> bool {
        match decide(&self.scope, &self.book, &record.view) {
            Decision::LeaveAlone => false,
            Decision::AskExternal(_) => true,
            Decision::Wish(wish) => {
                wish.reason.is_some() || wish.addrs.is_empty() || !wish.is_fulfilled_by(&record.view)
            }
        }
    }

    fn touch(&mut self, key: &ServiceKey) {
        let Some(record) = self.services.at(key) else { return };
        // The time of the touch is told by the term; the transition keeps its own.
        let patch = write::touch_patch(record, self.term, record.since.unwrap_or(Timestamp::UNIX_EPOCH));
        let job = Job::Patch { service: key.clone(), patch, notices: Vec::new() };
        self.ready.push_back(job.clone());
        self.busy.insert(key.clone(), Busy { pending: Some(Pending { wish: None, job }), asked: None });
    }

    /// A Service was seen; while something is under way about it, the claim stands as it is.
    fn notice(&mut self, key: &ServiceKey) {
        if self.phase == Phase::Gathering {
            return;
        }
        if !self.busy.contains_key(key)
            && let Some(record) = self.services.at(key)
        {
            self.book.hold(facts(record));
        }
        self.enqueue(key);
    }

    fn enqueue(&mut self, key: &ServiceKey) {
        if self.queued.insert(key.clone()) {
            self.queue.push_back(key.clone());
        }
    }

    /// A Service has left the watch: deleted, or retyped. What it held is free at once, unless a write is under way.
    fn forget(&mut self, record: &ServiceRecord) {
        let key = &record.view.key;
        if self.phase == Phase::Gathering {
            return;
        }
        if !self.busy.contains_key(key) {
            self.book.release(key, None);
            self.wake_waiting();
        }
        self.waiting.remove(key);
        self.later.remove(key);
        self.ask_later.remove(key);
        self.give_back(record, None);
        if record.view.brand.ours && !self.busy.contains_key(key) {
            self.read(key);
        }
    }

    /// Tells the external IPAM a Service's addresses came from that they, or one of them, are free.
    fn give_back(&mut self, record: &ServiceRecord, addr: Option<IpAddr>) {
        let Some(group) = record.view.brand.from.as_deref() else { return };
        let Some(Source::External { socket, .. }) = self.book.slot(group).ok().map(|slot| &slot.group.source) else {
            return;
        };
        let (socket, group, service) = (socket.clone(), group.to_owned(), record.view.key.clone());
        self.releases.entry(Release { socket, group, service, addr }).or_insert(None);
    }

    fn next_release(&mut self, at: Instant) -> Option<Job> {
        let release = self.releases.iter().find(|(_, from)| from.is_none_or(|from| from <= at))?.0.clone();
        // Not again before the answer is there or has become unlikely.
        self.releases.insert(release.clone(), Some(at + PATIENCE.1));
        Some(Job::Release(release))
    }

    fn read(&mut self, key: &ServiceKey) {
        self.busy.insert(key.clone(), Busy::default());
        self.ready.push_back(Job::Read { service: key.clone() });
    }

    /// Services whose pause is over.
    fn wake(&mut self, at: Instant) {
        let due: Vec<_> = self.later.iter().filter(|(_, (from, _))| *from <= at).map(|(key, _)| key.clone()).collect();
        for key in due {
            match self.busy.get(&key).and_then(|busy| busy.pending.clone()) {
                // Nobody knows whether it was written: the very same once more.
                Some(pending) => self.ready.push_back(pending.job),
                None => self.enqueue(&key),
            }
            // Kept, for the count; out of the way until the next trouble.
            if let Some((from, _)) = self.later.get_mut(&key) {
                *from = at + PATIENCE.1;
            }
        }
        let asking: Vec<_> =
            self.ask_later.iter().filter(|(_, (from, _))| *from <= at).map(|(key, _)| key.clone()).collect();
        for key in asking {
            self.enqueue(&key);
        }
    }

    fn wake_waiting(&mut self) {
        let waiting: Vec<_> = self.waiting.iter().cloned().collect();
        waiting.iter().for_each(|key| self.enqueue(key));
    }

    /// One look at one Service: nothing to do, or the job that does it.
    fn look(&mut self, key: &ServiceKey, now: Timestamp, at: Instant) -> Option<Job> {
        if self.busy.contains_key(key) || read::is_ignored(key) {
            return None;
        }
        let record = self.services.at(key)?;
        match decide(&self.scope, &self.book, &record.view) {
            Decision::LeaveAlone => {
                self.waiting.remove(key);
                None
            }
            Decision::Wish(wish) => self.pursue(key, wish, now),
            Decision::AskExternal(_) if self.ask_later.get(key).is_some_and(|(from, _)| *from > at) => None,
            Decision::AskExternal(request) => {
                if let Some((from, _)) = self.ask_later.get_mut(key) {
                    *from = at + PATIENCE.1;
                }
                let sharing_key = record.view.asks.sharing_key.as_deref().map(str::to_owned);
                self.busy.insert(key.clone(), Busy { pending: None, asked: Some(request.clone()) });
                Some(Job::Ask { service: key.clone(), sharing_key, request })
            }
        }
    }

    /// Claims what a wish takes and gives the job that writes it.
    fn pursue(&mut self, key: &ServiceKey, wish: Wish, now: Timestamp) -> Option<Job> {
        if wish.reason.is_some() {
            self.waiting.insert(key.clone());
        } else {
            self.waiting.remove(key);
        }
        let record = self.services.at(key)?;
        if wish.is_fulfilled_by(&record.view) {
            return None;
        }
        if let Some(reason) = &wish.reason {
            let named = record.view.asks.group.clone().unwrap_or_else(|| "<none>".to_owned());
            self.refusals.push((named, reason.clone()));
        }
        let mut holding = facts(record);
        holding.addrs.extend(wish.addrs.iter().filter(|addr| !record.view.addresses().contains(addr)));
        let patch = write::service_patch(record, &wish, self.term, now);
        self.book.hold(holding);
        let job = Job::Patch { service: key.clone(), patch, notices: wish.notices.clone() };
        let pending = Pending { wish: Some(wish), job: job.clone() };
        self.busy.insert(key.clone(), Busy { pending: Some(pending), asked: None });
        Some(job)
    }

    /// A job about a Service has ended.
    fn settle(&mut self, key: &ServiceKey, outcome: Outcome, at: Instant, now: Timestamp) {
        match outcome {
            Outcome::Is(record) => self.settle_as(key, *record),
            Outcome::Retyped(record, kind) => self.retyped(key, &record, &kind),
            Outcome::Gone => self.settle_gone(key),
            // The lost claim is taken back when the truth is read.
            Outcome::Conflict => self.read(key),
            Outcome::Refused(_) => self.refused(key, at),
            Outcome::Unsure(_) => trouble(&mut self.later, key, at),
            Outcome::NotSent => {}
            Outcome::Answer(answer) => self.answered(key, answer, at, now),
        }
    }

    fn settle_as(&mut self, key: &ServiceKey, record: ServiceRecord) {
        let before = self.services.at(key);
        let released: Vec<_> = before.into_iter().flat_map(|before| before.view.addresses()).collect();
        let fresh = before.is_none_or(|before| newer(&record.resource_version, &before.resource_version));
        if let Some(before) = before.cloned() {
            let dropped = released.iter().filter(|addr| !record.view.addresses().contains(addr));
            dropped.for_each(|addr| self.give_back(&before, Some(*addr)));
        }
        if fresh {
            self.services.put(key.clone(), record);
        }
        let was = self.busy.remove(key);
        self.later.remove(key);
        if let Some(record) = self.services.at(key) {
            self.book.hold(facts(record));
            if released.iter().any(|addr| !record.view.addresses().contains(addr)) {
                self.wake_waiting();
            }
        }
        self.groups.touched();
        self.confirm_touch(key, was);
        self.enqueue(key);
    }

    /// While the fence is being built, a Service is done when it was touched, not when it was merely read.
    fn confirm_touch(&mut self, key: &ServiceKey, was: Option<Busy>) {
        let Phase::Fencing(left) = &mut self.phase else { return };
        let touched = |busy: Busy| matches!(busy.pending, Some(Pending { job: Job::Patch { .. }, .. }));
        if was.is_some_and(touched) {
            left.remove(key);
        } else if left.contains(key) {
            self.touch(key);
        }
    }

    fn settle_gone(&mut self, key: &ServiceKey) {
        self.busy.remove(key);
        self.later.remove(key);
        self.book.release(key, None);
        if let Phase::Fencing(left) = &mut self.phase {
            left.remove(key);
        }
        self.wake_waiting();
        self.groups.touched();
    }

    /// A Service that is no LoadBalancer any more gets our marks taken off.
    fn retyped(&mut self, key: &ServiceKey, record: &ServiceRecord, kind: &str) {
        let busy = self.busy.remove(key);
        self.settle_gone(key);
        let stripping = busy.is_some_and(|busy| busy.pending.is_some());
        if let Some(patch) = write::released_patch(record).filter(|_| !stripping) {
            let message = format!("Service is Type {kind}, not LoadBalancer");
            let notice = Notice { severity: Severity::Normal, reason: "AddressReleased", message };
            let job = Job::Patch { service: key.clone(), patch, notices: vec![notice] };
            self.busy
                .insert(key.clone(), Busy { pending: Some(Pending { wish: None, job: job.clone() }), asked: None });
            self.ready.push_back(job);
        }
    }

    fn answered(&mut self, key: &ServiceKey, answer: Result<Vec<IpAddr>, Reason>, at: Instant, now: Timestamp) {
        let Some(request) = self.busy.remove(key).and_then(|busy| busy.asked) else { return };
        match &answer {
            Ok(_) => drop(self.ask_later.remove(key)),
            Err(_) => trouble(&mut self.ask_later, key, at),
        }
        let Some(record) = self.services.at(key) else { return };
        if let Decision::Wish(wish) = accept(&self.book, &record.view, &request, answer)
            && let Some(job) = self.pursue(key, wish, now)
        {
            self.ready.push_back(job);
        }
    }

    /// The API server refused the write, so nothing was written: the truth is read after a pause.
    ///
    /// A refused touch is as good as a touch: what is refused to this leader is refused to the last one.
    fn refused(&mut self, key: &ServiceKey, at: Instant) {
        trouble(&mut self.later, key, at);
        let job = Job::Read { service: key.clone() };
        self.busy.insert(key.clone(), Busy { pending: Some(Pending { wish: None, job }), asked: None });
        if let Phase::Fencing(left) = &mut self.phase {
            left.remove(key);
        }
    }
}

/// Notes another failure, after which there is a pause that grows with every one.
fn trouble(later: &mut BTreeMap<ServiceKey, (Instant, u32)>, key: &ServiceKey, at: Instant) {
    let failures = later.get(key).map_or(0, |(_, failures)| *failures);
    let pause = PATIENCE.0.saturating_mul(1 << failures.min(10)).min(PATIENCE.1);
    later.insert(key.clone(), (at + pause, failures + 1));
}

/// What a Service shows that it has, whoever gave it: nobody else may get that.
fn facts(record: &ServiceRecord) -> Holding {
    Holding { uid: record.view.uid.clone(), claim: record.view.claim(), addrs: record.view.addresses() }
}

/// Whether one version of an object comes after another. Kubernetes promises that versions can be compared as numbers.
fn newer(a: &str, b: &str) -> bool {
    match (a.parse::<u128>(), b.parse::<u128>()) {
        (Ok(a), Ok(b)) => a >= b,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
