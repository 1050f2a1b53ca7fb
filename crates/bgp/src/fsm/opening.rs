//! The part of the state machine that brings a session up: dialling, being dialled, and who stays when both happen.

use std::time::Duration;

use super::link::{Link, NEAR_PATIENCE, PATIENCE, Side, Stage};
use super::{Conn, Fsm, Output, Phase, Session, session};
use crate::fault::Fault;
use crate::message::{Message, Open};
use crate::notification::Notification;
use crate::path::Ends;
use crate::report::Counts;
use crate::rib::Rib;
use crate::wish::Ttl;

/// A second connection of the peer this soon after the first came into session was dialled at the same time.
const YOUNG: Duration = Duration::from_secs(5);

impl Fsm {
    pub(super) fn connected(&mut self, conn: Conn, ends: Ends) {
        if self.phase != Phase::Dialling {
            return self.out.push(Output::Close(conn));
        }
        self.phase = Phase::Waiting(None);
        self.greet(conn, Side::Ours, ends);
    }

    pub(super) fn dial_failed(&mut self, fault: Fault) {
        if self.phase == Phase::Dialling {
            self.fault = Some(fault);
            let pause = self.pause(self.misses, self.peer.connect_retry);
            self.misses = self.misses.saturating_add(1);
            self.phase = Phase::Waiting(Some(self.now + pause));
        }
    }

    pub(super) fn accepted(&mut self, conn: Conn, ends: Ends) {
        if matches!(self.phase, Phase::Stopped | Phase::Pausing(..)) {
            return self.out.push(Output::Close(conn));
        }
        let in_the_way = |link: &&Link| link.side == Side::Theirs || matches!(link.stage, Stage::Established(..));
        if let Some(old) = self.links.iter().find(in_the_way) {
            match &old.stage {
                // The older of two that both say nothing is the dead one.
                Stage::OpenSent => self.forget(old.conn, Some(Notification::new(6, 7))),
                // A peer that dials anew has restarted, if it had agreed to restart gracefully (RFC 4724 §4.2). Just
                // after the session came up it is a connection that it began before.
                Stage::Established(session, since) if session.restart_time > 0 && self.now >= *since + YOUNG => {
                    self.forget(old.conn, None);
                }
                _ => return self.say_and_close(conn, Some(&Notification::new(6, 7))),
            }
        }
        self.greet(conn, Side::Theirs, ends);
    }

    fn greet(&mut self, conn: Conn, side: Side, ends: Ends) {
        let hello = session::hello(&self.global, &self.peer, &ends, self.met);
        let patience = if matches!(self.peer.ttl, Ttl::Security(_)) { NEAR_PATIENCE } else { PATIENCE };
        self.links.push(Link::new(conn, side, ends, self.now, patience));
        self.send(conn, Message::Open(hello));
    }

    /// The peer has said who it is.
    pub(super) fn opened(&mut self, conn: Conn, open: &Open) {
        let Some(link) = self.link(conn) else { return };
        let session = match session::agree(&self.global, &self.peer, &link.ends, open) {
            Ok(session) => session,
            Err(no) => return self.refuse(conn, no.0, Some(no.1)),
        };
        if let Some(rival) = self.links.iter().find(|link| link.conn != conn) {
            let (rival, loser) = (rival.conn, self.loser(rival, link, open));
            if loser == Some(conn) {
                return self.forget(conn, Some(Notification::new(6, 7)));
            }
            loser.is_some().then(|| self.forget(rival, Some(Notification::new(6, 7))));
        }
        // From here on the peer may take this connection for the one; another must not begin now.
        if self.phase == Phase::Dialling {
            self.out.push(Output::HangUp);
            self.phase = Phase::Waiting(None);
        }
        let keepalive = self.keepalive(&session);
        let now = self.now;
        if let Some(link) = self.links.iter_mut().find(|link| link.conn == conn) {
            link.stage = Stage::OpenConfirm(session);
            link.keepalive_at = keepalive.map(|pause| now + pause);
            link.heard(now);
        }
        self.send(conn, Message::Keepalive);
    }

    /// Collision (RFC 4271 §6.8, RFC 6286 §2.3): the connection opened by the side with the higher identifier stays, and
    /// one that is in session stays in any case. An OPEN has come on `link`.
    ///
    /// A winning rival on which nothing was heard yet counts only if it is ours: the peer will see our OPEN on it and
    /// decide likewise. On theirs an OPEN may never come, so both live until it does.
    fn loser(&self, rival: &Link, link: &Link, open: &Open) -> Option<Conn> {
        let ours = (self.global.router_id, self.peer.our_asn(&self.global));
        let winner = if ours > (open.id, open.asn) { Side::Ours } else { Side::Theirs };
        match rival.stage {
            Stage::Established(..) => Some(link.conn),
            Stage::OpenSent if rival.side == winner && rival.side == Side::Theirs => None,
            _ if rival.side == winner || rival.side == link.side => Some(link.conn),
            _ => Some(rival.conn),
        }
    }

    pub(super) fn establish(&mut self, conn: Conn, session: Session) {
        let others: Vec<_> = self.links.iter().map(|link| link.conn).filter(|other| *other != conn).collect();
        others.into_iter().for_each(|other| self.forget(other, Some(Notification::new(6, 7))));
        self.fault = None;
        (self.met, self.misses) = (true, 0);
        self.counts = Counts { ups: self.counts.ups + 1, routes_heard: 0, routes_withdrawn: 0, ..self.counts };
        self.rib = Rib::new(session.families);
        let now = self.now;
        if let Some(link) = self.links.iter_mut().find(|link| link.conn == conn) {
            link.stage = Stage::Established(session, now);
        }
        self.choose();
        self.tell();
    }
}
