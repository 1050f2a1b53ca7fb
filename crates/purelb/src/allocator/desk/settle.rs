//! What becomes of a Service when a job about it has ended, whatever happened meanwhile.

use jiff::Timestamp;
use purelb_api::read::ServiceRecord;
use purelb_api::write;
use purelb_core::addr::Family;
use purelb_core::alloc::{Notice, Severity, Way, Wish};
use purelb_core::pool::ServiceKey;
use purelb_core::reason::Reason;
use purelb_core::service::ServiceView;
use tokio::time::Instant;

use super::{Busy, Desk, Tally};
use crate::allocator::job::{Job, Outcome};

impl Desk {
    /// A job about a Service has ended.
    pub(super) fn settle(&mut self, key: &ServiceKey, outcome: Outcome, now: Timestamp, at: Instant) {
        let Some(busy) = self.busy.remove(key) else { return };
        if let Outcome::Is(record) | Outcome::Retyped(record, _) = &outcome {
            self.heed(record);
        }
        match outcome {
            // What was answered may be older than the news that the Service has left: the claim stands until that is clear.
            Outcome::Is(_) | Outcome::Retyped(..) if busy.left && self.services.at(key).is_none() => {
                self.read_after(key, busy);
            }
            Outcome::Is(record) => self.settle_as(key, *record, &busy),
            Outcome::Retyped(record, kind) => self.retyped(key, &record, &kind, &busy.job),
            Outcome::Gone => self.gone(key, &busy, at),
            Outcome::Conflict => self.read_again(key, busy, at),
            // That it is refused now does not say what became of the first attempt.
            Outcome::Refused(why) if !busy.unsure => self.refused(key, why, at),
            Outcome::Refused(_) | Outcome::Unsure(_) => drop(self.retry(key, Busy { unsure: true, ..busy }, at)),
            Outcome::NotSent => self.not_sent(key, busy, at),
            Outcome::Answer(answer) => self.answered(key, &busy.job, answer, now, at),
        }
        self.review(key);
    }

    /// The very same once more, after a pause. Answers with how often it went wrong in a row.
    fn retry(&mut self, key: &ServiceKey, busy: Busy, at: Instant) -> u32 {
        self.busy.insert(key.clone(), busy);
        self.pauses.failed(key, at)
    }

    /// Somebody was faster. What was claimed in vain is taken back when the truth is known.
    fn read_again(&mut self, key: &ServiceKey, busy: Busy, at: Instant) {
        // Once is a coincidence; again and again, somebody writes as fast as we do.
        if self.pauses.failed(key, at) == 1 {
            self.pauses.end(key);
            self.read_after(key, busy);
        } else {
            self.busy.insert(key.clone(), busy.then_read(key));
        }
    }

    /// Reads a Service, and remembers what it showed before the job of which nobody knows what became.
    fn read_after(&mut self, key: &ServiceKey, busy: Busy) {
        let busy = busy.then_read(key);
        self.ready.push_back(busy.job.clone());
        self.busy.insert(key.clone(), busy);
    }

    /// The leadership has ended. Should it go on after all, everything is tried again.
    fn not_sent(&mut self, key: &ServiceKey, busy: Busy, at: Instant) {
        if let Job::Ask { request, .. } = &busy.job {
            self.externals.ended(&request.socket, false);
            self.externals.ask_pauses.failed(key, at);
        } else {
            self.retry(key, busy, at);
        }
    }

    /// The API server refused the write, so nothing was written: what was claimed is free, and after a pause the truth is
    /// read. The Service's condition cannot say so, an Event can: once, however often it is tried.
    fn refused(&mut self, key: &ServiceKey, why: String, at: Instant) {
        self.enter(key);
        if self.retry(key, Busy::with(Job::Read { service: key.clone() }), at) > 1 {
            return;
        }
        let Some(record) = self.services.at(key) else { return };
        let reason = Reason::WriteRefused { why };
        let notice = Notice { severity: Severity::Warning, reason: reason.name(), message: reason.to_string() };
        self.ready.push_back(Job::Tell { service: (key.clone(), record.view.uid.clone()), notice });
        self.tallies.push(Tally::Refused(record.view.asks.group.clone(), reason));
    }

