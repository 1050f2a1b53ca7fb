//! The task of one peer: it feeds the state machine, and does what that asks for.

mod connection;

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::fault::Fault;
use crate::fsm::{Conn, Fsm, Input, Output};
use crate::message::Message;
use crate::path::Ends;
use crate::report::{PeerReport, Report, State};
use crate::wish::{Farewell, Global, Peer, Routes};
use crate::{socket, wire};
use connection::{Connection, Event};

/// How long the first packet of a connection may stay without an answer.
const DIAL: Duration = Duration::from_secs(10);

/// Events of connections that can wait: few, so that a peer that floods us waits in its own TCP window.
const EVENTS: usize = 16;

/// Connections whose last words may be leaving at a time; more are cut off, and a peer that dials without end costs no more.
const CLOSING: usize = 8;

/// How often to look which addresses there are beside our end of a connection, when no new configuration asks for it.
const LOOK: Duration = Duration::from_secs(30);

/// The part of a wish that concerns one peer.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// The number of the wish.
    pub(crate) number: u64,
    pub(crate) global: Arc<Global>,
    pub(crate) peer: Arc<Peer>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) complete: bool,
    /// Leave, and end.
    pub(crate) farewell: Option<Farewell>,
}

/// What happens to a peer from outside.
pub(crate) enum Call {
    Accepted(TcpStream),
    PathDown,
}

type Dialling = Pin<Box<dyn Future<Output = Result<TcpStream, Fault>> + Send>>;

/// Runs one peer until it is told to leave.
pub(crate) async fn run(
    mut orders: watch::Receiver<Order>,
    mut calls: mpsc::Receiver<Call>,
    reports: watch::Sender<Report>,
) {
    let first = orders.borrow_and_update().clone();
    if first.farewell.is_some() {
        return;
    }
    let (events, mut inbox) = mpsc::channel(EVENTS);
    let mut desk = Desk::new(&first, events, reports);
    desk.feed(Input::Wanted(first.routes.clone(), first.complete));
    desk.feed(Input::Start);
    loop {
        tokio::select! {
            // First of all: one who was told to leave has nothing more to report.
            biased;
            changed = orders.changed() => {
                let order = orders.borrow_and_update().clone();
                let gone = changed.is_err().then_some(Farewell::Silent);
                if let Some(farewell) = order.farewell.clone().or(gone) {
                    return desk.leave(farewell, inbox).await;
                }
                desk.obey(order);
            }
            () = desk.turn(&mut inbox, &mut calls) => {}
        }
    }
}

