//! A pretended kernel behind the same doors as the real one, for agents that run without a network.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use purelb_core::links::{LinkNews, Links};
use purelb_core::model::ModelKernel;
use purelb_core::plan::{InTime, Step, in_time};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

use super::steps::{BATCH, what};
use super::{KernelNews, Order, StepError};
use crate::agent::clock::Clock;

/// Whoever looks at the kernel after each change.
pub type Observer = Box<dyn Fn(&Links) + Send>;

/// Where orders go.
pub type GiveOrder = Arc<dyn Fn(Order) + Send + Sync>;

/// The kernel of one node. It lives on while agents come and go; clones are the same kernel.
#[derive(Clone)]
pub struct Pretended {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    inside: Mutex<Inside>,
    /// A lifetime may end earlier than the expiry task thinks.
    changed: Notify,
}

struct Inside {
    kernel: ModelKernel,
    /// The agent of the day, and how many there were.
    listener: Option<UnboundedSender<KernelNews>>,
    plugged: u64,
    /// What is left of an agent's kernel threads.
    survivor: Option<UnboundedSender<KernelNews>>,
    /// The addresses that neighbours were told of, in order.
    told: Vec<IpAddr>,
    /// What was ordered while the agent's kernel thread stands still.
    waiting: Option<Vec<(Order, u64)>>,
    /// What it does not do.
    refuses: fn(&Step) -> bool,
    /// How long each step takes, and until when those of before do.
    pace: Duration,
    busy_until: Instant,
    observer: Observer,
}

impl Pretended {
    /// A kernel that shows these links. It needs a tokio runtime, in whose time lifetimes end. The observer sees what it
    /// shows after each single change.
    pub fn new(links: Links, clock: Clock, observer: Observer) -> Self {
        let kernel = ModelKernel::new(links);
        let inside = Inside {
            kernel,
            listener: None,
            plugged: 0,
            survivor: None,
            told: Vec::new(),
            waiting: None,
            refuses: |_| false,
            pace: Duration::ZERO,
            busy_until: Instant::now(),
            observer,
        };
        let shared = Arc::new(Shared { clock, inside: Mutex::new(inside), changed: Notify::new() });
        tokio::spawn(expire(Arc::downgrade(&shared)));
        Self { shared }
    }

    /// An agent starts: what it hears, everything first, and where it gives orders. An earlier agent hears nothing more,
    /// and what it ordered and was not done is never done.
    pub fn plug(&self) -> (UnboundedReceiver<KernelNews>, GiveOrder) {
        let (listener, news) = unbounded_channel();
        let mut inside = self.shared.lock();
        drop(listener.send(KernelNews::Links(LinkNews::Everything(inside.kernel.links().clone()))));
        inside.listener = Some(listener);
        inside.plugged += 1;
        inside.busy_until = Instant::now();
        inside.waiting = None;
        let (shared, agent) = (self.shared.clone(), inside.plugged);
        let orders = move |order| Shared::take(&shared, order, agent);
        (news, Arc::new(orders))
    }

    /// What the kernel shows.
    pub fn links(&self) -> Links {
        self.shared.lock().kernel.links().clone()
    }

    /// The addresses that neighbours were told of since the last time.
    pub fn take_told(&self) -> Vec<IpAddr> {
        std::mem::take(&mut self.shared.lock().told)
    }

    /// The thread of the agent that carries orders out stands still.
    pub fn hold(&self) {
        self.shared.lock().waiting.get_or_insert_default();
    }

    /// It goes on, with all that was ordered meanwhile.
    pub fn go_on(&self) {
        let waiting = self.shared.lock().waiting.take();
        for (order, agent) in waiting.into_iter().flatten() {
            self.shared.carry_out(order, agent);
        }
    }

    /// The agent's netlink thread dies, and another that could tell news lives on; what the agent orders is never done.
    pub fn unplug(&self) {
        let mut inside = self.shared.lock();
        inside.survivor = inside.listener.take();
        let _ = inside.survivor.as_ref().map(|survivor| survivor.send(KernelNews::Ended));
    }

    /// From now on the kernel refuses these steps and no others.
    pub fn refuse(&self, steps: fn(&Step) -> bool) {
        self.shared.lock().refuses = steps;
    }

