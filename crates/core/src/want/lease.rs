//! What the leases tell, and what this node's own lease should say.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::members::{LeaseView, MemberChange, Said};
use crate::moment::Moment;
use crate::want::{LeaseWish, State};

impl State {
    /// The complete list of leases, at the start and whenever the watch begins anew.
    pub fn hear_leases(&mut self, leases: Vec<LeaseView>, now: Moment) {
        self.look_at_fence(now);
        let changes = self.members.hear_all(leases, now);
        self.leases_heard(changes, now);
    }

    /// A lease is there and looks like this; this node's own too.
    pub fn hear_lease(&mut self, lease: LeaseView, now: Moment) {
        self.look_at_fence(now);
        let changes = self.members.hear(lease, now);
        self.leases_heard(changes, now);
    }

    /// A lease was deleted.
    pub fn lease_gone(&mut self, node: &str, now: Moment) {
        self.look_at_fence(now);
        let changes = self.members.gone(node);
        self.leases_heard(changes, now);
    }

    /// A renewal of this node's own lease goes out now and says what was wished.
    pub fn renewing(&mut self, renew_time: String, wish: &LeaseWish, now: Moment) {
        self.lease.told = wish.saw;
        self.lease.published = Said { subnets: wish.subnets.clone(), claims: wish.claims.clone() };
        self.members.renewing(renew_time, self.lease.published.clone(), now);
    }

    fn leases_heard(&mut self, changes: Vec<MemberChange>, now: Moment) {
        self.members_changed(changes);
        self.look_at_fence(now);
        // A former holder may have said that it has let go.
        self.work.unwished.extend(&self.work.waiting);
    }

    pub(super) fn members_changed(&mut self, changes: Vec<MemberChange>) {
        if !changes.is_empty() {
            self.work.unwished.extend(&self.work.waiting);
        }
        for change in &changes {
            self.work.unwished.extend(self.elections.changed(change, &self.members));
            self.around.stale = true;
            let (node, concerned) = match change {
                MemberChange::Joined { node, subnets } => (node, subnets.iter().any(|net| self.serves_part_of(net))),
                MemberChange::Claimed { node, addrs } => {
                    self.work.unwished.extend(addrs);
                    (node, addrs.iter().any(|addr| self.serves(*addr)))
                }
                MemberChange::Unclaimed { node, addrs } => {
                    self.work.unwished.extend(addrs);
                    (node, false)
                }
                MemberChange::Left { node, .. } => (node, false),
            };
            if concerned && **node != *self.me {
                self.lease.asked = self.members.acted_up_to();
            }
        }
    }

    fn serves(&self, addr: IpAddr) -> bool {
        self.lease.published.subnets.iter().any(|own| own.contains(&addr))
    }

    fn serves_part_of(&self, other: &IpNet) -> bool {
        self.lease.published.subnets.iter().any(|own| own.contains(other) || other.contains(own))
    }

    /// Looks whether local addresses may still be held. Once they were not, each must be taken anew.
    pub(super) fn look_at_fence(&mut self, now: Moment) {
        let fence = self.members.fence().filter(|fence| now < *fence);
        if fence.is_none() || self.lease.fence.is_some_and(|before| before <= now) {
            self.work.holding.clear();
        }
        if fence != self.lease.fence {
            if fence > self.lease.fence {
                self.lease.renewed = now;
            }
            self.lease.fence = fence;
            self.work.unwished.extend(&self.work.mine);
        }
    }

    /// What this node's lease should say, as of the last [`State::want`].
    ///
    /// It never says more than what is true of the kernel: a subnet or a claim is left out, and a newcomer or another's
    /// claim acknowledged, only when the addresses concerned are off the NICs.
    pub fn lease_wish(&mut self) -> LeaseWish {
        let stuck: BTreeSet<IpAddr> =
            self.sight.on_nics.iter().filter(|addr| self.overstays(**addr)).copied().collect();
        let settled = self.work.unwished.is_empty() && !self.work.all && !self.around.stale;
        if stuck.is_empty() && settled {
            self.lease.saw = self.members.answers_up_to(self.work.looked);
        }
        // Who leaves lists nothing any more, so that others need not wait for it; who comes lists nothing yet.
        let listing = self.leaving.is_none() && self.lease.joined;
        let mut subnets = if listing { self.around.serving.subnets() } else { BTreeSet::new() };
        subnets.extend(self.members.subnets_of_twin(self.work.looked));
        let occupied = |subnet: &&IpNet| stuck.iter().any(|addr| subnet.contains(addr));
        let published = &self.lease.published;
        // What a predecessor said holds until it was said otherwise.
        let shown = self.members.lease(&self.me);
        let before = shown.into_iter().flat_map(|own| &own.subnets);
        subnets.extend(published.subnets.iter().chain(before).filter(occupied));
        let mut claims = self.work.claims.clone();
        let before = shown.into_iter().flat_map(|own| &own.claims);
        claims.extend(published.claims.iter().chain(before).filter(|addr| stuck.contains(*addr)));
        let ready = self.is_ready() && self.config.is_some() && self.leaving.is_none();
        let publish = ready || !published.subnets.is_empty() && self.holds_local();
        let untold = self.lease.asked > self.lease.told && self.lease.saw >= self.lease.asked;
        let urgent = publish && (untold || subnets != published.subnets || claims != published.claims);
        let (settled, renew_from) = (self.members.is_settled(self.work.looked), self.members.proof_due());
        LeaseWish { publish, subnets, claims, saw: self.lease.saw, settled, urgent, renew_from }
    }

    /// Joins as soon as that costs nobody an address; tells when to ask again.
    pub(super) fn look_at_joining(&mut self, now: Moment) {
        self.lease.joined = self.lease.joined || self.members.may_join(now).is_ok();
    }

    pub(super) fn joins_at(&self) -> Option<Moment> {
        self.members.may_join(self.work.looked).err().filter(|_| !self.lease.joined)
    }

    /// Whether this node says which subnets it serves.
    pub fn has_joined(&self) -> bool {
        self.lease.joined
    }

    /// Whether an address of ours is on a NIC where it should not be any more.
    fn overstays(&self, addr: IpAddr) -> bool {
        let wanted = self.desired.addrs.get(&addr);
        self.sight.shown(addr).iter().filter(|(link, held)| self.is_ours(*link, held)).any(|(link, _)| {
            let on = self.sight.link(*link).filter(|on| !on.is_virtual());
            on.is_some_and(|on| wanted.is_none_or(|wanted| *wanted.link != *on.name))
        })
    }
}
