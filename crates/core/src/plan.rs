//! What to do so that the kernel shows what this node should hold.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::agent::Garp;
use crate::links::{HeldAddr, Link, LinkKind, Links, OUR_LIFETIME};
use crate::moment::Moment;

pub(crate) use planner::{Planner, Shown};

mod planner;

/// The whole wish for a node's kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Desired {
    /// The virtual interface; `None` while nothing says that there should be one.
    pub virtual_link: Option<Arc<str>>,
    /// Virtual interfaces of earlier configurations: removed once nothing is on them, if they are ours.
    pub former_links: BTreeSet<Arc<str>>,
    /// The addresses to hold, each on one interface.
    pub addrs: BTreeMap<IpAddr, WantedAddr>,
}

/// How an address should be held.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WantedAddr {
    /// The interface, by name: the virtual one may have to be made first.
    pub link: Arc<str>,
    /// The prefix length.
    pub prefix: u8,
    /// Whether the kernel should leave the subnet's route away.
    pub no_prefix_route: bool,
    /// Whether to skip duplicate address detection.
    pub no_dad: bool,
    /// How long the kernel should keep it.
    pub lifetime: Lifetime,
    /// How neighbours are told when it is taken over; `None` for virtual addresses, and where nobody should be told.
    pub tell: Option<Garp>,
}

/// How long the kernel keeps an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Lifetime {
    /// For ever.
    Forever,
    /// Until a moment; the kernel counts in whole seconds and is told the next lower number.
    Until {
        /// When it goes unless the wish changes before.
        valid: Moment,
        /// From when on the kernel does not choose it as a source.
        preferred: Moment,
    },
}

/// One thing to do to the kernel. Applying a step twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Step {
    /// Make the virtual interface: a dummy, or an ifb where the kernel has none.
    MakeLink {
        /// Its name.
        name: String,
    },
    /// Switch an interface of ours on, and `promote_secondaries` with it.
    SetUp {
        /// Its index.
        link: u32,
    },
    /// Remove an interface that is ours.
    DropLink {
        /// Its index.
        link: u32,
    },
    /// Put an address on an interface, or change lifetime and mark of one that is there.
    PutAddr {
        /// The interface.
        link: u32,
        /// The address.
        addr: IpAddr,
        /// Its prefix length.
        prefix: u8,
        /// Leave the subnet's route away.
        no_prefix_route: bool,
        /// Skip duplicate address detection.
        no_dad: bool,
        /// Seconds until the kernel removes it; `None` is never.
        valid: Option<u32>,
        /// Seconds until the kernel stops preferring it; not used where `valid` is never.
        preferred: u32,
        /// Whether the same address is there already, so that this only refreshes or changes it.
        refresh: bool,
    },
    /// Take an address off an interface.
    DropAddr {
        /// The interface.
        link: u32,
        /// The address.
        addr: IpAddr,
        /// Its prefix length.
        prefix: u8,
        /// Why, in the words of the log and the metric.
        why: Why,
    },
}

/// Why an address leaves an interface.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, strum::IntoStaticStr,
)]
#[strum(serialize_all = "camelCase")]
pub enum Why {
    /// No Service has it any more.
    NoService,
    /// Another node was elected.
    LostElection,
    /// No live node serves its subnet.
    NoEligibleNodes,
    /// externalTrafficPolicy is Local and no endpoint on this node is ready.
    NoEndpoints,
    /// No interface and no group says where it goes.
    NoLocalInterface,
    /// No LBNodeAgent is for this node.
    NoConfig,
    /// The lease could not be renewed in time, so that another node may take over.
    Fenced,
    /// It is held with another prefix length, on another interface or with other flags.
    Changed,
    /// It must not be announced at all: a node's own, a gateway, a network or broadcast address, a captured route.
    Refused,
    /// The agent stops.
    Shutdown,
}

