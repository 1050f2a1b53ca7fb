//! The book of all addresses: every group with its pool, and who holds what.
//!
//! A Service's claim is entered here before it is written to the API, so that the next decision already sees it. The
//! book holds nothing of its own: it is rebuilt from the Services at every start and whenever a group changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::group::{Group, Placement, Ranges};
use crate::pool::{Claim, Hold, Pool, ServiceKey};
use crate::reason::Reason;
use crate::reserved::{Guard, Reserved, edges, reserved};

pub use bindings::{Bindings, DEFAULT_GROUP, NamespaceDefault};

mod bindings;

/// What holds for the whole cluster beside the groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Addresses of Nodes, each with the Node's name: never given out.
    pub node_addresses: BTreeMap<IpAddr, String>,
    /// What agents do not announce, as they say themselves: gateways, API servers, addresses of Nodes.
    pub guarded: BTreeMap<IpAddr, Guard>,
    /// Subnets that some live node can announce local addresses in.
    pub active_subnets: BTreeSet<IpNet>,
}

impl Surroundings {
    /// Everything that is somebody's.
    fn taken(&self) -> BTreeMap<IpAddr, Guard> {
        let nodes = self.node_addresses.keys().map(|addr| (*addr, Guard::Node));
        self.guarded.iter().map(|(addr, guard)| (*addr, *guard)).chain(nodes).collect()
    }

    /// Why no Service may have an address, with the name of the Node that has it.
    fn reason(&self, addr: IpAddr, why: Reserved) -> Reason {
        match (why, self.node_addresses.get(&addr)) {
            (Reserved::Guarded(_), Some(node)) => {
                Reason::AddressReserved { addr, what: format!("address of Node {node}") }
            }
            _ => why.reason(addr),
        }
    }
}

/// One usable group.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The group.
    pub group: Group,
    /// Its addresses; without any for groups whose addresses come from elsewhere.
    pub pool: Pool,
}

/// What one Service holds.
#[derive(Clone, Debug)]
pub struct Holding {
    /// Which of the objects that ever had this name it is.
    pub uid: String,
    /// Its sharing key and ports.
    pub claim: Claim,
    /// Its addresses.
    pub addrs: Vec<IpAddr>,
}

/// A holding with its rank: the lower one came earlier.
#[derive(Clone, Debug)]
struct Held {
    rank: u64,
    holding: Holding,
}

/// All groups and all holdings.
#[derive(Clone, Debug, Default)]
pub struct Book {
    slots: BTreeMap<String, Slot>,
    refused: BTreeMap<String, Reason>,
    bindings: Bindings,
    surroundings: Surroundings,
    /// Everything that is somebody's.
    taken: BTreeMap<IpAddr, Guard>,
    holdings: BTreeMap<ServiceKey, Held>,
    /// How many holdings have been entered, for the next one's rank.
    entered: u64,
    /// Held addresses that are in no pool: of groups edited or deleted since, or from an external IPAM.
    loose: BTreeMap<IpAddr, Hold>,
}

impl Book {
    /// A book of these groups in which nobody holds anything yet. Groups that clash were left out before.
    pub fn new(groups: Vec<Group>, refused: BTreeMap<String, Reason>, surroundings: Surroundings) -> Self {
        let bindings = Bindings::new(groups.iter());
        let taken = surroundings.taken();
        let slot = |group: Group| (group.name.clone(), Slot::new(group, &taken, &surroundings));
        let slots = groups.into_iter().map(slot).collect();
        Self { slots, refused, bindings, surroundings, taken, ..Self::default() }
    }

    /// The same holdings in a book of other groups or other surroundings.
    #[must_use]
    pub fn rebuilt(
        mut self,
        groups: Vec<Group>,
        refused: BTreeMap<String, Reason>,
        surroundings: Surroundings,
    ) -> Self {
        let holdings = std::mem::take(&mut self.holdings);
        let mut book = Self::new(groups, refused, surroundings);
        // Who came earlier goes before, in the new pools as well.
        let mut holdings: Vec<_> = holdings.into_values().collect();
        holdings.sort_by_key(|held| held.rank);
        holdings.into_iter().for_each(|held| book.hold(held.holding));
        book
    }

    /// Enters all that a Service holds, in place of what it held before.
    pub fn hold(&mut self, holding: Holding) {
        let service = holding.claim.service.clone();
        self.entered += 1;
        let before = self.holdings.remove(&service);
        let stays = before.as_ref().filter(|before| before.holding.claim.covers(&holding.claim));
        let rank = stays.map_or(self.entered, |before| before.rank);
        for addr in
            before.into_iter().flat_map(|before| before.holding.addrs).filter(|addr| !holding.addrs.contains(addr))
        {
            self.let_go(addr, &service);
        }
        for &addr in &holding.addrs {
            match self.slot_of_mut(addr) {
                // Whether it may have the address is for `decide` to say; that it has it is a fact.
                Some(slot) => drop(slot.pool.adopt(addr, &holding.claim)),
                None => drop(self.loose.entry(addr).or_default().enter(&holding.claim)),
            }
        }
        if !holding.addrs.is_empty() {
            self.holdings.insert(service, Held { rank, holding });
        }
    }

