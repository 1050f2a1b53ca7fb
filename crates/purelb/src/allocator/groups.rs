//! The ServiceGroups as objects: which of them count, in which form, and what their status should say.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use purelb_api::read::{self, Reading};
use purelb_api::{ServiceGroup, write};
use purelb_core::alloc::{Notice, Severity};
use purelb_core::book::Book;
use purelb_core::group::{Group, Placement, clashes};
use purelb_core::reason::{Problem, Reason};
use purelb_core::report::{Census, GroupReport, Verdict, report, report_refused};
use purelb_core::service::ServiceView;

use super::job::Job;
use super::known::Known;
use crate::cluster::watch::Change;

/// Namespace and name.
type Key = (String, String);

/// One group with what reading it gave.
#[derive(Debug)]
struct Entry {
    object: ServiceGroup,
    reading: Reading<Group>,
    from_last_valid: bool,
}

/// All ServiceGroups of the cluster.
pub struct Groups {
    install_namespace: String,
    entries: Known<Key, Entry>,
    usable: Vec<Group>,
    /// Why a group is not in use, for those that cannot be used.
    refused: BTreeMap<Key, Problem>,
    out_of_scope: BTreeSet<Key>,
    /// Groups whose status is being written.
    writing: BTreeSet<Key>,
    /// Groups whose status could not be written, with the version that failed: not tried again before it changes.
    failed: BTreeMap<Key, Option<String>>,
    /// Whether the statuses may say something old.
    stale: bool,
}

impl Groups {
    /// Nothing is known yet.
    pub fn new(install_namespace: &str) -> Self {
        Self {
            install_namespace: install_namespace.to_owned(),
            entries: Known::default(),
            usable: Vec::new(),
            refused: BTreeMap::new(),
            out_of_scope: BTreeSet::new(),
            writing: BTreeSet::new(),
            failed: BTreeMap::new(),
            stale: true,
        }
    }

    /// Takes a change in; whether something may be different now.
    pub fn take(&mut self, change: Change<Box<ServiceGroup>>) -> bool {
        let change = change.map(|object| (key(&object), Entry::new(*object)));
        let changed = !self.entries.take(change).is_empty();
        self.stale |= changed;
        changed
    }

    /// Whether all groups are known.
    pub fn is_complete(&self) -> bool {
        self.entries.is_complete()
    }

    /// Holdings have changed, so statuses have to be looked at.
    pub fn touched(&mut self) {
        self.stale = true;
    }

    /// Whether some status may have to be written.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Finds out anew which groups count; whether the answer is another than before.
    pub fn refresh(&mut self) -> bool {
        self.out_of_scope = self.out_of_scope();
        let in_scope = |entry: &&Entry| !self.out_of_scope.contains(&key(&entry.object));
        let candidates: Vec<Group> =
            self.entries.values().filter(in_scope).filter_map(|entry| entry.reading.value.clone()).collect();
        let clashes = clashes(&candidates);
        let mut refused: BTreeMap<Key, Problem> = BTreeMap::new();
        for clash in &clashes {
            refused.insert(group_key(&candidates[clash.refused]), clash.problem.clone());
        }
        let unusable = self.entries.values().filter(in_scope).filter(|entry| entry.reading.value.is_none());
        refused.extend(unusable.map(|entry| (key(&entry.object), entry.first_problem())));
        let usable: Vec<_> = candidates.into_iter().filter(|group| !refused.contains_key(&group_key(group))).collect();
        let changed = usable != self.usable || refused != self.refused;
        (self.usable, self.refused) = (usable, refused);
        self.stale |= changed;
        changed
    }

    /// The groups that count, and why others do not, by name.
    pub fn assembled(&self) -> (Vec<Group>, BTreeMap<String, Reason>) {
        let refused = self.refused.iter().map(|((_, name), problem)| (name.clone(), problem.reason.clone()));
        (self.usable.clone(), refused.collect())
    }

    /// Groups that nobody reads because of the namespace they are in, with what they are.
    pub fn ignored(&self) -> impl Iterator<Item = (&str, &str, &'static str)> {
        self.out_of_scope.iter().map(|key| {
            let placement =
                self.entries.at(key).and_then(|entry| entry.reading.value.as_ref()).map(|group| group.placement);
            (key.0.as_str(), key.1.as_str(), if placement == Some(Placement::Remote) { "remote" } else { "local" })
        })
    }

    /// Groups in other namespaces than PureLB's own do not count, unless they are automatic; but if that left none at all,
    /// somebody is mistaken about the namespace, and all of them count.
    fn out_of_scope(&self) -> BTreeSet<Key> {
        let elsewhere = |entry: &&Entry| {
            let automatic = entry.reading.value.as_ref().is_some_and(|group| group.placement == Placement::Auto);
            !automatic && key(&entry.object).0 != self.install_namespace
        };
        let outside: BTreeSet<_> = self.entries.values().filter(elsewhere).map(|entry| key(&entry.object)).collect();
        let all = outside.len() == self.entries.values().count();
        if all || self.install_namespace.is_empty() { BTreeSet::new() } else { outside }
    }

