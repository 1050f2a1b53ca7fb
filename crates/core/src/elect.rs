//! Which node holds a local address: of the live nodes that can serve it, the one with the lowest digest.
//!
//! It is rendezvous hashing, byte for byte as PureLB has always done it, so that agents of different releases agree: a
//! node that leaves moves only the addresses it held, and one that joins takes only those it wins.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::members::{MemberChange, Members};

mod ballot;

use ballot::{Ballot, Words};

/// The rank of a node for an address, SHA-256 of `<node>#<address>`; the lowest wins.
pub fn rank(node: &str, addr: IpAddr) -> [u8; 32] {
    ballot::bytes(Ballot::new(addr).rank(node))
}

/// The outcome of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elected<'a> {
    /// The winner.
    pub node: &'a Arc<str>,
    /// Its rank.
    rank: Words,
    /// Whether nodes were preferred and none of them can serve the address.
    pub fell_back: bool,
}

/// The winner among candidates: the lowest rank of those preferred, or of all where none of them is.
pub fn elect<'a>(
    addr: IpAddr,
    candidates: impl IntoIterator<Item = &'a Arc<str>>,
    prefer: Option<&BTreeSet<String>>,
) -> Option<Elected<'a>> {
    let prefer = prefer.filter(|prefer| !prefer.is_empty());
    let mut ballot = Ballot::new(addr);
    let mut best: Option<Elected<'a>> = None;
    for node in candidates {
        let fell_back = prefer.is_some_and(|prefer| !prefer.contains(&**node));
        if best.is_some_and(|best| !best.fell_back && fell_back) {
            continue;
        }
        let rank = ballot.rank(node);
        if best.is_none_or(|best| (fell_back, rank) < (best.fell_back, best.rank)) {
            best = Some(Elected { node, rank, fell_back });
        }
    }
    best
}

/// The winners of all addresses of interest, kept up to date change by change.
#[derive(Clone, Debug, Default)]
pub struct Elections {
    by_addr: BTreeMap<IpAddr, Election>,
    /// What each winner won.
    won: BTreeMap<Arc<str>, BTreeSet<IpAddr>>,
}

#[derive(Clone, Debug)]
struct Election {
    winner: Option<Winner>,
    prefer: Option<BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Winner {
    node: Arc<str>,
    rank: Words,
    fell_back: bool,
}

impl From<Elected<'_>> for Winner {
    fn from(elected: Elected<'_>) -> Self {
        Self { node: elected.node.clone(), rank: elected.rank, fell_back: elected.fell_back }
    }
}

impl Elections {
    /// No address of interest yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Elects for an address from now on, with other preferences if they changed; says whether the winner is another.
    pub fn watch(&mut self, addr: IpAddr, prefer: Option<BTreeSet<String>>, members: &Members) -> bool {
        let addr = addr.to_canonical();
        let entry = self.by_addr.entry(addr);
        if matches!(&entry, Entry::Occupied(known) if known.get().prefer == prefer) {
            return false;
        }
        let winner = elect(addr, members.candidates(addr), prefer.as_ref()).map(Winner::from);
        let node = winner.as_ref().map(|winner| winner.node.clone());
        let before = match entry {
            Entry::Vacant(free) => {
                free.insert(Election { winner, prefer });
                None
            }
            Entry::Occupied(mut known) => known.insert(Election { winner, prefer }).winner,
        };
        self.count(addr, before.map(|before| before.node), node)
    }

    /// Elects for an address no longer.
    pub fn forget(&mut self, addr: IpAddr) {
        let addr = addr.to_canonical();
        self.install(addr, None);
        self.by_addr.remove(&addr);
    }

