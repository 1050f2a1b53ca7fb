//! The part of the state machine that time moves.

use std::time::Duration;

use super::{Conn, FIRST_PAUSE, Fsm, Phase, SHORTEST_KEEPALIVE, Session};
use crate::fault::Fault;
use crate::message::Message;
use crate::notification::Notification;

impl Fsm {
    pub(super) fn tick(&mut self) {
        for conn in self.links.iter().map(|link| link.conn).collect::<Vec<_>>() {
            self.tick_link(conn);
        }
        if self.tell_at.is_some_and(|at| at <= self.now) {
            self.tell();
        }
        if let Phase::Pausing(until, redial) = self.phase
            && until <= self.now
        {
            self.phase = Phase::Waiting(redial);
        }
        if let Phase::Waiting(Some(redial)) = self.phase
            && self.links.is_empty()
            && redial <= self.now
        {
            if self.peer.passive { self.uncalled() } else { self.begin() }
        }
    }

    /// Nobody has dialled for long. A reason that is known already says more.
    fn uncalled(&mut self) {
        self.fault.get_or_insert(Fault::NotCalled { peer: self.peer.address });
        self.phase = Phase::Waiting(None);
    }

    fn tick_link(&mut self, conn: Conn) {
        let now = self.now;
        let Some(link) = self.link(conn) else { return };
        if link.is_silent(now) {
            let silence = Fault::HoldExpired(link.hold().unwrap_or_default().as_secs());
            let fault = self.too_far(&link.stage).unwrap_or(silence);
            return self.refuse(conn, fault, Some(Notification::new(4, 0)));
        }
        if link.is_stuck(now) {
            let stuck = link.send_hold().as_secs();
            return self.refuse(conn, Fault::SendHoldExpired(stuck), Some(Notification::new(8, 0)));
        }
        if link.keepalive_at.is_some_and(|at| at <= now) {
            // What has not left yet says that we are alive as well as another keepalive behind it could.
            let idle = link.busy.is_none();
            let next = link.session().and_then(|session| self.keepalive(session)).map(|pause| now + pause);
            self.links.iter_mut().filter(|link| link.conn == conn).for_each(|link| link.keepalive_at = next);
            if idle {
                self.send(conn, Message::Keepalive);
            }
        }
    }

    /// We are to say more or less often that we are alive, beginning now.
    pub(super) fn change_pace(&mut self) {
        let now = self.now;
        let next: Vec<_> = self.links.iter().map(|link| link.session().and_then(|one| self.keepalive(one))).collect();
        for (link, pause) in self.links.iter_mut().zip(next) {
            link.keepalive_at = pause.map(|pause| now + pause);
        }
    }

    /// How often we say that we are alive: a third of the hold time, or more often if asked, less up to a quarter.
    pub(super) fn keepalive(&self, session: &Session) -> Option<Duration> {
        let third = session.hold? / 3;
        let asked = self.peer.keepalive.map_or(third, |asked| asked.max(SHORTEST_KEEPALIVE));
        Some(self.jitter(asked.min(third)))
    }

    /// Three quarters to all of it (RFC 4271 §10).
    fn jitter(&self, time: Duration) -> Duration {
        time * (768 + self.dice % 257) / 1024
    }

    /// The pause after so many failures before this one.
    pub(super) fn pause(&self, failures: u32, longest: Duration) -> Duration {
        let doubled = FIRST_PAUSE.saturating_mul(1 << failures.min(16));
        self.jitter(doubled.min(longest.max(FIRST_PAUSE)))
    }
}
