//! What a ServiceGroup's status says: how full the group is, and what is wrong with it.

use std::net::IpAddr;

use crate::addr::{Family, saturate};
use crate::book::{Book, Slot};
use crate::group::{Group, Placement, Ranges, Source};
use crate::reason::Problem;

pub use census::Census;
pub use findings::{Aspect, Finding};
use findings::{black_hole, exhausted, not_in_use, orphans, valid};

mod census;
mod findings;

/// What stands where a group that cannot be read would say how it announces and who hands its addresses out.
const NOTHING: &str = "None";

/// The status of one group, before it has a time and a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupReport {
    /// How the addresses are announced: `Local`, `Remote` or `Auto`; `None` for a group that cannot be read.
    pub announce: &'static str,
    /// Who hands them out: `Cluster`, or the name of an IPAM; `None` for a group that cannot be read.
    pub ipam: String,
    /// The ranges as they are written, IPv4 before IPv6.
    pub addresses: Vec<String>,
    /// How full it is with IPv4 addresses.
    pub v4: Level,
    /// How full it is with IPv6 addresses.
    pub v6: Level,
    /// The namespaces the group lists, as they are written.
    pub bound_namespaces: Vec<String>,
    /// One finding for each [`Aspect`], in order.
    pub findings: Vec<Finding>,
}

/// How full a group is in one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// How many addresses are in use; a shared one counts once.
    pub allocated: i64,
    /// How many are free; `None` if nobody knows.
    pub available: Option<i64>,
}

/// What reading a group gave, beside the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// What is wrong with the group as it is written now.
    pub problems: &'a [Problem],
    /// What is in use, but likely not what the author meant.
    pub warnings: &'a [Problem],
    /// Whether an earlier form of the group is in use in place of the one written now.
    pub from_last_valid: bool,
}

/// What an external IPAM says about its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stock {
    /// IPv4 addresses in use.
    pub in_use_v4: u64,
    /// IPv6 addresses in use.
    pub in_use_v6: u64,
    /// All IPv4 and all IPv6 addresses, if the IPAM knows.
    pub size: Option<(u64, u64)>,
    /// The addresses, in whatever words the IPAM has for them.
    pub addresses: Vec<String>,
}

/// The report of a group in use; `stock` is what the IPAM of an external group last said.
pub fn report(slot: &Slot, book: &Book, verdict: &Verdict<'_>, census: &Census, stock: Option<&Stock>) -> GroupReport {
    let group = &slot.group;
    let levels = [Family::V4, Family::V6].map(|family| count(slot, census, stock, family));
    let findings = vec![
        valid(group, verdict),
        exhausted(&levels),
        orphans(group.ranges().and(Some(census.loose(&group.name)))),
        black_hole(group, book, census.local_traffic(&group.name)),
    ];
    let addresses = match group.ranges() {
        Some(ranges) => texts(ranges),
        None => stock.map(|stock| stock.addresses.clone()).unwrap_or_default(),
    };
    let [v4, v6] = levels.map(|count| count.level());
    GroupReport { addresses, v4, v6, findings, ..about(Some(group)) }
}

/// The report of a group that gives nothing out: one that cannot be read at all, or that clashes with another.
///
/// What can be read of it is shown nevertheless, so that no row of `kubectl get servicegroups` is blank.
pub fn report_refused(
    name: &str,
    group: Option<&Group>,
    book: &Book,
    problem: &Problem,
    census: &Census,
) -> GroupReport {
    // A group of the same name elsewhere that is in use answers for what was given in that name.
    let answers = book.slot(name).is_err() && group.is_none_or(|group| group.ranges().is_some());
    let findings = vec![
        Finding::refused(problem),
        not_in_use(Aspect::Exhausted),
        orphans(answers.then(|| census.loose(name))),
        not_in_use(Aspect::BlackHole),
    ];
    let level = Level { allocated: 0, available: Some(0) };
    let addresses = group.and_then(Group::ranges).map(texts).unwrap_or_default();
    GroupReport { addresses, v4: level, v6: level, findings, ..about(group) }
}

/// What a group says about itself.
fn about(group: Option<&Group>) -> GroupReport {
    GroupReport {
        announce: group.map_or(NOTHING, |group| announce(group.placement)),
        ipam: group.map_or(NOTHING.to_owned(), |group| ipam(&group.source)),
        addresses: Vec::new(),
        v4: Level::default(),
        v6: Level::default(),
        bound_namespaces: group.map(|group| group.namespaces.clone()).unwrap_or_default(),
        findings: Vec::new(),
    }
}

fn announce(placement: Placement) -> &'static str {
    match placement {
        Placement::Local => "Local",
        Placement::Remote => "Remote",
        Placement::Auto => "Auto",
    }
}

fn ipam(source: &Source) -> String {
    match source {
        Source::Ranges(_) => "Cluster".to_owned(),
        Source::External { provider, .. } if provider.is_empty() => "External".to_owned(),
        Source::External { provider, .. } => provider.clone(),
        Source::Netbox { .. } => "NetBox".to_owned(),
    }
}

fn texts(ranges: &Ranges) -> Vec<String> {
    ranges.v4.iter().chain(&ranges.v6).map(|entry| entry.text.clone()).collect()
}

/// The addresses of one family, counted.
struct Count {
    family: Family,
    in_use: u128,
    withheld: u128,
    /// All of them; `None` if nobody knows.
    size: Option<u128>,
}

impl Count {
    fn free(&self) -> Option<u128> {
        self.size.map(|size| size.saturating_sub(self.in_use).saturating_sub(self.withheld))
    }

    fn level(&self) -> Level {
        Level { allocated: saturate(self.in_use), available: self.free().map(saturate) }
    }
}

fn count(slot: &Slot, census: &Census, stock: Option<&Stock>, family: Family) -> Count {
    if slot.group.ranges().is_some() {
        let in_use = slot.pool.in_use(family) as u128;
        let withheld = slot.pool.withheld(family) as u128;
        return Count { family, in_use, withheld, size: Some(slot.pool.size(family)) };
    }
    let Some(stock) = stock else {
        let ours = |addr: &&IpAddr| Family::of(**addr) == family;
        let in_use = census.loose(&slot.group.name).keys().filter(ours).count() as u128;
        return Count { family, in_use, withheld: 0, size: None };
    };
    let (in_use, size) = match family {
        Family::V4 => (stock.in_use_v4, stock.size.map(|(v4, _)| v4)),
        Family::V6 => (stock.in_use_v6, stock.size.map(|(_, v6)| v6)),
    };
    Count { family, in_use: in_use.into(), withheld: 0, size: size.map(u128::from) }
}

#[cfg(test)]
mod tests;