    /// A status that differs from what the object shows.
    pub fn next_status<'a>(
        &mut self,
        book: &Book,
        services: impl Iterator<Item = (&'a ServiceView, bool)>,
        now: Timestamp,
    ) -> Option<Job> {
        if !self.stale {
            return None;
        }
        let census = Census::take(book, services);
        let keys: Vec<Key> = self.entries.iter().map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Some(job) = self.status_of(&key, book, &census, now) {
                return Some(job);
            }
        }
        self.stale = false;
        None
    }

    fn status_of(&mut self, key: &Key, book: &Book, census: &Census, now: Timestamp) -> Option<Job> {
        let entry = self.entries.at(key)?;
        if self.writing.contains(key) || self.failed.get(key) == Some(&entry.object.metadata.resource_version) {
            return None;
        }
        let report = self.report(key, entry, book, census)?;
        let previous = entry.object.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let last_valid = read::last_valid(&entry.object);
        let wanted = write::group_status(&report, &previous, entry.object.metadata.generation, last_valid, now);
        let patch = write::group_patch(&entry.object, &wanted)?;
        let notices = self.notices(key, entry, &report);
        let group = Box::new(entry.object.metadata.clone());
        self.writing.insert(key.clone());
        Some(Job::PatchGroup { group, patch, notices })
    }

    fn report(&self, key: &Key, entry: &Entry, book: &Book, census: &Census) -> Option<GroupReport> {
        if self.out_of_scope.contains(key) {
            let problem = Problem::new("metadata.namespace", self.scope_reason(key));
            return Some(report_refused(&key.1, entry.reading.value.as_ref(), book, &problem, census));
        }
        if let Some(problem) = self.refused.get(key) {
            return Some(report_refused(&key.1, entry.reading.value.as_ref(), book, problem, census));
        }
        let slot = book.slot(&key.1).ok()?;
        let verdict = Verdict {
            problems: &entry.reading.problems,
            warnings: &entry.reading.warnings,
            from_last_valid: entry.from_last_valid,
        };
        Some(report(slot, book, &verdict, census, None))
    }

    fn scope_reason(&self, key: &Key) -> Reason {
        let remote =
            self.ignored().any(|(namespace, name, kind)| (namespace, name) == (&key.0, &key.1) && kind == "remote");
        Reason::GroupOutOfScope {
            namespace: key.0.clone(),
            name: key.1.clone(),
            install_namespace: self.install_namespace.clone(),
            remote,
        }
    }

    /// Told only when the verdict is another than the status shows.
    fn notices(&self, key: &Key, entry: &Entry, report: &GroupReport) -> Vec<Notice> {
        let Some(valid) = report.findings.first() else { return Vec::new() };
        let shown = entry.object.status.iter().flat_map(|status| &status.conditions);
        let shown = shown.into_iter().find(|condition| condition.type_ == valid.aspect.name());
        if shown.is_some_and(|shown| shown.reason == valid.reason && shown.message == valid.sentence) {
            return Vec::new();
        }
        let notice = |severity, reason, message| vec![Notice { severity, reason, message }];
        if self.out_of_scope.contains(key) {
            return notice(Severity::Warning, "ServiceGroupOutOfScope", valid.sentence.clone());
        }
        match (self.refused.get(key), entry.reading.problems.first()) {
            (
                Some(Problem {
                    reason: reason @ (Reason::GroupDuplicate { .. } | Reason::GroupsOverlap { .. }), ..
                }),
                _,
            ) => notice(Severity::Warning, "ParseFailed", reason.to_string()),
            (None, None) => notice(Severity::Normal, "Parsed", "ServiceGroup parsed successfully".to_owned()),
            _ => notice(Severity::Warning, "ParseFailed", format!("Failed to parse: {}", valid.sentence)),
        }
    }

    /// A status was written, or could not be.
    pub fn written(&mut self, namespace: &str, name: &str, written: bool) {
        let key = (namespace.to_owned(), name.to_owned());
        self.writing.remove(&key);
        if !written && let Some(entry) = self.entries.at(&key) {
            self.failed.insert(key, entry.object.metadata.resource_version.clone());
        }
    }
}

impl Entry {
    fn new(object: ServiceGroup) -> Self {
        let (reading, from_last_valid) = read::group_in_force(&object);
        Self { object, reading, from_last_valid }
    }

    fn first_problem(&self) -> Problem {
        self.reading.problems.first().cloned().unwrap_or_else(|| Problem::new("spec", Reason::NoSource))
    }
}

fn key(object: &ServiceGroup) -> Key {
    let metadata = &object.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn group_key(group: &Group) -> Key {
    (group.namespace.clone(), group.name.clone())
}
