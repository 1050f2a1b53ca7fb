//! A later term on a Service: another leads by now, or somebody has edited the text. Only the lease can tell.
//!
//! A leader whose machine stood still together with its clock finds out so, when a Service that it was about to write to was
//! touched meanwhile: its book is as old as the pause was long, and nothing may be given out of it.

use purelb_api::read::ServiceRecord;
use tokio::time::Instant;

use super::Desk;
use super::pauses::Pauses;
use crate::allocator::job::Job;
use crate::cluster::leader::Answer;

/// What is known of a later term.
#[derive(Debug, Default)]
pub(super) struct Rival {
    /// The latest term that was read, if it is not known yet what it means.
    term: Option<u64>,
    /// Up to which term it is known that there is no such leader.
    refuted: u64,
    asking: bool,
    pauses: Pauses<()>,
}

impl Desk {
    /// Whether another may lead, so that nothing is done.
    pub fn has_rival(&self) -> bool {
        self.rival.term.is_some()
    }

    /// Takes note of the term that a Service names.
    pub(super) fn heed(&mut self, record: &ServiceRecord) {
        let Some(term) = record.term.filter(|term| *term > self.term.max(self.rival.refuted)) else { return };
        self.rival.term = self.rival.term.max(Some(term));
    }
}

impl Rival {
    /// The question to the lease, unless it is under way or was just asked in vain.
    pub fn next_job(&mut self, at: Instant) -> Option<Job> {
        self.pauses.due(at);
        let free = !self.asking && !self.pauses.is_paused(&(), at);
        self.asking |= free;
        free.then_some(Job::Confirm)
    }

    /// What the lease says. If this leadership is over, nothing is done any more until the term ends.
    pub fn answered(&mut self, answer: Answer, at: Instant) {
        match answer {
            Answer::Leads => {
                self.asking = false;
                self.pauses.forget(&());
                self.refuted = self.refuted.max(self.term.take().unwrap_or_default());
            }
            Answer::Over => {}
            Answer::Unknown => {
                self.asking = false;
                self.pauses.failed(&(), at);
            }
        }
    }

    /// When to ask again.
    pub fn next_wake(&self, at: Instant) -> Option<Instant> {
        self.pauses.next(at)
    }
}
