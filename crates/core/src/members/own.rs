//! What the watch has shown of this process's own renewals, and what this node may therefore do.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::{LeaseView, Said};
use crate::moment::Moment;

/// Our own Lease, as far as this process wrote it.
#[derive(Clone, Debug)]
pub(super) struct Own {
    /// How long after a renewal was sent addresses may be held.
    hold: Duration,
    /// The renewals that the watch may still show, oldest first.
    sent: Vec<Renewal>,
    last_sent: Option<Moment>,
    /// The version of the first one that it has shown, and who its writer is.
    first: Option<(u64, String)>,
    usurped: bool,
    /// When the newest renewal that the watch has shown was sent.
    shown: Option<Moment>,
    /// The subnets that others can know of, each since when.
    listed: BTreeMap<IpNet, Listed>,
    /// The claims that others can know of, each since when.
    claimed: BTreeMap<IpAddr, Listed>,
}

#[derive(Clone, Debug)]
struct Renewal {
    sent: Moment,
    renew_time: String,
    said: Said,
}

/// Since when others can know that this node serves a subnet, or claims an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    /// The version of our Lease that first said so.
    pub version: u64,
    /// When the watch showed it.
    pub shown: Moment,
}

impl Own {
    pub fn new(hold: Duration) -> Self {
        Self {
            hold,
            sent: Vec::new(),
            last_sent: None,
            first: None,
            usurped: false,
            shown: None,
            listed: BTreeMap::new(),
            claimed: BTreeMap::new(),
        }
    }

    /// A renewal goes out. What it leaves out may be gone for the others from now on, whatever the watch shows of
    /// earlier renewals.
    pub fn renewing(&mut self, renew_time: String, said: Said, now: Moment) {
        self.listed.retain(|subnet, _| said.subnets.contains(subnet));
        self.claimed.retain(|addr, _| said.claims.contains(addr));
        // A renewal that comes back later than this allows nothing any more.
        self.sent.retain(|renewal| renewal.sent + self.hold > now);
        self.sent.push(Renewal { sent: now, renew_time, said });
        self.last_sent = Some(now);
    }

    /// Our own Lease as the watch shows it.
    pub fn hear(&mut self, lease: &LeaseView, now: Moment) {
        self.listed.retain(|subnet, _| lease.subnets.contains(subnet));
        self.claimed.retain(|addr, _| lease.claims.contains(addr));
        let ours = self.sent.iter().position(|renewal| Some(&renewal.renew_time) == lease.renewed.as_ref());
        let Some(place) = ours else {
            self.usurped |= self.first.as_ref().is_some_and(|(_, instance)| *instance != lease.instance);
            return;
        };
        self.first.get_or_insert((lease.version.unwrap_or(u64::MAX), lease.instance.clone()));
        let lapsed = self.fence().is_none_or(|fence| now >= fence);
        if lapsed {
            // Others may have buried this node meanwhile: it joins anew.
            self.listed.clear();
            self.claimed.clear();
        }
        self.shown = Some(self.sent[place].sent);
        self.sent.drain(..=place);
        let listed = Listed { version: lease.version.unwrap_or(u64::MAX), shown: now };
        for subnet in &lease.subnets {
            if self.sent.iter().all(|later| later.said.subnets.contains(subnet)) {
                self.listed.entry(*subnet).or_insert(listed);
            }
        }
        for addr in &lease.claims {
            if self.sent.iter().all(|later| later.said.claims.contains(addr)) {
                self.claimed.entry(*addr).or_insert(listed);
            }
        }
    }

    /// Our own Lease was deleted, and others may take over.
    pub fn gone(&mut self) {
        self.shown = None;
        self.listed.clear();
        self.claimed.clear();
    }

    pub fn fence(&self) -> Option<Moment> {
        self.shown.filter(|_| !self.usurped).map(|sent| sent + self.hold)
    }

    /// The version of the first renewal that the watch has shown.
    pub fn first_version(&self) -> Option<u64> {
        self.first.as_ref().map(|(version, _)| *version)
    }

    /// Whether somebody else has written our Lease after this process.
    pub fn is_usurped(&self) -> bool {
        self.usurped
    }

    /// Since when others can know that this node serves an address.
    pub fn listed(&self, addr: IpAddr) -> Option<Listed> {
        let listed = self.listed.iter().filter(|(subnet, _)| subnet.contains(&addr));
        listed.map(|(_, listed)| *listed).min_by_key(|listed| listed.version)
    }

    /// Since when others can know that this node claims an address.
    pub fn claimed(&self, addr: IpAddr) -> Option<Listed> {
        self.claimed.get(&addr).copied()
    }

    /// Whether the watch has shown everything that was written before a moment.
    pub fn proves(&self, moment: Moment) -> bool {
        self.shown.is_some_and(|sent| sent >= moment)
    }

    /// From when on nothing sent so far can allow this node to hold anything, so that what it believes does no harm.
    pub fn idle_from(&self) -> Moment {
        self.last_sent.map_or(Moment::default(), |sent| sent + self.hold)
    }

    /// Whether renewals go out, and none has since a moment.
    pub fn sent_before(&self, moment: Moment) -> bool {
        self.last_sent.is_some_and(|sent| sent < moment)
    }
}
