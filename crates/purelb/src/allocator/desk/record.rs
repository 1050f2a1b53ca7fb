//! The record of who may hold addresses of external IPAMs: what it says, and whether a Service may rely on it.
//!
//! An IPAM is asked only for a Service that is on record. So the record is read once in a term, written before the first
//! question of the term, and after every write of which nobody knows whether it arrived: each write changes the
//! version, so that whatever else is still on its way fails.

use purelb_api::holders::Holders;
use tokio::time::Instant;

use super::pauses::Pauses;
use crate::allocator::job::{Job, RecordOutcome};

/// The record as this leader knows it.
#[derive(Debug)]
pub(super) struct Record {
    term: u64,
    /// What was last read or written; `None` before that, and when somebody else has written meanwhile.
    shown: Option<Shown>,
    /// Whether nothing can be on its way that takes back what is shown.
    sure: bool,
    /// What is being written.
    writing: Option<Holders>,
    /// Whether a read or a write is under way.
    busy: bool,
    /// How many writes this term has sent.
    writes: u64,
    pauses: Pauses<()>,
    /// Why the API server refuses to show or to write the record.
    refusal: Option<String>,
    stale: bool,
    /// Whether it was read in this term.
    read: bool,
}

#[derive(Debug)]
struct Shown {
    /// `None` if there is no such object.
    version: Option<String>,
    holders: Holders,
}

impl Record {
    /// Nothing is known yet.
    pub fn new(term: u64) -> Self {
        let (pauses, refusal) = (Pauses::default(), None);
        let (shown, writing) = (None, None);
        Self { term, shown, sure: false, writing, busy: false, writes: 0, pauses, refusal, stale: true, read: false }
    }

    /// Holders or their addresses have changed.
    pub fn touched(&mut self) {
        self.stale = true;
    }

    /// Whether it was read in this term, so that what the last leaders knew is known.
    pub fn was_read(&self) -> bool {
        self.read
    }

    /// Whether a Service is on record as a holder, and will stay there.
    pub fn names(&self, group: &str, service: &str) -> bool {
        let shown = self.shown.as_ref().is_some_and(|shown| shown.holders.names(group, service));
        let stays = self.writing.as_ref().is_none_or(|holders| holders.names(group, service));
        self.sure && shown && stays
    }

    /// Why nobody can be put on record, if the API server has said so.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Whether something is to be read or written; `needed` if somebody waits to be on record.
    pub fn is_stale(&self, needed: bool, at: Instant) -> bool {
        let behind = self.shown.is_none() || self.stale || (needed && !self.sure);
        behind && !self.busy && !self.pauses.is_paused(&(), at)
    }

    /// When a pause after trouble is over.
    pub fn next_wake(&self, at: Instant) -> Option<Instant> {
        self.pauses.next(at)
    }

    /// The next read or write, if one is due, to make the record say what is wanted.
    pub fn next(&mut self, wanted: impl FnOnce() -> Holders, needed: bool, at: Instant) -> Option<Job> {
        if !self.is_stale(needed, at) {
            return None;
        }
        self.pauses.end(&());
        let Some(shown) = &self.shown else {
            self.busy = true;
            return Some(Job::ReadRecord);
        };
        self.stale = false;
        let wanted = wanted();
        let same = wanted == shown.holders;
        if same && (self.sure || !needed) {
            return None;
        }
        self.writes += 1;
        let stamp = format!("{}-{}", self.term, self.writes);
        let (body, create) = match &shown.version {
            Some(version) => (wanted.patch(&shown.holders, version, &stamp), false),
            None => (wanted.object(&stamp), true),
        };
        (self.busy, self.writing) = (true, Some(wanted));
        Some(Job::WriteRecord { body, create })
    }

    /// Takes in how a read or a write went; what it says, if it was read.
    pub fn done(&mut self, outcome: RecordOutcome, at: Instant) -> Option<&Holders> {
        self.busy = false;
        let wrote = self.writing.take().is_some();
        // Whatever happened, what is wanted is compared once more.
        self.stale = true;
        match outcome {
            RecordOutcome::Is(found) => {
                self.pauses.forget(&());
                self.refusal = None;
                (self.sure, self.read) = (wrote, true);
                let (version, holders) = found.map_or((None, Holders::default()), |(version, is)| (Some(version), is));
                let shown = self.shown.insert(Shown { version, holders });
                return (!wrote).then_some(&shown.holders);
            }
            RecordOutcome::Conflict => {
                if self.pauses.failed(&(), at) == 1 {
                    self.pauses.end(&());
                }
            }
            RecordOutcome::Refused(why) => {
                self.pauses.failed(&(), at);
                self.refusal = Some(why);
            }
            RecordOutcome::Unsure => drop(self.pauses.failed(&(), at)),
        }
        (self.shown, self.sure) = (None, false);
        None
    }
}
