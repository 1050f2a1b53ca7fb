//! The statuses of one kind of object: whether they may say something old, which are being written, and which wait after
//! trouble.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::desk::pauses::Pauses;
use crate::cluster::scope::Key;

/// How it stands with the statuses of one kind.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The fields of each status that is being written.
    writing: BTreeMap<Key, Fields>,
    /// Fields that an API server took and did not keep, because its CRD is older and does not know them. They are not sent
    /// again before they say something else.
    unkept: BTreeMap<Key, Fields>,
    pauses: Pauses<Key>,
    stale: bool,
}

type Fields = Map<String, Value>;

impl Default for Ledger {
    /// Nothing has been looked at yet.
    fn default() -> Self {
        Self { writing: BTreeMap::new(), unkept: BTreeMap::new(), pauses: Pauses::default(), stale: true }
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
        !self.writing.contains_key(key) && !self.pauses.is_paused(key, at)
    }

    /// The status is being written; whether it is, for what the API server is known not to keep is not worth a write.
    pub fn send(&mut self, key: &Key, patch: &Value) -> bool {
        let fields = patch["status"].as_object().cloned().unwrap_or_default();
        let unkept = self.unkept.get(key);
        let in_vain = |(name, value): (&String, &Value)| {
            unkept.and_then(|unkept| unkept.get(name)).is_some_and(|unkept| timeless(unkept) == timeless(value))
        };
        if !fields.is_empty() && fields.iter().all(in_vain) {
            return false;
        }
        self.writing.insert(key.clone(), fields);
        true
    }

    /// The status was written, and this is what the API server made of it.
    pub fn written<S: Serialize>(&mut self, key: &Key, is: Option<&S>) {
        let sent = self.writing.get(key).cloned().unwrap_or_default();
        let is = is.and_then(|is| serde_json::to_value(is).ok()).unwrap_or_default();
        let unkept: Fields = sent.into_iter().filter(|(name, value)| !shows(is.get(name), value)).collect();
        if unkept.is_empty() {
            self.unkept.remove(key);
        } else {
            self.unkept.insert(key.clone(), unkept);
        }
        self.ended(key);
        self.pauses.forget(key);
    }

    /// Forgets all but these.
    pub fn retain(&mut self, keep: impl Fn(&Key) -> bool) {
        self.unkept.retain(|key, _| keep(key));
        self.pauses.retain(keep);
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

/// Whether a field is as a merge patch makes it.
fn shows(is: Option<&Value>, patch: &Value) -> bool {
    match (is, patch) {
        (is, Value::Null) => is.is_none_or(Value::is_null),
        (Some(is), Value::Object(patch)) => patch.iter().all(|(name, value)| shows(is.get(name), value)),
        (is, patch) => is == Some(patch),
    }
}

/// A field without the times at which conditions changed: what nobody keeps seems to change whenever it is looked at.
fn timeless(field: &Value) -> Value {
    let mut field = field.clone();
    for item in field.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        item.remove("lastTransitionTime");
    }
    field
}
