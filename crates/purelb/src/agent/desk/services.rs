//! What Services are told by this node: Events, announcing annotations and the external traffic policy.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use purelb_core::alloc::Notice;
use purelb_core::moment::Moment;
use purelb_core::pool::ServiceKey;
use purelb_core::want::{AgentService, State, Verdict};
use tracing::{debug, info};

use super::notices;
use super::writes::{self, Then, Writing};
use crate::agent::event::ServiceNews;
use crate::agent::metrics::Metrics;
use crate::agent::work::{Done, Job, Outcome};
use crate::cluster::known::{Known, Noted};
use crate::cluster::watch::Change;

/// How long a node that gives an address up waits for the new holder to replace its entry, which spares a write.
const GRACE: Duration = Duration::from_secs(1);
/// How long after a failed write the next one is tried.
const AGAIN: Duration = Duration::from_secs(5);
/// How many writes may be under way.
const AT_ONCE: usize = 16;

/// What is kept of a Service beside what decisions depend on.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub version: Box<str>,
    pub uid: Box<str>,
}

/// What this node has told Services, and what is left to tell.
#[derive(Default)]
pub(super) struct Services {
    known: Known<ServiceKey, Meta>,
    /// Services to look at.
    queue: BTreeSet<ServiceKey>,
    /// Services to look at later.
    later: BTreeSet<(Moment, ServiceKey)>,
    /// Which addresses this node announces for which Service.
    announced: BTreeSet<(ServiceKey, IpAddr)>,
    /// Why an address of a Service is not announced, where the Service was told.
    refused: BTreeMap<(ServiceKey, IpAddr), &'static str>,
    /// Addresses that were there when this agent started, with the Services that had them: nobody is told of them again.
    adopted: BTreeSet<(IpAddr, ServiceKey)>,
    /// Addresses that should be near an endpoint and cannot be.
    fallen: BTreeSet<IpAddr>,
    /// The write that is under way about a Service, and whether it is to be looked at again when that has ended.
    writing: BTreeMap<ServiceKey, Writing>,
    /// Services that need a write for which there is no room yet.
    backlog: BTreeSet<ServiceKey>,
    /// From when on a Service may be rid of entries of this node.
    grace: BTreeMap<ServiceKey, Moment>,
    /// Until when a Service is left alone after a failed write.
    pauses: BTreeMap<ServiceKey, Moment>,
    /// While a list is being read, the Services that were written to meanwhile: the list may show them as they were.
    answered: Option<BTreeSet<ServiceKey>>,
    /// A list has shown a Service older than it was before.
    restored: bool,
}

/// What looking at Services needs.
pub(super) struct Surroundings<'a> {
    pub me: &'a str,
    pub state: &'a State,
    pub metrics: &'a Metrics,
    pub now: Moment,
}

impl Services {
    /// Whether all Services are known.
    pub fn is_complete(&self) -> bool {
        self.known.is_complete()
    }

    /// Whether the API server has gone back in time.
    pub fn is_restored(&self) -> bool {
        self.restored
    }

    /// Takes a change of the watch in and passes it on to the decisions.
    pub fn hear(&mut self, change: Change<Box<ServiceNews>>, state: &mut State) {
        match &change {
            Change::Restarted => self.answered = Some(BTreeSet::new()),
            Change::Complete => self.answered = None,
            Change::Here(news) => {
                let key = &news.service.key;
                let listed = self.answered.as_ref().is_some_and(|answered| !answered.contains(key));
                let older = self.known.at(key).is_some_and(|meta| newer(&meta.version, &news.version));
                self.restored |= listed && older;
            }
            Change::Gone(_) => {}
        }
        self.take(change, state);
    }

