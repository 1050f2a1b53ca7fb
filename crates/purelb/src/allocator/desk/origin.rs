//! Which IPAM gave what a Service shows: PureLB's own record knows, whatever has become of the annotation.
//!
//! `purelb.io/allocated-from` is on the Service, where anybody may edit it. If it decided whom to tell that an address is
//! free, one edit would free an address that is in use at one IPAM, and later one that was never given at another. So the
//! annotation counts only for addresses that are neither on record nor in a pool, such as those that an older release left.

use std::borrow::Cow;
use std::net::IpAddr;

use purelb_api::holders::Holders;
use purelb_core::pool::ServiceKey;
use purelb_core::service::{Brand, Ingress, ServiceView};

use super::{Busy, Desk};

impl Desk {
    /// A Service that shows an external address holds it, whoever wrote so; unless it is on record as another group's, or
    /// in a pool. Before the record was read, nobody can tell.
    pub(super) fn adopt_holder(&mut self, key: &ServiceKey) {
        let Some(group) = self.services.at(key).and_then(|record| record.view.brand.from.clone()) else { return };
        let Some(socket) = self.socket_of(&group).filter(|_| self.record.was_read()) else { return };
        let unknown = |addr: &IpAddr| self.source_of(key, *addr).is_none();
        let new: Vec<_> = self.shown_from(key, &group).into_iter().filter(unknown).collect();
        if !new.is_empty() {
            self.enter_holder(key, &group, &socket);
            self.externals.credit(key, &group, &new);
        }
    }

    /// The addresses a Service shows that come from a group.
    pub(super) fn shown_from(&self, key: &ServiceKey, group: &str) -> Vec<IpAddr> {
        let shown = self.services.at(key).map(|record| self.externals.shown_from(&record.view, group));
        shown.unwrap_or_default()
    }

    /// Whether a Service shows an address of which nobody can tell where it came from: it is on no record and in no pool,
    /// and the annotation names no group that there is. It may be of any group that the Service is a holder of.
    pub(super) fn is_astray(&self, key: &ServiceKey) -> bool {
        let Some(view) = self.services.at(key).map(|record| &record.view) else { return false };
        let known = view.brand.from.as_deref().is_some_and(|from| self.groups.has(from));
        !known && view.addresses().iter().any(|addr| self.source_of(key, *addr).is_none())
    }

    /// A Service as it is, but for a brand that names another group than the one that all its addresses are from: decided
    /// on so, the annotation is put right.
    pub(super) fn truly<'a>(&self, view: &'a ServiceView) -> Cow<'a, ServiceView> {
        match self.true_brand(view) {
            Some(brand) => Cow::Owned(ServiceView { brand, ..view.clone() }),
            None => Cow::Borrowed(view),
        }
    }

    /// What the annotations should say, where they are wrong about an IPAM, or gone. What is wrong about pools only is put right by
    /// whoever decides.
    fn true_brand(&self, view: &ServiceView) -> Option<Brand> {
        let (addrs, named) = (view.addresses(), view.brand.from.as_deref());
        let group = self.source_of(&view.key, *addrs.first()?)?;
        if !self.record.was_read() {
            return None;
        }
        if !view.brand.ours {
            return self.recorded_brand(view, group);
        }
        if named == Some(group) {
            return None;
        }
        let sole = addrs.iter().all(|addr| self.source_of(&view.key, *addr) == Some(group));
        let of_ipam = [Some(group), named].into_iter().flatten().any(|group| self.socket_of(group).is_some());
        let group = &self.book.slot(group).ok().filter(|_| sole && of_ipam)?.group;
        let (from, pool_type) = (Some(group.name.clone()), group.placement.pool_type().map(str::to_owned));
        Some(Brand { from, pool_type, skip_ipv6_dad: group.skip_ipv6_dad, ..view.brand.clone() })
    }

    /// The brand of a Service that has lost it and shows nothing but what is on record as given by the IPAM of this group.
    fn recorded_brand(&self, view: &ServiceView, group: &str) -> Option<Brand> {
        let given = |entry: &Ingress| Some(group) == entry.addr.and_then(|addr| self.externals.giver(&view.key, addr));
        if !view.ingress.iter().all(given) {
            return None;
        }
        let slot = self.book.slot(group).ok().map(|slot| &slot.group);
        let pool_type = slot.and_then(|group| group.placement.pool_type()).map(str::to_owned);
        let skip_ipv6_dad = slot.is_some_and(|group| group.skip_ipv6_dad);
        Some(Brand { ours: true, from: Some(group.to_owned()), pool_type, skip_ipv6_dad })
    }

    /// The group that an address of a Service comes from, as far as record and pools tell.
    fn source_of(&self, key: &ServiceKey, addr: IpAddr) -> Option<&str> {
        let pool = || self.book.slot_of(addr).map(|slot| slot.group.name.as_str());
        self.externals.giver(key, addr).or_else(pool)
    }

    /// What the record says of where addresses come from. Only when it is first read in a term: later on, this leader
    /// knows better than a record that it is still writing.
    pub(super) fn credit_recorded(&mut self, holders: &Holders) {
        for (group, held) in &holders.groups {
            for (service, noted) in &held.services {
                let key: ServiceKey = service.as_str().into();
                // Who has moved from an IPAM to a pool with the very same address need not be on record yet.
                let named = self.services.at(&key).and_then(|record| record.view.brand.from.as_deref());
                let noted: Vec<_> = noted.iter().copied().filter(|addr| !self.is_in_pool(*addr, named)).collect();
                self.externals.enter(&key, group, &held.socket);
                self.externals.credit(&key, group, &noted);
            }
        }
        // Those who are not on record and show an external address are entered now.
        if !self.external_groups().is_empty() {
            self.enqueue_all();
        }
        self.touched();
    }

    /// A confirmed write of ours says where addresses come from that the Service did not show before, that an IPAM has
    /// just given, or that are in a pool now. Of all others it says no more than was known.
    pub(super) fn credit_written(&mut self, key: &ServiceKey, busy: &Busy) {
        let Some(wish) = busy.wish.as_ref().filter(|_| self.record.was_read()) else { return };
        let group = wish.brand.from.as_deref();
        let is_new = |addr: &IpAddr| busy.answered || !busy.shown.0.contains(addr) || self.is_in_pool(*addr, group);
        let new: Vec<_> = wish.addrs.iter().copied().filter(is_new).collect();
        self.externals.discredit(key, &new);
        let ipam = group.filter(|_| !new.is_empty()).and_then(|group| Some((group, self.socket_of(group)?)));
        if let Some((group, socket)) = ipam {
            self.enter_holder(key, group, &socket);
            self.externals.credit(key, group, &new);
        }
    }

    fn is_in_pool(&self, addr: IpAddr, group: Option<&str>) -> bool {
        self.book.slot_of(addr).is_some_and(|slot| Some(slot.group.name.as_str()) == group)
    }
}
