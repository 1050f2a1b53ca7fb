//! A watched set of objects as it is known: complete or not, with what a new list has not confirmed yet.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::watch::Change;

/// Objects by key, kept up to date by changes.
#[derive(Debug)]
pub struct Known<K, V> {
    objects: BTreeMap<K, V>,
    /// While a list is under way, the keys it has not named yet.
    unconfirmed: BTreeSet<K>,
    complete: bool,
}

/// What a change says about one object.
#[derive(Debug, PartialEq, Eq)]
pub enum Noted<K, V> {
    /// It is there.
    Here(K),
    /// It is gone; this is what it was.
    Gone(K, V),
    /// A list does not name it; this is what it was. It may have come back after the list was made.
    Missing(K, V),
}

impl<K, V> Default for Known<K, V> {
    /// Nothing is known yet.
    fn default() -> Self {
        Self { objects: BTreeMap::new(), unconfirmed: BTreeSet::new(), complete: false }
    }
}

impl<K: Ord + Clone, V> Known<K, V> {
    /// Whether the first list has been read to its end.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Takes a change in and answers with what it says about which keys.
    pub fn take(&mut self, change: Change<(K, V)>) -> Vec<Noted<K, V>> {
        match change {
            Change::Restarted => {
                self.unconfirmed = self.objects.keys().cloned().collect();
                Vec::new()
            }
            Change::Here((key, object)) => {
                self.confirm(&key);
                self.objects.insert(key.clone(), object);
                vec![Noted::Here(key)]
            }
            Change::Gone((key, _)) => {
                self.confirm(&key);
                self.objects.remove(&key).map(|object| Noted::Gone(key, object)).into_iter().collect()
            }
            Change::Complete => {
                self.complete = true;
                let missing = std::mem::take(&mut self.unconfirmed).into_iter();
                missing.filter_map(|key| Some(Noted::Missing(key.clone(), self.objects.remove(&key)?))).collect()
            }
        }
    }

    /// The list that is under way has named an object, be it as it was long ago.
    pub fn confirm(&mut self, key: &K) {
        self.unconfirmed.remove(key);
    }

    /// One object.
    pub fn at<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.objects.get(key)
    }

    /// One object, to be changed.
    pub fn at_mut(&mut self, key: &K) -> Option<&mut V> {
        self.objects.get_mut(key)
    }

    /// Replaces or adds one object that was learned of otherwise.
    pub fn put(&mut self, key: K, object: V) {
        self.objects.insert(key, object);
    }

    /// Removes one object that is known to be gone otherwise.
    pub fn drop(&mut self, key: &K) {
        self.objects.remove(key);
        self.unconfirmed.remove(key);
    }

    /// Every object, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.objects.iter()
    }

    /// Every object from a key on, by key.
    pub fn from(&self, first: &K) -> impl Iterator<Item = (&K, &V)> {
        self.objects.range(first..)
    }

    /// Every object.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.objects.values()
    }

    /// Every object, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.objects.values_mut()
    }
}
