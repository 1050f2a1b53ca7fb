//! The ServiceGroups as objects: which of them count, in which form, and what their status should say.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use purelb_api::last_valid::LastValid;
use purelb_api::read::{self, GroupObject, GroupReading};
use purelb_api::{ServiceGroup, write};
use purelb_core::alloc::{Notice, Severity};
use purelb_core::book::Book;
use purelb_core::group::{Forms, Group, Placement, settle};
use purelb_core::reason::{Problem, Reason};
use purelb_core::report::{Aspect, Census, Finding, GroupReport, Stock, Verdict, report, report_refused};
use purelb_core::service::ServiceView;
use tokio::time::Instant;

use super::desk::newer;
use super::job::{GroupOutcome, Job};
use super::ledger::Ledger;
use crate::cluster::known::Known;
use crate::cluster::scope::{Key, out_of_scope};
use crate::cluster::watch::Change;

/// One group with what reading it gave.
#[derive(Debug)]
struct Entry {
    read: GroupObject,
    /// The form it had when it was last in use with nothing wrong: from its status, or as this leader remembers it.
    kept: Option<LastValid>,
    reading: GroupReading,
    /// Whether it is in use as it is written now, with nothing wrong.
    in_use: bool,
}

/// All ServiceGroups of the cluster.
pub struct Groups {
    install_namespace: String,
    entries: Known<Key, Entry>,
    usable: Vec<Group>,
    /// Why a group is not in use, for those that cannot be used.
    refused: BTreeMap<Key, Problem>,
    /// Why an earlier form of a group is in use beside the others, and not the one written now.
    put_off: BTreeMap<Key, Problem>,
    out_of_scope: BTreeSet<Key>,
    ledger: Ledger,
    /// What each group was last told, by which of the objects that ever had this name it is.
    told: BTreeMap<Key, (Option<String>, Notice)>,
}

impl Groups {
    /// Nothing is known yet.
    pub fn new(install_namespace: &str) -> Self {
        Self {
            install_namespace: install_namespace.to_owned(),
            entries: Known::default(),
            usable: Vec::new(),
            refused: BTreeMap::new(),
            put_off: BTreeMap::new(),
            out_of_scope: BTreeSet::new(),
            ledger: Ledger::default(),
            told: BTreeMap::new(),
        }
    }

    /// Takes a change in; whether something may be different now.
    pub fn take(&mut self, change: Change<Box<GroupObject>>) -> bool {
        // The watch may be behind what the API server has answered.
        if let Change::Here(read) = &change
            && self.entries.at(&key(&read.object)).is_some_and(|known| !newer(version(read), version(&known.read)))
        {
            self.entries.confirm(&key(&read.object));
            return false;
        }
        let change = change.map(|read| {
            let key = key(&read.object);
            let before = self.entries.at(&key);
            (key, Entry::new(*read, before))
        });
        let changed = !self.entries.take(change).is_empty();
        if changed {
            self.ledger.touched();
        }
        changed
    }

    /// Whether all groups are known.
    pub fn is_complete(&self) -> bool {
        self.entries.is_complete()
    }

    /// Holdings have changed, so statuses have to be looked at.
    pub fn touched(&mut self) {
        self.ledger.touched();
    }

    /// Whether some status may have to be written.
    pub fn is_stale(&self, at: Instant) -> bool {
        self.ledger.is_stale(at)
    }

    /// When a status that could not be written is tried again.
    pub fn next_wake(&self, at: Instant) -> Option<Instant> {
        self.ledger.next_wake(at)
    }

