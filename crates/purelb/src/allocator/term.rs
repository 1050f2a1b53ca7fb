//! One term of leadership: fresh watches, a fresh desk, and the loop that keeps both busy.

use std::collections::VecDeque;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, select_all};
use futures::{FutureExt, Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::watcher;
use purelb_api::LBNodeAgent;
use purelb_api::read::{self, BgpObject, GroupObject, ServiceObject};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::Settings;
use super::desk::{Desk, News};
use super::inspect::{self, Questions};
use super::job::{Done, Job};
use super::work::Workshop;
use crate::cluster::watch::{changes, changes_if_any};
use crate::http::{Guard, Pulse};

/// How many jobs may be under way at the API server. Calls to IPAMs have room of their own, which the desk keeps small.
const AT_ONCE: usize = 32;
/// How many of them may be writes of statuses, for which Services do not wait.
const STATUSES_AT_ONCE: usize = 4;
/// Leases of node agents expire without an event; this is how often they are looked at.
const TICK: Duration = Duration::from_secs(5);
/// Statuses and metrics follow a burst of allocations at this pace.
const STATUS_PACE: Duration = Duration::from_millis(250);
/// How long jobs under way may take to end when the process has to stop. Together with the time to give the lease back, it
/// leaves a busy machine a fifth of the second in which a daemon has to be gone.
const LAST_MOMENTS: Duration = Duration::from_millis(250);

/// Leads until the leadership or the process ends.
pub async fn serve(
    workshop: &Workshop,
    settings: &Settings,
    term: u64,
    questions: &mut Questions,
    pulse: &Pulse,
    stop: impl Future<Output = ()>,
) {
    let mut shift =
        Shift::new(workshop, Desk::new(settings.scope.clone(), &settings.namespace, term, Instant::now()), term);
    let mut news = watches(workshop, settings.home());
    let mut leadership = workshop.leadership.clone();
    let mut stop = std::pin::pin!(stop);
    loop {
        pulse.beat();
        let wake = shift.wake();
        tokio::select! {
            biased;
            () = &mut stop => break,
            changed = leadership.changed() => {
                if changed.is_err() || leadership.borrow().term_at(Instant::now()) != Some(term) {
                    break;
                }
            }
            Some(done) = shift.jobs.next() => shift.done(done),
            Some(done) = shift.calls.next() => shift.done(done),
            Some(heard) = news.next() => shift.desk.hear(heard, Timestamp::now(), Instant::now()),
            Some(reply) = questions.recv() => drop(reply.send(inspect::leading(&shift.desk, term))),
            () = sleep_until(wake) => {}
        }
        while let Some(Some(heard)) = news.next().now_or_never() {
            shift.desk.hear(heard, Timestamp::now(), Instant::now());
        }
        shift.start();
    }
    shift.end().await;
}

/// The desk of a term and what is under way for it.
struct Shift<'a> {
    workshop: &'a Workshop,
    term: u64,
    desk: Desk,
    /// Jobs at the API server.
    jobs: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Calls to external IPAMs, which may take their time.
    calls: FuturesUnordered<BoxFuture<'static, Done>>,
    /// When the desk was last asked for jobs.
    asked_at: Instant,
    tick_at: Instant,
    status_at: Instant,
    /// Statuses that wait for room, and how many are under way.
    statuses: VecDeque<Job>,
    statuses_begun: usize,
    /// The first lists that are not complete yet.
    lists: Vec<(&'static str, Guard)>,
    decided: bool,
}

impl<'a> Shift<'a> {
    fn new(workshop: &'a Workshop, desk: Desk, term: u64) -> Self {
        let now = Instant::now();
        let (jobs, calls) = (FuturesUnordered::new(), FuturesUnordered::new());
        let lists = desk.incomplete().map(|list| (list, workshop.readiness.register(list))).collect();
        Self {
            workshop,
            term,
            desk,
            jobs,
            calls,
            asked_at: now,
            tick_at: now + TICK,
            status_at: now,
            statuses: VecDeque::new(),
            statuses_begun: 0,
            lists,
            decided: false,
        }
    }

    /// When to look at the desk although nothing happens.
    fn wake(&self) -> Instant {
        let now = Instant::now();
        let paced = self.desk.has_status(now) || self.desk.has_record(now) || self.desk.is_unshown();
        let status = paced.then_some(self.status_at);
        self.desk.next_wake(self.asked_at).into_iter().chain(status).fold(self.tick_at, Instant::min)
    }

    fn done(&mut self, done: Done) {
        self.statuses_begun -= usize::from(matches!(done, Done::Group(..) | Done::Agent(..) | Done::Bgp(..)));
        self.desk.done(done, Timestamp::now(), Instant::now());
    }

    /// Statuses go out a few at a time: so many Services that wait for an address leave them room, and they leave room for
    /// Services.
    fn start_statuses(&mut self) {
        while self.jobs.len() < AT_ONCE
            && self.statuses_begun < STATUSES_AT_ONCE
            && let Some(job) = self.statuses.pop_front()
        {
            self.statuses_begun += 1;
            self.jobs.push(self.begun(job));
        }
    }

    /// Starts as many jobs as there is room for.
    fn start(&mut self) {
        let now = Instant::now();
        self.asked_at = now;
        if now >= self.tick_at {
            self.desk.tick(now);
            self.tick_at = now + TICK;
        }
        let incomplete: Vec<_> = self.desk.incomplete().collect();
        self.lists.retain(|(list, _)| incomplete.contains(list));
        self.start_statuses();
        if self.jobs.is_empty() {
            // Who had nothing to do may have slept, and not know for how long.
            self.workshop.standing.doubt();
        }
        while self.jobs.len() < AT_ONCE
            && let Some(job) = self.desk.next_job(Timestamp::now(), now)
        {
            self.jobs.push(self.begun(job));
        }
        if self.desk.has_rival() {
            return;
        }
        while let Some(call) = self.desk.next_external(now) {
            self.calls.push(self.begun(call));
        }
        let due = now >= self.status_at;
        if self.jobs.len() < AT_ONCE
            && let Some(job) = self.desk.next_record(due, now)
        {
            self.jobs.push(self.begun(job));
        }
        if due {
            self.workshop.metrics.observe(&mut self.desk);
            self.statuses.extend(self.desk.statuses(Timestamp::now(), now));
            self.start_statuses();
            self.status_at = now + STATUS_PACE;
        }
        if self.desk.is_deciding() && !std::mem::replace(&mut self.decided, true) {
            for svc in self.desk.untouched() {
                warn!(%svc, "cannot be written to; no earlier leader can be writing to it any more, so that others are served");
            }
            info!(term = self.term, "everything is known and fenced: addresses are given out");
        }
        self.workshop.recorder.make_way(!self.jobs.is_empty());
    }

    fn begun(&self, job: Job) -> BoxFuture<'static, Done> {
        self.workshop.clone().run(self.term, job).boxed()
    }

    /// What was sent to the API server gets a moment to be answered. Calls to IPAMs are cancelled: whoever they were for
    /// is on record, so that the next leader asks again or gives back.
    async fn end(mut self) {
        let answers = async { while self.jobs.next().await.is_some() {} };
        if tokio::time::timeout(LAST_MOMENTS, answers).await.is_err() {
            info!(term = self.term, "some writes were not answered in time; the next leader fences them");
        }
        self.workshop.recorder.make_way(false);
    }
}

