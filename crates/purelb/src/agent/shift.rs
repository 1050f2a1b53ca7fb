//! The loop that keeps the desk busy: takes what is queued, lets it decide, hands out what it decided.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, OptionFuture};
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use kube::{Api, Client};
use purelb_api::BGPNodeStatusStatus;
use purelb_bgp::Farewell;
use purelb_core::bgp::status::NodeReport;
use purelb_core::moment::Moment;
use purelb_core::want::Leaving;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::info;

use super::bgp::SecretNews;
use super::bgp::secrets::{self, Wanted};
use super::bgp::status::{self, Writing};
use super::bgp::voice::Voice;
use super::clock::Clock;
use super::desk::{Desk, Ended};
use super::event::{self, Event};
use super::guarded::Guarded;
use super::kernel::{KernelNews, Order};
use super::lease::{self, Keeper, WallClock};
use super::metrics::Metrics;
use super::work::{self, Done};
use super::{COMPONENT, Settings, World, inspect, stop};
use crate::cluster::recorder::Recorder;
use crate::http::{Guard, Pulse, Questions};
use crate::signals::stopped;

/// How many things are taken in before the desk decides.
const AT_ONCE: usize = 1000;
/// How long local addresses may take to go before the lease is left to expire, so that peers wait for their end.
const LETTING_GO: Duration = Duration::from_millis(400);
/// How long the end may take.
const LAST_MOMENTS: Duration = Duration::from_millis(850);
/// How much longer it may take for every step that the kernel does meanwhile: many addresses take their time.
const PROGRESS: Duration = Duration::from_secs(1);
/// How long it may take for all of them; the kubelet grants half as much again.
const LONGEST: Duration = Duration::from_secs(20);
/// How much longer, if routers are to forget routes before addresses leave.
const ROUTERS: Duration = Duration::from_millis(1100);
/// How long the last words to routers, and the last report of them, may take.
const LAST_WORDS: Duration = Duration::from_millis(1200);
/// How much longer than routers keep the routes of an agent that will be succeeded, its addresses stay.
const BEYOND_ROUTES: Duration = Duration::from_secs(10);
/// How soon the desk is looked at again at the earliest, if nothing happens.
const BREATH: Duration = Duration::from_millis(1);
/// How long to sleep when there is nothing to wake up for: soon enough to show that the loop comes around.
const LONG: Duration = Duration::from_secs(3);

/// Why an agent ended although nobody told it to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Without the kernel's news there is nothing to decide upon.
    #[error("the kernel's threads have ended; the agent ends too, so that it is started anew")]
    KernelGone,
    /// Two agents of one name would both hold its addresses.
    #[error(
        "another agent has written the lease of this node: is a second one running with the same --node-name? \
         this one stops, because it was not the last to write"
    )]
    Usurped,
    /// Nothing that is known can be counted on.
    #[error("the cluster was restored from a backup: it shows older objects than before; the agent starts afresh")]
    Restored,
}

impl From<Ended> for Error {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Usurped => Self::Usurped,
            Ended::Restored => Self::Restored,
        }
    }
}

/// Runs until `stop`, then leaves in order.
///
/// # Errors
/// When the kernel cannot be heard any more.
pub async fn run(world: World, settings: Settings, stop: watch::Receiver<bool>) -> Result<(), Error> {
    let mut shift = Shift::new(world, settings);
    let ended = shift.serve(stopped(stop)).await;
    if matches!(ended, Err(Error::Restored)) {
        // As if it was killed: what is on the interfaces stays for the next one, as long as it may.
        return ended;
    }
    info!("stopping");
    shift.leave().await;
    ended
}

/// Runs a task whose end, a panic too, is seen by those who ask whether the agent lives.
async fn while_alive<T>(pulse: Pulse, task: impl Future<Output = T>) -> T {
    let _pulse = pulse;
    task.await
}

/// Waits for a report in progress; for ever when there is none.
async fn reported<T>(report: &mut Option<BoxFuture<'static, T>>) -> T {
    match report {
        Some(report) => report.await,
        None => std::future::pending().await,
    }
}

