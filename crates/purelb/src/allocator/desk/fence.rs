//! The fence at the start of a term: what an earlier leader may still be writing is made to fail before anything is
//! decided.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use purelb_api::read::ServiceRecord;
use purelb_api::write;
use purelb_core::addr::Family;
use purelb_core::alloc::{Decision, decide};
use purelb_core::book::{Book, Slot};
use purelb_core::pool::ServiceKey;
use purelb_core::service::ServiceView;
use tokio::time::Instant;

use super::{Busy, Desk, Phase};
use crate::allocator::job::Job;

/// How long after the start of a term a write of an earlier leader may still arrive.
///
/// An earlier leader has sent its last write before the term begins, and hangs up when it gets no answer within 4 s. One
/// that was stopped, or whose machine died, does not hang up: the API server then goes on with the write until its own
/// limit is over, which is 34 s for whatever a client asks. The rest is margin, for the way there and for etcd.
pub(super) const LATEST_ARRIVAL: Duration = Duration::from_secs(45);

impl Desk {
    /// Whether decisions are taken: everything is known and the fence stands.
    pub fn is_deciding(&self) -> bool {
        self.phase == Phase::Deciding
    }

    /// Services that could not be touched before decisions were taken.
    pub fn untouched(&self) -> &[ServiceKey] {
        &self.untouched
    }

    /// From gathering to fencing to deciding.
    pub(super) fn advance(&mut self, at: Instant) {
        if self.phase == Phase::Gathering && self.incomplete().next().is_none() {
            self.groups.refresh();
            let (groups, refused) = self.groups.assembled();
            self.surroundings = self.surroundings();
            self.book = Book::new(groups, refused, self.surroundings.clone());
            self.by_age().iter().for_each(|key| self.enter(key));
            self.fence();
        }
        self.excuse_untouchable(at);
        if matches!(&self.phase, Phase::Fencing(left) if left.is_empty()) {
            self.phase = Phase::Deciding;
            self.unshown = true;
            self.enqueue_all();
            self.count_new_groups();
            self.begin_sweep();
        }
    }

