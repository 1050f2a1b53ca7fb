//! Groups whose addresses come from an external IPAM: who asks, who is entered as a holder before, and who gives back.
//!
//! An IPAM remembers what it gave; a Service that is gone remembers nothing. So a Service is put on record as a holder
//! before the IPAM is asked, and leaves the record once the IPAM was told that its addresses are free. Whoever leads next
//! compares the record with the Services there are, and tells the IPAM of those who are gone.

use std::net::IpAddr;

use jiff::Timestamp;
use purelb_api::holders::Holders;
use purelb_core::alloc::{Decision, ExternalRequest, Notice, Severity, Wish, accept, decide};
use purelb_core::group::Source;
use purelb_core::pool::ServiceKey;
use purelb_core::reason::Reason;
use purelb_core::report::Stock;
use tokio::time::Instant;

use super::externals::{AT_ONCE, Telling};
use super::{Busy, Desk, Phase};
use crate::allocator::job::{Job, NoAddress, NotReleased, RecordOutcome, Release};

impl Desk {
    /// The next call to an IPAM, if there is one and its socket has room.
    pub fn next_external(&mut self, at: Instant) -> Option<Job> {
        if self.phase != Phase::Deciding {
            return None;
        }
        self.externals.next(at)
    }

    /// The next look at the record, or write to it. What nobody waits for is written only when it is `due`.
    pub fn next_record(&mut self, due: bool, at: Instant) -> Option<Job> {
        let needed = !self.externals.parked.is_empty();
        if self.phase != Phase::Deciding || !(due || needed) {
            return None;
        }
        let (externals, services) = (&self.externals, &self.services);
        self.record.next(|| externals.holders(services), needed, at)
    }

    /// Whether the record is to be read or written.
    pub fn has_record(&self, at: Instant) -> bool {
        self.phase == Phase::Deciding && self.record.is_stale(!self.externals.parked.is_empty(), at)
    }

    /// The record was read or written, or was not: those who wait for it look again, be it to be told why they wait.
    pub(super) fn recorded(&mut self, outcome: RecordOutcome, at: Instant) {
        let first = !self.record.was_read();
        if let Some(holders) = self.record.done(outcome, at).cloned() {
            if first {
                self.credit_recorded(&holders);
            }
            self.take_over(&holders);
        }
        let parked: Vec<_> = self.externals.parked.iter().cloned().collect();
        parked.iter().for_each(|key| self.enqueue(key));
    }

    /// Takes over from the last leader, whose groups may be gone by now.
    fn take_over(&mut self, holders: &Holders) {
        for (group, held) in &holders.groups {
            for (service, noted) in &held.services {
                let key: ServiceKey = service.as_str().into();
                self.enter_holder(&key, group, &held.socket);
                self.owe_what_is_gone(&key, group, &held.socket, noted);
                // Those that are there are looked at anyway; the others may have been retyped.
                if self.services.at(&key).is_none() && !self.busy.contains_key(&key) {
                    self.read(&key);
                }
                self.review(&key);
            }
        }
    }

    /// A Service that shows some addresses of the group no longer needs the others that were noted for it.
    fn owe_what_is_gone(&mut self, key: &ServiceKey, group: &str, socket: &str, noted: &[IpAddr]) {
        let shown = self.shown_from(key, group);
        if shown.is_empty() {
            return;
        }
        for &addr in noted.iter().filter(|addr| !shown.contains(addr)) {
            self.owe(key, group, socket, Some(addr));
        }
    }

    /// The usable external groups with their sockets.
    pub(super) fn external_groups(&self) -> Vec<(String, String)> {
        let external = self.book.slots().filter_map(|slot| match &slot.group.source {
            Source::External { socket, .. } => Some((slot.group.name.clone(), socket.clone())),
            _ => None,
        });
        external.collect()
    }

    pub(super) fn socket_of(&self, group: &str) -> Option<String> {
        match &self.book.slot(group).ok()?.group.source {
            Source::External { socket, .. } => Some(socket.clone()),
            _ => None,
        }
    }

    pub(super) fn enter_holder(&mut self, key: &ServiceKey, group: &str, socket: &str) {
        if self.externals.enter(key, group, socket) {
            self.touched();
        }
    }

