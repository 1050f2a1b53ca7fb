//! One look at one Service: what it should get is decided, claimed in the book, and becomes a job.

use std::time::Duration;

use jiff::Timestamp;
use purelb_api::{read, write};
use purelb_core::alloc::{Decision, Wish, decide};
use purelb_core::book::Holding;
use purelb_core::pool::ServiceKey;
use tokio::time::Instant;

use super::{Busy, Desk};
use crate::allocator::job::Job;

/// Writes to one Service that are closer together than this count as one succession.
pub(super) const SHORT: Duration = Duration::from_secs(10);
/// How many writes in short succession a Service may need; more means that somebody undoes what we write.
const SUCCESSION: u32 = 8;

impl Desk {
    /// One look at one Service: nothing to do, or the job that does it.
    pub(super) fn look(&mut self, key: &ServiceKey, now: Timestamp, at: Instant) -> Option<Job> {
        if self.busy.contains_key(key) || self.pauses.is_paused(key, at) || read::is_ignored(key) {
            return None;
        }
        self.adopt_holder(key);
        let record = self.services.at(key)?;
        let decision = decide(&self.scope, &self.book, &self.truly(&record.view));
        if !matches!(decision, Decision::AskExternal(_)) {
            self.externals.forget(key);
        }
        let job = match decision {
            Decision::LeaveAlone => {
                self.waiting.remove(key);
                self.review(key);
                return None;
            }
            Decision::Wish(wish) => self.pursue(key, wish, now, at),
            Decision::AskExternal(request) => self.ask(key, request, now, at),
        };
        self.review(key);
        job.or_else(|| self.tidy(key, at))
    }

    /// Claims what a wish takes and gives the job that writes it.
    pub(super) fn pursue(&mut self, key: &ServiceKey, wish: Wish, now: Timestamp, at: Instant) -> Option<Job> {
        if wish.reason.is_some() {
            self.waiting.insert(key.clone());
        } else {
            self.waiting.remove(key);
        }
        if wish.is_fulfilled_by(&self.services.at(key)?.view) {
            self.pauses.forget(key);
            return None;
        }
        if !self.keeps_pace(key, at) {
            return None;
        }
        let record = self.services.at(key)?;
        let view = &record.view;
        let shown = view.addresses();
        let mut addrs = shown.clone();
        addrs.extend(wish.addrs.iter().filter(|addr| !shown.contains(addr)));
        let patch = write::service_patch(record, &wish, self.term, now);
        let job = Job::Patch { service: key.clone(), patch, notices: wish.notices.clone() };
        let shown = (shown, self.truly(view).brand.from.clone());
        self.book.hold(Holding { uid: view.uid.clone(), claim: view.claim(), addrs });
        self.busy.insert(key.clone(), Busy { wish: Some(wish), shown, forms: self.forms, ..Busy::with(job.clone()) });
        Some(job)
    }

    /// Whether a Service may be written to now: not if somebody undoes what we write as fast as we write it.
    pub(super) fn keeps_pace(&mut self, key: &ServiceKey, at: Instant) -> bool {
        let streak = match self.paces.get(key) {
            Some((last, streak)) if *last + SHORT > at => streak + 1,
            _ => 1,
        };
        if streak > SUCCESSION {
            self.pauses.failed(key, at);
            return false;
        }
        self.paces.insert(key.clone(), (at, streak));
        true
    }
}