    /// Which first lists are not complete yet, in words that complete "waiting for".
    pub fn incomplete(&self) -> impl Iterator<Item = &'static str> {
        let lists = [
            ("the list of Services", self.services.is_complete()),
            ("the list of ServiceGroups", self.groups.is_complete()),
            ("the list of Nodes", self.nodes.is_complete()),
            ("the list of Leases", self.agents.is_complete()),
        ];
        lists.into_iter().filter(|(_, complete)| !complete).map(|(list, _)| list)
    }

    /// All Services, those first that have had their addresses for longest: where two were edited so that they cannot share
    /// any more while nobody led, the later one loses.
    fn by_age(&self) -> Vec<ServiceKey> {
        let mut all: Vec<_> = self.services.iter().map(|(key, record)| (record.since, key.clone())).collect();
        all.sort();
        all.into_iter().map(|(_, key)| key).collect()
    }

    /// Touches every Service to which an earlier leader may still be writing an address.
    fn fence(&mut self) {
        let keys = self.services.iter().filter(|(_, record)| self.may_receive(record)).map(|(key, _)| key.clone());
        let keys: BTreeSet<_> = keys.collect();
        for key in &keys {
            self.touch(key);
        }
        self.phase = Phase::Fencing(keys);
    }

    /// Whether an address may be on its way to this Service: it is ours and lacks something, or is about to change.
    fn may_receive(&self, record: &ServiceRecord) -> bool {
        match decide(&self.scope, &self.book, &record.view) {
            Decision::LeaveAlone => false,
            Decision::AskExternal(_) => true,
            Decision::Wish(wish) => {
                let content = wish.reason.is_none() && wish.is_fulfilled_by(&record.view);
                !content || wish.addrs.is_empty() || self.may_grow(record)
            }
        }
    }

    /// Whether a content Service may have been about to get more addresses than it has: of further ranges of its group, as
    /// subnets come and go. An earlier leader may have seen a subnet that is gone now.
    ///
    /// What the group says about this today counts if its status says that no write of an earlier form is under way, see
    /// [`Desk::unsettled_groups`]. Otherwise, or if it is gone, it may have said anything.
    fn may_grow(&self, record: &ServiceRecord) -> bool {
        let addrs = record.view.addresses();
        let twice = |addr: &IpAddr| addrs.iter().filter(|other| Family::of(**other) == Family::of(*addr)).count() > 1;
        let from = record.view.brand.from.as_deref().and_then(|from| self.book.slot(from).ok());
        addrs.iter().any(|addr| match self.book.slot_of(*addr).or(from) {
            Some(slot) if self.groups.is_settled(&slot.group) => lacks_a_range(&record.view, slot),
            Some(slot) => has_several_ranges(slot) || twice(addr),
            None => true,
        })
    }

    /// Groups to Services of which a wish is under way that adds addresses and was decided on an earlier form of the group.
    /// Their statuses do not say yet that the current form counts: a new leader then fences all that an earlier form may
    /// have given.
    pub(super) fn unsettled_groups(&self) -> BTreeSet<String> {
        let earlier = self.busy.values().filter(|busy| busy.forms < self.forms);
        let growing = earlier.filter_map(|busy| {
            let wish = busy.wish.as_ref()?;
            wish.addrs.iter().any(|addr| !busy.shown.0.contains(addr)).then_some(wish)
        });
        growing.flat_map(|wish| [&wish.group, &wish.brand.from]).flatten().cloned().collect()
    }

    /// A write that changes nothing but the version.
    pub(super) fn touch(&mut self, key: &ServiceKey) {
        let Some(record) = self.services.at(key) else { return };
        let patch = write::touch_patch(record, self.term, self.now);
        let job = Job::Patch { service: key.clone(), patch, notices: Vec::new() };
        self.ready.push_back(job.clone());
        self.busy.insert(key.clone(), Busy::with(job));
    }

    /// While the fence is being built, a Service is done when it was touched, not when it was merely read.
    pub(super) fn confirm_touch(&mut self, key: &ServiceKey, was: &Job) {
        let Phase::Fencing(left) = &mut self.phase else { return };
        if matches!(was, Job::Patch { .. }) {
            left.remove(key);
        } else if left.contains(key) {
            self.touch(key);
        }
    }

    /// A Service that cannot be touched, because a webhook refuses it or answers with errors, keeps all others waiting
    /// until no earlier leader can be writing to it any more, and no longer.
    ///
    /// Not before: that a write is refused to this leader now does not say that it is refused to the last one, whose
    /// write may be past the webhook already.
    fn excuse_untouchable(&mut self, at: Instant) {
        let Phase::Fencing(left) = &mut self.phase else { return };
        if self.late_until.is_some_and(|until| at < until) {
            return;
        }
        self.late_until = None;
        let (stuck, still): (BTreeSet<_>, BTreeSet<_>) =
            std::mem::take(left).into_iter().partition(|key| self.pauses.is_troubled(key));
        *left = still;
        self.untouched.extend(stuck);
    }

    /// A Service that is gone needs no touch: a write to it finds nothing, or a namesake with another uid.
    pub(super) fn excuse(&mut self, key: &ServiceKey) {
        if let Phase::Fencing(left) = &mut self.phase {
            left.remove(key);
        }
    }
}

fn has_several_ranges(slot: &Slot) -> bool {
    let ranges = slot.group.ranges().into_iter();
    ranges.flat_map(|ranges| [&ranges.v4, &ranges.v6]).any(|entries| entries.len() > 1)
}

/// Whether a Service is to have an address of every range of its group, and has none of some.
fn lacks_a_range(svc: &ServiceView, slot: &Slot) -> bool {
    let Some(ranges) = slot.group.ranges() else { return false };
    let wanted = |family: Family| svc.families.is_empty() || svc.families.contains(&family);
    let has = |family: Family, range: usize| {
        svc.addresses().into_iter().any(|addr| Family::of(addr) == family && slot.pool.range_of(addr) == Some(range))
    };
    let lacks = |family: Family| wanted(family) && (0..ranges.of(family).len()).any(|range| !has(family, range));
    svc.asks.multi_pool.unwrap_or(ranges.multi_pool) && [Family::V4, Family::V6].into_iter().any(lacks)
}
