//! The state machine of one peer (RFC 4271 §8): `step(input) -> outputs`, without clock, dice or sockets.
//!
//! A peer has up to two connections for a while, when both sides dial at once; each goes through OpenSent, OpenConfirm
//! and Established by itself, and the collision is resolved as soon as both sides are known (§6.8).

mod closing;
mod link;
mod opening;
mod session;
mod telling;
mod timers;

pub use session::Session;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::fault::Fault;
use crate::message::{Heard, Message};
use crate::notification::Notification;
use crate::path::{Ends, Path};
use crate::report::{Counts, Direction, PeerReport, State};
use crate::rib::{Rib, Want};
use crate::wish::{Farewell, Global, Peer, Routes};
use link::{Link, Stage};

/// The first pause after a failure; each further one doubles it. For as long as this, and no longer, the peer is not let
/// in either: two sides that both pause ever longer would hardly meet again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Nobody needs to hear more often that we are alive.
const SHORTEST_KEEPALIVE: Duration = Duration::from_secs(1);

/// A session that lasted so long was a good one: the next failure is a first failure.
const STABLE: Duration = Duration::from_secs(60);

/// The name of a connection, given by whoever runs the machine. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conn(pub u64);

/// What happens to a peer.
#[derive(Clone, Debug)]
pub enum Input {
    /// Begin.
    Start,
    /// End, in one way or the other.
    Stop(Farewell),
    /// What is wanted of the session. Closes it if it must.
    Configure(Arc<Global>, Arc<Peer>),
    /// What is wanted on the session, and whether that is all.
    Wanted(Arc<Routes>, bool),
    /// The dialled connection stands.
    Connected(Conn, Ends),
    /// The dialled connection does not.
    DialFailed(Fault),
    /// The peer has dialled.
    Accepted(Conn, Ends),
    /// The addresses beside our end of a connection have changed.
    Readdressed(Conn, Ends),
    /// A connection is gone; with the kernel's words when it broke.
    Closed(Conn, Option<String>),
    /// A message came.
    Heard(Conn, Heard),
    /// Something else came; it deserves this notification.
    Nonsense(Conn, Notification),
    /// All that was to be sent has left.
    Sent(Conn),
    /// BFD, or another watcher of the path, says that it is gone.
    PathDown,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Open a connection to the peer.
    Dial,
    /// Stop opening it.
    HangUp,
    /// Send this.
    Send(Conn, Message),
    /// Close, after what was to be sent before.
    Close(Conn),
}

/// Where a peer is between connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Switched off.
    Stopped,
    /// Pausing after a session failed; until the first moment nobody is let in, and at the second we dial.
    Pausing(Duration, Option<Duration>),
    /// Waiting to be dialled, or for the time to dial; of a passive peer, for the time to say that it has not dialled.
    Waiting(Option<Duration>),
    /// Dialling.
    Dialling,
}

/// One peer.
#[derive(Clone, Debug)]
pub struct Fsm {
    global: Arc<Global>,
    peer: Arc<Peer>,
    routes: Arc<Routes>,
    complete: bool,
    phase: Phase,
    links: Vec<Link>,
    /// Started, and not stopped.
    on: bool,
    /// Attempts that failed since the last session.
    misses: u32,
    /// Sessions that fell soon, one after the other.
    relapses: u32,
    /// The peer has been in session with this process, so a restart is over.
    met: bool,
    fault: Option<Fault>,
    limits: Vec<Fault>,
    /// The attributes of each family's routes. They keep their identity for as long as they are the same.
    paths: [Option<Arc<Path>>; 2],
    want: Want,
    rib: Rib,
    told: Arc<BTreeSet<IpNet>>,
    /// Something is still to be said, or has not left yet.
    unsaid: bool,
    /// When to say what has to wait for the time between two announcements.
    tell_at: Option<Duration>,
    counts: Counts,
    now: Duration,
    dice: u32,
    out: Vec<Output>,
}

