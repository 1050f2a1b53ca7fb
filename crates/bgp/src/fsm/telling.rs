//! The part of the state machine that tells routes, and hears about others'.

use std::sync::Arc;
use std::time::Duration;

use super::{Conn, Fsm};
use crate::fault::Fault;
use crate::message::{Message, Tally};
use crate::path::{Ends, Path};
use crate::rib::{self, Want};
use crate::wire;
use crate::wish::{Family, Routes};

/// Messages handed over at once. The next ones follow when these have left, and are then made of what is wanted then: a
/// peer that takes nothing costs this much memory and no more.
const BURST: usize = 32;

/// The least room for prefixes that is worth a message.
const LEAST_ROOM: usize = 256;

impl Fsm {
    pub(super) fn wanted(&mut self, routes: Arc<Routes>, complete: bool) {
        (self.routes, self.complete) = (routes, complete);
        self.choose();
        self.tell();
    }

    /// Addresses have come or gone, and perhaps a next hop with them.
    pub(super) fn readdressed(&mut self, conn: Conn, ends: &Ends) {
        let link = self.links.iter_mut().find(|link| link.conn == conn && link.ends != *ends);
        let Some(link) = link else { return };
        link.readdress(ends);
        self.choose();
        self.tell();
    }

    /// What this peer should know, on the session there is.
    pub(super) fn choose(&mut self) {
        let Some(session) = self.established().and_then(|link| link.session()).cloned() else { return };
        self.limits.clear();
        let mut before = std::mem::take(&mut self.paths);
        for family in self.peer.families.iter() {
            let path = if session.families.has(family) {
                Path::choose(family, &session, &self.global, &self.peer).and_then(fits)
            } else {
                Err(Fault::FamilyNotSpoken(family))
            };
            match path {
                Ok(path) => {
                    let known = &mut before[family as usize];
                    if known.as_ref().is_none_or(|known| known.next_hop != path.next_hop) {
                        // Traffic goes where nobody is until the peer hears of it.
                        self.rib.wake(Duration::MAX);
                    }
                    let same = known.take_if(|known| **known == path);
                    self.paths[family as usize] = Some(same.unwrap_or_else(|| Arc::new(path)));
                }
                Err(limit) => self.limits.push(limit),
            }
        }
        let path = |family: Family| self.paths[family as usize].clone();
        let chosen = rib::chosen(&self.routes, self.peer.advertise.groups.as_ref());
        self.want = chosen.filter_map(|net| Some((net, path(Family::of_net(&net))?))).collect::<Want>();
    }

    /// Says the next part of what is left to say, if the last part has left.
    pub(super) fn tell(&mut self) {
        let Some(link) = self.established() else { return };
        let conn = link.conn;
        // What is left to say is looked at again when this has left.
        (self.unsaid, self.tell_at) = (link.busy.is_some(), None);
        if self.unsaid {
            return;
        }
        self.rib.wake(self.now);
        let updates = self.rib.next(&self.want, self.complete, BURST);
        if !self.peer.advertisement_interval.is_zero() {
            self.rib.rest(&updates, self.now + self.peer.advertisement_interval);
        }
        self.tell_at = self.rib.next_wake(&self.want);
        self.unsaid = self.tell_at.is_some() || !updates.is_empty();
        if !updates.is_empty() {
            updates.into_iter().for_each(|update| self.send(conn, Message::Update(update)));
            self.told = Arc::new(self.rib.held());
        }
    }

    pub(super) fn sent(&mut self, conn: Conn) {
        let Some(link) = self.links.iter_mut().find(|link| link.conn == conn) else { return };
        link.busy = None;
        if self.established().is_some_and(|link| link.conn == conn) {
            if self.rib.settled() {
                self.told = Arc::new(self.rib.held());
            }
            self.tell();
        }
    }

    /// The peer asks for everything again.
    pub(super) fn refresh(&mut self, family: Option<Family>) {
        if let Some(family) = family {
            self.rib.refresh(family);
            self.tell();
        }
    }

    pub(super) fn count(&mut self, tally: Tally) {
        self.counts.updates_heard += 1;
        self.counts.malformed += u64::from(tally.malformed);
        self.counts.routes_heard = self.counts.routes_heard.saturating_add(tally.announced);
        self.counts.routes_withdrawn = self.counts.routes_withdrawn.saturating_add(tally.withdrawn);
    }
}

fn fits(path: Path) -> Result<Path, Fault> {
    if wire::room(&path) < LEAST_ROOM { Err(Fault::AttributesTooLong) } else { Ok(path) }
}
