//! Which addresses a Service gets, once it is known where from.

use std::net::IpAddr;

use crate::addr::Family;
use crate::book::Slot;
use crate::group::{Placement, Ranges};
use crate::reason::Reason;

use super::{Asked, ExternalRequest, Outcome, Way, notice, source};

impl Asked<'_> {
    /// Addresses of a group; or the question to the IPAM that has them.
    pub(super) fn of_group(&self, slot: &Slot) -> Result<Outcome, ExternalRequest> {
        let request = match source(slot) {
            Ok(request) => request,
            Err(reason) => return Ok(self.keep(reason)),
        };
        if self.multi_pool(slot) && request.is_none() {
            return Ok(self.of_every_range(slot));
        }
        let keep = self.fitting(slot);
        let missing = self.missing(&keep);
        if let Some(stranger) = keep.iter().find(|addr| self.is_apart(slot, **addr)) {
            let growth = (!missing.is_empty()).then(|| move_pending(slot, *stranger));
            let reason = growth.or_else(|| self.pending(slot, &keep));
            return Ok(Outcome { addrs: keep, reason, way: Way::Group });
        }
        match request {
            Some(request) if !missing.is_empty() => Err(ExternalRequest { families: self.wanted(), ..request }),
            Some(_) => Ok(Outcome { addrs: keep, reason: None, way: Way::External(slot.group.name.clone()) }),
            None => Ok(self.complete(slot, keep, &missing)),
        }
    }

    /// Whether a Service with this address can have nothing of a group beside it: one of both is of an IPAM and the other
    /// is not of the same group. The annotation names one group for all addresses that are in no pool.
    fn is_apart(&self, slot: &Slot, addr: IpAddr) -> bool {
        match slot.group.ranges() {
            Some(_) => self.comes_from_external(),
            None => !self.is_of_ipam(&slot.group.name, addr),
        }
    }

    /// Whether an address came from the IPAM of a group: only the annotation remembers. Without it, what is in no pool may
    /// well have.
    fn is_of_ipam(&self, group: &str, addr: IpAddr) -> bool {
        self.svc.brand.from.as_deref().map_or_else(|| self.book.slot_of(addr).is_none(), |from| from == group)
    }

    /// The group that an address came from, if it is still there.
    fn home(&self, addr: IpAddr) -> Option<&str> {
        let from = self.svc.brand.from.as_deref().filter(|_| self.comes_from_external());
        from.or_else(|| self.book.slot_of(addr).map(|slot| slot.group.name.as_str()))
    }

    /// Exactly the pinned addresses, or what there is if it was never asked to move.
    pub(super) fn of_pins(&self, pins: Vec<IpAddr>) -> Outcome {
        let same = pins.len() == self.held.len() && pins.iter().all(|pin| self.held.contains(pin));
        if !self.held.is_empty() && !same && !self.svc.asks.re_evaluate {
            let (asked, has) = (notice::list(&pins), notice::list(&self.held));
            return Outcome { way: Way::Pinned, ..self.keep(Reason::MovePending { asked, has }) };
        }
        let refused = pins
            .iter()
            .filter(|pin| !self.held.contains(pin))
            .find_map(|pin| self.book.slot_of(*pin).and_then(|slot| slot.pool.available(*pin, &self.claim).err()));
        match refused {
            Some(reason) => Outcome { way: Way::Pinned, ..self.keep(reason) },
            None => Outcome { addrs: pins, reason: None, way: Way::Pinned },
        }
    }

    /// What the IPAM gave, where it is ours to give: of a wanted family and in nobody's hands.
    pub(super) fn of_external(&self, request: &ExternalRequest, answer: &[IpAddr]) -> Outcome {
        let slot = self.book.slot(&request.group).ok();
        let before = self.wanted_of(&self.held);
        let mut addrs = slot.map_or_else(|| before.clone(), |slot| self.fitting(slot));
        for addr in answer.iter().map(IpAddr::to_canonical) {
            let wanted = request.families.contains(&Family::of(addr));
            if !wanted || addrs.iter().any(|has| Family::of(*has) == Family::of(addr)) {
                continue;
            }
            if let Err(reason) = self.book.check_loose(addr, &self.claim) {
                return self.keep(reason);
            }
            addrs.push(addr);
        }
        let name = request.group.clone();
        let missing = request.families.iter().find(|family| !addrs.iter().any(|addr| Family::of(*addr) == **family));
        let reason = missing.map(|&family| Reason::FamilyNotServed {
            pool: name.clone(),
            service: self.svc.key.to_string(),
            family,
        });
        if let Some(reason) = reason.clone().filter(|_| addrs.is_empty() || !self.svc.prefers_dual_stack) {
            // A move that fails leaves the Service where it is.
            return Outcome { addrs: before, ..self.keep(reason) };
        }
        self.in_order(&mut addrs);
        Outcome { addrs, reason, way: Way::External(name) }
    }

    /// What the Service may keep of what it has: all of a wanted family, or, asked to look again, what fits the group.
    fn fitting(&self, slot: &Slot) -> Vec<IpAddr> {
        let mut keep = self.wanted_of(&self.held);
        if self.svc.asks.re_evaluate {
            keep.retain(|addr| match slot.group.ranges() {
                Some(_) => slot.pool.available(*addr, &self.claim).is_ok(),
                None => self.is_of_ipam(&slot.group.name, *addr),
            });
        }
        keep
    }

    /// Adds an address for each missing family; all of them or none, unless the Service takes what it can get.
    fn complete(&self, slot: &Slot, keep: Vec<IpAddr>, missing: &[Family]) -> Outcome {
        let mut addrs = keep.clone();
        let mut refused = None;
        for &family in missing {
            match self.next(slot, family) {
                Ok(addr) => addrs.push(addr),
                Err(reason) => refused = refused.or(Some(reason)),
            }
        }
        let partial = refused.is_some() && !self.takes_what_it_gets();
        if partial || addrs.is_empty() {
            // A move that fails leaves the Service where it is.
            addrs = if self.svc.asks.re_evaluate { self.wanted_of(&self.held) } else { keep };
        }
        self.in_order(&mut addrs);
        let reason = refused.or_else(|| self.pending(slot, &addrs));
        let taken = addrs.iter().any(|addr| !self.held.contains(addr));
        let way = if taken && self.balancing(slot).is_some() { Way::Balanced } else { Way::Group };
        Outcome { addrs, reason, way }
    }

    /// The ranges of a group that spreads its addresses over them. Who shares an address has no choice of the range.
    fn balancing<'a>(&self, slot: &'a Slot) -> Option<&'a Ranges> {
        slot.group.ranges().filter(|ranges| ranges.balance_pools && self.claim.key.is_none())
    }

    fn next(&self, slot: &Slot, family: Family) -> Result<IpAddr, Reason> {
        match self.balancing(slot) {
            Some(ranges) => self.balanced(slot, ranges, family),
            None => slot.pool.next(family, &self.claim),
        }
    }

    /// From the range with the fewest addresses in use that has one to give; the first written among equals.
    fn balanced(&self, slot: &Slot, ranges: &Ranges, family: Family) -> Result<IpAddr, Reason> {
        let mut order: Vec<usize> = (0..ranges.of(family).len()).collect();
        order.sort_by_key(|&range| slot.pool.in_use_of_range(family, range));
        let found = order.iter().find_map(|&range| slot.pool.next_in_range(family, range, &self.claim).ok());
        found.map_or_else(|| slot.pool.next(family, &self.claim), Ok)
    }

    /// An address from every range that some node can announce.
    fn of_every_range(&self, slot: &Slot) -> Outcome {
        if let Some(reason) = self.multi_pool_refusal(slot) {
            return self.keep(reason);
        }
        let Some(ranges) = slot.group.ranges() else { return self.keep(Reason::NoRanges) };
        let mut addrs = if self.svc.asks.re_evaluate { self.fitting(slot) } else { self.wanted_of(&self.held) };
        let (mut skipped, mut refused) = (0, None);
        for family in self.wanted() {
            for (range, entry) in ranges.of(family).iter().enumerate() {
                if addrs.iter().any(|addr| Family::of(*addr) == family && slot.pool.range_of(*addr) == Some(range)) {
                    continue;
                }
                if slot.group.placement == Placement::Local && !self.book.is_active(entry.subnet) {
                    skipped += 1;
                    continue;
                }
                match slot.pool.next_in_range(family, range, &self.claim) {
                    Ok(addr) => addrs.push(addr),
                    Err(reason) => refused = refused.or(Some(reason)),
                }
            }
        }
        let lacking = self.missing(&addrs).into_iter().find(|_| addrs.is_empty() || !self.svc.families.is_empty());
        if let Some(family) = lacking {
            let nobody = || match ranges.of(family) {
                [] => slot.pool.next(family, &self.claim).err(),
                _ => None,
            };
            let skipped = Reason::NoActiveSubnet { service: self.svc.key.to_string(), skipped };
            refused = refused.or_else(nobody).or(Some(skipped));
        }
        if let Some(reason) =
            refused.clone().filter(|_| addrs.is_empty() || (lacking.is_some() && !self.takes_what_it_gets()))
        {
            return self.keep(reason);
        }
        let reason = refused.or_else(|| self.pending(slot, &addrs));
        Outcome { addrs, reason, way: Way::MultiPool }
    }

    fn multi_pool_refusal(&self, slot: &Slot) -> Option<Reason> {
        if slot.group.ranges().is_some_and(|ranges| ranges.balance_pools) {
            return Some(Reason::MultiPoolAndBalancePools);
        }
        if self.claim.key.is_some() {
            return Some(Reason::MultiPoolShared);
        }
        if self.svc.asks.re_evaluate {
            return None;
        }
        let mut homes = self.held.iter().filter_map(|addr| Some((*addr, self.home(*addr)?)));
        let (addr, first) = homes.next()?;
        match homes.find(|(_, home)| *home != first) {
            Some((_, second)) => Some(Reason::MultiPoolSpans { first: first.to_owned(), second: second.to_owned() }),
            None => (first != slot.group.name).then(|| move_pending(slot, addr)),
        }
    }

    fn multi_pool(&self, slot: &Slot) -> bool {
        let group = slot.group.ranges().is_some_and(|ranges| ranges.multi_pool);
        self.svc.asks.multi_pool.unwrap_or(group)
    }

    /// The group the Service is to be served from now is not the one it has its addresses from.
    fn pending(&self, slot: &Slot, addrs: &[IpAddr]) -> Option<Reason> {
        if self.svc.asks.re_evaluate {
            return None;
        }
        let elsewhere = addrs.iter().find(|addr| self.home(**addr).is_some_and(|name| name != slot.group.name))?;
        Some(move_pending(slot, *elsewhere))
    }

    /// The families to serve. A Service that names none keeps those it has, or gets whichever the group has, IPv6 first.
    fn wanted(&self) -> Vec<Family> {
        if !self.svc.families.is_empty() {
            let mut families = self.svc.families.clone();
            families.dedup();
            return families;
        }
        let mut held: Vec<_> = self.held.iter().map(|addr| Family::of(*addr)).collect();
        held.dedup();
        if held.is_empty() { vec![Family::V6, Family::V4] } else { held }
    }

    fn takes_what_it_gets(&self) -> bool {
        self.svc.prefers_dual_stack || self.svc.families.is_empty()
    }

    fn wanted_of(&self, addrs: &[IpAddr]) -> Vec<IpAddr> {
        let wanted = self.wanted();
        addrs.iter().filter(|addr| wanted.contains(&Family::of(**addr))).copied().collect()
    }

    fn missing(&self, keep: &[IpAddr]) -> Vec<Family> {
        let has = |family: &Family| keep.iter().any(|addr| Family::of(*addr) == *family);
        self.wanted().into_iter().filter(|family| !has(family)).collect()
    }

    /// In the order of the Service's families.
    fn in_order(&self, addrs: &mut Vec<IpAddr>) {
        let wanted = self.wanted();
        addrs.sort_by_key(|addr| wanted.iter().position(|family| *family == Family::of(*addr)));
        if self.svc.families.is_empty() && self.held.is_empty() {
            addrs.truncate(1);
        }
    }
}

fn move_pending(slot: &Slot, has: IpAddr) -> Reason {
    Reason::MovePending { asked: format!("ServiceGroup {}", slot.group.name), has: has.to_string() }
}
