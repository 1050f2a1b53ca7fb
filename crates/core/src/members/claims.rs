//! The addresses that nodes come first for: what their Leases claim.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Member, MemberChange, Members, unlist};
use crate::moment::Moment;

impl Members {
    /// The live nodes that claim an address.
    ///
    /// Endpoints are not in the Leases, so that nodes may know different ones; claims are, so that all nodes agree on
    /// them as they agree on who is alive.
    pub fn claimants(&self, addr: IpAddr) -> impl Iterator<Item = &Arc<str>> {
        self.by_claim.get(&addr).into_iter().flatten()
    }

    /// As [`Members::may_take`], for an address that this node was elected for because it claims it: all who could hold it
    /// must know of the claim.
    pub fn may_take_claimed(&self, addr: IpAddr, now: Moment) -> Result<(), Moment> {
        let both = self.own.listed(addr).zip(self.own.claimed(addr));
        let known = both.map(|(listed, claimed)| if listed.version > claimed.version { listed } else { claimed });
        self.free_since(addr, known, now)
    }

    /// Enters what a member claims from now on, and tells the difference.
    pub(super) fn put_claims(
        &mut self,
        node: &Arc<str>,
        member: Option<&Member>,
    ) -> impl Iterator<Item = MemberChange> + use<> {
        let before = self.all.get(node).map(Member::claiming).unwrap_or_default();
        let after = member.map(Member::claiming).unwrap_or_default();
        let lost: BTreeSet<_> = before.difference(&after).copied().collect();
        let won: BTreeSet<_> = after.difference(&before).copied().collect();
        lost.iter().for_each(|addr| unlist(&mut self.by_claim, addr, node));
        for addr in &won {
            self.by_claim.entry(*addr).or_default().insert(node.clone());
        }
        let lost = (!lost.is_empty()).then(|| MemberChange::Unclaimed { node: node.clone(), addrs: lost });
        let won = (!won.is_empty()).then(|| MemberChange::Claimed { node: node.clone(), addrs: won });
        lost.into_iter().chain(won)
    }
}
