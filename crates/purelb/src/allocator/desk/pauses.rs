//! Pauses after trouble: each failure in a row doubles the next one, up to a limit.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// The first pause.
const FIRST: Duration = Duration::from_millis(250);
/// The longest pause.
pub(in crate::allocator) const LONGEST: Duration = Duration::from_secs(60);

/// Who pauses, until when, and how often in a row it went wrong.
#[derive(Debug)]
pub(in crate::allocator) struct Pauses<K> {
    troubles: BTreeMap<K, Trouble>,
}

#[derive(Debug)]
struct Trouble {
    /// Until when to wait; `None` while it is being tried again.
    until: Option<Instant>,
    failures: u32,
}

impl<K> Default for Pauses<K> {
    fn default() -> Self {
        Self { troubles: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Pauses<K> {
    /// It went wrong once more: a pause begins. Answers with how often it went wrong in a row.
    pub fn failed(&mut self, key: &K, at: Instant) -> u32 {
        let trouble = self.troubles.entry(key.clone()).or_insert(Trouble { until: None, failures: 0 });
        let pause = FIRST.saturating_mul(1 << trouble.failures.min(10)).min(LONGEST);
        trouble.failures += 1;
        trouble.until = Some(at + pause);
        trouble.failures
    }

    /// Whether it is too early to try again.
    pub fn is_paused(&self, key: &K, at: Instant) -> bool {
        self.troubles.get(key).and_then(|trouble| trouble.until).is_some_and(|until| until > at)
    }

    /// Whether the last attempt went wrong.
    pub fn is_troubled(&self, key: &K) -> bool {
        self.troubles.contains_key(key)
    }

    /// The pause is over before its time, but the failures stay counted.
    pub fn end(&mut self, key: &K) {
        if let Some(trouble) = self.troubles.get_mut(key) {
            trouble.until = None;
        }
    }

    /// All is well: the next failure is the first one.
    pub fn forget(&mut self, key: &K) {
        self.troubles.remove(key);
    }

    /// Those whose pause is over; each is named once.
    pub fn due(&mut self, at: Instant) -> Vec<K> {
        let over = |trouble: &Trouble| trouble.until.is_some_and(|until| until <= at);
        let due = self.troubles.iter_mut().filter(|(_, trouble)| over(trouble));
        due.map(|(key, trouble)| {
            trouble.until = None;
            key.clone()
        })
        .collect()
    }

    /// When the next pause is over. What is over already waits for something else, such as room, and not for a time.
    pub fn next(&self, at: Instant) -> Option<Instant> {
        self.troubles.values().filter_map(|trouble| trouble.until).filter(|until| *until > at).min()
    }

    /// Whether nobody is in trouble.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.troubles.is_empty()
    }

    /// Whether the pause of somebody who was not named yet is over.
    pub fn is_any_due(&self, at: Instant) -> bool {
        self.troubles.values().filter_map(|trouble| trouble.until).any(|until| until <= at)
    }

    /// Forgets all but these.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.troubles.retain(|key, _| keep(key));
    }
}
