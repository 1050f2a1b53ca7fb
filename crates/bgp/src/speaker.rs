//! The speaker: a thread of its own that keeps one task per peer, and listens.

mod doors;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::fault::Fault;
use crate::peer::{self, Call, Order};
use crate::report::{PeerReport, Report};
use crate::wish::{Farewell, Global, Peer, Routes, Wish};
use doors::Doors;

/// Connections from routers that can wait for their peer's task; more are dropped, and routers dial again.
const CALLS: usize = 4;

/// Connections from anywhere that can wait to be looked at.
const CALLERS: usize = 16;

/// The pause before a peer whose task has died gets another.
const AFTER_A_DEATH: Duration = Duration::from_secs(1);

/// How often a port that was taken is tried again.
const TRY_DOORS: Duration = Duration::from_secs(15);

/// Starts speakers.
#[derive(Debug)]
pub struct Speaker;

impl Speaker {
    /// A speaker that knows nobody yet. It runs on a thread of its own, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When the machine gives no thread, or no event queue.
    pub fn start() -> io::Result<Handle> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (wishes, wished) = watch::channel(Ask::default());
        let (posts, reports) = watch::channel(Report::default());
        let (paths, lost) = mpsc::channel(CALLERS);
        let (over, done) = oneshot::channel();
        thread::Builder::new().name("bgp".into()).spawn(move || {
            runtime.block_on(Room::new(posts).run(wished, lost));
            // Nobody may be waiting.
            let _ = over.send(());
        })?;
        Ok(Handle { wishes, reports, paths, done })
    }
}

/// What the owner of a speaker asks for.
#[derive(Clone, Debug, Default)]
struct Ask {
    /// How many wishes there were.
    number: u64,
    wish: Option<Arc<Wish>>,
    farewell: Option<Farewell>,
}

/// The owner's end of a speaker. Without it the speaker ends, without a word to its peers.
#[derive(Debug)]
pub struct Handle {
    wishes: watch::Sender<Ask>,
    reports: watch::Receiver<Report>,
    paths: mpsc::Sender<IpAddr>,
    done: oneshot::Receiver<()>,
}

impl Handle {
    /// States the whole wish. The one before is forgotten, whether it was fulfilled or not.
    ///
    /// Answers with the number of this wish: a [`PeerReport`] that has it, or a later one, speaks of what came of it.
    pub fn set(&self, wish: impl Into<Arc<Wish>>) -> u64 {
        let wish = Some(wish.into());
        self.wishes.send_modify(|ask| (ask.number, ask.wish) = (ask.number + 1, wish));
        self.wishes.borrow().number
    }

    /// What there is to know, now and whenever it changes. Changes of numbers alone are not announced.
    #[must_use]
    pub fn reports(&self) -> watch::Receiver<Report> {
        self.reports.clone()
    }

    /// The path to a peer is gone (BFD): its session ends at once.
    pub fn path_down(&self, peer: IpAddr) {
        // A full queue means that many paths are gone, and hold timers will say so.
        let _ = self.paths.try_send(peer);
    }

    /// Leaves every peer in this way, and waits until the last words have left or had their second.
    pub async fn stop(self, farewell: Farewell) {
        self.wishes.send_modify(|ask| ask.farewell = Some(farewell));
        let _ = self.done.await;
    }
}

/// One peer's task, from outside.
struct Desk {
    orders: watch::Sender<Order>,
    calls: mpsc::Sender<Call>,
    task: Id,
}

struct Room {
    number: u64,
    wish: Option<Arc<Wish>>,
    global: Option<Arc<Global>>,
    routes: Arc<Routes>,
    desks: BTreeMap<IpAddr, Desk>,
    tasks: JoinSet<()>,
    /// Peers whose task died, and when they get another.
    dead: BTreeMap<IpAddr, Instant>,
    doors: Doors,
    callers: mpsc::Receiver<(TcpStream, SocketAddr)>,
    reports: watch::Sender<Report>,
}

impl Room {
    fn new(reports: watch::Sender<Report>) -> Self {
        let (door, callers) = mpsc::channel(CALLERS);
        Self {
            number: 0,
            wish: None,
            global: None,
            routes: Arc::default(),
            desks: BTreeMap::new(),
            tasks: JoinSet::new(),
            dead: BTreeMap::new(),
            doors: Doors::new(door),
            callers,
            reports,
        }
    }