    fn settle_as(&mut self, key: &ServiceKey, record: ServiceRecord, busy: &Busy) {
        if self.services.at(key).is_none_or(|known| newer(&record.resource_version, &known.resource_version)) {
            self.services.put(key.clone(), record);
        }
        self.enter(key);
        if matches!(busy.job, Job::Patch { .. }) {
            self.pauses.forget(key);
            self.count(key, busy);
        }
        // Be it that the answer was lost, and the Service was read to see what became of the write.
        self.give_back_dropped(key, busy);
        if matches!(busy.job, Job::Patch { .. }) {
            self.credit_written(key, busy);
        }
        self.touched();
        self.confirm_touch(key, &busy.job);
        self.enqueue(key);
    }

    /// What a confirmed write means for the statistics. A refusal counts once for every time the Service is told, and only
    /// if it lacks an address for it.
    fn count(&mut self, key: &ServiceKey, busy: &Busy) {
        let (Some(wish), Some(record)) = (&busy.wish, self.services.at(key)) else { return };
        if let Some(reason) = &wish.reason
            && wish.notices.iter().any(|notice| notice.severity == Severity::Warning)
            && lacks_an_address(&record.view, wish, reason)
        {
            self.tallies.push(Tally::Refused(wish.group.clone(), reason.clone()));
        }
        let grown = wish.addrs.iter().any(|addr| !busy.shown.0.contains(addr));
        if let Some(group) = wish.brand.from.clone().filter(|_| grown) {
            self.tallies.extend(allocation(group, wish));
        }
    }

    /// There is no such Service. If the watch still shows the one that the job was about, it is behind: nothing is
    /// written until it has caught up.
    fn gone(&mut self, key: &ServiceKey, busy: &Busy, at: Instant) {
        let behind = !busy.left && self.services.at(key).is_some_and(|known| busy.is_about(&known.view.uid));
        if behind {
            self.excuse(key);
            self.retry(key, Busy::with(Job::Read { service: key.clone() }), at);
        } else {
            self.settle_gone(key);
        }
    }

    fn settle_gone(&mut self, key: &ServiceKey) {
        self.pauses.forget(key);
        self.excuse(key);
        match self.services.at(key) {
            // A namesake has come meanwhile.
            Some(_) => {
                self.enter(key);
                self.enqueue(key);
            }
            None => {
                self.paces.remove(key);
                self.let_go(key);
            }
        }
    }

    /// A Service that is no LoadBalancer any more gets our marks taken off.
    fn retyped(&mut self, key: &ServiceKey, record: &ServiceRecord, kind: &str, was: &Job) {
        let back = self.services.at(key);
        if back.is_some_and(|known| !newer(&record.resource_version, &known.resource_version)) {
            return self.settle_gone(key);
        }
        self.services.drop(key);
        self.settle_gone(key);
        self.waiting.remove(key);
        self.externals.forget(key);
        let stripped = matches!(was, Job::Patch { .. });
        if let Some(patch) = write::released_patch(record).filter(|_| !stripped) {
            let message = format!("Service is Type {kind}, not LoadBalancer");
            let notice = Notice { severity: Severity::Normal, reason: "AddressReleased", message };
            // Who only waited for an address has none to give back.
            let notices = if record.view.brand.ours { vec![notice] } else { Vec::new() };
            let job = Job::Patch { service: key.clone(), patch, notices };
            self.ready.push_back(job.clone());
            self.busy.insert(key.clone(), Busy::with(job));
        }
    }
}

/// Whether a Service is without an address that it asked for, be it one of many.
fn lacks_an_address(svc: &ServiceView, wish: &Wish, reason: &Reason) -> bool {
    let has = |family: &Family| wish.addrs.iter().any(|addr| Family::of(*addr) == *family);
    let growth = wish.way == Way::MultiPool
        || matches!(reason, Reason::MultiPoolAndBalancePools | Reason::MultiPoolShared | Reason::MultiPoolSpans { .. });
    let refused = !matches!(reason, Reason::AddressLost { .. });
    refused && (wish.addrs.is_empty() || growth || !svc.families.iter().all(has))
}

fn allocation(group: String, wish: &Wish) -> Option<Tally> {
    let short = matches!(wish.reason, Some(Reason::Exhausted { .. } | Reason::FamilyNotServed { .. }));
    match wish.way {
        Way::MultiPool => Some(Tally::MultiPool { group, partial: short }),
        Way::Balanced => Some(Tally::Balanced(group)),
        Way::Group | Way::Pinned | Way::External(_) => None,
    }
}

/// Whether one version of an object comes after another. Kubernetes promises that versions can be compared as numbers.
pub(in crate::allocator) fn newer(a: &str, b: &str) -> bool {
    match (a.parse::<u128>(), b.parse::<u128>()) {
        (Ok(a), Ok(b)) => a >= b,
        _ => true,
    }
}