/// How much time an agent that stops has left. As long as the kernel does one step after the other it goes on: what is
/// left on the interfaces would stay there.
struct Ending {
    start: Instant,
    end: Instant,
    /// The lease was ordered to go.
    released: bool,
    /// When it has to go at the latest.
    release_by: Instant,
    steps_done: usize,
    on_nics: usize,
}

impl Ending {
    fn new(start: Instant, speaking: bool, desk: &Desk) -> Self {
        let end = start + LAST_MOMENTS + if speaking { ROUTERS } else { Duration::ZERO };
        let (steps_done, on_nics) = (desk.steps_done(), desk.state().on_nics());
        Self { start, end, released: false, release_by: start + LETTING_GO, steps_done, on_nics }
    }

    /// Sees what the kernel has done by now.
    fn look(&mut self, desk: &Desk) {
        let patience = (Instant::now() + PROGRESS).min(self.start + LONGEST);
        let (steps_done, on_nics) = (desk.steps_done(), desk.state().on_nics());
        if std::mem::replace(&mut self.steps_done, steps_done) != steps_done {
            self.end = self.end.max(patience);
        }
        if std::mem::replace(&mut self.on_nics, on_nics) > on_nics {
            self.release_by = self.release_by.max(patience);
        }
    }

    /// Whether local addresses take too long to go.
    fn cannot_wait(&self) -> bool {
        Instant::now() >= self.release_by
    }

    /// The lease goes, which takes a moment too.
    fn release(&mut self) {
        self.released = true;
        self.end = self.end.max(Instant::now() + lease::RELEASE_TIME);
    }
}

struct Shift {
    desk: Desk,
    client: Client,
    clock: Clock,
    wall: WallClock,
    metrics: Metrics,
    recorder: Recorder,
    watches: BoxStream<'static, Event>,
    leases: BoxStream<'static, Event>,
    kernel_news: UnboundedReceiver<KernelNews>,
    kernel_orders: Arc<dyn Fn(Order) + Send + Sync>,
    lease_news: UnboundedReceiver<lease::News>,
    lease_orders: UnboundedSender<lease::Order>,
    guarded: watch::Receiver<Guarded>,
    voice: Voice,
    secrets: watch::Sender<Wanted>,
    secret_news: UnboundedReceiver<SecretNews>,
    questions: Questions,
    /// A BGPNodeStatus that is being written, and what it shows.
    report: Option<BoxFuture<'static, Option<BGPNodeStatusStatus>>>,
    shown: Option<BGPNodeStatusStatus>,
    jobs: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The keeper of the lease; ends when the lease is released.
    keeper: JoinSet<()>,
    /// Sends Events; ends when the last one is sent.
    sending: JoinSet<()>,
    /// Reads the passwords of BGP sessions; ends with this.
    #[expect(dead_code, reason = "held, so that the task ends with it")]
    reading: JoinSet<()>,
    ready: Option<Guard>,
    pulse: Pulse,
    wake: Option<Moment>,
    kernel_gone: bool,
}

impl Shift {
    fn new(world: World, settings: Settings) -> Self {
        let World { client, kernel_news, kernel_orders, clock, wall, guarded, questions, metrics, readiness } = world;
        let (recorder, sender) = Recorder::counting(client.clone(), COMPONENT, metrics.events_lost.clone());
        let (lease_orders, orders) = mpsc::unbounded_channel();
        let (news, lease_news) = mpsc::unbounded_channel();
        let api = Api::namespaced(client.clone(), &settings.namespace);
        let patience = settings.timing.patience();
        let desk = Desk::new(settings, metrics.clone());
        let keeper = Keeper::new(api, (&desk.lease_name(), &desk.settings().instance), patience, orders, news);
        let (mut keeping, mut sending, mut reading) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        keeping.spawn(while_alive(readiness.task("the lease renewer"), keeper.run()));
        sending.spawn(while_alive(readiness.task("the sender of Events"), sender));
        let (secrets, wanted) = watch::channel(Wanted::default());
        let (secrets_read, secret_news) = mpsc::unbounded_channel();
        let passwords = secrets::watch(client.clone(), desk.settings().namespace.clone(), wanted, secrets_read);
        reading.spawn(while_alive(readiness.task("the reader of passwords"), passwords));
        Self {
            watches: event::watches(&client, &desk.settings().node, &desk.settings().namespace).boxed(),
            leases: event::leases(&client, &desk.settings().namespace, wall.clone()),
            desk,
            client,
            clock,
            wall,
            metrics,
            recorder,
            kernel_news,
            kernel_orders,
            lease_news,
            lease_orders,
            guarded,
            voice: Voice::new(),
            secrets,
            secret_news,
            questions,
            report: None,
            shown: None,
            jobs: FuturesUnordered::new(),
            keeper: keeping,
            sending,
            reading,
            pulse: readiness.pulse("the event loop"),
            ready: Some(readiness.register("everything that decides over addresses, and the lease")),
            wake: None,
            kernel_gone: false,
        }
    }

