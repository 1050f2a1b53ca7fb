//! The conditions of a group: each aspect with one word and one sentence that says what to do.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::addr::Family;
use crate::book::Book;
use crate::group::{Entry, Group, Placement, Source};
use crate::reason::{Problem, Reason};

use super::census::Held;
use super::{Count, Verdict};

/// How many addresses a sentence names before it only counts.
const MOST_NAMED: usize = 10;

/// What a condition of a group is about; the name is the condition's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Aspect {
    /// The group as it is written now is understood and in use.
    Valid,
    /// A family of the group has no free address.
    Exhausted,
    /// Services have addresses from this group that are in no range any more.
    Orphans,
    /// Routers are told to send more traffic to a node than the node can deliver.
    BlackHole,
}

impl Aspect {
    /// The type of the condition, such as `Valid`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The words of conditions that are no refusals; a refusal has the name of its [`Reason`].
#[derive(Clone, Copy, Debug, strum::IntoStaticStr, strum::VariantNames)]
pub(super) enum Word {
    /// Everything in the group is understood.
    Parsed,
    /// The group gives nothing out.
    NotInUse,
    /// A family has no free address.
    Exhausted,
    /// Every family has free addresses.
    AddressesAvailable,
    /// An external IPAM does not say how many there are.
    CapacityUnknown,
    /// Some addresses are in no range any more.
    Orphaned,
    /// None is outside.
    NoOrphans,
    /// An aggregate is advertised from nodes that drop some of its traffic.
    AggregateWithLocalTraffic,
    /// None is.
    NoBlackHole,
}

/// What is known about one aspect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The aspect.
    pub aspect: Aspect,
    /// Whether it holds; `None` if nobody knows.
    pub holds: Option<bool>,
    /// One word.
    pub reason: &'static str,
    /// One sentence.
    pub sentence: String,
}

impl Finding {
    fn new(aspect: Aspect, holds: bool, reason: impl Into<&'static str>, sentence: impl Into<String>) -> Self {
        Self { aspect, holds: Some(holds), reason: reason.into(), sentence: sentence.into() }
    }

    fn unknown(aspect: Aspect, reason: Word, sentence: &str) -> Self {
        Self { aspect, holds: None, reason: reason.into(), sentence: sentence.to_owned() }
    }

    /// A group of which nothing is in use.
    pub(super) fn refused(problem: &Problem) -> Self {
        let sentence = format!("{}: {}; the group is not in use", problem.field, problem.reason);
        Self::new(Aspect::Valid, false, problem.reason.name(), sentence)
    }
}

/// An aspect of which a group that gives nothing out says nothing.
pub(super) fn not_in_use(aspect: Aspect) -> Finding {
    Finding::unknown(aspect, Word::NotInUse, "the group is not in use")
}

/// Whether everything in the group is understood and in use.
pub(super) fn valid(group: &Group, verdict: &Verdict<'_>) -> Finding {
    if let Some((first, more)) = verdict.problems.split_first() {
        let more = if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) };
        let meanwhile =
            if verdict.from_last_valid { "the last valid form of the group" } else { "the rest of the group" };
        let sentence = format!("{}: {}{more}; {meanwhile} is in use", first.field, first.reason);
        return Finding::new(Aspect::Valid, false, first.reason.name(), sentence);
    }
    if let Source::Netbox { .. } = group.source {
        let reason = Reason::NetboxUnsupported { group: group.name.clone() };
        return Finding::new(Aspect::Valid, false, reason.name(), reason.to_string());
    }
    let sentence = match verdict.warnings.first() {
        Some(warning) => format!("ServiceGroup parsed with a warning: {}: {}", warning.field, warning.reason),
        None => "ServiceGroup parsed successfully".to_owned(),
    };
    Finding::new(Aspect::Valid, true, Word::Parsed, sentence)
}

