//! Which addresses of a group are free, who holds the others, and who may share them.
//!
//! A pool costs nothing for its size: it remembers the held addresses and the gaps between them. Taking the first
//! free address, testing one and releasing one are each a few look-ups in ordered maps.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::addr::{Family, addr_of, bits};
use crate::group::{Entry, Ranges};
use crate::reason::Reason;

use gaps::Gaps;

mod gaps;

/// A Service as `namespace/name`; cheap to copy, because every held address names its holders.
pub type ServiceKey = Arc<str>;

/// A transport protocol, with the name Kubernetes gives it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, serde::Serialize, serde::Deserialize,
)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A port of a Service; two Services on one address must not have one in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Port {
    /// The protocol.
    pub protocol: Protocol,
    /// The number clients connect to.
    pub number: u16,
}

/// What a Service brings along when it asks for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who asks.
    pub service: ServiceKey,
    /// The sharing key, if the Service is ready to share; never empty.
    pub key: Option<Arc<str>>,
    /// The ports it will use.
    pub ports: Vec<Port>,
}

/// All addresses of a group with their holders.
#[derive(Clone, Debug)]
pub struct Pool {
    name: Arc<str>,
    v4: Side,
    v6: Side,
    /// Addresses that are bound to a sharing key. More than one for a key only where an older release left it so.
    keys: BTreeMap<(Arc<str>, Family), BTreeSet<u128>>,
}

impl Pool {
    /// A pool with nothing in use.
    pub fn new(name: &str, ranges: &Ranges) -> Self {
        Self {
            name: name.into(),
            v4: Side::new(Family::V4, &ranges.v4),
            v6: Side::new(Family::V6, &ranges.v6),
            keys: BTreeMap::new(),
        }
    }

    /// The name of the group.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many addresses of a family there are; an address in two ranges counts once.
    pub fn size(&self, family: Family) -> u128 {
        self.side(family).gaps.size()
    }

    /// How many addresses of a family somebody holds; a shared one counts once.
    pub fn in_use(&self, family: Family) -> usize {
        self.side(family).held.len()
    }

    /// How many addresses of one range somebody holds; a range is named by its position in the family's list.
    pub fn in_use_of_range(&self, family: Family, range: usize) -> usize {
        self.side(family).used.get(range).copied().unwrap_or(0)
    }

    /// The range that gives an address out, by its position in the family's list.
    pub fn range_of(&self, addr: IpAddr) -> Option<usize> {
        self.side(Family::of(addr)).gaps.range_of(bits(addr))
    }