    async fn run(mut self, mut asks: watch::Receiver<Ask>, mut lost: mpsc::Receiver<IpAddr>) {
        loop {
            let wake = self.wake();
            tokio::select! {
                changed = asks.changed() => {
                    let ask = asks.borrow_and_update().clone();
                    let gone = changed.is_err().then_some(Farewell::Silent);
                    if let Some(farewell) = ask.farewell.or(gone) {
                        return self.leave(&farewell).await;
                    }
                    (self.number, self.wish) = (ask.number, ask.wish);
                    self.arrange();
                }
                Some((stream, from)) = self.callers.recv() => self.admit(stream, from.ip()),
                Some(peer) = lost.recv() => self.call(peer, Call::PathDown),
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => self.arrange(),
            }
        }
    }

    /// When there is something to try again.
    fn wake(&self) -> Option<Instant> {
        self.dead.values().copied().chain(self.doors.retry()).min()
    }

    /// Makes tasks and doors what the wish says.
    fn arrange(&mut self) {
        let Some(wish) = self.wish.clone() else { return };
        // Equal parts keep their identity, so that peers can see cheaply that nothing of theirs has changed.
        if self.global.as_deref() != Some(&wish.global) {
            self.global = Some(Arc::new(wish.global.clone()));
        }
        if self.routes != wish.routes {
            self.routes = wish.routes.clone();
        }
        let mut wanted = BTreeMap::new();
        wish.peers.iter().for_each(|peer| {
            wanted.entry(peer.address).or_insert(peer);
        });
        self.dismiss(&wanted);
        self.doors.arrange(wish.global.listen.as_ref(), &wanted, &self.reports);
        wanted.into_values().for_each(|peer| self.order(peer, wish.complete));
    }

    fn dismiss(&mut self, wanted: &BTreeMap<IpAddr, &Peer>) {
        self.dead.retain(|address, _| wanted.contains_key(address));
        let gone: Vec<_> = self.desks.keys().filter(|address| !wanted.contains_key(address)).copied().collect();
        for address in gone {
            if let Some(desk) = self.desks.remove(&address) {
                desk.orders.send_modify(|order| order.farewell = Some(Farewell::Deconfigured));
            }
        }
        self.reports.send_if_modified(|board| {
            let before = board.peers.len();
            board.peers.retain(|address, _| wanted.contains_key(address));
            board.peers.len() != before
        });
    }

    fn order(&mut self, peer: &Peer, complete: bool) {
        let Some(global) = self.global.clone() else { return };
        if self.dead.get(&peer.address).is_some_and(|until| *until > Instant::now()) {
            return;
        }
        self.dead.remove(&peer.address);
        let routes = self.routes.clone();
        let (number, peer) = (self.number, Arc::new(peer.clone()));
        let order = Order { number, global, peer, routes, complete, farewell: None };
        match self.desks.get(&order.peer.address) {
            Some(desk) => drop(desk.orders.send_replace(order)),
            None => self.hire(order),
        }
    }

    fn hire(&mut self, order: Order) {
        let address = order.peer.address;
        let (orders, received) = watch::channel(order);
        let (calls, called) = mpsc::channel(CALLS);
        let task = self.tasks.spawn(peer::run(received, called, self.reports.clone())).id();
        self.desks.insert(address, Desk { orders, calls, task });
    }

    /// A stranger's connection is closed without a word, and so is one of a peer whose password could not be set.
    fn admit(&self, stream: TcpStream, from: IpAddr) {
        if self.doors.lets_in(from) {
            self.call(from, Call::Accepted(stream));
        }
    }

    fn call(&self, peer: IpAddr, call: Call) {
        if let Some(desk) = self.desks.get(&peer) {
            let _ = desk.calls.try_send(call);
        }
    }

    /// A peer that was dismissed, or one whose task died of a defect: that one gets another, and nobody else notices.
    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let Err(error) = ended else { return };
        let Some(address) = self.desks.iter().find(|(_, desk)| desk.task == error.id()).map(|(address, _)| *address)
        else {
            return;
        };
        tracing::error!(peer = %address, %error, "bgp session ended by an internal error");
        self.desks.remove(&address);
        self.dead.insert(address, Instant::now() + AFTER_A_DEATH);
        let fallen = PeerReport { fault: Some(Fault::Internal), ..PeerReport::default() };
        self.reports.send_modify(|board| {
            board.peers.insert(address, fallen);
        });
    }

    async fn leave(mut self, farewell: &Farewell) {
        drop(self.doors);
        for desk in self.desks.values() {
            desk.orders.send_modify(|order| order.farewell = Some(farewell.clone()));
        }
        while self.tasks.join_next().await.is_some() {}
        self.reports.send_modify(|board| *board = Report::default());
    }
}

#[cfg(test)]
mod tests;
