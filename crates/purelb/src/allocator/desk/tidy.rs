//! Announcers that are gone for good: who wins an address corrects the annotation, so that only where nobody does is it
//! left to the allocator.

use purelb_api::write;
use purelb_core::pool::ServiceKey;
use purelb_core::slots::Slots;
use tokio::time::Instant;

use super::{Busy, Desk};
use crate::allocator::job::Job;

impl Desk {
    /// The job that takes dead nodes off a Service's `purelb.io/announcing-*`, if there are any.
    pub(super) fn tidy(&mut self, key: &ServiceKey, at: Instant) -> Option<Job> {
        let record = self.services.at(key).filter(|_| !self.busy.contains_key(key))?;
        let mut changes = Vec::new();
        for (name, text) in &record.announcing {
            let mut slots = Slots::parse(text);
            let before = slots.clone();
            slots.sweep(|addr, slot| !self.agents.is_deserted(&slot.node, addr, at));
            if slots != before {
                changes.push((*name, slots.encode()));
            }
        }
        if changes.is_empty() {
            return None;
        }
        let patch = write::announcing_patch(record, changes);
        if !self.keeps_pace(key, at) {
            return None;
        }
        let job = Job::Patch { service: key.clone(), patch, notices: Vec::new() };
        self.busy.insert(key.clone(), Busy::with(job.clone()));
        Some(job)
    }
}
