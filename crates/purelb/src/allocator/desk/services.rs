//! Services that come, change and leave: what they show enters the book, and what they leave is free.

use purelb_api::read::ServiceRecord;
use purelb_core::book::Holding;
use purelb_core::pool::ServiceKey;

use super::{Desk, Phase, newer};
use crate::cluster::known::Noted;
use crate::cluster::watch::Change;

impl Desk {
    /// The watch may be behind what the API server has answered: what is older than what is known says nothing.
    pub(super) fn hear_of_services(&mut self, change: Change<Box<ServiceRecord>>) {
        if let Change::Here(record) | Change::Gone(record) = &change {
            self.heed(record);
        }
        if let Change::Here(record) | Change::Gone(record) = &change
            && let Some(known) = self.services.at(&record.view.key)
            && !newer(&record.resource_version, &known.resource_version)
        {
            return self.services.confirm(&record.view.key);
        }
        for noted in self.services.take(change.map(|record| (record.view.key.clone(), *record))) {
            match noted {
                Noted::Here(key) => self.notice(&key),
                Noted::Gone(key, record) => self.forget(&key, &record),
                Noted::Missing(key, _) => self.miss(&key),
            }
        }
    }

    /// A Service was seen; while something is under way about it, its claim stands, and what it shows is its own as well.
    fn notice(&mut self, key: &ServiceKey) {
        if self.phase == Phase::Gathering {
            return;
        }
        if self.busy.contains_key(key) {
            self.enter_beside_claim(key);
        } else {
            self.enter(key);
        }
        self.enqueue(key);
    }

    /// Somebody else may have given a Service an address while a job about it is under way or pauses: nobody else may get
    /// that one either. When the job ends, exactly what the Service shows is entered.
    fn enter_beside_claim(&mut self, key: &ServiceKey) {
        let Some(record) = self.services.at(key) else { return };
        let mut addrs = self.book.holding(key).map(|held| held.addrs.clone()).unwrap_or_default();
        let before = addrs.len();
        addrs.extend(record.view.addresses().into_iter().filter(|addr| !addrs.contains(addr)).collect::<Vec<_>>());
        if addrs.len() > before {
            self.book.hold(Holding { uid: record.view.uid.clone(), claim: record.view.claim(), addrs });
            self.touched();
        }
    }

    /// A Service has left the watch: deleted, or retyped. What it held is free at once, unless a write is under way.
    fn forget(&mut self, key: &ServiceKey, gone: &ServiceRecord) {
        if self.leave(key) {
            self.let_go(key);
            if gone.is_marked() {
                self.read(key);
            }
            self.review(key);
        }
    }

    /// A list does not name a Service: whether it is gone for good, only the API server can tell.
    fn miss(&mut self, key: &ServiceKey) {
        if self.leave(key) {
            self.read(key);
        }
    }

    /// Notes that a Service has left the watch; whether that can be dealt with now, because nothing is under way.
    fn leave(&mut self, key: &ServiceKey) -> bool {
        if self.phase == Phase::Gathering {
            return false;
        }
        self.waiting.remove(key);
        self.externals.forget(key);
        if let Some(busy) = self.busy.get_mut(key) {
            busy.left = true;
            return false;
        }
        self.pauses.forget(key);
        true
    }

    /// Enters in the book what a Service shows that it has, whoever gave it: nobody else may get that.
    pub(super) fn enter(&mut self, key: &ServiceKey) {
        let Some(record) = self.services.at(key) else { return };
        let (uid, claim, addrs) = (record.view.uid.clone(), record.view.claim(), record.view.addresses());
        let before = self.book.holding(key);
        let had = before.map(|before| before.addrs.as_slice()).unwrap_or_default();
        // A port that is dropped, or a key that is changed, may be what somebody else waits for.
        let freed = had.iter().any(|addr| !addrs.contains(addr)) || before.is_some_and(|before| before.claim != claim);
        let changed = *had != *addrs;
        self.book.hold(Holding { uid, claim, addrs });
        if changed {
            self.touched();
        }
        if freed {
            self.wake_waiting();
        }
    }

    /// Takes everything from a Service that is gone.
    pub(super) fn let_go(&mut self, key: &ServiceKey) {
        if self.book.release(key, None).is_some() {
            self.touched();
            self.wake_waiting();
        }
    }
}