    /// Whether the address belongs to this pool.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.range_of(addr).is_some()
    }

    /// The Services on an address, in the order they came.
    pub fn holders(&self, addr: IpAddr) -> impl Iterator<Item = &ServiceKey> {
        self.hold(addr).into_iter().flat_map(|hold| &hold.holders).map(|holder| &holder.service)
    }

    /// Every address in use, lowest first, IPv4 before IPv6.
    pub fn held(&self) -> impl Iterator<Item = IpAddr> {
        [&self.v4, &self.v6].into_iter().flat_map(|side| side.held.keys().map(|&at| addr_of(side.family, at)))
    }

    /// Whether a Service may have this address. What the Service itself holds does not stand in its way.
    pub fn available(&self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        if !self.contains(addr) {
            return Err(Reason::AddressNotInPool { addr, pool: self.name.to_string() });
        }
        match self.bound(Family::of(addr), claim) {
            Some(bound) if bound != addr.to_canonical() => {
                Err(Reason::SharingKeyBound { key: claim.key.as_deref().unwrap_or_default().to_owned(), bound, addr })
            }
            _ => self.side(Family::of(addr)).admits(addr, claim),
        }
    }

    /// The address the Service would get next: that of its sharing key, or else the first free one.
    pub fn next(&self, family: Family, claim: &Claim) -> Result<IpAddr, Reason> {
        if let Some(bound) = self.bound(family, claim) {
            return self.available(bound, claim).map(|()| bound);
        }
        let side = self.side(family);
        let first = side.gaps.first().ok_or_else(|| self.nothing_free(family, claim))?;
        Ok(addr_of(family, first))
    }

    /// The first free address of one range.
    pub fn next_in_range(&self, family: Family, range: usize, claim: &Claim) -> Result<IpAddr, Reason> {
        let first = self.side(family).gaps.first_in(range).ok_or_else(|| self.nothing_free(family, claim))?;
        Ok(addr_of(family, first))
    }

    /// Keeps an address from ever being given out, with the reason. Whoever holds it already keeps it.
    pub fn withhold(&mut self, addr: IpAddr, why: Reason) {
        let side = self.side_mut(Family::of(addr));
        let at = bits(addr);
        if side.gaps.range_of(at).is_some() {
            side.gaps.remove(at);
            side.withheld.insert(at, why);
        }
    }

    /// How many addresses of a family are kept back and in nobody's hands.
    pub fn withheld(&self, family: Family) -> usize {
        let side = self.side(family);
        side.withheld.keys().filter(|at| !side.held.contains_key(at)).count()
    }

    /// Gives the address to the Service, or says why not. Asking again with other ports or another key updates them.
    pub fn take(&mut self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        self.available(addr, claim)?;
        self.record(addr, claim);
        Ok(())
    }

    /// Gives the Service its next address.
    pub fn take_next(&mut self, family: Family, claim: &Claim) -> Result<IpAddr, Reason> {
        let addr = self.next(family, claim)?;
        self.record(addr, claim);
        Ok(addr)
    }

    /// Enters what is already so: the Service has this address, whoever else has it too.
    ///
    /// Answers with the reason why it could not have been given out so, or that the address is not of this pool.
    pub fn adopt(&mut self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        let verdict = self.available(addr, claim);
        if self.contains(addr) {
            self.record(addr, claim);
        }
        verdict
    }

    /// Takes the address away from the Service; `false` if the Service did not hold it.
    pub fn release(&mut self, addr: IpAddr, service: &str) -> bool {
        let (family, at) = (Family::of(addr), bits(addr));
        let side = self.side_mut(family);
        let Some(hold) = side.held.get_mut(&at) else { return false };
        let before = hold.holders.len();
        let empty = hold.leave(service);
        let released = hold.holders.len() < before;
        if empty && let Some(hold) = side.held.remove(&at) {
            side.give_back(at);
            self.unbind(family, at, hold.key);
        }
        released
    }

    fn record(&mut self, addr: IpAddr, claim: &Claim) {
        let (family, at) = (Family::of(addr), bits(addr));
        let hold = self.side_mut(family).hold_mut(at, claim);
        let old_key = hold.enter(claim);
        let new_key = hold.key.clone();
        if old_key != new_key {
            self.unbind(family, at, old_key);
        }
        if let Some(key) = new_key {
            self.keys.entry((key, family)).or_default().insert(at);
        }
    }

    fn unbind(&mut self, family: Family, at: u128, key: Option<Arc<str>>) {
        let Some(key) = key else { return };
        let slot = (key, family);
        if let Some(bound) = self.keys.get_mut(&slot) {
            bound.remove(&at);
            if bound.is_empty() {
                self.keys.remove(&slot);
            }
        }
    }

    /// The address that others hold under the claim's sharing key; the lowest, should there be several.
    fn bound(&self, family: Family, claim: &Claim) -> Option<IpAddr> {
        let bound = self.keys.get(&(claim.key.clone()?, family))?;
        let side = self.side(family);
        let at = bound.iter().find(|at| side.held.get(at).is_some_and(|hold| hold.is_shared_with(claim)))?;
        Some(addr_of(family, *at))
    }

    fn nothing_free(&self, family: Family, claim: &Claim) -> Reason {
        let (pool, service) = (self.name.to_string(), claim.service.to_string());
        if self.size(family) == 0 {
            return Reason::FamilyNotServed { pool, service, family };
        }
        Reason::Exhausted { pool, service, family, size: self.size(family) }
    }

    fn hold(&self, addr: IpAddr) -> Option<&Hold> {
        self.side(Family::of(addr)).held.get(&bits(addr))
    }

    fn side(&self, family: Family) -> &Side {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    fn side_mut(&mut self, family: Family) -> &mut Side {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

/// The addresses of one family.
#[derive(Clone, Debug)]
struct Side {
    family: Family,
    gaps: Gaps,
    held: BTreeMap<u128, Hold>,
    /// Addresses that are not ours to give.
    withheld: BTreeMap<u128, Reason>,
    /// Addresses in use, for each range.
    used: Vec<usize>,
}

impl Side {
    fn new(family: Family, entries: &[Entry]) -> Self {
        let ranges: Vec<_> = entries.iter().map(|entry| entry.range.bounds()).collect();
        let used = vec![0; ranges.len()];
        Self { family, gaps: Gaps::new(&ranges), held: BTreeMap::new(), withheld: BTreeMap::new(), used }
    }

    fn admits(&self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        if let Some(why) = self.withheld.get(&bits(addr)) {
            return Err(why.clone());
        }
        self.held.get(&bits(addr)).map_or(Ok(()), |hold| hold.admits(addr, claim))
    }

    /// The hold on an address, which is taken out of the free ones if it was among them.
    fn hold_mut(&mut self, at: u128, claim: &Claim) -> &mut Hold {
        self.held.entry(at).or_insert_with(|| {
            self.gaps.remove(at);
            if let Some(range) = self.gaps.range_of(at) {
                self.used[range] += 1;
            }
            Hold { key: claim.key.clone(), holders: Vec::new() }
        })
    }

    fn give_back(&mut self, at: u128) {
        if !self.withheld.contains_key(&at) {
            self.gaps.insert(at);
        }
        if let Some(range) = self.gaps.range_of(at) {
            self.used[range] -= 1;
        }
    }
}

/// Everything known about one address in use, in a pool or in none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hold {
    key: Option<Arc<str>>,
    /// Nearly always one, so a list is smaller and faster than a map.
    holders: Vec<Claim>,
}

impl Hold {
    /// The holders besides the one who asks.
    fn others<'a>(&'a self, claim: &'a Claim) -> impl Iterator<Item = &'a Claim> {
        self.holders.iter().filter(|holder| holder.service != claim.service)
    }

    /// Whether there are others and all of them share with the one who asks. Edits may have put Services together that
    /// no longer share: nobody is added to those.
    fn is_shared_with(&self, claim: &Claim) -> bool {
        let mut others = self.others(claim).peekable();
        others.peek().is_some() && claim.key.is_some() && others.all(|holder| holder.key == claim.key)
    }

    /// Whether a Service may join those who have the address.
    pub(crate) fn admits(&self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        if self.others(claim).next().is_none() {
            return Ok(());
        }
        let service = || claim.service.to_string();
        if !self.is_shared_with(claim) {
            let holders = self.others(claim).map(|holder| &*holder.service).collect::<Vec<_>>().join(",");
            return Err(Reason::AddressInUse { addr, service: service(), holders });
        }
        for holder in self.others(claim) {
            if let Some(&port) = holder.ports.iter().find(|port| claim.ports.contains(port)) {
                return Err(Reason::PortInUse { addr, port, holder: holder.service.to_string() });
            }
        }
        Ok(())
    }

    /// Enters a holder, or what changed about it, and answers with the key the address had before.
    pub(crate) fn enter(&mut self, claim: &Claim) -> Option<Arc<str>> {
        let before = self.key.clone();
        if self.others(claim).next().is_none() || before.is_none() {
            self.key = claim.key.clone();
        }
        match self.holders.iter_mut().find(|holder| holder.service == claim.service) {
            Some(holder) => holder.clone_from(claim),
            None => self.holders.push(claim.clone()),
        }
        before
    }

    /// Takes a holder off; whether nobody is left.
    pub(crate) fn leave(&mut self, service: &str) -> bool {
        self.holders.retain(|holder| &*holder.service != service);
        self.holders.is_empty()
    }
}

#[cfg(test)]
mod tests;
