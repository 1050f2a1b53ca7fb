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

impl Claim {
    /// Whether another claim of the same Service asks for nothing that this one has not got: nobody can be in its way
    /// who was not before.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.key == other.key && other.ports.iter().all(|port| self.ports.contains(port))
    }
}

/// All addresses of a group with their holders.
#[derive(Clone, Debug)]
pub struct Pool {
    name: Arc<str>,
    v4: Side,
    v6: Side,
    /// For each sharing key the addresses that a holder with this key has. Where holders were edited, there may be more
    /// than one.
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

    /// Whether a Service may keep an address that it has. Of the others who have it, only those count who had it earlier.
    pub fn keeps(&self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        match self.available(addr, claim) {
            Err(Reason::AddressInUse { .. } | Reason::PortInUse { .. }) => self.outranked(addr, claim),
            verdict => verdict,
        }
    }

    /// Whether somebody has an address who had it earlier and does not share it with the Service as that is now.
    pub fn outranked(&self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        self.hold(addr).map_or(Ok(()), |hold| hold.outranks(addr, claim))
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
        let Some(gone) = hold.leave(service) else { return false };
        if hold.is_empty() {
            side.held.remove(&at);
            side.give_back(at);
        }
        self.index(family, at, gone.key);
        true
    }

    fn record(&mut self, addr: IpAddr, claim: &Claim) {
        let (family, at) = (Family::of(addr), bits(addr));
        let before = self.side_mut(family).hold_mut(at).enter(claim);
        self.index(family, at, before.and_then(|before| before.key));
        self.index(family, at, claim.key.clone());
    }

    /// Makes the index of sharing keys say whether some holder of an address has this key.
    fn index(&mut self, family: Family, at: u128, key: Option<Arc<str>>) {
        let Some(key) = key else { return };
        let hold = self.side(family).held.get(&at);
        let has = hold.is_some_and(|hold| hold.holders.iter().any(|holder| holder.key.as_ref() == Some(&key)));
        let slot = (key, family);
        if has {
            self.keys.entry(slot).or_default().insert(at);
        } else if let Some(bound) = self.keys.get_mut(&slot) {
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
    fn hold_mut(&mut self, at: u128) -> &mut Hold {
        self.held.entry(at).or_insert_with(|| {
            self.gaps.remove(at);
            if let Some(range) = self.gaps.range_of(at) {
                self.used[range] += 1;
            }
            Hold::default()
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
    /// In the order in which they came; who asks for more than before comes anew. Nearly always one, so a list is smaller
    /// and faster than a map.
    holders: Vec<Claim>,
}

impl Hold {
    /// The holders besides the one who asks.
    fn others<'a>(&'a self, claim: &'a Claim) -> impl Iterator<Item = &'a Claim> + Clone {
        self.holders.iter().filter(|holder| holder.service != claim.service)
    }

    /// Whether there are others and all of them share with the one who asks. Edits may have put Services together that
    /// no longer share: nobody is added to those.
    fn is_shared_with(&self, claim: &Claim) -> bool {
        let mut others = self.others(claim).peekable();
        others.peek().is_some() && others.all(|holder| have_one_key(holder, claim))
    }

    /// Whether a Service may join those who have the address.
    pub(crate) fn admits(&self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        compatible(addr, claim, self.others(claim))
    }

    /// Whether a Service that has the address may keep it: those who came earlier go before.
    pub(crate) fn outranks(&self, addr: IpAddr, claim: &Claim) -> Result<(), Reason> {
        let itself = |holder: &&Claim| holder.service == claim.service && holder.covers(claim);
        let earlier = self.holders.iter().take_while(|holder| !itself(holder));
        compatible(addr, claim, earlier.filter(|holder| holder.service != claim.service))
    }

    /// Enters a holder, or what changed about it, and answers with what it claimed before.
    pub(crate) fn enter(&mut self, claim: &Claim) -> Option<Claim> {
        match self.holders.iter_mut().find(|holder| holder.service == claim.service) {
            Some(holder) if holder.covers(claim) => Some(std::mem::replace(holder, claim.clone())),
            _ => {
                let before = self.leave(&claim.service);
                self.holders.push(claim.clone());
                before
            }
        }
    }

    /// Takes a holder off and answers with what it claimed.
    pub(crate) fn leave(&mut self, service: &str) -> Option<Claim> {
        let at = self.holders.iter().position(|holder| &*holder.service == service)?;
        Some(self.holders.remove(at))
    }

    /// Whether nobody is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }
}

fn have_one_key(a: &Claim, b: &Claim) -> bool {
    a.key.is_some() && a.key == b.key
}

/// Whether a Service can have an address together with these: all have its key, and none has a port of it.
fn compatible<'a>(addr: IpAddr, claim: &Claim, others: impl Iterator<Item = &'a Claim> + Clone) -> Result<(), Reason> {
    if !others.clone().all(|holder| have_one_key(holder, claim)) {
        let holders = others.map(|holder| &*holder.service).collect::<Vec<_>>().join(",");
        return Err(Reason::AddressInUse { addr, service: claim.service.to_string(), holders });
    }
    for holder in others {
        if let Some(&port) = holder.ports.iter().find(|port| claim.ports.contains(port)) {
            return Err(Reason::PortInUse { addr, port, holder: holder.service.to_string() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
