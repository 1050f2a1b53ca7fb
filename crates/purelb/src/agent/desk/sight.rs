//! What the watch of leases has shown, and whether it still shows anything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use purelb_core::members::{LeaseView, Members};
use purelb_core::moment::Moment;
use tracing::info;

use crate::cluster::watch::Change;

/// How long the watch may take to show a renewal of our own that the API server has accepted.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a change of the watch amounts to.
#[derive(Debug)]
pub(super) enum Seen {
    /// Nothing yet.
    Nothing,
    /// This is the complete list.
    All(Vec<LeaseView>),
    /// One lease is there and looks like this.
    One(LeaseView),
    /// The lease of this node is gone.
    Gone(String),
}

/// The watch of leases.
#[derive(Debug)]
pub(super) struct Sight {
    me: String,
    longest: Duration,
    /// The list that is being read.
    list: Option<BTreeMap<String, LeaseView>>,
    complete: bool,
    /// The newest version of our own lease that the watch has shown.
    shown: Option<u64>,
    /// The newest that the API server has accepted, and until when the watch should have shown it.
    accepted: Option<(u64, Moment)>,
    /// How long to wait before the watch is begun anew.
    patience: Duration,
    /// Who was alive the last time, with its subnets.
    live: BTreeMap<String, BTreeSet<IpNet>>,
}

impl Sight {
    /// Nothing was shown yet.
    ///
    /// `longest` is how long to wait at most before the watch begins anew once more.
    pub fn new(me: &str, longest: Duration) -> Self {
        Self {
            me: me.to_owned(),
            longest: longest.max(PATIENCE),
            list: None,
            complete: false,
            shown: None,
            accepted: None,
            patience: PATIENCE,
            live: BTreeMap::new(),
        }
    }

    /// Whether a list was complete.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Takes a change in.
    pub fn take(&mut self, change: Change<Box<LeaseView>>) -> Seen {
        match (change, &mut self.list) {
            (Change::Restarted, list) => {
                *list = Some(BTreeMap::new());
                Seen::Nothing
            }
            (Change::Here(lease), Some(list)) => {
                list.insert(lease.node.clone(), *lease);
                Seen::Nothing
            }
            (Change::Gone(lease), Some(list)) => {
                list.remove(&lease.node);
                Seen::Nothing
            }
            (Change::Here(lease), None) => {
                self.show(&lease);
                Seen::One(*lease)
            }
            (Change::Gone(lease), None) => Seen::Gone(lease.node),
            (Change::Complete, list) => {
                self.complete = true;
                let leases: Vec<_> = list.take().unwrap_or_default().into_values().collect();
                leases.iter().for_each(|lease| self.show(lease));
                Seen::All(leases)
            }
        }
    }

    fn show(&mut self, lease: &LeaseView) {
        if lease.node == self.me {
            self.shown = self.shown.max(lease.version);
            if self.accepted.is_some_and(|(version, _)| self.shown >= Some(version)) {
                self.accepted = None;
                self.patience = PATIENCE;
            }
        }
    }

    /// The API server has accepted a renewal of our own and given it this version.
    pub fn accepted(&mut self, version: Option<u64>, now: Moment) {
        if let Some(version) = version.filter(|version| Some(*version) > self.shown) {
            // Of several that were not shown, the first says how long the watch has been silent.
            let until = self.accepted.map_or(now + self.patience, |(_, until)| until);
            self.accepted = Some((version, until));
        }
    }

    /// Whether the watch must begin anew now, and when to ask again.
    ///
    /// A connection that has died without a word shows nothing for minutes; the fence would cost this node its addresses.
    pub fn is_stuck(&mut self, now: Moment) -> (bool, Option<Moment>) {
        let Some((version, until)) = self.accepted else { return (false, None) };
        if now < until {
            return (false, Some(until));
        }
        info!(version, "the watch of leases does not show this node's own renewal; it begins anew");
        // A server that is slow to list must not be asked for ever new lists.
        self.patience = (self.patience * 2).min(self.longest);
        let again = now + self.patience;
        self.accepted = Some((version, again));
        (true, Some(again))
    }

    /// Tells the log who came and went since the last time.
    pub fn compare(&mut self, members: &Members) {
        let same = members.live().count() == self.live.len()
            && members.live().all(|(node, subnets)| self.live.get(node) == Some(subnets));
        if same {
            return;
        }
        let live: BTreeMap<_, _> = members.live().map(|(node, subnets)| (node.to_owned(), subnets.clone())).collect();
        for node in live.keys().filter(|node| !self.live.contains_key(*node)) {
            info!(event = "leaseAdd", node, "a node can take addresses");
        }
        for node in self.live.keys().filter(|node| !live.contains_key(*node)) {
            info!(event = "leaseDelete", node, "a node can take addresses no longer");
        }
        info!(event = "membershipChanged", members = live.len(), "the nodes that can take addresses are others");
        self.live = live;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment(Duration::from_millis(millis))
    }

    fn own(version: u64) -> Change<Box<LeaseView>> {
        Change::Here(Box::new(LeaseView { node: "me".to_owned(), version: Some(version), ..LeaseView::default() }))
    }

    #[test]
    fn a_watch_that_does_not_show_our_own_renewal_begins_anew() {
        let mut sight = Sight::new("me", Duration::from_secs(10));
        sight.accepted(Some(7), at(0));
        assert_eq!(sight.is_stuck(at(900)), (false, Some(at(1000))));
        assert_eq!(sight.is_stuck(at(1000)), (true, Some(at(3000))), "with growing patience");
        sight.accepted(Some(8), at(2500));
        assert_eq!(sight.is_stuck(at(3000)), (true, Some(at(7000))));
        sight.take(own(8));
        assert_eq!(sight.is_stuck(at(9000)), (false, None));
        sight.accepted(Some(9), at(9000));
        assert_eq!(sight.is_stuck(at(9000)), (false, Some(at(10_000))));
    }

    #[test]
    fn a_renewal_that_was_shown_before_its_answer_came_is_no_trouble() {
        let mut sight = Sight::new("me", Duration::from_secs(10));
        sight.take(own(7));
        sight.accepted(Some(7), at(0));
        assert_eq!(sight.is_stuck(at(5000)), (false, None));
    }

    #[test]
    fn a_list_is_heard_as_a_whole() {
        let mut sight = Sight::new("me", Duration::from_secs(10));
        assert!(matches!(sight.take(Change::Restarted), Seen::Nothing));
        assert!(matches!(sight.take(own(7)), Seen::Nothing));
        assert!(!sight.is_complete());
        assert!(matches!(sight.take(Change::Complete), Seen::All(leases) if leases.len() == 1));
        assert!(sight.is_complete());
        assert!(matches!(sight.take(own(8)), Seen::One(_)));
    }
}
