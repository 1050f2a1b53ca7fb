//! The objects, the revisions that count their changes, and the recent history that watches read.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use crate::journal::{DataError, Journal, Kept};
use crate::object;

/// A stored object; readers share it, nobody changes it.
#[derive(Debug)]
pub(crate) struct Stored {
    value: Value,
    text: OnceLock<Bytes>,
}

/// A shared handle to a stored object.
pub(crate) type Object = Arc<Stored>;

impl Stored {
    pub(crate) fn new(value: Value) -> Object {
        Arc::new(Self { value, text: OnceLock::new() })
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// The object as JSON text, made once however many watchers want it.
    pub(crate) fn text(&self) -> Bytes {
        self.text.get_or_init(|| self.value.to_string().into()).clone()
    }
}

/// Where an object is kept in its bucket; the order is that of lists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// All objects of one kind.
pub(crate) type Bucket = BTreeMap<Key, Object>;

/// One write, as watches see it.
#[derive(Debug)]
pub(crate) struct Change {
    pub revision: u64,
    pub bucket: String,
    pub key: Key,
    pub before: Option<Object>,
    pub after: Option<Object>,
}

/// The wanted revision is older than the history that is kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooOld {
    /// The oldest revision from which changes are still known.
    pub oldest: u64,
}

/// Everything the server remembers.
pub(crate) struct Store {
    revision: u64,
    buckets: HashMap<String, Bucket>,
    /// Changes `compacted + 1 ..= revision`, without gaps, so that a revision is also an index.
    history: VecDeque<Arc<Change>>,
    window: usize,
    compacted: u64,
    bell: watch::Sender<u64>,
    /// Where changes are kept beyond the life of the process, if anywhere.
    journal: Option<Journal>,
}

static EMPTY: Bucket = BTreeMap::new();

impl Store {
    /// An empty store that keeps the last `window` changes.
    pub(crate) fn new(window: usize) -> Self {
        let first = 1;
        Self {
            revision: first,
            buckets: HashMap::new(),
            history: VecDeque::new(),
            window: window.max(1),
            compacted: first,
            bell: watch::Sender::new(first),
            journal: None,
        }
    }

    /// A store that goes on where another one stopped. Older history is gone, as after a compaction.
    pub(crate) fn resume(window: usize, kept: Kept, journal: Journal) -> Self {
        let stored = |(key, value)| (key, Stored::new(value));
        let bucket =
            |(name, objects): (String, BTreeMap<Key, Value>)| (name, objects.into_iter().map(stored).collect());
        Self {
            revision: kept.revision,
            compacted: kept.revision,
            buckets: kept.buckets.into_iter().map(bucket).collect(),
            bell: watch::Sender::new(kept.revision),
            journal: Some(journal),
            ..Self::new(window)
        }
    }