    /// Asks the IPAM as soon as the Service is a holder on record. Where nobody can be put on record, the Service is told.
    pub(super) fn ask(
        &mut self,
        key: &ServiceKey,
        request: ExternalRequest,
        now: Timestamp,
        at: Instant,
    ) -> Option<Job> {
        let (group, socket) = (request.group.clone(), request.socket.clone());
        self.externals.asking.insert(key.clone(), request.clone());
        self.enter_holder(key, &group, &socket);
        if self.externals.ask_pauses.is_paused(key, at) {
            return None;
        }
        match self.giving_back(key, &group) {
            Some(Telling::Unsure) => {
                let why = "it has not confirmed that what the Service had is free; it is told so again".to_owned();
                return self.wait_for_ipam(key, &request, Reason::ExternalFailed { group, why }, now, at);
            }
            Some(_) => return None,
            None => {}
        }
        if !self.record.names(&group, key) {
            self.externals.parked.insert(key.clone());
            let reason = Reason::HoldersUnrecorded { group, why: self.record.refusal()?.to_owned() };
            return self.wait_for_ipam(key, &request, reason, now, at);
        }
        let record = self.services.at(key)?;
        self.externals.parked.remove(key);
        let sharing_key = record.view.asks.sharing_key.as_deref().map(str::to_owned);
        let job = Job::Ask { service: key.clone(), sharing_key, request };
        self.busy.insert(key.clone(), Busy::with(job.clone()));
        self.externals.line_up(&socket, job);
        None
    }

    /// The IPAM cannot be asked yet, and the Service is told why.
    fn wait_for_ipam(
        &mut self,
        key: &ServiceKey,
        request: &ExternalRequest,
        reason: Reason,
        now: Timestamp,
        at: Instant,
    ) -> Option<Job> {
        let view = self.truly(&self.services.at(key)?.view);
        let Decision::Wish(wish) = accept(&self.book, &view, request, Err(reason)) else { return None };
        self.pursue(key, wish, now, at)
    }

    /// Whether the IPAM is being told that the Service needs nothing, or was told and has not answered: what it gives now,
    /// that may free. What it has not been told yet, it need not be told: it answers with what the Service has.
    fn giving_back(&mut self, key: &ServiceKey, group: &str) -> Option<Telling> {
        self.externals.cancel_owed(key, group);
        let mut owed = self.externals.owed.iter();
        owed.find(|(release, _)| release.service == *key && release.group == group).map(|(_, telling)| *telling)
    }

    /// An IPAM has answered.
    pub(super) fn answered(
        &mut self,
        key: &ServiceKey,
        was: &Job,
        answer: Result<Vec<IpAddr>, NoAddress>,
        now: Timestamp,
        at: Instant,
    ) {
        let Job::Ask { request, .. } = was else { return };
        self.answers(&request.socket, answer.is_ok());
        if answer.is_ok() {
            self.want_count(&request.group);
            // There may be more where this came from.
            self.externals.end_pauses(&request.group, 1).iter().for_each(|key| self.enqueue(key));
        }
        let Some(record) = self.services.at(key) else { return self.read(key) };
        let view = self.truly(&record.view);
        let still = decide(&self.scope, &self.book, &view);
        if still != Decision::AskExternal(request.clone()) {
            // Something else is wanted by now. What was given is asked for again, or given back.
            return self.enqueue(key);
        }
        let given = answer.clone().unwrap_or_default();
        let silent = answer.as_ref().is_err_and(|error| error.silent);
        let answer = answer.map_err(|error| error.reason);
        let Decision::Wish(wish) = accept(&self.book, &view, request, answer) else { return };
        self.externals.heard(key, silent, wish.reason.is_some(), at);
        self.give_back_refused(key, request, &given, &wish);
        if let Some(job) = self.pursue(key, wish, now, at) {
            self.busy.entry(key.clone()).and_modify(|busy| busy.answered = true);
            self.ready.push_back(job);
        }
    }

    /// Gives back what an IPAM gave and nobody can use, unless another Service has it from the very same group: then it
    /// is better to have two entries there than none.
    fn give_back_refused(&mut self, key: &ServiceKey, request: &ExternalRequest, given: &[IpAddr], wish: &Wish) {
        let shown = self.shown_from(key, &request.group);
        let unused: Vec<_> = given.iter().filter(|addr| !wish.addrs.contains(addr) && !shown.contains(addr)).collect();
        for addr in unused {
            if !self.is_held_from(*addr, &request.group) {
                self.owe(key, &request.group, &request.socket, Some(*addr));
            }
        }
    }

    /// Whether some Service shows an address that comes from a group.
    fn is_held_from(&self, addr: IpAddr, group: &str) -> bool {
        let mut holders = self.book.holdings().filter(|holding| holding.addrs.contains(&addr));
        holders.any(|holding| self.shown_from(&holding.claim.service, group).contains(&addr))
    }

    /// What a confirmed write took off a Service, while others of the same group stay.
    pub(super) fn give_back_dropped(&mut self, key: &ServiceKey, busy: &Busy) {
        let (before, Some(group)) = &busy.shown else { return };
        let Some(socket) = self.socket_of(group) else { return };
        let shown = self.shown_from(key, group);
        // Without any of them left, everything is given back.
        if !shown.is_empty() {
            let dropped: Vec<_> = before.iter().filter(|addr| !shown.contains(addr)).collect();
            dropped.into_iter().for_each(|addr| self.owe(key, group, &socket, Some(*addr)));
        }
    }