    /// Finds out anew which groups count; whether the answer is another than before.
    pub fn refresh(&mut self) -> bool {
        self.out_of_scope = self.out_of_scope();
        let in_scope: Vec<Key> =
            self.entries.iter().map(|(key, _)| key).filter(|key| !self.out_of_scope.contains(*key)).cloned().collect();
        let forms: Vec<Forms> =
            in_scope.iter().filter_map(|key| Some(self.entries.at(key)?.reading.forms.clone())).collect();
        let (mut usable, mut refused, mut put_off) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for (key, standing) in in_scope.into_iter().zip(settle(&forms)) {
            let Some(entry) = self.entries.at_mut(&key) else { continue };
            entry.used_as(standing.group);
            match (standing.group, standing.clash) {
                (Some(group), clash) => {
                    usable.push(group.clone());
                    put_off.extend(clash.map(|problem| (key, problem)));
                }
                (None, clash) => drop(refused.insert(key, clash.unwrap_or_else(|| entry.first_problem()))),
            }
        }
        for key in &self.out_of_scope {
            self.entries.at_mut(key).into_iter().for_each(|entry| entry.used_as(None));
        }
        let changed = usable != self.usable || refused != self.refused || put_off != self.put_off;
        (self.usable, self.refused, self.put_off) = (usable, refused, put_off);
        if changed {
            self.ledger.touched();
        }
        changed
    }

