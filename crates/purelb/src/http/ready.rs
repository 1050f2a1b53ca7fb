//! Readiness as a set of guards: each part that must be there first holds one and drops it when it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a daemon still waits for; clones are handles to the same list.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    parts: BTreeMap<u64, &'static str>,
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
