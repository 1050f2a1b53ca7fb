//! Beginning and ending as one of many: when a process that starts may join, and when one has to stop at once.

use std::time::Duration;

use ipnet::IpNet;

use super::{LeaseView, Members, Twin, longest_hold};
use crate::moment::Moment;

impl Members {
    /// This process has just begun: somebody may still hold addresses whose Lease was deleted before it first looked.
    pub fn begin(&mut self, now: Moment) {
        self.begun = now;
        self.strangers = Some(now + self.longest);
    }

    /// Whether an agent before this process listed subnets in our Lease a moment ago, so that nobody else has taken over.
    pub fn is_expected(&self) -> bool {
        let own = self.lease(&self.me);
        own.is_some_and(|own| !own.subnets.is_empty() && own.duration.is_some_and(|duration| own.age < duration))
    }

    /// Whether this process, of which nobody knows yet, may say which subnets it serves; if not, when to ask again.
    ///
    /// Others let go of addresses for whoever joins, so that it had better be able to take them: it waits until it knows who
    /// is alive, and that nobody is left whose Lease it never saw.
    pub fn may_join(&self, now: Moment) -> Result<(), Moment> {
        let others = || {
            let others = self.all.iter().filter(|(node, _)| **node != self.me).map(|(_, member)| member);
            others.filter(|member| member.live && !member.lease.subnets.is_empty())
        };
        let silent = others().any(|member| !member.stirred).then_some(self.begun + self.watch);
        let strangers = self.strangers.filter(|_| others().next().is_some());
        silent.into_iter().chain(strangers).filter(|wait| *wait > now).max().map_or(Ok(()), Err)
    }

    /// Whether all nodes whose Leases were deleted, as far as this process has heard, have let go.
    pub fn is_settled(&self, now: Moment) -> bool {
        self.strangers.is_some_and(|until| until <= now) && self.ghosts.iter().all(|(_, until)| *until <= now)
    }

    /// A neighbour that has heard of a renewal of ours has heard of every deletion before it. If it knows that all who lost
    /// their Leases have let go, there are no strangers to wait for.
    pub(super) fn hear_witness(&mut self, lease: &LeaseView, now: Moment) {
        let ours = self.own.first_version();
        if lease.settled && ours.is_some_and(|ours| lease.saw >= Some(ours)) {
            self.strangers = self.strangers.map(|until| until.min(now));
        }
    }

    /// A Lease as it may be counted on. One that says it was written after something that was written later comes from
    /// before the cluster was restored from a backup: what it saw was another past.
    pub(super) fn of_this_time(&mut self, lease: LeaseView) -> LeaseView {
        let known = self.lease(&lease.node).and_then(|known| known.version);
        self.restored |= lease.version.is_some() && lease.version < known;
        let false_past = lease.version.zip(lease.saw).is_some_and(|(version, saw)| saw >= version);
        LeaseView { saw: if false_past { Some(0) } else { lease.saw }, ..lease }
    }

    /// Whether the API server has gone back in time, so that nothing this process knows can be counted on.
    pub fn is_restored(&self) -> bool {
        self.restored
    }

    /// Whether another agent has written our Lease after this process: this one has to stop.
    pub fn is_usurped(&self) -> bool {
        self.own.is_usurped()
    }

    /// Our own Lease, before or after this process has written it.
    pub(super) fn look_for_twin(&mut self, lease: &LeaseView, now: Moment) {
        match self.twin {
            _ if self.own.first_version().is_none() => {
                // The agent before us on this machine holds nothing that our kernel does not show.
                let longest = longest_hold(lease.duration.unwrap_or_default());
                self.twin = if lease.host == self.host { Twin::None } else { Twin::Before(longest) };
            }
            Twin::Before(longest) => self.twin = Twin::Until(now + longest),
            Twin::None | Twin::Until(_) => {}
        }
    }

    /// Until when an agent with our name on another machine may hold addresses.
    pub(super) fn twin_until(&self, now: Moment) -> Option<Moment> {
        match self.twin {
            Twin::None => None,
            Twin::Before(_) => Some(now + Duration::from_secs(1)),
            Twin::Until(until) => Some(until),
        }
    }

    /// What our Lease must go on saying, because an agent with our name on another machine may hold addresses there.
    pub fn subnets_of_twin(&self, now: Moment) -> impl Iterator<Item = IpNet> {
        let own = self.lease(&self.me).filter(|_| self.has_twin(now));
        own.into_iter().flat_map(|own| own.subnets.iter().copied())
    }

    /// The version up to which this process has acted, if that means anything: it cannot speak for an agent with its name on
    /// another machine.
    pub fn answers_up_to(&self, now: Moment) -> u64 {
        if self.has_twin(now) { 0 } else { self.acted_up_to() }
    }

    /// Whether an agent with our name on another machine may hold what this kernel shows.
    pub fn has_twin(&self, now: Moment) -> bool {
        self.twin_until(now).is_some_and(|until| until > now)
    }
}