    /// Hands all changes since the last call to the disk, if there is one to keep them.
    ///
    /// # Errors
    /// If the disk does not take them; the next call tries again.
    pub(crate) fn commit(&mut self) -> Result<(), DataError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.commit(self.revision)?;
        journal.tidy(self.revision, &self.buckets);
        Ok(())
    }

    /// The revision of the newest change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Rings with the newest revision after each change.
    pub(crate) fn bell(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }

    /// All objects of a kind as they are now.
    pub(crate) fn bucket(&self, bucket: &str) -> &Bucket {
        self.buckets.get(bucket).unwrap_or(&EMPTY)
    }

    pub(crate) fn object(&self, bucket: &str, key: &Key) -> Option<&Object> {
        self.bucket(bucket).get(key)
    }

    /// Writes an object under a new revision, which it carries from then on.
    pub(crate) fn put(&mut self, bucket: &str, key: Key, mut value: Value) -> Object {
        object::set_meta(&mut value, "resourceVersion", &(self.revision + 1).to_string());
        let object = Stored::new(value);
        let before = self.buckets.entry(bucket.into()).or_default().insert(key.clone(), object.clone());
        self.record(bucket, key, before, Some(object.clone()));
        object
    }

    /// Removes an object and returns its last state under the revision of its removal.
    pub(crate) fn remove(&mut self, bucket: &str, key: &Key) -> Option<Object> {
        let before = self.buckets.get_mut(bucket)?.remove(key)?;
        self.record(bucket, key.clone(), Some(before.clone()), None);
        Some(at_revision(&before, self.revision))
    }

    fn record(&mut self, bucket: &str, key: Key, before: Option<Object>, after: Option<Object>) {
        self.revision += 1;
        let change = Arc::new(Change { revision: self.revision, bucket: bucket.into(), key, before, after });
        if let Some(journal) = &mut self.journal {
            journal.note(change.clone());
        }
        self.history.push_back(change);
        while self.history.len() > self.window {
            self.history.pop_front();
            self.compacted += 1;
        }
        self.bell.send_replace(self.revision);
    }

    /// Forgets all history: watches and lists from older revisions get 410 from now on.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.compacted = self.revision;
    }

    /// Up to `most` changes after a revision, oldest first.
    pub(crate) fn changes_since(&self, revision: u64, most: usize) -> Result<Vec<Arc<Change>>, TooOld> {
        if revision < self.compacted {
            return Err(TooOld { oldest: self.compacted });
        }
        let skip = usize::try_from(revision - self.compacted).unwrap_or(usize::MAX);
        Ok(self.history.iter().skip(skip).take(most).cloned().collect())
    }

    /// The objects of a kind as they were at an older revision: the changes since then, undone.
    pub(crate) fn bucket_at(&self, bucket: &str, revision: u64) -> Result<Bucket, TooOld> {
        let mut objects = self.bucket(bucket).clone();
        for change in self.changes_since(revision, usize::MAX)?.iter().rev().filter(|change| change.bucket == bucket) {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }
}

/// The same object under another revision, as the last words about it say.
pub(crate) fn at_revision(object: &Object, revision: u64) -> Object {
    let mut value = object.value().clone();
    object::set_meta(&mut value, "resourceVersion", &revision.to_string());
    Stored::new(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(store: &mut Store, name: &str, size: u64) -> u64 {
        store.put("things", Key::new("", name), json!({"metadata": {"name": name}, "size": size}));
        store.revision()
    }

    fn sizes(bucket: &Bucket) -> Vec<(String, u64)> {
        bucket.iter().map(|(key, it)| (key.name.clone(), it.value()["size"].as_u64().unwrap())).collect()
    }

    #[test]
    fn an_object_carries_the_revision_of_its_last_write() {
        let mut store = Store::new(10);
        let revision = put(&mut store, "a", 1);
        let object = store.object("things", &Key::new("", "a")).expect("just written");
        assert_eq!(object::meta(object.value(), "resourceVersion"), revision.to_string());
        let gone = store.remove("things", &Key::new("", "a")).expect("still there");
        assert_eq!(object::meta(gone.value(), "resourceVersion"), (revision + 1).to_string());
    }

    #[test]
    fn the_past_can_be_listed_as_it_was() {
        let mut store = Store::new(10);
        put(&mut store, "a", 1);
        let then = put(&mut store, "b", 1);
        put(&mut store, "a", 2);
        store.remove("things", &Key::new("", "b"));
        put(&mut store, "c", 1);
        let past = store.bucket_at("things", then).expect("still in history");
        assert_eq!(sizes(&past), [("a".to_owned(), 1), ("b".to_owned(), 1)]);
        assert_eq!(sizes(store.bucket("things")), [("a".to_owned(), 2), ("c".to_owned(), 1)]);
    }

    #[test]
    fn history_beyond_the_window_is_too_old() {
        let mut store = Store::new(2);
        let first = put(&mut store, "a", 1);
        for size in 2..6 {
            put(&mut store, "a", size);
        }
        assert!(store.changes_since(first, 9).is_err());
        assert_eq!(store.changes_since(store.revision() - 2, 9).map(|changes| changes.len()), Ok(2));
        store.compact();
        assert!(store.changes_since(store.revision() - 1, 9).is_err());
        assert_eq!(store.changes_since(store.revision(), 9).map(|changes| changes.len()), Ok(0));
    }
}