/// Fresh watches of everything that decisions depend on.
fn watches(workshop: &Workshop, namespace: &str) -> impl Stream<Item = News> + Unpin + use<> {
    let client = &workshop.standing.doubting(&workshop.client);
    let balancers = watcher::Config::default().fields("spec.type=LoadBalancer");
    let services = changes("services", Api::<ServiceObject>::all(client.clone()), balancers);
    let groups = changes("servicegroups", Api::<GroupObject>::all(client.clone()), watcher::Config::default());
    let nodes = changes("nodes", Api::<Node>::all(client.clone()), watcher::Config::default());
    let leases = changes("leases", Api::<Lease>::namespaced(client.clone(), namespace), watcher::Config::default());
    let agents = changes("lbnodeagents", Api::<LBNodeAgent>::all(client.clone()), watcher::Config::default());
    let bgp = changes_if_any("bgpconfigurations", Api::<BgpObject>::all(client.clone()), watcher::Config::default());
    select_all([
        services.map(|change| News::Service(change.map(|object| Box::new(read::service(&object))))).boxed(),
        groups.map(|change| News::Group(change.map(Box::new))).boxed(),
        nodes.map(|change| News::Node(change.map(|object| read::node(&object)))).boxed(),
        leases.map(|change| News::Lease(change.map(|object| read::agent_lease(&object)))).boxed(),
        agents.map(|change| News::Agent(change.map(Box::new))).boxed(),
        bgp.map(|change| News::Bgp(change.map(Box::new))).boxed(),
    ])
}