    /// From now on each step takes this long.
    pub fn slow_down(&self, pace: Duration) {
        self.shared.lock().pace = pace;
    }

    /// Somebody else does something to the kernel, and the agent hears of it.
    pub fn meddle(&self, deed: impl FnOnce(&mut ModelKernel) -> Vec<LinkNews>) {
        let mut inside = self.shared.lock();
        let news = deed(&mut inside.kernel);
        inside.tell(news);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries an order out, as the real thread does: in batches, one after the other, each when its steps have taken their
    /// time.
    fn take(this: &Arc<Self>, order: Order, agent: u64) {
        let Order::Apply { steps, decided } = order else { return this.carry_out(order, agent) };
        for batch in steps.chunks(BATCH) {
            let order = Order::Apply { steps: batch.to_vec(), decided };
            let Some(done) = this.lock().occupy(batch.len()) else {
                this.carry_out(order, agent);
                continue;
            };
            let this = this.clone();
            tokio::spawn(async move {
                sleep_until(done).await;
                this.carry_out(order, agent);
            });
        }
    }

    /// Carries a batch out; not at all if its agent is gone by then.
    fn carry_out(&self, order: Order, agent: u64) {
        let mut inside = self.lock();
        let listener = inside.listener.clone().filter(|listener| inside.plugged == agent && !listener.is_closed());
        // What a process ordered that is gone is never done.
        let Some(listener) = listener else { return };
        if let Some(waiting) = &mut inside.waiting {
            return waiting.push((order, agent));
        }
        match order {
            Order::Apply { steps, decided } => {
                let InTime { steps, over, .. } = in_time(steps, decided, self.clock.now());
                let mut applied: Vec<_> = steps.into_iter().map(|step| inside.apply(step, self.clock)).collect();
                applied.extend(over.into_iter().map(|step| (step, Err(StepError::TooLate))));
                drop(listener.send(KernelNews::Applied(applied)));
                self.changed.notify_one();
            }
            Order::Tell(telling) => {
                inside.told.push(telling.addr);
                drop(listener.send(KernelNews::Told { addr: telling.addr, result: Ok(()) }));
            }
            Order::StopTelling(_) => {}
            Order::Dump => {
                let everything = LinkNews::Everything(inside.kernel.links().clone());
                drop(listener.send(KernelNews::Links(everything)));
            }
        }
    }
}

impl Inside {
    /// When so many more steps will be done; `None` for at once.
    fn occupy(&mut self, steps: usize) -> Option<Instant> {
        let now = Instant::now();
        self.busy_until = self.busy_until.max(now) + self.pace * u32::try_from(steps).unwrap_or(u32::MAX);
        (self.busy_until > now).then_some(self.busy_until)
    }

    fn apply(&mut self, step: Step, clock: Clock) -> (Step, Result<(), StepError>) {
        if (self.refuses)(&step) {
            let (what, why) = (what(&step), "Operation not permitted (os error 1)".to_owned());
            return (step, Err(StepError::Refused { what, why }));
        }
        let (result, news) = self.kernel.apply(&step, clock.now());
        self.tell(news);
        let result = result.map_err(|why| StepError::Refused { what: what(&step), why });
        (step, result)
    }

    fn tell(&self, news: Vec<LinkNews>) {
        if !news.is_empty() {
            (self.observer)(self.kernel.links());
        }
        for news in news {
            // Nobody may be listening.
            let _ = self.listener.as_ref().map(|listener| listener.send(KernelNews::Links(news)));
        }
    }
}

/// Ends lifetimes when their time has come, for as long as the kernel is there.
async fn expire(shared: Weak<Shared>) {
    while let Some(kernel) = shared.upgrade() {
        let next = {
            let mut inside = kernel.lock();
            let news = inside.kernel.expire(kernel.clock.now());
            inside.tell(news);
            inside.kernel.next_expiry()
        };
        let wake = next.map(|moment| kernel.clock.instant(moment));
        tokio::select! {
            () = kernel.changed.notified() => {}
            () = async { sleep_until(wake.unwrap_or_else(tokio::time::Instant::now)).await }, if wake.is_some() => {}
        }
    }
}
