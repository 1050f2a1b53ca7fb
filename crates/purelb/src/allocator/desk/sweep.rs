//! Services that were retyped while nobody led: the watch never shows them, and our marks are still on them.
//!
//! Once in a term all Services that are no LoadBalancers are looked through, page by page. Whoever has marks of ours is
//! read and dealt with as if it had just left the watch.

use tokio::time::Instant;

use super::Desk;
use super::pauses::Pauses;
use crate::allocator::job::{Job, SweepOutcome};

/// How far the search has come.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Where to go on after a pause.
    from: Option<String>,
    pub(super) pauses: Pauses<()>,
}

impl Desk {
    /// The first page, when decisions begin.
    pub(super) fn begin_sweep(&mut self) {
        self.ready.push_back(Job::Sweep { from: None });
    }

    /// The same page once more, if its pause is over.
    pub(super) fn wake_sweep(&mut self, at: Instant) {
        if !self.sweep.pauses.due(at).is_empty() {
            self.ready.push_back(Job::Sweep { from: self.sweep.from.clone() });
        }
    }

    /// A page was looked through, or not.
    pub(super) fn swept(&mut self, outcome: SweepOutcome, at: Instant) {
        match outcome {
            SweepOutcome::Found(marked, next) => {
                self.sweep.pauses.forget(&());
                for key in marked {
                    // Who has come back meanwhile is looked at anyway.
                    if self.services.at(&key).is_none() && !self.busy.contains_key(&key) {
                        self.read(&key);
                    }
                }
                self.sweep.from = next;
                if self.sweep.from.is_some() {
                    self.ready.push_back(Job::Sweep { from: self.sweep.from.clone() });
                }
            }
            SweepOutcome::Expired => {
                self.sweep.from = None;
                self.sweep.pauses.failed(&(), at);
            }
            SweepOutcome::Failed => drop(self.sweep.pauses.failed(&(), at)),
        }
    }
}
