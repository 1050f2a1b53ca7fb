//! Addresses that should be near the endpoints of their Service: which nodes come first for them.
//!
//! Nodes may know different endpoints, or not know yet that a Service wants this at all. So a node does not act on what it
//! knows of endpoints elsewhere: one that has an endpoint claims the address in its lease, and what the leases say decides
//! for everybody, by the same rules that make a newcomer wait until all have seen it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::moment::Moment;
use crate::want::{AgentService, State};

/// How long an address is left to nodes that should claim it and have not yet.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many addresses a node claims at most, so that its lease does not grow beyond what the API server stores.
const MOST_CLAIMS: usize = 4096;

/// The nodes that come first for an address.
pub(super) struct Preferred {
    pub nodes: BTreeSet<String>,
    /// They are only expected to claim it: who is elected among them may not take it.
    pub expected: bool,
}

impl State {
    /// The nodes that come first for an address; claims it for this node if an endpoint is here.
    pub(super) fn prefer(&mut self, addr: IpAddr, holders: &[Arc<AgentService>], now: Moment) -> Preferred {
        let following = holders.iter().find(|service| service.affinity && !service.shared);
        let near = following.and_then(|service| self.endpoints.get(&service.key)).cloned().unwrap_or_default();
        if !near.is_empty() && !near.iter().any(|node| self.members.is_candidate(node, addr)) {
            self.work.astray.insert(addr);
        }
        let here = near.contains(&*self.me) && self.work.claims.len() < MOST_CLAIMS;
        if here {
            self.work.claims.insert(addr);
        }
        // What an earlier renewal of our own says counts only as long as it is meant.
        let claimants = self.members.claimants(addr).filter(|node| here || **node != self.me);
        let mut nodes: BTreeSet<String> = claimants.map(|node| node.to_string()).collect();
        if !nodes.is_empty() || self.work.holding.contains(&addr) {
            self.work.awaited.remove(&addr);
        } else if self.is_awaited(addr, &near, now) {
            return Preferred { nodes: near, expected: true };
        }
        // Agents of other programs claim nothing and go where the endpoints are.
        nodes.extend(near.into_iter().filter(|node| !self.claims(node)));
        Preferred { nodes, expected: false }
    }

    /// Whether one of these nodes is about to claim an address, as far as anybody can tell.
    fn is_awaited(&mut self, addr: IpAddr, near: &BTreeSet<String>, now: Moment) -> bool {
        if !near.iter().any(|node| self.claims(node) && self.members.is_candidate(node, addr)) {
            self.work.awaited.remove(&addr);
            return false;
        }
        let until = *self.work.awaited.entry(addr).or_insert(now + PATIENCE);
        if now < until {
            self.work.alarms.insert((until, addr));
        }
        now < until
    }

    /// Whether a node is one that claims addresses where it has endpoints.
    fn claims(&self, node: &str) -> bool {
        self.members.is_live(node) && self.members.speaks(node)
    }

    /// Whether this node is elected for an address because it claims it.
    pub(super) fn is_by_claim(&self, addr: IpAddr) -> bool {
        self.work.claims.contains(&addr) && self.members.claimants(addr).any(|node| *node == self.me)
    }
}
