//! The BGPConfigurations as objects: which of them counts, and what their statuses should say.
//!
//! What differs between nodes is for their agents to say. A cluster without this kind is as good as any: then nothing is
//! ever heard of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use purelb_api::read::{self, BgpObject};
use purelb_api::write;
use purelb_core::bgp::{Candidate, choose};
use purelb_core::reason::Reason;
use tokio::time::Instant;

use super::desk::newer;
use super::job::{Job, StatusOutcome};
use super::ledger::Ledger;
use crate::cluster::known::Known;
use crate::cluster::scope::Key;
use crate::cluster::watch::Change;

/// All BGPConfigurations of the cluster.
#[derive(Debug)]
pub struct Configurations {
    install_namespace: String,
    objects: Known<Key, BgpObject>,
    ledger: Ledger,
}

impl Configurations {
    /// Nothing is known yet.
    pub fn new(install_namespace: &str) -> Self {
        let install_namespace = install_namespace.to_owned();
        Self { install_namespace, objects: Known::default(), ledger: Ledger::default() }
    }

    /// Takes news of a BGPConfiguration in.
    pub fn take(&mut self, change: Change<Box<BgpObject>>) {
        // The watch may be behind what the API server has answered.
        if let Change::Here(object) = &change
            && self.objects.at(&key(object)).is_some_and(|known| !newer(version(object), version(known)))
        {
            return self.objects.confirm(&key(object));
        }
        drop(self.objects.take(change.map(|object| (key(&object), *object))));
        self.ledger.touched();
    }

    /// Whether some object may have to be written.
    pub fn is_stale(&self, at: Instant) -> bool {
        self.ledger.is_stale(at)
    }

    /// When an object that could not be written is tried again.
    pub fn next_wake(&self, at: Instant) -> Option<Instant> {
        self.ledger.next_wake(at)
    }

    /// The statuses that differ from what the objects show, and the finalizers that keep deleted objects.
    pub fn statuses(&mut self, now: Timestamp, at: Instant) -> Vec<Job> {
        self.ledger.looked(at);
        // Which one counts is known only once all are.
        if !self.objects.is_complete() {
            return Vec::new();
        }
        let ignored = self.ignored();
        let free = self.objects.iter().filter(|(key, _)| self.ledger.is_free(key, at));
        let jobs: Vec<_> =
            free.filter_map(|(key, object)| Some((key.clone(), job(object, ignored.get(key), now)?))).collect();
        let news = |(key, job): (Key, Job)| {
            let (Job::PatchBgp { patch, .. } | Job::ReleaseBgp { patch, .. }) = &job else { return None };
            self.ledger.send(&key, patch).then_some(job)
        };
        jobs.into_iter().filter_map(news).collect()
    }

    /// The objects that do not count, and why.
    fn ignored(&self) -> BTreeMap<Key, Reason> {
        let (keys, candidates): (Vec<&Key>, Vec<Candidate>) =
            self.objects.iter().map(|(key, object)| (key, read::bgp_candidate(object))).unzip();
        let choice = choose(&candidates, &self.install_namespace);
        choice.ignored.into_iter().map(|(i, reason)| (keys[i].clone(), reason)).collect()
    }

    /// An object was written, or could not be.
    pub fn written(&mut self, key: &Key, outcome: StatusOutcome<BgpObject>, at: Instant) {
        match outcome {
            StatusOutcome::Is(object) => {
                self.ledger.written(key, object.object.status.as_ref());
                if self.objects.at(key).is_some_and(|known| newer(version(&object), version(known))) {
                    self.objects.put(key.clone(), *object);
                }
            }
            StatusOutcome::Failed => drop(self.ledger.failed(key, at)),
        }
    }
}

fn job(read: &BgpObject, ignored: Option<&Reason>, now: Timestamp) -> Option<Job> {
    let object = &read.object;
    let metadata = || Box::new(object.metadata.clone());
    if object.metadata.deletion_timestamp.is_some() {
        return write::bgp_release(object).map(|patch| Job::ReleaseBgp { object: metadata(), patch });
    }
    let wanted = write::bgp_status(read, ignored, now);
    write::bgp_patch(object, &wanted).map(|patch| Job::PatchBgp { object: metadata(), patch })
}

fn key(read: &BgpObject) -> Key {
    let metadata = &read.object.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn version(read: &BgpObject) -> &str {
    read.object.metadata.resource_version.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