    /// Takes a change of the members in, which they know already; returns the addresses with another winner.
    pub fn changed(&mut self, change: &MemberChange, members: &Members) -> Vec<IpAddr> {
        match change {
            MemberChange::Joined { node, subnets } => {
                let mut moved = Vec::new();
                for subnet in subnets {
                    moved.extend(self.joined(node, *subnet, members));
                }
                moved
            }
            MemberChange::Left { node, .. } => self.left(node, members),
            // Whoever asks for elections passes claims on as preferences.
            MemberChange::Claimed { .. } | MemberChange::Unclaimed { .. } => Vec::new(),
        }
    }

    /// Who holds an address.
    pub fn winner(&self, addr: IpAddr) -> Option<&str> {
        self.elected(addr).map(|winner| &*winner.node)
    }

    /// The same, for those who keep the name.
    pub(crate) fn winning(&self, addr: IpAddr) -> Option<&Arc<str>> {
        self.elected(addr).map(|winner| &winner.node)
    }

    /// Whether nodes were preferred for an address and none of them can serve it.
    pub fn fell_back(&self, addr: IpAddr) -> bool {
        self.elected(addr).is_some_and(|winner| winner.fell_back)
    }

    /// The addresses that a node won, in order.
    pub fn won_by(&self, node: &str) -> impl Iterator<Item = IpAddr> {
        self.won.get(node).into_iter().flatten().copied()
    }

    fn elected(&self, addr: IpAddr) -> Option<&Winner> {
        self.by_addr.get(&addr.to_canonical())?.winner.as_ref()
    }

    /// A newcomer is compared with the winner of each address of the subnet, and with nobody else.
    fn joined(&mut self, node: &Arc<str>, subnet: IpNet, members: &Members) -> Vec<IpAddr> {
        if !members.serves(node, &subnet) {
            return Vec::new();
        }
        let mut moved = Vec::new();
        for (addr, election) in self.by_addr.range(subnet.network()..=subnet.broadcast()) {
            let winner = election.winner.as_ref();
            if winner.is_some_and(|winner| winner.node == *node) {
                continue;
            }
            if let Some(elected) = elect(*addr, [node], election.prefer.as_ref())
                && winner.is_none_or(|winner| (elected.fell_back, elected.rank) < (winner.fell_back, winner.rank))
            {
                moved.push((*addr, Winner::from(elected)));
            }
        }
        moved.into_iter().filter_map(|(addr, winner)| self.install(addr, Some(winner)).then_some(addr)).collect()
    }

    /// What a node held and can no longer serve is elected anew.
    fn left(&mut self, node: &str, members: &Members) -> Vec<IpAddr> {
        let held: Vec<_> = self.won_by(node).filter(|addr| !members.is_candidate(node, *addr)).collect();
        held.into_iter().filter(|addr| self.elect_anew(*addr, members)).collect()
    }

    fn elect_anew(&mut self, addr: IpAddr, members: &Members) -> bool {
        let Some(election) = self.by_addr.get(&addr) else { return false };
        let winner = elect(addr, members.candidates(addr), election.prefer.as_ref()).map(Winner::from);
        self.install(addr, winner)
    }

    /// Makes a node the winner, and says whether another was before.
    fn install(&mut self, addr: IpAddr, winner: Option<Winner>) -> bool {
        let Some(election) = self.by_addr.get_mut(&addr) else { return false };
        let node = winner.as_ref().map(|winner| winner.node.clone());
        let before = std::mem::replace(&mut election.winner, winner).map(|winner| winner.node);
        self.count(addr, before, node)
    }

    /// Enters in the counts of both nodes that an address went from one to the other, and says whether it did.
    fn count(&mut self, addr: IpAddr, before: Option<Arc<str>>, node: Option<Arc<str>>) -> bool {
        if before == node {
            return false;
        }
        if let Some(before) = before
            && let Some(won) = self.won.get_mut(&before)
        {
            won.remove(&addr);
            if won.is_empty() {
                self.won.remove(&before);
            }
        }
        if let Some(node) = node {
            self.won.entry(node).or_default().insert(addr);
        }
        true
    }
}

#[cfg(test)]
mod tests;
