//! The statuses of one kind of object: whether they may say something old, which are being written, and which wait after
//! trouble.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::desk::pauses::Pauses;
use crate::cluster::scope::Key;

/// How it stands with the statuses of one kind.
#[derive(Debug)]
pub(super) struct Ledger {
    writing: BTreeSet<Key>,
    pauses: Pauses<Key>,
    stale: bool,
}

impl Default for Ledger {
    /// Nothing has been looked at yet.
    fn default() -> Self {
        Self { writing: BTreeSet::new(), pauses: Pauses::default(), stale: true }
    }
}

impl Ledger {
    /// Some status may say something old.
    pub fn touched(&mut self) {
        self.stale = true;
    }

    /// Whether it is worth looking at the statuses.
    pub fn is_stale(&self, at: Instant) -> bool {
        self.stale || self.pauses.is_any_due(at)
    }

    /// When a status that could not be written is tried again.
    pub fn next_wake(&self, at: Instant) -> Option<Instant> {
        self.pauses.next(at)
    }

    /// All statuses are being looked at.
    pub fn looked(&mut self, at: Instant) {
        self.pauses.due(at);
        self.stale = false;
    }

    /// Whether the status may be written now.
    pub fn is_free(&self, key: &Key, at: Instant) -> bool {
        !self.writing.contains(key) && !self.pauses.is_paused(key, at)
    }

    /// The status is being written.
    pub fn sent(&mut self, key: &Key) {
        self.writing.insert(key.clone());
    }

    /// The status was written.
    pub fn written(&mut self, key: &Key) {
        self.ended(key);
        self.pauses.forget(key);
    }

    /// The status was not written, or nobody knows. Answers with how often in a row.
    pub fn failed(&mut self, key: &Key, at: Instant) -> u32 {
        self.ended(key);
        self.pauses.failed(key, at)
    }

    /// The object is looked at again without a pause.
    pub fn hurry(&mut self, key: &Key) {
        self.pauses.end(key);
    }

    fn ended(&mut self, key: &Key) {
        self.writing.remove(key);
        self.stale = true;
    }
}
