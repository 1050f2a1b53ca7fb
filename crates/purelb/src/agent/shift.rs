//! The loop that keeps the desk busy: takes what is queued, lets it decide, hands out what it decided.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use kube::{Api, Client};
use purelb_core::moment::Moment;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::info;

use super::clock::Clock;
use super::desk::Desk;
use super::event::{self, Event};
use super::guarded::Guarded;
use super::kernel::{KernelNews, Order};
use super::lease::{self, Keeper, WallClock};
use super::metrics::Metrics;
use super::work::{self, Done};
use super::{COMPONENT, Settings, World, inspect, stop};
use crate::cluster::recorder::Recorder;
use crate::http::{Guard, Questions};
use crate::signals::stopped;

/// How many things are taken in before the desk decides.
const AT_ONCE: usize = 1000;
/// How long the lease may outlive the wish to stop: peers cannot take over before it is gone.
const LEASE_GOES: Duration = Duration::from_millis(100);
/// How long the end may take.
const LAST_MOMENTS: Duration = Duration::from_millis(850);
/// How soon the desk is looked at again at the earliest, if nothing happens.
const BREATH: Duration = Duration::from_millis(1);
/// How long to sleep when there is nothing to wake up for.
const LONG: Duration = Duration::from_secs(3600);

/// Why an agent ended although nobody told it to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Without the kernel's news there is nothing to decide upon.
    #[error("the kernel's threads have ended; the agent ends too, so that it is started anew")]
    KernelGone,
}

/// Runs until `stop`, then leaves in order.
///
/// # Errors
/// When the kernel cannot be heard any more.
pub async fn run(world: World, settings: Settings, stop: watch::Receiver<bool>) -> Result<(), Error> {
    let mut shift = Shift::new(world, settings);
    let ended = shift.serve(stopped(stop)).await;
    info!("stopping");
    shift.leave().await;
    ended
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
    questions: Questions,
    jobs: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The keeper of the lease; ends when the lease is released.
    keeper: JoinSet<()>,
    /// Sends Events; ends when the last one is sent.
    sending: JoinSet<()>,
    ready: Option<Guard>,
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
        let (mut keeping, mut sending) = (JoinSet::new(), JoinSet::new());
        keeping.spawn(keeper.run());
        sending.spawn(sender);
        Self {
            watches: event::watches(&client, &desk.settings().node).boxed(),
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
            questions,
            jobs: FuturesUnordered::new(),
            keeper: keeping,
            sending,
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
        let wake = self.wake.map_or_else(|| Instant::now() + LONG, |wake| self.clock.instant(wake));
        tokio::select! {
            biased;
            news = self.kernel_news.recv(), if !self.kernel_gone => {
                self.kernel_gone = news.is_none();
                news.map(Event::Kernel)
            }
            Some(news) = self.lease_news.recv() => Some(Event::Renewal(news)),
            Some(event) = self.leases.next() => Some(event),
            Some(done) = self.jobs.next() => Some(Event::Done(done)),
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
        let now = self.clock.now();
        let turn = self.desk.turn(now, (self.wall)());
        for order in turn.orders {
            (self.kernel_orders)(order);
        }
        if let Some(lease) = turn.renewal {
            drop(self.lease_orders.send(lease::Order::Renew(lease)));
        }
        for job in turn.jobs {
            self.jobs.push(work::run(self.client.clone(), self.metrics.clone(), job).boxed());
        }
        for (about, notice) in turn.notices {
            self.recorder.tell(&about, notice);
        }
        if turn.fresh_leases {
            self.leases = event::leases(&self.client, &self.desk.settings().namespace, self.wall.clone());
        }
        self.wake = turn.wake.map(|wake| wake.max(now + BREATH));
        if self.ready.is_some() && self.desk.is_ready() {
            info!("ready");
            self.ready = None;
        }
    }

    /// Local addresses go, then the lease, so that a peer takes over at once; virtual ones go or stay.
    async fn leave(mut self) {
        let start = Instant::now();
        let settings = self.desk.settings().clone();
        self.desk.leave(settings.on_stop.at_first());
        let asking = stop::leaving(settings.on_stop, self.client.clone(), &settings.namespace, &settings.node);
        let mut asking = std::pin::pin!(asking.fuse());
        let mut keeper = std::mem::take(&mut self.keeper);
        let (mut told, mut released) = (false, false);
        loop {
            self.turn();
            if !released && (self.desk.has_let_go() || start.elapsed() >= LEASE_GOES) {
                drop(self.lease_orders.send(lease::Order::Release));
                released = true;
            }
            if told && released && self.desk.is_at_rest() && keeper.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                () = sleep_until(start + LAST_MOMENTS) => break,
                how = &mut asking, if !told => {
                    told = true;
                    if how != settings.on_stop.at_first() {
                        self.desk.leave(how);
                    }
                }
                Some(_) = keeper.join_next() => {}
                () = sleep_until(start + LEASE_GOES), if !released => {}
                event = self.next() => self.take(event),
            }
        }
        drop(self.recorder);
        // Events are told as long as there is time.
        let _ = timeout_at(start + LAST_MOMENTS, self.sending.join_next()).await;
    }
}