    /// Whether there is a group of this name, usable or not.
    pub fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|(key, _)| key.1 == name)
    }

    /// Whether the status of a group says that nothing which was decided on an earlier form of it is under way.
    pub fn is_settled(&self, group: &Group) -> bool {
        let entry = self.entries.at(&(group.namespace.clone(), group.name.clone()));
        let object = entry.map(|entry| &entry.read.object).filter(|object| object.metadata.generation.is_some());
        object.is_some_and(|object| observed(object) == object.metadata.generation)
    }

    /// The groups that count, and why others do not, by name.
    pub fn assembled(&self) -> (Vec<Group>, BTreeMap<String, Reason>) {
        let refused = self.refused.iter().map(|((_, name), problem)| (name.clone(), problem.reason.clone()));
        (self.usable.clone(), refused.collect())
    }

    /// Groups that nobody reads because of the namespace they are in, with what they are.
    pub fn ignored(&self) -> impl Iterator<Item = (&str, &str, &'static str)> {
        let kind = |key| self.entries.at(key).map_or("local", Entry::kind);
        self.out_of_scope.iter().map(move |key| (key.0.as_str(), key.1.as_str(), kind(key)))
    }

    fn out_of_scope(&self) -> BTreeSet<Key> {
        out_of_scope(self.entries.iter().map(|(key, entry)| (key, entry.is_automatic())), &self.install_namespace)
    }

    /// The statuses that differ from what the objects show. Those of groups with something under way that was decided on an
    /// earlier form do not say yet that the current one was observed.
    pub fn statuses<'a>(
        &mut self,
        book: &Book,
        services: impl Iterator<Item = (&'a ServiceView, bool)>,
        stocks: &BTreeMap<String, Stock>,
        unsettled: &BTreeSet<String>,
        now: Timestamp,
        at: Instant,
    ) -> Vec<Job> {
        self.ledger.looked(at);
        let census = Census::take(book, services);
        let keys = self.entries.iter().map(|(key, _)| key).filter(|key| self.ledger.is_free(key, at));
        let keys: Vec<Key> = keys.cloned().collect();
        self.ledger.retain(|key| self.entries.at(key).is_some());
        self.told.retain(|key, _| self.entries.at(key).is_some());
        let mut jobs = Vec::new();
        for key in keys {
            let report =
                self.entries.at(&key).and_then(|entry| self.report(&key, entry, book, &census, stocks.get(&key.1)));
            let settled = !unsettled.contains(&key.1);
            jobs.extend(report.and_then(|report| self.status_of(&key, &report, settled, now)));
        }
        jobs
    }

    fn status_of(&mut self, key: &Key, report: &GroupReport, settled: bool, now: Timestamp) -> Option<Job> {
        let entry = self.entries.at(key)?;
        let object = &entry.read.object;
        let previous = object.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let generation = object.metadata.generation.filter(|_| settled);
        let wanted = write::group_status(report, &previous, generation, entry.kept.clone(), now);
        let patch = write::group_patch(object, &wanted)?;
        let notices = self.notices(key, entry, report);
        let group = Box::new(object.metadata.clone());
        if !self.ledger.send(key, &patch) {
            return None;
        }
        self.told.extend(notices.last().map(|told| (key.clone(), (group.uid.clone(), told.clone()))));
        Some(Job::PatchGroup { group, patch, notices })
    }

    fn report(
        &self,
        key: &Key,
        entry: &Entry,
        book: &Book,
        census: &Census,
        stock: Option<&Stock>,
    ) -> Option<GroupReport> {
        if self.out_of_scope.contains(key) {
            let problem = Problem::new("metadata.namespace", self.scope_reason(key));
            return Some(report_refused(&key.1, entry.reading.forms.best(), book, &problem, census));
        }
        if let Some(problem) = self.refused.get(key) {
            return Some(report_refused(&key.1, entry.reading.forms.best(), book, problem, census));
        }
        let slot = book.slot(&key.1).ok()?;
        let GroupReading { forms, problems, warnings } = &entry.reading;
        let problems: Vec<Problem> = problems.iter().chain(self.put_off.get(key)).cloned().collect();
        let from_last_valid = !entry.in_use && forms.earlier.as_ref() == Some(&slot.group);
        let verdict = Verdict { problems: &problems, warnings, from_last_valid };
        Some(report(slot, book, &verdict, census, stock))
    }

    fn scope_reason(&self, key: &Key) -> Reason {
        Reason::GroupOutOfScope {
            namespace: key.0.clone(),
            name: key.1.clone(),
            install_namespace: self.install_namespace.clone(),
            kind: self.entries.at(key).map_or("local", Entry::kind),
        }
    }

    /// Told only when the verdict is another than the status shows, or than was told before if the status cannot show it.
    fn notices(&self, key: &Key, entry: &Entry, report: &GroupReport) -> Vec<Notice> {
        let Some(valid) = report.findings.first() else { return Vec::new() };
        let object = &entry.read.object;
        let mut shown = object.status.iter().flat_map(|status| &status.conditions);
        let shown = shown.find(|condition| condition.type_ == valid.aspect.name());
        if shown.is_some_and(|shown| shown.reason == valid.reason && shown.message == valid.sentence) {
            return Vec::new();
        }
        let notice = self.verdict(key, valid);
        let told = self.told.get(key).is_some_and(|(uid, told)| *uid == object.metadata.uid && *told == notice);
        if told { Vec::new() } else { vec![notice] }
    }

    fn verdict(&self, key: &Key, valid: &Finding) -> Notice {
        let warning = |reason, message| Notice { severity: Severity::Warning, reason, message };
        if self.out_of_scope.contains(key) {
            return warning("ServiceGroupOutOfScope", valid.sentence.clone());
        }
        match self.refused.get(key).or_else(|| self.put_off.get(key)).map(|problem| &problem.reason) {
            Some(reason @ (Reason::GroupDuplicate { .. } | Reason::GroupsOverlap { .. })) => {
                warning("ParseFailed", reason.to_string())
            }
            _ if valid.holds == Some(true) => {
                let message = "ServiceGroup parsed successfully".to_owned();
                Notice { severity: Severity::Normal, reason: "Parsed", message }
            }
            _ => warning("ParseFailed", format!("Failed to parse: {}", valid.sentence)),
        }
    }

    /// A status was written, or could not be.
    pub fn written(&mut self, namespace: &str, name: &str, outcome: GroupOutcome, at: Instant) {
        let key = (namespace.to_owned(), name.to_owned());
        if !matches!(outcome, GroupOutcome::Is(_)) {
            // Events follow a write; without it, nothing was told.
            self.told.remove(&key);
        }
        match outcome {
            GroupOutcome::Is(read) => {
                self.ledger.written(&key, read.object.status.as_ref());
                let Some(known) = self.entries.at(&key) else { return };
                if newer(version(&read), version(&known.read)) {
                    let entry = Entry::new(*read, Some(known));
                    self.entries.put(key, entry);
                }
            }
            // Once, the newer object is on its way; again and again, somebody writes as fast as we do.
            GroupOutcome::Conflict => {
                if self.ledger.failed(&key, at) == 1 {
                    self.ledger.hurry(&key);
                }
            }
            GroupOutcome::Refused(_) | GroupOutcome::Unsure(_) => drop(self.ledger.failed(&key, at)),
        }
    }
}