/// An address taken over on an interface, of which the neighbours are to be told.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Telling {
    /// The interface.
    pub link: u32,
    /// The address.
    pub addr: IpAddr,
    /// How often and when.
    pub how: Garp,
}

/// Until a lifetime's end, in the kernel's whole seconds.
pub fn whole_seconds(from: Moment, to: Moment) -> u32 {
    let left: Duration = to.since(from);
    u32::try_from(left.as_secs()).unwrap_or(u32::MAX - 1).min(u32::MAX - 1)
}

/// How late a step may be and still be done as it was decided. A lifetime ends at least a second before another node may
/// take the address.
const GRACE: Duration = Duration::from_millis(500);

/// Steps as they may still be done at some time after they were decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InTime {
    /// These may be done.
    pub steps: Vec<Step>,
    /// These may not: the time for which the address was to be held is over.
    pub over: Vec<Step>,
    /// From when on the lifetimes of `steps` count.
    pub counted_from: Moment,
}

/// What may still be done now of steps whose lifetimes count from `decided`: a process that was held up must not give a
/// lifetime that ends later than it was to end.
pub fn in_time(steps: Vec<Step>, decided: Moment, now: Moment) -> InTime {
    let late = now.since(decided);
    if late <= GRACE {
        return InTime { steps, over: Vec::new(), counted_from: decided };
    }
    let lost = u32::try_from(late.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
    let shortened = steps.into_iter().map(|mut step| {
        if let Step::PutAddr { valid: Some(valid), preferred, .. } = &mut step {
            (*valid, *preferred) = (valid.saturating_sub(lost), preferred.saturating_sub(lost));
        }
        step
    });
    let (steps, over) = shortened.partition(|step| !matches!(step, Step::PutAddr { valid: Some(0), .. }));
    InTime { steps, over, counted_from: decided + Duration::from_secs(lost.into()) }
}

/// What makes good that steps were done late, because the kernel was busy with something else: it counts a lifetime from when
/// it comes to give it. These are the addresses that it holds by them, to be put once more for the time that is left; those of
/// `over` are to be taken off.
///
/// Nothing, if they were done in time.
pub fn done_late<'a>(done: impl IntoIterator<Item = &'a Step>, counted_from: Moment, now: Moment) -> Option<InTime> {
    let ending = done.into_iter().filter(|step| matches!(step, Step::PutAddr { valid: Some(_), .. }));
    let again = ending.cloned().map(|mut step| {
        if let Step::PutAddr { refresh, .. } = &mut step {
            *refresh = true;
        }
        step
    });
    let again: Vec<_> = again.collect();
    (!again.is_empty() && now.since(counted_from) > GRACE).then(|| in_time(again, counted_from, now))
}

impl Step {
    /// The step that takes off what this one has put.
    pub fn undo(&self, why: Why) -> Option<Step> {
        match self {
            Step::PutAddr { link, addr, prefix, .. } => {
                Some(Step::DropAddr { link: *link, addr: *addr, prefix: *prefix, why })
            }
            _ => None,
        }
    }
}

/// What a plan must know beside wish and kernel.
#[derive(Clone, Copy)]
pub struct Ownership<'a> {
    /// Whether an address on an interface was put there by us. Nothing else is ever taken off.
    pub is_ours: &'a dyn Fn(u32, &HeldAddr) -> bool,
    /// Why this node does not hold an address.
    pub why: &'a dyn Fn(IpAddr) -> Why,
    /// Whether an address must not go yet, because routers may still have the route to it.
    pub waits: &'a dyn Fn(u32, &HeldAddr) -> bool,
}

/// Everything to do so that the kernel shows what is desired; nothing, if it does already.
///
/// Where an interface must be made first, what goes on it follows in the next plan.
pub fn plan(desired: &Desired, links: &Links, now: Moment, own: Ownership<'_>) -> Vec<Step> {
    let mut shown: BTreeMap<IpAddr, Vec<Shown>> = desired.addrs.keys().map(|addr| (*addr, Vec::new())).collect();
    for (index, link) in &links.by_index {
        for held in &link.addrs {
            shown.entry(held.addr).or_default().push((*index, *held));
        }
    }
    let mut planner = Planner::new(desired, links, now, own);
    planner.links();
    for (addr, shown) in &shown {
        planner.addr(*addr, shown);
    }
    planner.finish()
}