/// Waits for a dial in progress; for ever when there is none.
async fn dialled(dialling: &mut Option<Dialling>) -> Result<TcpStream, Fault> {
    match dialling {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Waits for a connection of which a task has died; for ever while none has.
async fn struck(connections: &mut BTreeMap<Conn, Connection>) -> Conn {
    let dead = |context: &mut Context<'_>| {
        let dead = connections.iter_mut().find_map(|(conn, one)| one.poll_death(context).is_ready().then_some(*conn));
        dead.map_or(Poll::Pending, Poll::Ready)
    };
    std::future::poll_fn(dead).await
}

struct Desk {
    fsm: Fsm,
    /// The number of the wish that this peer acts on.
    wish: u64,
    global: Arc<Global>,
    peer: Arc<Peer>,
    routes: Arc<Routes>,
    complete: bool,
    begun: Instant,
    next: u64,
    connections: BTreeMap<Conn, Connection>,
    /// Connections whose last words are leaving.
    closing: JoinSet<()>,
    dialling: Option<Dialling>,
    /// When to look for addresses again.
    look: Instant,
    /// What follows for the state machine from what it has just asked for.
    follows: VecDeque<Input>,
    events: mpsc::Sender<Event>,
    reports: watch::Sender<Report>,
    since: (State, SystemTime),
}

impl Desk {
    fn new(order: &Order, events: mpsc::Sender<Event>, reports: watch::Sender<Report>) -> Self {
        Self {
            fsm: Fsm::new(order.global.clone(), order.peer.clone()),
            wish: order.number,
            global: order.global.clone(),
            peer: order.peer.clone(),
            routes: order.routes.clone(),
            complete: order.complete,
            begun: Instant::now(),
            next: 0,
            connections: BTreeMap::new(),
            closing: JoinSet::new(),
            dialling: None,
            look: Instant::now() + LOOK,
            follows: VecDeque::new(),
            events,
            reports,
            since: (State::Idle, SystemTime::now()),
        }
    }

    /// Waits for one thing to happen. All kinds have the same chance, so that a flood of one does not starve another.
    async fn turn(&mut self, inbox: &mut mpsc::Receiver<Event>, calls: &mut mpsc::Receiver<Call>) {
        let wake = self.fsm.wake().map(|wake| self.begun + wake);
        tokio::select! {
            Some(event) = inbox.recv() => self.hear(event),
            Some(call) = calls.recv() => self.answer(call),
            outcome = dialled(&mut self.dialling) => self.dialled(outcome),
            () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => self.feed(Input::Tick),
            () = sleep_until(self.look), if !self.connections.is_empty() => self.look_around(),
            conn = struck(&mut self.connections) => self.bury(conn),
            Some(_) = self.closing.join_next() => {}
        }
    }

    fn obey(&mut self, order: Order) {
        self.wish = order.number;
        let reconfigured = order.global != self.global || order.peer != self.peer;
        // Looking takes a list of all addresses of the machine: news of routes alone do not wait for it.
        let seen = if reconfigured { self.seen() } else { Vec::new() };
        // First what is gone, and last what is new: an address that has just been added or removed as a service address
        // is known as one, in the old wish or in the new one, for as long as it could be chosen.
        self.readdress(&seen, Ends::without_gone);
        if reconfigured {
            (self.global, self.peer) = (order.global.clone(), order.peer.clone());
            self.feed(Input::Configure(order.global, order.peer));
        }
        if order.routes != self.routes || order.complete != self.complete {
            (self.routes, self.complete) = (order.routes.clone(), order.complete);
            self.feed(Input::Wanted(order.routes, order.complete));
        }
        self.readdress(&seen, Ends::refreshed);
        self.post();
    }

    fn look_around(&mut self) {
        let seen = self.seen();
        self.readdress(&seen, Ends::refreshed);
    }

    /// Our ends of all connections as the kernel has them now. One whose own address is gone will break by itself.
    fn seen(&mut self) -> Vec<(Conn, Ends)> {
        self.look = Instant::now() + LOOK;
        let addresses = if self.connections.is_empty() { None } else { socket::Addresses::now() };
        let Some(addresses) = addresses else { return Vec::new() };
        let ends = |(conn, one): (&Conn, &Connection)| Some((*conn, addresses.ends(one.local)?));
        self.connections.iter().filter_map(ends).collect()
    }

    fn readdress(&mut self, seen: &[(Conn, Ends)], change: impl Fn(&Ends, &Ends) -> Ends) {
        for (conn, seen) in seen {
            let Some(connection) = self.connections.get_mut(conn) else { continue };
            let ends = change(&connection.ends, seen);
            if ends != connection.ends {
                connection.ends = ends.clone();
                self.feed(Input::Readdressed(*conn, ends));
            }
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Heard(conn, heard) => self.feed(Input::Heard(conn, heard)),
            Event::Nonsense(conn, answer) => self.feed(Input::Nonsense(conn, answer)),
            Event::Sent(conn, count) => {
                if self.connections.get_mut(&conn).is_some_and(|connection| connection.sent(count)) {
                    self.feed(Input::Sent(conn));
                }
            }
            Event::Closed(conn, words) => {
                self.feed(Input::Closed(conn, words));
                self.connections.remove(&conn);
            }
        }
    }

    fn answer(&mut self, call: Call) {
        match call {
            Call::PathDown => self.feed(Input::PathDown),
            Call::Accepted(stream) => {
                let internal = self.peer.is_internal(&self.global);
                match socket::tune(&socket2::SockRef::from(&stream), &self.peer, internal) {
                    Ok(()) => self.connect(stream, Input::Accepted),
                    Err((step, error)) => {
                        tracing::warn!(peer = %self.peer.address, step, %error, "bgp connection not accepted")
                    }
                }
            }
        }
    }

    fn dialled(&mut self, outcome: Result<TcpStream, Fault>) {
        self.dialling = None;
        match outcome {
            Ok(stream) => self.connect(stream, Input::Connected),
            Err(fault) => self.feed(Input::DialFailed(fault)),
        }
    }

    /// Gives a new connection a name, and shows it to the state machine.
    fn connect(&mut self, stream: TcpStream, input: impl FnOnce(Conn, Ends) -> Input) {
        let Ok(local) = stream.local_addr() else { return };
        self.next += 1;
        let conn = Conn(self.next);
        let local = socket::local_end(local);
        let ends = socket::ends(local);
        self.connections.insert(conn, Connection::open(conn, stream, (local, ends.clone()), &self.events));
        self.feed(input(conn, ends));
    }

    fn feed(&mut self, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next {
            let outputs = self.fsm.step(input, self.begun.elapsed(), dice());
            outputs.into_iter().for_each(|output| self.act(output));
            next = self.follows.pop_front();
        }
        // Last, for it wakes others up: what there is to say is on the wire by now.
        self.post();
    }

    /// A task of a connection has died of a defect, and the connection with it.
    fn bury(&mut self, conn: Conn) {
        tracing::error!(peer = %self.peer.address, "bgp connection ended by an internal error");
        self.connections.remove(&conn);
        self.feed(Input::Closed(conn, Some("internal error; the log has the details".to_owned())));
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::Dial => {
                self.dialling = Some(Box::pin(dial(self.peer.clone(), self.peer.is_internal(&self.global))))
            }
            Output::HangUp => self.dialling = None,
            Output::Send(conn, message) => self.send(conn, &message),
            Output::Close(conn) => {
                let connection = self.connections.remove(&conn);
                while self.closing.try_join_next().is_some() {}
                if let Some(connection) = connection.filter(|_| self.closing.len() < CLOSING) {
                    self.closing.spawn(connection.close());
                }
            }
        }
    }

    fn send(&mut self, conn: Conn, message: &Message) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let outcome = wire::encode(message).map_err(|error| error.to_string());
        match outcome.and_then(|bytes| connection.send(bytes)) {
            Ok(()) if connection.has_sent_all() => self.follows.push_back(Input::Sent(conn)),
            Ok(()) => self.follows.retain(|follows| !matches!(follows, Input::Sent(sent) if *sent == conn)),
            // There is no known way to get here.
            Err(words) => {
                tracing::error!(peer = %self.peer.address, error = words, "bgp message not sent");
                self.connections.remove(&conn);
                self.follows.push_back(Input::Closed(conn, Some(words)));
            }
        }
    }

    /// Puts up what is new. Numbers alone wake nobody.
    fn post(&mut self) {
        let report = self.fsm.report();
        if report.state != self.since.0 {
            self.since = (report.state, SystemTime::now());
            log(&self.peer, &report);
        }
        let report = PeerReport { wish: self.wish, since: Some(self.since.1), ..report };
        let address = self.peer.address;
        self.reports.send_if_modified(|board| {
            let old = board.peers.insert(address, report.clone());
            old.is_none_or(|old| PeerReport { counts: report.counts, ..old } != report)
        });
    }

    async fn leave(mut self, farewell: Farewell, inbox: mpsc::Receiver<Event>) {
        // Those that were closed before do not take the place of the last ones.
        let mut before = std::mem::take(&mut self.closing);
        let outputs = self.fsm.step(Input::Stop(farewell), self.begun.elapsed(), dice());
        outputs.into_iter().for_each(|output| self.act(output));
        self.dialling = None;
        // What connections still say is nobody's business now, but must not hold them up.
        drop(inbox);
        while self.closing.join_next().await.is_some() {}
        while before.join_next().await.is_some() {}
    }
}