    /// Gives back what a Service may hold of groups that it has nothing of and wants nothing of.
    pub(super) fn review(&mut self, key: &ServiceKey) {
        let Some(groups) = self.externals.by_service.get(key) else { return };
        for (group, held) in groups.clone() {
            if self.phase == Phase::Deciding && !self.needs(key, &group) {
                let socket = self.socket_of(&group).unwrap_or(held.socket);
                self.owe(key, &group, &socket, None);
            }
        }
    }

    /// Whether a Service has addresses of a group, wants some, or may be about to get some.
    fn needs(&self, key: &ServiceKey, group: &str) -> bool {
        let asks = self.externals.asking.get(key).is_some_and(|request| request.group == group);
        let under_way = self.busy.get(key).is_some_and(|busy| match &busy.job {
            Job::Ask { request, .. } => request.group == group,
            _ => busy.wish.as_ref().is_some_and(|wish| wish.brand.from.as_deref() == Some(group)),
        });
        asks || under_way || self.is_astray(key) || !self.shown_from(key, group).is_empty()
    }

    fn owe(&mut self, key: &ServiceKey, group: &str, socket: &str, addr: Option<IpAddr>) {
        let release = Release { socket: socket.to_owned(), group: group.to_owned(), service: key.clone(), addr };
        self.externals.owed.entry(release).or_insert(Telling::NotYet);
        self.touched();
    }

    /// An IPAM was told, or could not be.
    pub(super) fn released(&mut self, release: &Release, error: Option<NotReleased>, at: Instant) {
        self.answers(&release.socket, error.is_none());
        let Release { group, service, addr, .. } = release;
        if let Some(error) = error {
            // That it is refused now does not say what became of the first attempt.
            let before = self.externals.owed.get(release) == Some(&Telling::UnderWay { unsure: true });
            let telling = if error.unsure || before { Telling::Unsure } else { Telling::NotYet };
            self.externals.owed.insert(release.clone(), telling);
            if self.externals.release_pauses.failed(release, at) == 1 {
                self.tell_of_failed_release(release, &error.why);
            }
            self.enqueue(service);
            return;
        }
        self.externals.owed.remove(release);
        self.externals.release_pauses.forget(release);
        if addr.is_none() && !self.needs(service, group) {
            self.externals.strike(service, group);
        }
        self.want_count(group);
        self.touched();
        self.enqueue(service);
        // What was given back because nobody could use it helps nobody else either.
        if addr.is_none() {
            self.externals.end_pauses(group, AT_ONCE).iter().for_each(|key| self.enqueue(key));
        }
    }

    /// A Service that lives on is told once that what it gave up is not free yet.
    fn tell_of_failed_release(&mut self, release: &Release, error: &str) {
        let Some(record) = self.services.at(&release.service).filter(|_| release.addr.is_some()) else { return };
        let message = format!("Failed to release addresses after IP family transition: {error}");
        let notice = Notice { severity: Severity::Warning, reason: "ReleaseFailed", message };
        let service = (release.service.clone(), record.view.uid.clone());
        self.ready.push_back(Job::Tell { service, notice });
    }

    /// A call has ended; if the IPAM answers again after a silence, all who wait for it ask at once.
    fn answers(&mut self, socket: &str, well: bool) {
        for key in self.externals.ended(socket, well) {
            self.enqueue(&key);
        }
    }

    /// Asks how full external groups are of which that is not known.
    pub(super) fn count_new_groups(&mut self) {
        let groups = self.external_groups();
        self.externals.stocks.retain(|name, _| groups.iter().any(|(group, _)| group == name));
        self.externals.uncounted.retain(|key| groups.iter().any(|(group, _)| *group == key.1));
        self.externals.count_pauses.retain(|key| groups.iter().any(|(group, _)| *group == key.1));
        for (group, _) in groups {
            if !self.externals.stocks.contains_key(&group) {
                self.want_count(&group);
            }
        }
    }

    fn want_count(&mut self, group: &str) {
        if let Some(socket) = self.socket_of(group) {
            self.externals.uncounted.insert((socket, group.to_owned()));
        }
    }

    /// An IPAM has said how full a group is, or has not: then the last word stands.
    pub(super) fn counted(&mut self, socket: &str, group: &str, stock: Option<Stock>, at: Instant) {
        self.answers(socket, stock.is_some());
        let key = (socket.to_owned(), group.to_owned());
        self.externals.counting.remove(&key);
        match stock {
            None => {
                self.externals.count_pauses.failed(&key, at);
                self.externals.uncounted.insert(key);
            }
            Some(stock) => {
                self.externals.count_pauses.forget(&key);
                if self.externals.stocks.insert(group.to_owned(), stock.clone()).as_ref() != Some(&stock) {
                    self.touched();
                }
            }
        }
    }
}
