//! Readiness as a set of guards: each part that must be there first holds one and drops it when it is. And life: each part
//! that must go on holds a pulse.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a loop may take from one round to the next.
const LONGEST_ROUND: Duration = Duration::from_secs(10);

/// What a daemon still waits for; clones are handles to the same list.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    parts: BTreeMap<u64, &'static str>,
    /// What must go on: when it last said so, or nothing for a task that only must not end.
    living: BTreeMap<u64, (&'static str, Option<Instant>)>,
    ended: Vec<&'static str>,
}

/// One thing that must go on for as long as the daemon runs; dropped, it has ended.
#[derive(Debug)]
#[must_use = "dropping the pulse says that the part has ended"]
pub struct Pulse {
    readiness: Readiness,
    number: u64,
}

impl Pulse {
    /// The loop has been through once more.
    pub fn beat(&self) {
        if let Some((_, last)) = self.readiness.lock().living.get_mut(&self.number) {
            *last = Some(Instant::now());
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        let mut waiting = self.readiness.lock();
        let ended = waiting.living.remove(&self.number).map(|(part, _)| part);
        waiting.ended.extend(ended);
    }
}

/// One thing a daemon waits for; drop it when it is there.
#[derive(Debug)]
#[must_use = "dropping the guard says that the part is ready"]
pub struct Guard {
    readiness: Readiness,
    number: u64,
}

impl Readiness {
    /// One more thing to wait for, in words that complete "waiting for".
    pub fn register(&self, part: &'static str) -> Guard {
        let mut waiting = self.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.parts.insert(number, part);
        Guard { readiness: self.clone(), number }
    }

    /// What is not there yet, in the order it was registered.
    pub fn missing(&self) -> Vec<&'static str> {
        self.lock().parts.values().copied().collect()
    }

    /// One more loop that must come around every few seconds.
    pub fn pulse(&self, part: &'static str) -> Pulse {
        self.enter(part, Some(Instant::now()))
    }

    /// One more task that must not end, however long it has nothing to do.
    pub fn task(&self, part: &'static str) -> Pulse {
        self.enter(part, None)
    }

    fn enter(&self, part: &'static str, last: Option<Instant>) -> Pulse {
        let mut waiting = self.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.living.insert(number, (part, last));
        Pulse { readiness: self.clone(), number }
    }

    /// What does not go on although it should.
    pub fn stuck(&self) -> Vec<&'static str> {
        let waiting = self.lock();
        let silent = |last: &Option<Instant>| last.is_some_and(|last| last.elapsed() > LONGEST_ROUND);
        let silent = waiting.living.values().filter(|(_, last)| silent(last)).map(|(part, _)| *part);
        silent.chain(waiting.ended.iter().copied()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guard {
    /// The list that this part is on, for parts that are known later.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.readiness.lock().parts.remove(&self.number);
    }
}