/// At the start, before the API server answers: addresses of our own on virtual interfaces become permanent, so that
/// the lifetime a predecessor left them does not end. Nothing else is touched.
pub fn adopt(links: &Links) -> Vec<Step> {
    let lasting = lasting(links.keeps_protocol());
    let ending = left_behind(links).filter(|(_, held)| lasting.is_none() || !held.has_our_lifetime());
    ending.map(|(link, held)| refreshed(link, held, lasting)).collect()
}

/// The lifetime of what is to stay for ever: none, or one that is our mark where the kernel keeps no other.
pub(crate) fn lasting(marks: bool) -> Option<u32> {
    (!marks).then_some(OUR_LIFETIME)
}

/// Addresses with a lifetime that a predecessor left: those with our mark. Where the kernel keeps no marks, also those on the
/// interface that is ours by default, on which nobody else gives lifetimes.
pub fn left_behind(links: &Links) -> impl Iterator<Item = (u32, &HeldAddr)> {
    let marks = links.keeps_protocol();
    let virtuals = links.by_index.iter().filter(|(_, link)| link.is_virtual());
    virtuals.flat_map(move |(index, link)| {
        let unmarked = !marks && link.name == VIRTUAL_LINK;
        let ours = link.addrs.iter().filter(move |held| held.is_marked() || unmarked);
        ours.filter(|held| held.valid_until.is_some()).map(|held| (*index, held))
    })
}

/// The inverse of [`adopt`], for an agent that stops before the API server has answered: what carries our mark, or was
/// adopted without one, ends on virtual interfaces after this time, or at once where there is none. What is on NICs goes
/// at once, as always.
pub fn depart(
    links: &Links,
    adopted: impl Fn(u32, &HeldAddr) -> bool,
    stay: Option<Duration>,
    now: Moment,
) -> Vec<Step> {
    let all = links.by_index.iter().filter(|(_, link)| link.name != IPVS_LINK);
    let all = all.flat_map(|(index, link)| link.addrs.iter().map(move |held| (*index, link, held)));
    let ours = all.filter(|(link, _, held)| held.is_marked() || adopted(*link, held));
    ours.filter_map(|(link, on, held)| match stay.filter(|_| on.is_virtual()) {
        None => Some(Step::DropAddr { link, addr: held.addr, prefix: held.prefix, why: Why::Shutdown }),
        // What ends anyway is left to end.
        Some(_) if held.valid_until.is_some() && !held.has_our_lifetime() => None,
        Some(span) => {
            let valid = whole_seconds(now, now + span);
            Some(refreshed(link, held, Some(valid)))
        }
    })
    .collect()
}

/// The step that gives an address another lifetime and changes nothing else.
fn refreshed(link: u32, held: &HeldAddr, valid: Option<u32>) -> Step {
    let HeldAddr { addr, prefix, no_prefix_route, no_dad, .. } = *held;
    let preferred = valid.unwrap_or(0);
    Step::PutAddr { link, addr, prefix, no_prefix_route, no_dad, valid, preferred, refresh: true }
}

/// The virtual interface where no LBNodeAgent says otherwise.
pub const VIRTUAL_LINK: &str = "kube-lb0";

/// The interface kube-proxy keeps its own addresses on. It is never touched.
pub const IPVS_LINK: &str = "kube-ipvs0";

impl Link {
    /// Whether it is of a kind that virtual interfaces are, and not kube-proxy's.
    pub fn is_virtual(&self) -> bool {
        matches!(self.kind, LinkKind::Dummy | LinkKind::Ifb) && self.name != IPVS_LINK
    }
}

#[cfg(test)]
mod tests;