    fn take(&mut self, change: Change<Box<ServiceNews>>, state: &mut State) {
        let change = match change {
            Change::Here(news) => {
                let key = news.service.key.clone();
                // The watch may be behind what the API server has answered.
                if self.known.at(&key).is_some_and(|meta| !newer(&news.version, &meta.version)) {
                    return self.known.confirm(&key);
                }
                let meta = Meta { version: news.version.into(), uid: news.uid.into() };
                if news.service.ours {
                    state.set_service(news.service);
                    Change::Here((key, meta))
                } else {
                    Change::Gone((key, meta))
                }
            }
            other => other
                .map(|news| (news.service.key.clone(), Meta { version: news.version.into(), uid: news.uid.into() })),
        };
        for noted in self.known.take(change) {
            match noted {
                Noted::Here(key) => drop(self.queue.insert(key)),
                Noted::Gone(key, _) | Noted::Missing(key, _) => {
                    state.drop_service(&key);
                    self.queue.insert(key);
                }
            }
        }
    }

    /// An address of a Service was there when the agent started.
    pub fn adopt(&mut self, addr: IpAddr, service: &ServiceKey) {
        self.adopted.insert((addr, service.clone()));
    }

    /// An address is gone: whoever gets it next is told.
    pub fn lose(&mut self, addr: IpAddr) {
        let first = (addr, ServiceKey::from(""));
        let known = self.adopted.range(first..).take_while(|(there, _)| *there == addr);
        let known: Vec<_> = known.cloned().collect();
        for known in &known {
            self.adopted.remove(known);
        }
    }

    /// Something about a Service may be different.
    pub fn touch(&mut self, key: &ServiceKey) {
        self.queue.insert(key.clone());
    }

    /// Something about every Service may be different.
    pub fn touch_all(&mut self) {
        self.queue.extend(self.known.iter().map(|(key, _)| key.clone()));
    }

    /// What Events need to name a Service.
    pub fn uid(&self, key: &str) -> Option<&str> {
        self.known.at(key).map(|meta| &*meta.uid)
    }

    /// When to look again although nothing happens.
    pub fn next_wake(&self) -> Option<Moment> {
        self.later.first().map(|(moment, _)| *moment)
    }

    /// Looks at the Services that may need it: Events about them, and writes to them.
    pub fn look(&mut self, around: &Surroundings<'_>) -> (Vec<(ServiceKey, Notice)>, Vec<Job>) {
        while self.later.first().is_some_and(|(moment, _)| *moment <= around.now) {
            if let Some((_, key)) = self.later.pop_first() {
                self.queue.insert(key);
            }
        }
        let (mut told, mut jobs) = (Vec::new(), Vec::new());
        for key in std::mem::take(&mut self.queue) {
            match around.state.service(&key) {
                Some(service) => {
                    self.announce(service, around, &mut told);
                    jobs.extend(self.write(service, around));
                }
                None => self.forget(&key, around),
            }
        }
        (told, jobs)
    }

    /// What changed about which addresses this node announces for a Service.
    fn announce(&mut self, service: &AgentService, around: &Surroundings<'_>, told: &mut Vec<(ServiceKey, Notice)>) {
        let key = &service.key;
        let before: Vec<IpAddr> = self.announced_for(key).collect();
        for addr in before.iter().filter(|addr| !service.addrs.contains(addr)) {
            self.silence(key, *addr, around);
        }
        for &addr in &service.addrs {
            let verdict = around.state.verdict(addr);
            self.refuse(key, addr, verdict, told);
            if !around.state.fell_back(addr) {
                self.fallen.remove(&addr);
            } else if self.fallen.insert(addr) {
                around.metrics.affinity_fell_back(addr);
            }
            let (local, link) = match (verdict, around.state.held(addr)) {
                (Some(Verdict::Local { .. }), Some(link)) => (true, link),
                (Some(Verdict::Virtual { .. }), Some(link)) => (false, link),
                (verdict, _) => {
                    if let Some(Verdict::Elsewhere { node }) = verdict {
                        debug!(event = "notWinner", svc = %key, %addr, %node, "another node was elected");
                    }
                    self.silence(key, addr, around);
                    continue;
                }
            };
            if self.announced.insert((key.clone(), addr)) {
                around.metrics.announced(key, around.me, addr, true);
                if !self.adopted.contains(&(addr, key.clone())) {
                    told.push((key.clone(), notices::announcing(around.me, addr, link, local)));
                }
            }
        }
    }

