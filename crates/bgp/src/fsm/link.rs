//! One TCP connection to a peer, and its timers.

use std::time::Duration;

use super::{Conn, Session};
use crate::path::Ends;
use crate::report::State;

/// How long a peer may take to say who it is (RFC 4271 §8.2.2 suggests four minutes).
pub(super) const PATIENCE: Duration = Duration::from_secs(240);

/// The same where only packets from near are let in: who says nothing for so long is not heard.
pub(super) const NEAR_PATIENCE: Duration = Duration::from_secs(10);

/// How long a peer may take nothing of what we send, at least (RFC 9687 §3.1).
const SHORTEST_SEND_HOLD: Duration = Duration::from_secs(8 * 60);

/// Who opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Ours,
    Theirs,
}

/// One connection.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) conn: Conn,
    pub(super) side: Side,
    pub(super) ends: Ends,
    pub(super) stage: Stage,
    /// How long it may take to say who it is.
    patience: Duration,
    /// Something was handed over for sending and has not left yet, since then.
    pub(super) busy: Option<Duration>,
    /// When silence is over.
    pub(super) hold_until: Option<Duration>,
    /// When to say that we are alive.
    pub(super) keepalive_at: Option<Duration>,
}

/// How far it is.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    OpenSent,
    OpenConfirm(Session),
    Established(Session, Duration),
}

impl Link {
    pub(super) fn new(conn: Conn, side: Side, ends: Ends, now: Duration, patience: Duration) -> Self {
        let hold_until = Some(now + patience);
        Self { conn, side, ends, stage: Stage::OpenSent, patience, busy: None, hold_until, keepalive_at: None }
    }

    pub(super) fn state(&self) -> State {
        match self.stage {
            Stage::OpenSent => State::OpenSent,
            Stage::OpenConfirm(_) => State::OpenConfirm,
            Stage::Established(..) => State::Established,
        }
    }

    pub(super) fn session(&self) -> Option<&Session> {
        match &self.stage {
            Stage::OpenSent => None,
            Stage::OpenConfirm(session) | Stage::Established(session, _) => Some(session),
        }
    }

    /// Takes note of the addresses that there are now.
    pub(super) fn readdress(&mut self, ends: &Ends) {
        self.ends = ends.clone();
        if let Stage::OpenConfirm(session) | Stage::Established(session, _) = &mut self.stage {
            session.ends = ends.clone();
        }
    }

    /// How long silence is tolerated now.
    pub(super) fn hold(&self) -> Option<Duration> {
        self.session().map_or(Some(self.patience), |session| session.hold)
    }

    /// The peer is alive.
    pub(super) fn heard(&mut self, now: Duration) {
        self.hold_until = self.hold().map(|hold| now + hold);
    }

    pub(super) fn send_hold(&self) -> Duration {
        SHORTEST_SEND_HOLD.max(self.hold().unwrap_or_default() * 2)
    }

    fn send_hold_until(&self) -> Option<Duration> {
        self.busy.map(|since| since + self.send_hold())
    }

    pub(super) fn is_silent(&self, now: Duration) -> bool {
        self.hold_until.is_some_and(|until| until <= now)
    }

    pub(super) fn is_stuck(&self, now: Duration) -> bool {
        self.send_hold_until().is_some_and(|until| until <= now)
    }

    /// When something is due.
    pub(super) fn wake(&self) -> Option<Duration> {
        [self.hold_until, self.keepalive_at, self.send_hold_until()].into_iter().flatten().min()
    }
}
