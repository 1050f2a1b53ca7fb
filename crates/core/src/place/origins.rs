//! Which group an address came from, found without asking every group.

use std::net::IpAddr;

use crate::addr::AddrRange;
use crate::group::{Group, Source};
use crate::place::Origin;

/// All groups, with their ranges in order so that an address finds its own quickly.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    groups: Vec<Group>,
    ranges: Vec<Indexed>,
}

#[derive(Clone, Copy, Debug)]
struct Indexed {
    range: AddrRange,
    group: usize,
    entry: usize,
    /// The highest address of this range and all before it, so that a search knows when to stop.
    reach: IpAddr,
}

impl Origins {
    /// The groups in force. Where ranges overlap, the first group counts.
    pub fn new(groups: Vec<Group>) -> Self {
        let mut ranges: Vec<Indexed> = Vec::new();
        for (g, group) in groups.iter().enumerate() {
            let entries = group.ranges().into_iter().flat_map(|ranges| ranges.all()).enumerate();
            ranges.extend(entries.map(|(e, entry)| Indexed {
                range: entry.range,
                group: g,
                entry: e,
                reach: entry.range.last(),
            }));
        }
        ranges.sort_by_key(|indexed| (indexed.range, indexed.group, indexed.entry));
        for i in 1..ranges.len() {
            // IPv4 sorts before IPv6, in ranges as in addresses, so the reach never lies in an earlier family.
            ranges[i].reach = ranges[i].reach.max(ranges[i - 1].reach);
        }
        Self { groups, ranges }
    }

    /// The groups, in the order they were given.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Whether some group has a range with this address.
    pub fn explain(&self, addr: IpAddr) -> bool {
        self.find(addr).is_some()
    }

    /// Where an address came from, with what its Service says of it.
    pub fn of(&self, addr: IpAddr, from: Option<&str>, pool_type: Option<&str>) -> Origin<'_> {
        if let Some(found) = self.find(addr) {
            let group = &self.groups[found.group];
            let entry = group.ranges().and_then(|ranges| ranges.all().nth(found.entry));
            if let Some(entry) = entry {
                return Origin::Range(group, entry);
            }
        }
        let named = self.groups.iter().find(|group| Some(group.name.as_str()) == from);
        match named.filter(|group| !matches!(group.source, Source::Ranges(_))) {
            Some(group) => Origin::Elsewhere(group),
            None => Origin::Orphan { local: pool_type == Some("local") },
        }
    }

    fn find(&self, addr: IpAddr) -> Option<Indexed> {
        let after = self.ranges.partition_point(|indexed| indexed.range.first() <= addr);
        let near = self.ranges[..after].iter().rev().take_while(|indexed| indexed.reach >= addr);
        near.filter(|indexed| indexed.range.contains(addr)).min_by_key(|found| (found.group, found.entry)).copied()
    }
}