    fn announced_for<'a>(&'a self, key: &ServiceKey) -> impl Iterator<Item = IpAddr> + use<'a> {
        let key = key.clone();
        let first = (key.clone(), IpAddr::from([0, 0, 0, 0]));
        self.announced.range(first..).take_while(move |(service, _)| *service == key).map(|(_, addr)| *addr)
    }

    fn silence(&mut self, key: &ServiceKey, addr: IpAddr, around: &Surroundings<'_>) {
        if self.announced.remove(&(key.clone(), addr)) {
            self.adopted.remove(&(addr, key.clone()));
            around.metrics.announced(key, around.me, addr, false);
        }
    }

    /// A Service is told once why an address is not announced, unless it is only a matter of where.
    fn refuse(
        &mut self,
        key: &ServiceKey,
        addr: IpAddr,
        verdict: Option<&Verdict>,
        told: &mut Vec<(ServiceKey, Notice)>,
    ) {
        let place = (key.clone(), addr);
        let Some(Verdict::Nowhere(reason)) = verdict else {
            self.refused.remove(&place);
            return;
        };
        if self.refused.insert(place, reason.name()) == Some(reason.name()) {
            return;
        }
        info!(event = "noLocalInterface", svc = %key, %addr, reason = reason.name(), "{reason}");
        told.extend(notices::refused(reason).map(|notice| (key.clone(), notice)));
    }

    fn forget(&mut self, key: &ServiceKey, around: &Surroundings<'_>) {
        let addrs: Vec<_> = self.announced_for(key).collect();
        for addr in addrs {
            self.silence(key, addr, around);
        }
        self.refused.retain(|(service, _), _| service != key);
        self.grace.remove(key);
        self.pauses.remove(key);
    }

    /// The write that a Service needs, if it needs one and may have it now.
    fn write(&mut self, service: &AgentService, around: &Surroundings<'_>) -> Option<Job> {
        let key = &service.key;
        if let Some(writing) = self.writing.get_mut(key) {
            writing.look_again = true;
            return None;
        }
        let Some(wish) = writes::wish(service, around.state, around.me) else {
            self.grace.remove(key);
            return None;
        };
        let at = self.pauses.get(key).copied().filter(|until| *until > around.now);
        let at = at.or_else(|| wish.can_wait.then(|| *self.grace.entry(key.clone()).or_insert(around.now + GRACE)));
        if let Some(at) = at.filter(|at| *at > around.now) {
            self.later.insert((at, key.clone()));
            return None;
        }
        if self.writing.len() >= AT_ONCE {
            self.backlog.insert(key.clone());
            return None;
        }
        let meta = self.known.at(key)?;
        let job = Job { service: key.clone(), patch: wish.patch(&meta.version) };
        self.writing.insert(key.clone(), Writing { look_again: false, then: wish.then });
        Some(job)
    }

    /// A write has come to its end; what was read with the answer is passed on to the decisions. Answers with what is to
    /// be told now.
    pub fn done(&mut self, done: Done, state: &mut State, now: Moment) -> Then {
        let writing = self.writing.remove(&done.service);
        let Writing { look_again, then } = writing.unwrap_or(Writing { look_again: true, then: Then::default() });
        let written = matches!(done.outcome, Outcome::Written(_));
        match done.outcome {
            Outcome::Written(news) => {
                self.grace.remove(&done.service);
                self.pauses.remove(&done.service);
                self.answered.as_mut().map(|answered| answered.insert(done.service.clone()));
                self.take(Change::Here(news), state);
            }
            // The newer object is on its way, or the news that there is none.
            Outcome::Conflict | Outcome::Gone => self.pause(&done.service, now + GRACE),
            Outcome::Failed => self.pause(&done.service, now + AGAIN),
        }
        if look_again {
            self.queue.insert(done.service);
        }
        self.queue.extend(self.backlog.pop_first());
        if written { then } else { Then::default() }
    }

    fn pause(&mut self, key: &ServiceKey, until: Moment) {
        self.pauses.insert(key.clone(), until);
        self.later.insert((until, key.clone()));
    }
}

/// Whether one version of an object is newer than another; versions that are no numbers are always worth a look.
fn newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}