fn log(peer: &Peer, report: &PeerReport) {
    let (peer, state) = (peer.address, report.state);
    match &report.fault {
        Some(fault) => tracing::info!(%peer, %state, reason = %fault, "bgp session changed state"),
        None => tracing::info!(%peer, %state, "bgp session changed state"),
    }
}

async fn dial(peer: Arc<Peer>, internal: bool) -> Result<TcpStream, Fault> {
    let address = peer.address;
    let made = socket::dialler(&peer, internal);
    let (socket, target) =
        made.map_err(|(step, error)| Fault::Socket { peer: address, cause: format!("{step}: {error}") })?;
    let socket = TcpSocket::from_std_stream(socket.into());
    match timeout(DIAL.min(peer.connect_retry.max(Duration::from_secs(1))), socket.connect(target)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(dial_fault(&peer, &error)),
        Err(_) => Err(no_answer(&peer)),
    }
}

fn dial_fault(peer: &Peer, error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Fault::Refused { peer: peer.address, port: peer.port },
        io::ErrorKind::TimedOut => no_answer(peer),
        // Nobody answers for the address, or a router on the way says that the TTL was too small.
        io::ErrorKind::HostUnreachable => {
            let cause = format!("{error}: nobody on the wire has this address, or it is further away than allowed");
            Fault::Unreachable { peer: peer.address, cause }
        }
        _ => Fault::Unreachable { peer: peer.address, cause: error.to_string() },
    }
}

fn no_answer(peer: &Peer) -> Fault {
    let (address, port): (IpAddr, u16) = (peer.address, peer.port);
    if peer.password.is_some() {
        Fault::NoAnswerWithPassword { peer: address, port }
    } else {
        Fault::NoAnswer { peer: address, port }
    }
}

/// A number that nobody can foresee; it only spreads timers.
fn dice() -> u32 {
    let number = RandomState::new().build_hasher().finish();
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
