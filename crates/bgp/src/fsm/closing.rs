//! The part of the state machine that takes a session down, and pauses.

use std::sync::Arc;
use std::time::Duration;

use super::link::Stage;
use super::{Conn, FIRST_PAUSE, Fsm, Output, Phase, STABLE};
use crate::fault::Fault;
use crate::message::Message;
use crate::notification::Notification;
use crate::report::Direction;
use crate::rib::Rib;
use crate::wish::Ttl;

impl Fsm {
    pub(super) fn closed(&mut self, conn: Conn, words: Option<String>) {
        let Some(link) = self.link(conn) else { return };
        let hint = match link.stage {
            Stage::OpenSent => ": it may not know us as a neighbour",
            Stage::OpenConfirm(_) => ": it may not agree with our side of the session",
            Stage::Established(..) => "",
        };
        let fault = match words {
            None => Fault::Closed { hint },
            Some(words) => self.too_far(&link.stage).unwrap_or(Fault::Broken(words)),
        };
        self.lose(conn, fault);
    }

    /// Why nothing was heard on a connection that stands, where only packets from near are let in: our kernel has dropped
    /// what the peer said, and its acknowledgements too. The OPEN of a peer that dials may come before that begins.
    pub(super) fn too_far(&self, stage: &Stage) -> Option<Fault> {
        match (stage, self.peer.ttl) {
            (Stage::OpenSent | Stage::OpenConfirm(_), Ttl::Security(hops)) => {
                Some(Fault::TooFar { peer: self.peer.address, least: 256 - u16::from(hops.max(1)) })
            }
            _ => None,
        }
    }

    /// Ends a connection because of what happened on it.
    pub(super) fn refuse(&mut self, conn: Conn, fault: Fault, answer: Option<Notification>) {
        if self.link(conn).is_some() {
            self.say_and_close(conn, answer.as_ref());
            self.lose(conn, fault);
        }
    }

    /// Ends a connection that is one too many.
    pub(super) fn forget(&mut self, conn: Conn, answer: Option<Notification>) {
        self.say_and_close(conn, answer.as_ref());
        self.drop_link(conn);
    }

    pub(super) fn close_all(&mut self, farewell: Option<&Notification>) {
        for conn in self.links.iter().map(|link| link.conn).collect::<Vec<_>>() {
            self.say_and_close(conn, farewell);
            self.drop_link(conn);
        }
        if self.phase == Phase::Dialling {
            self.out.push(Output::HangUp);
        }
    }

    pub(super) fn say_and_close(&mut self, conn: Conn, farewell: Option<&Notification>) {
        if let Some(farewell) = farewell {
            self.counts.notifications_sent += 1;
            self.note(Direction::Sent, farewell);
            self.out.push(Output::Send(conn, Message::Notification(farewell.clone())));
        }
        self.out.push(Output::Close(conn));
    }

    /// Keeps a notification for operators. One that only ends the second of two connections says nothing of the session.
    pub(super) fn note(&mut self, direction: Direction, notification: &Notification) {
        let Notification { code, subcode, .. } = *notification;
        let harmless = (code, subcode) == (6, 7) && (direction == Direction::Sent || self.links.len() > 1);
        if !harmless {
            self.counts.last_notification = Some((direction, code, subcode));
        }
    }

    /// A connection is gone, and the session with it unless there is another.
    pub(super) fn lose(&mut self, conn: Conn, fault: Fault) {
        let lasted = self.drop_link(conn);
        if !self.links.is_empty() {
            return;
        }
        self.fault = Some(fault);
        let failures = match lasted {
            None => &mut self.misses,
            Some(lasted) if lasted >= STABLE => {
                self.relapses = 0;
                &mut self.relapses
            }
            Some(_) => &mut self.relapses,
        };
        let before = *failures;
        *failures = before.saturating_add(1);
        if matches!(self.phase, Phase::Waiting(_)) {
            let pause = self.pause(before, self.peer.connect_retry);
            let redial = (!self.peer.passive).then_some(self.now + pause);
            self.phase = Phase::Pausing(self.now + pause.min(FIRST_PAUSE), redial);
        }
    }

    /// Takes a connection off the list, and says how long it was in session.
    fn drop_link(&mut self, conn: Conn) -> Option<Duration> {
        let at = self.links.iter().position(|link| link.conn == conn)?;
        let Stage::Established(_, since) = self.links.remove(at).stage else { return None };
        self.counts.flaps += 1;
        self.limits.clear();
        self.want.clear();
        self.rib = Rib::default();
        (self.told, self.tell_at) = (Arc::default(), None);
        Some(self.now.saturating_sub(since))
    }
}