impl Fsm {
    /// A peer that has not been started.
    #[must_use]
    pub fn new(global: Arc<Global>, peer: Arc<Peer>) -> Self {
        Self {
            global,
            peer,
            routes: Arc::default(),
            complete: false,
            phase: Phase::Stopped,
            links: Vec::new(),
            on: false,
            misses: 0,
            relapses: 0,
            met: false,
            fault: None,
            limits: Vec::new(),
            paths: [None, None],
            want: Want::new(),
            rib: Rib::default(),
            told: Arc::default(),
            unsaid: false,
            tell_at: None,
            counts: Counts::default(),
            now: Duration::ZERO,
            dice: 0,
            out: Vec::new(),
        }
    }

    /// Takes one input. `now` is the time since any fixed moment; `dice` is any number, and a different one each time.
    pub fn step(&mut self, input: Input, now: Duration, dice: u32) -> Vec<Output> {
        (self.now, self.dice) = (self.now.max(now), dice);
        match input {
            Input::Start => {
                self.on = true;
                self.start();
            }
            Input::Stop(farewell) => self.stop(&farewell),
            Input::Configure(global, peer) => self.configure(global, peer),
            Input::Wanted(routes, complete) => self.wanted(routes, complete),
            Input::Connected(conn, ends) => self.connected(conn, ends),
            Input::DialFailed(fault) => self.dial_failed(fault),
            Input::Accepted(conn, ends) => self.accepted(conn, ends),
            Input::Readdressed(conn, ends) => self.readdressed(conn, &ends),
            Input::Closed(conn, words) => self.closed(conn, words),
            Input::Heard(conn, heard) => self.heard(conn, heard),
            Input::Nonsense(conn, answer) => self.refuse(conn, Fault::Nonsense(answer.clone()), Some(answer)),
            Input::Sent(conn) => self.sent(conn),
            Input::PathDown => self.path_down(),
            Input::Tick => self.tick(),
        }
        std::mem::take(&mut self.out)
    }

    /// When the machine wants its next [`Input::Tick`].
    #[must_use]
    pub fn wake(&self) -> Option<Duration> {
        let own = match self.phase {
            Phase::Pausing(until, _) => Some(until),
            Phase::Waiting(redial) if self.links.is_empty() => redial,
            _ => None,
        };
        self.links.iter().filter_map(Link::wake).chain(own).chain(self.tell_at).min()
    }

    /// The state, as RFC 4271 names it.
    #[must_use]
    pub fn state(&self) -> State {
        let alone = match self.phase {
            Phase::Stopped | Phase::Pausing(..) => State::Idle,
            Phase::Waiting(_) => State::Active,
            Phase::Dialling => State::Connect,
        };
        self.links.iter().map(Link::state).max().unwrap_or(alone)
    }

    /// What an operator wants to know. The number of the wish and the time in this state are for the caller to add.
    #[must_use]
    pub fn report(&self) -> PeerReport {
        let session = self.established().and_then(Link::session);
        PeerReport {
            wish: 0,
            state: self.state(),
            since: None,
            fault: self.fault.clone(),
            limits: self.limits.clone(),
            families: session.map(|session| session.families).unwrap_or_default(),
            restart_time: session.map_or(0, |session| session.restart_time),
            told: self.told.clone(),
            converged: session.is_some() && !self.unsaid,
            counts: self.counts,
        }
    }

    fn start(&mut self) {
        if self.on && self.phase == Phase::Stopped && !self.peer.admin_down {
            self.begin();
        }
    }

    fn stop(&mut self, farewell: &Farewell) {
        let kept = self.established().and_then(Link::session).is_some_and(|session| session.restart_time > 0);
        let words = match farewell {
            Farewell::Restart(_) if kept => None,
            Farewell::Cease(words) | Farewell::Restart(words) => Some(Notification::shutdown(words)),
            Farewell::Deconfigured => Some(Notification::new(6, 3)),
            Farewell::Silent => None,
        };
        self.close_all(words.as_ref());
        (self.on, self.phase) = (false, Phase::Stopped);
    }