    /// Takes everything from a Service that is gone; with a uid, only if it is that object and not a later namesake.
    pub fn release(&mut self, service: &str, uid: Option<&str>) -> Option<Holding> {
        let holding = self.holding(service)?;
        if uid.is_some_and(|uid| uid != holding.uid) {
            return None;
        }
        let Held { holding, .. } = self.holdings.remove(service)?;
        for &addr in &holding.addrs {
            self.let_go(addr, &holding.claim.service);
        }
        Some(holding)
    }

    /// What a Service holds.
    pub fn holding(&self, service: &str) -> Option<&Holding> {
        self.holdings.get(service).map(|held| &held.holding)
    }

    /// Everything that is held.
    pub fn holdings(&self) -> impl Iterator<Item = &Holding> {
        self.holdings.values().map(|held| &held.holding)
    }

    /// The usable groups by name.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    /// A usable group by name, or why there is none.
    pub fn slot(&self, name: &str) -> Result<&Slot, Reason> {
        if let Some(slot) = self.slots.get(name) {
            return Ok(slot);
        }
        Err(match self.refused.get(name) {
            Some(why) => Reason::GroupUnusable { group: name.to_owned(), why: why.to_string() },
            None if self.slots.is_empty() && self.refused.is_empty() => Reason::NoGroups { group: name.to_owned() },
            None => Reason::UnknownPool { group: name.to_owned() },
        })
    }

    /// The group whose ranges have an address.
    pub fn slot_of(&self, addr: IpAddr) -> Option<&Slot> {
        self.slots.values().find(|slot| slot.pool.contains(addr))
    }

    /// The namespace lists.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Whether a node can announce local addresses of a subnet.
    pub fn is_active(&self, subnet: IpNet) -> bool {
        self.surroundings.active_subnets.contains(&subnet)
    }

    /// Refuses an address from outside the pools that no Service may have, or that somebody else has who does not share it.
    pub fn check_loose(&self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        let addr = addr.to_canonical();
        if let Some(slot) = self.slot_of(addr) {
            return slot.pool.available(addr, claim);
        }
        if let Some(why) = reserved(addr, &self.taken, self.local_subnets()) {
            return Err(self.surroundings.reason(addr, why));
        }
        self.loose.get(&addr).map_or(Ok(()), |hold| hold.admits(addr, claim))
    }

    /// Whether a Service may keep an address from outside the pools. Of the others who have it, only those count who had
    /// it earlier.
    pub fn keeps_loose(&self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        match self.check_loose(addr, claim) {
            Err(Reason::AddressInUse { .. } | Reason::PortInUse { .. }) => self.outranked(addr, claim),
            verdict => verdict,
        }
    }

    /// Whether somebody has an address who had it earlier and does not share it with the Service as that is now.
    pub fn outranked(&self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        match self.slot_of(addr) {
            Some(slot) => slot.pool.outranked(addr, claim),
            None => self.loose.get(&addr).map_or(Ok(()), |hold| hold.outranks(addr, claim)),
        }
    }

    /// The subnets that groups announce locally, and those that live nodes can announce in.
    fn local_subnets(&self) -> impl Iterator<Item = IpNet> {
        let of_groups = self.slots.values().flat_map(|slot| announced_locally(&slot.group, &self.surroundings));
        of_groups.chain(self.surroundings.active_subnets.iter().copied())
    }

    fn slot_of_mut(&mut self, addr: IpAddr) -> Option<&mut Slot> {
        self.slots.values_mut().find(|slot| slot.pool.contains(addr))
    }

    fn let_go(&mut self, addr: IpAddr, service: &ServiceKey) {
        if let Some(slot) = self.slot_of_mut(addr) {
            slot.pool.release(addr, service);
        }
        if let Some(hold) = self.loose.get_mut(&addr) {
            hold.leave(service);
            if hold.is_empty() {
                self.loose.remove(&addr);
            }
        }
    }
}

impl Slot {
    fn new(group: Group, taken: &BTreeMap<IpAddr, Guard>, surroundings: &Surroundings) -> Self {
        let none = Ranges::default();
        let mut pool = Pool::new(&group.name, group.ranges().unwrap_or(&none));
        // Agents ask their own subnets first, whatever the group says.
        let active = surroundings.active_subnets.iter().copied();
        let subnets: BTreeSet<_> = announced_locally(&group, surroundings).chain(active).collect();
        let doubtful = taken.keys().copied().chain(subnets.iter().copied().flat_map(edges));
        for addr in doubtful.filter(|addr| pool.contains(*addr)).collect::<BTreeSet<_>>() {
            if let Some(why) = reserved(addr, taken, subnets.iter().copied()) {
                pool.withhold(addr, surroundings.reason(addr, why));
            }
        }
        Self { group, pool }
    }
}

/// The subnets a group announces locally.
fn announced_locally<'a>(group: &'a Group, surroundings: &'a Surroundings) -> impl Iterator<Item = IpNet> + 'a {
    let local = move |subnet: &IpNet| match group.placement {
        Placement::Local => true,
        Placement::Auto => surroundings.active_subnets.contains(subnet),
        Placement::Remote => false,
    };
    let subnets = group.ranges().into_iter().flat_map(Ranges::all).map(|entry| entry.subnet);
    subnets.filter(local)
}

#[cfg(test)]
mod tests;