impl Entry {
    fn new(read: GroupObject, before: Option<&Entry>) -> Self {
        let before = before.filter(|before| before.read.object.metadata.uid == read.object.metadata.uid);
        let remembered = before.and_then(|before| before.kept.clone());
        let kept = read::kept_form(&read)
            .cloned()
            .into_iter()
            .chain(remembered)
            .reduce(|kept, remembered| if remembered.generation > kept.generation { remembered } else { kept });
        let reading = read::group_forms(&read, kept.as_ref());
        let in_use = before.is_some_and(|before| before.in_use && before.read.object.spec == read.object.spec);
        Self { read, kept, reading, in_use }
    }

    /// The group is in use in this form. One that is so as it is written now, with nothing wrong, is the next to keep.
    fn used_as(&mut self, form: Option<&Group>) {
        let forms = &mut self.reading.forms;
        self.in_use = forms.sound && form.is_some() && form == forms.written.as_ref();
        if self.in_use {
            forms.earlier = forms.written.clone();
            self.kept = read::written_form(&self.read);
        }
    }

    /// Whether the group counts in every namespace; what cannot be read may still say so.
    fn is_automatic(&self) -> bool {
        let spec = &self.read.object.spec;
        let stated = spec.placement.is_some() && spec.remote.is_none() && spec.external.is_none();
        self.reading.forms.best().map_or(stated, |group| group.placement == Placement::Auto)
    }

    /// What the group is, in the words of its spec.
    fn kind(&self) -> &'static str {
        let spec = &self.read.object.spec;
        if spec.local.is_some() {
            "local"
        } else if spec.remote.is_some() {
            "remote"
        } else if spec.external.is_some() {
            "external"
        } else {
            "local"
        }
    }

    fn first_problem(&self) -> Problem {
        self.reading.problems.first().cloned().unwrap_or_else(|| Problem::new("spec", Reason::NoSource))
    }
}

/// The generation of a group that is in use as it is written, by its status.
fn observed(object: &ServiceGroup) -> Option<i64> {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    let valid = conditions.find(|condition| condition.type_ == Aspect::Valid.name())?;
    valid.observed_generation.filter(|_| valid.status == "True")
}

fn key(object: &ServiceGroup) -> Key {
    let metadata = &object.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn version(read: &GroupObject) -> &str {
    read.object.metadata.resource_version.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(namespace: &str, name: &str, spec: Value) -> Change<Box<GroupObject>> {
        let metadata = json!({"name": name, "namespace": namespace, "resourceVersion": "1"});
        let object = json!({"metadata": metadata, "spec": spec});
        Change::Here(Box::new(serde_json::from_value(object).unwrap()))
    }

    #[test]
    fn c17_groups_elsewhere_are_told_by_what_they_are_and_automatic_ones_count_even_if_they_cannot_be_read() {
        let ranges = json!({"v4pools": [{"pool": "10.0.0.8/29", "subnet": "10.0.0.0/24"}]});
        let broken = json!({"v4pools": [{"pool": "nonsense", "subnet": "10.0.0.0/24"}]});
        let ipam = json!({"provider": "acme", "socket": "/a", "announce": "remote"});
        let mut groups = Groups::new("home");
        groups.take(Change::Restarted);
        for (namespace, name, spec) in [
            ("home", "default", json!({"local": {"v4pools": [{"pool": "10.1.0.8/29", "subnet": "10.1.0.0/24"}]}})),
            ("away", "l", json!({"local": ranges})),
            ("away", "r", json!({"remote": ranges})),
            ("away", "x", json!({"external": ipam})),
            ("away", "broken", json!({"placement": "Auto", "local": broken})),
        ] {
            groups.take(object(namespace, name, spec));
        }
        groups.take(Change::Complete);
        groups.refresh();
        let ignored: Vec<_> = groups.ignored().collect();
        assert_eq!(ignored, [("away", "l", "local"), ("away", "r", "remote"), ("away", "x", "external")]);
        assert!(groups.refused.contains_key(&("away".to_owned(), "broken".to_owned())), "it is told what is wrong");
    }
}