    fn configure(&mut self, global: Arc<Global>, peer: Arc<Peer>) {
        let same_us = |a: &Global, b: &Global| (a.asn, a.router_id, &a.name) == (b.asn, b.router_id, &b.name);
        let keep = same_us(&self.global, &global) && self.peer.same_session(&peer);
        let other_doors = peer.passive && self.global.listen != global.listen;
        let other_side = self.peer.passive != peer.passive;
        let other_pace = self.peer.keepalive != peer.keepalive;
        if self.peer.advertisement_interval != peer.advertisement_interval {
            self.rib.wake(Duration::MAX);
        }
        (self.global, self.peer) = (global, peer);
        if keep {
            if other_doors || other_side {
                self.change_sides();
            }
            if other_pace {
                self.change_pace();
            }
            self.choose();
            self.tell();
        } else {
            let farewell = if self.peer.admin_down { Notification::shutdown("") } else { Notification::new(6, 6) };
            self.close_all(Some(&farewell));
            (self.misses, self.relapses, self.fault, self.phase) = (0, 0, None, Phase::Stopped);
            self.start();
        }
    }

    /// Who dials is another one now, or we can be dialled elsewhere. Connections that there are stay.
    fn change_sides(&mut self) {
        if self.phase == Phase::Stopped {
            return;
        }
        if self.phase == Phase::Dialling && self.peer.passive {
            self.out.push(Output::HangUp);
            self.phase = Phase::Waiting(None);
        }
        if self.links.is_empty() && matches!(self.phase, Phase::Waiting(_) | Phase::Pausing(..)) {
            self.begin();
        }
    }

    /// Dials, or waits to be dialled.
    fn begin(&mut self) {
        if self.peer.passive {
            self.wait();
        } else {
            self.phase = Phase::Dialling;
            self.out.push(Output::Dial);
        }
    }

    /// Waits to be dialled, and for the time to say so.
    fn wait(&mut self) {
        let peer = self.peer.address;
        if self.global.listen.is_none() {
            (self.fault, self.phase) = (Some(Fault::NotListening { peer }), Phase::Waiting(None));
        } else {
            self.fault.take_if(|fault| matches!(fault, Fault::NotCalled { .. } | Fault::NotListening { .. }));
            self.phase = Phase::Waiting(Some(self.now + self.peer.connect_retry));
        }
    }

    fn heard(&mut self, conn: Conn, heard: Heard) {
        let now = self.now;
        let Some(link) = self.links.iter_mut().find(|link| link.conn == conn) else { return };
        if !matches!(link.stage, Stage::OpenSent) {
            link.heard(now);
        }
        match (&link.stage, heard) {
            (_, Heard::Notification(farewell)) => {
                self.counts.notifications_heard += 1;
                self.note(Direction::Heard, &farewell);
                self.out.push(Output::Close(conn));
                self.lose(conn, Fault::Told(farewell));
            }
            (Stage::OpenSent, Heard::Open(open)) => self.opened(conn, &open),
            (Stage::OpenConfirm(session), Heard::Keepalive) => {
                let session = session.clone();
                self.establish(conn, session);
            }
            (Stage::Established(..), Heard::Keepalive) => {}
            (Stage::Established(..), Heard::Update(tally)) => self.count(tally),
            (Stage::Established(..), Heard::Refresh(family)) => self.refresh(family),
            // RFC 6608: what does not belong here, by the state it came in.
            (stage, _) => {
                let subcode = match stage {
                    Stage::OpenSent => 1,
                    Stage::OpenConfirm(_) => 2,
                    Stage::Established(..) => 3,
                };
                let answer = Notification::new(5, subcode);
                self.refuse(conn, Fault::Nonsense(answer.clone()), Some(answer));
            }
        }
    }

    fn path_down(&mut self) {
        if let Some(conn) = self.established().map(|link| link.conn) {
            self.refuse(conn, Fault::PathDown, Some(Notification::new(6, 10)));
        }
    }

    fn link(&self, conn: Conn) -> Option<&Link> {
        self.links.iter().find(|link| link.conn == conn)
    }

    fn established(&self) -> Option<&Link> {
        self.links.iter().find(|link| matches!(link.stage, Stage::Established(..)))
    }

    fn send(&mut self, conn: Conn, message: Message) {
        let now = self.now;
        if let Some(link) = self.links.iter_mut().find(|link| link.conn == conn) {
            link.busy.get_or_insert(now);
            self.counts.updates_sent += u64::from(matches!(message, Message::Update(_)));
            self.out.push(Output::Send(conn, message));
        }
    }
}

#[cfg(test)]
mod tests;