    async fn serve(&mut self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let mut stop = std::pin::pin!(stop);
        let guarded = self.guarded.borrow_and_update().clone();
        self.desk.hear(Event::Guarded(guarded), self.clock.now());
        loop {
            let event = tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                event = self.next() => event,
            };
            self.take(event);
            if self.kernel_gone {
                return Err(Error::KernelGone);
            }
            if let Some(ended) = self.desk.ended() {
                return Err(ended.into());
            }
            self.turn();
        }
    }

    /// Takes in one thing and whatever else is queued.
    fn take(&mut self, event: Option<Event>) {
        let mut event = event;
        for _ in 0..AT_ONCE {
            let Some(heard) = event.take() else { return };
            self.desk.hear(heard, self.clock.now());
            event = self.next().now_or_never().flatten();
        }
        if let Some(heard) = event {
            self.desk.hear(heard, self.clock.now());
        }
    }

    /// The next thing that happens; nothing if it is only time to look at the desk.
    async fn next(&mut self) -> Option<Event> {
        let latest = Instant::now() + LONG;
        let wake = self.wake.map_or(latest, |wake| self.clock.instant(wake).min(latest));
        tokio::select! {
            biased;
            news = self.kernel_news.recv(), if !self.kernel_gone => {
                let news = news.filter(|news| !matches!(news, KernelNews::Ended));
                self.kernel_gone = news.is_none();
                news.map(Event::Kernel)
            }
            Some(news) = self.lease_news.recv() => Some(Event::Renewal(news)),
            news = self.voice.next() => Some(Event::Speaker(news)),
            Some(event) = self.leases.next() => Some(event),
            Some(done) = self.jobs.next() => Some(Event::Done(done)),
            shown = reported(&mut self.report) => {
                (self.report, self.shown) = (None, shown);
                Some(Event::Reported(self.shown.is_some()))
            }
            Some(news) = self.secret_news.recv() => Some(Event::Secrets(news)),
            Some(event) = self.watches.next() => Some(event),
            Ok(()) = self.guarded.changed() => Some(Event::Guarded(self.guarded.borrow_and_update().clone())),
            Some(reply) = self.questions.recv() => {
                drop(reply.send(inspect::state(&self.desk, self.clock.now())));
                None
            }
            () = sleep_until(wake) => None,
        }
    }

    /// Lets the desk decide, and hands out what it decided.
    fn turn(&mut self) {
        self.pulse.beat();
        let now = self.clock.now();
        let urgent = self.desk.hurry(now);
        // To routers first: they have the longer way.
        urgent.speak.into_iter().for_each(|speak| self.voice.speak(speak));
        urgent.orders.into_iter().for_each(|order| (self.kernel_orders)(order));
        let turn = self.desk.turn(now, (self.wall)());
        turn.orders.into_iter().for_each(|order| (self.kernel_orders)(order));
        if let Some(lease) = turn.renewal {
            drop(self.lease_orders.send(lease::Order::Renew(lease)));
        }
        for job in turn.jobs {
            self.jobs.push(work::run(self.client.clone(), self.metrics.clone(), job).boxed());
        }
        for (about, notice) in turn.notices {
            self.recorder.tell(&about, notice);
        }
        if let Some((report, uid)) = turn.report.zip(self.desk.node_uid()) {
            self.report = Some(self.write(*report, uid.to_owned()));
        }
        let wanted = self.desk.secrets_wanted();
        self.secrets.send_if_modified(|before| std::mem::replace(before, wanted.clone()) != wanted);
        if turn.fresh_leases {
            self.leases = event::leases(&self.client, &self.desk.settings().namespace, self.wall.clone());
        }
        self.wake = turn.wake.map(|wake| wake.max(now + BREATH));
        if self.ready.is_some() && self.desk.is_ready() {
            info!("ready");
            self.ready = None;
        }
    }

    fn write(&self, report: NodeReport, node_uid: String) -> BoxFuture<'static, Option<BGPNodeStatusStatus>> {
        let (client, metrics) = (self.client.clone(), self.metrics.bgp.clone());
        let (previous, now) = (self.shown.clone(), (self.wall)());
        status::write(Writing { client, metrics, report, node_uid, previous, now }).boxed()
    }

    /// The same, but addresses stay longer than routers keep the routes to them.
    fn lingering(&self, how: Leaving) -> Leaving {
        let kept = Duration::from_secs(self.desk.speaker().restart_time().into());
        match how {
            Leaving::Stay(span) if !kept.is_zero() => Leaving::Stay(span.max(kept + BEYOND_ROUTES)),
            how => how,
        }
    }

    /// Local addresses go, then the lease, so that a peer takes over at once; virtual ones go or stay.
    async fn leave(mut self) {
        let settings = self.desk.settings().clone();
        let mut ending = Ending::new(Instant::now(), self.voice.is_speaking(), &self.desk);
        // Sessions that came up just now may have agreed on how long routes are kept.
        self.desk.hear(Event::Speaker(self.voice.news()), self.clock.now());
        let at_first = self.lingering(settings.on_stop.at_first());
        let mut leaving = at_first;
        self.desk.leave(at_first);
        let asking = stop::leaving(settings.on_stop, self.client.clone(), &settings.namespace, &settings.node);
        let mut asking = std::pin::pin!(asking.fuse());
        let mut keeper = std::mem::take(&mut self.keeper);
        let mut told = false;
        loop {
            self.turn();
            ending.look(&self.desk);
            if !ending.released && (self.desk.has_let_go() || ending.cannot_wait() || self.kernel_gone) {
                let let_go = self.desk.has_let_go();
                drop(self.lease_orders.send(if let_go { lease::Order::Release } else { lease::Order::Abandon }));
                ending.release();
            }
            let at_rest = self.desk.is_at_rest() || self.kernel_gone;
            if told && ending.released && at_rest && keeper.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                () = sleep_until(ending.end) => break,
                how = &mut asking, if !told => {
                    (told, leaving) = (true, self.lingering(how));
                    if leaving != at_first {
                        self.desk.leave(leaving);
                    }
                }
                Some(_) = keeper.join_next() => {}
                () = sleep_until(ending.release_by), if !ending.released => {}
                event = self.next() => self.take(event),
            }
        }
        self.say_goodbye(leaving).await;
        drop(self.recorder);
        // Events are told as long as there is time.
        let _ = timeout_at(ending.end, self.sending.join_next()).await;
    }

    /// Leaves routers: those that keep our routes for a successor without a word, others with one.
    async fn say_goodbye(&mut self, how: Leaving) {
        if !self.voice.is_speaking() {
            return;
        }
        let farewell = match how {
            Leaving::Go => Farewell::Cease("PureLB leaves this node".to_owned()),
            Leaving::Stay(_) => Farewell::Restart("PureLB restarts on this node".to_owned()),
        };
        let report = self.desk.last_report().zip(self.desk.node_uid());
        let report = OptionFuture::from(report.map(|(report, uid)| self.write(report, uid.to_owned())));
        let _ = timeout(LAST_WORDS, async { tokio::join!(self.voice.stop(farewell), report) }).await;
    }
}