/// Whether some family that has addresses has none left.
pub(super) fn exhausted(counts: &[Count]) -> Finding {
    let used_up = |count: &&Count| count.size.is_some_and(|size| size > 0) && count.free() == Some(0);
    if let Some(count) = counts.iter().find(used_up) {
        return Finding::new(Aspect::Exhausted, true, Word::Exhausted, no_more(count));
    }
    if counts.iter().all(|count| count.size.is_none()) {
        let sentence = "PureLB does not know how many addresses the group has";
        return Finding::unknown(Aspect::Exhausted, Word::CapacityUnknown, sentence);
    }
    let withheld: u128 = counts.iter().map(|count| count.withheld).sum();
    let sentence = format!("every family of the group has free addresses{}", kept_back(withheld));
    Finding::new(Aspect::Exhausted, false, Word::AddressesAvailable, sentence)
}

/// Addresses of ranges that nobody gets, and why.
fn kept_back(withheld: u128) -> String {
    match withheld {
        0 => String::new(),
        _ => format!(", {withheld} withheld because Nodes or their subnets need them"),
    }
}

fn no_more(count: &Count) -> String {
    let Count { family, in_use, withheld, .. } = count;
    let kept = kept_back(*withheld);
    format!(
        "no {family} address is free: {in_use} in use{kept}; add a range to the group, or delete a Service that uses it"
    )
}

/// The addresses that fell out of the group's ranges and are kept; `None` for a group that has no ranges of its own.
pub(super) fn orphans(held: Option<&Held>) -> Finding {
    let Some(held) = held.filter(|held| !held.is_empty()) else {
        let sentence = "every address that was given from this group is still in its ranges";
        return Finding::new(Aspect::Orphans, false, Word::NoOrphans, sentence);
    };
    let mut named: Vec<_> = held.iter().take(MOST_NAMED).map(|(addr, service)| format!("{addr} ({service})")).collect();
    if held.len() > MOST_NAMED {
        named.push(format!("and {} more", held.len() - MOST_NAMED));
    }
    let sentence = format!(
        "addresses given from this group are in no range any more and are kept: {}; set purelb.io/re-evaluate: \"true\" on \
         a Service to give it another",
        named.join(", ")
    );
    Finding::new(Aspect::Orphans, true, Word::Orphaned, sentence)
}

/// Whether an aggregate draws traffic to nodes that do not have the endpoints it is for.
///
/// A node advertises the whole prefix as soon as it has one address of it. With `externalTrafficPolicy: Local` not
/// every node has every address, so that routers may choose a node which drops what it gets.
pub(super) fn black_hole(group: &Group, book: &Book, local_traffic: &Held) -> Finding {
    let mut drawn = local_traffic.iter().filter_map(|(&addr, service)| {
        let entry = group.entry_of(addr).filter(|entry| is_aggregate(group, book, entry))?;
        Some((addr, service, entry))
    });
    let Some((addr, service, entry)) = drawn.next() else {
        let sentence = "no aggregate of this group is used with externalTrafficPolicy: Local";
        return Finding::new(Aspect::BlackHole, false, Word::NoBlackHole, sentence);
    };
    let others = match drawn.count() {
        0 => String::new(),
        more => format!(" (and {more} more addresses)"),
    };
    let sentence = format!(
        "{} is advertised as a whole, but {service} has {addr} of it{others} with externalTrafficPolicy: Local, so nodes \
         without its endpoints draw traffic for it and drop it; write aggregation: /{} in {}, or set \
         externalTrafficPolicy: Cluster",
        advertised(addr, entry),
        Family::of(addr).max_prefix(),
        entry.field
    );
    Finding::new(Aspect::BlackHole, true, Word::AggregateWithLocalTraffic, sentence)
}

fn is_aggregate(group: &Group, book: &Book, entry: &Entry) -> bool {
    let is_virtual = match group.placement {
        Placement::Local => false,
        Placement::Remote => true,
        Placement::Auto => !book.is_active(entry.subnet),
    };
    is_virtual && entry.virtual_prefix() < entry.range.family().max_prefix()
}

fn advertised(addr: IpAddr, entry: &Entry) -> String {
    IpNet::new(addr, entry.virtual_prefix()).map_or(entry.subnet, |net| net.trunc()).to_string()
}
