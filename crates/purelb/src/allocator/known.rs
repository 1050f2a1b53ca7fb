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

    /// Takes a change in and answers with the keys it is about and, for those that are gone, what they were.
    pub fn take(&mut self, change: Change<(K, V)>) -> Vec<(K, Option<V>)> {
        match change {
            Change::Restarted => {
                self.unconfirmed = self.objects.keys().cloned().collect();
                Vec::new()
            }
            Change::Here((key, object)) => {
                self.unconfirmed.remove(&key);
                self.objects.insert(key.clone(), object);
                vec![(key, None)]
            }
            Change::Gone((key, _)) => self.forget(key).into_iter().collect(),
            Change::Complete => {
                self.complete = true;
                std::mem::take(&mut self.unconfirmed).into_iter().filter_map(|key| self.forget(key)).collect()
            }
        }
    }

    fn forget(&mut self, key: K) -> Option<(K, Option<V>)> {
        self.unconfirmed.remove(&key);
        let object = self.objects.remove(&key)?;
        Some((key, Some(object)))
    }

    /// One object.
    pub fn at<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.objects.get(key)
    }

    /// Replaces or adds one object that was learned of otherwise.
    pub fn put(&mut self, key: K, object: V) {
        self.unconfirmed.remove(&key);
        self.objects.insert(key, object);
    }

    /// Every object, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.objects.iter()
    }

    /// Every object.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.objects.values()
    }
}
