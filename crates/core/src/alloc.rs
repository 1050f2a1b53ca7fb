//! What a Service should get: the whole wish for one Service, decided from the book and the Service alone.

use std::net::IpAddr;

use crate::addr::Family;
use crate::book::{Book, Slot};
use crate::group::{Group, Source};
use crate::pool::Claim;
use crate::reason::Reason;
use crate::service::{Brand, Condition, Ingress, ServiceView};

use target::Target;

mod choose;
mod notice;
mod target;

pub use notice::{Notice, Severity};

/// Which Services are PureLB's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The load balancer classes PureLB answers to.
    pub classes: Vec<String>,
    /// Whether PureLB also serves Services without a class.
    pub default_announcer: bool,
}

/// What to do about a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "a decision is acted on at once and never kept in numbers")]
pub enum Decision {
    /// Somebody else's Service, or an address somebody else gave it: write nothing, hold nothing.
    LeaveAlone,
    /// This is how the Service should look.
    Wish(Wish),
    /// An IPAM beside us has the addresses; ask it, then [`accept`] what it says.
    AskExternal(ExternalRequest),
}

/// The whole wish for one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Its addresses, in the order of its families.
    pub addrs: Vec<IpAddr>,
    /// The annotations that say where they come from.
    pub brand: Brand,
    /// The condition.
    pub condition: Condition,
    /// The reason behind the condition, if it is not simply assigned.
    pub reason: Option<Reason>,
    /// How the addresses were found.
    pub way: Way,
    /// The group that was asked for them: named by the Service, or found for it.
    pub group: Option<String>,
    /// What to tell the user now.
    pub notices: Vec<Notice>,
}

impl Wish {
    /// Whether the Service looks so already, so that nothing needs to be written.
    pub fn is_fulfilled_by(&self, svc: &ServiceView) -> bool {
        let ingress: Vec<_> = self.addrs.iter().copied().map(Ingress::of).collect();
        !svc.asks.re_evaluate
            && ingress == svc.ingress
            && self.brand == svc.brand
            && Some(&self.condition) == svc.condition.as_ref()
    }
}

/// A question to an external IPAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalRequest {
    /// The group, which is the IPAM's pool.
    pub group: String,
    /// The IPAM's name.
    pub provider: String,
    /// The IPAM's socket.
    pub socket: String,
    /// The families to ask for.
    pub families: Vec<Family>,
}

/// What to do about a Service, given everything that is held.
pub fn decide(scope: &Scope, book: &Book, svc: &ServiceView) -> Decision {
    let decision = look(scope, book, svc);
    match decision {
        Decision::Wish(Wish { ref addrs, reason: Some(ref why), .. })
            if svc.asks.re_evaluate && !addrs.is_empty() && *addrs == svc.addresses() =>
        {
            stayed(scope, book, svc, why)
        }
        other => other,
    }
}

/// A Service that was to move and could not: an Event says why, and otherwise it is as if nobody had asked.
fn stayed(scope: &Scope, book: &Book, svc: &ServiceView, why: &Reason) -> Decision {
    let mut unasked = svc.clone();
    unasked.asks.re_evaluate = false;
    let mut decision = look(scope, book, &unasked);
    if let Decision::Wish(wish) = &mut decision
        && wish.reason.as_ref() != Some(why)
    {
        wish.notices.push(notice::refusal(svc, &wish.addrs, why));
    }
    decision
}

fn look(scope: &Scope, book: &Book, svc: &ServiceView) -> Decision {
    if !handles(scope, svc) {
        return Decision::LeaveAlone;
    }
    let Some(held) = own_addresses(book, svc) else { return Decision::LeaveAlone };
    if !svc.has_cluster_ip || svc.is_leaving {
        return as_it_is(svc, held);
    }
    let (target, notices) = target::resolve(book, svc);
    let group = match &target {
        Ok(Target::Group(slot)) => Some(*slot),
        Ok(Target::Pins(pins)) => pins.first().and_then(|pin| book.slot_of(*pin)),
        Err(_) => None,
    };
    let group = group.map(|slot| slot.group.name.clone()).or_else(|| svc.asks.group.clone());
    let asked = Asked::new(book, svc, held, group);
    if let Some(lost) = &asked.lost {
        return asked.wish(asked.keep(lost.clone()), Vec::new());
    }
    match target {
        Ok(Target::Group(slot)) => match asked.of_group(slot) {
            Ok(outcome) => asked.wish(outcome, notices),
            Err(request) => Decision::AskExternal(request),
        },
        Ok(Target::Pins(pins)) => asked.wish(asked.of_pins(pins), notices),
        Err(reason) => asked.wish(asked.keep(reason), notices),
    }
}

/// The wish after an external IPAM has answered.
pub fn accept(
    book: &Book,
    svc: &ServiceView,
    request: &ExternalRequest,
    answer: Result<Vec<IpAddr>, Reason>,
) -> Decision {
    let held = own_addresses(book, svc).unwrap_or_default();
    let asked = Asked::new(book, svc, held, Some(request.group.clone()));
    let outcome = match (&asked.lost, answer) {
        (Some(lost), _) => asked.keep(lost.clone()),
        (None, Ok(addrs)) => asked.of_external(request, &addrs),
        (None, Err(reason)) => asked.keep(reason),
    };
    asked.wish(outcome, Vec::new())
}

/// A Service that asks, with what it already has.
struct Asked<'a> {
    book: &'a Book,
    svc: &'a ServiceView,
    claim: Claim,
    held: Vec<IpAddr>,
    /// Why it has to give up what it shows and `held` is without. It gets nothing new in the same write: one that is still
    /// on its way when another leads must not bring an address to a Service that looks content by then.
    lost: Option<Reason>,
    group: Option<String>,
}

/// What was found for a Service.
struct Outcome {
    addrs: Vec<IpAddr>,
    /// Why something is missing, or what is worth knowing about what is there.
    reason: Option<Reason>,
    way: Way,
}

/// How addresses were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// One per family from a group's ranges, or left as they were.
    Group,
    /// As [`Way::Group`], with a new one from the range that was used least.
    Balanced,
    /// One from every range of a group.
    MultiPool,
    /// Named by the user, one by one.
    Pinned,
    /// Given by the IPAM of this group; they are in no pool.
    External(String),
}

impl<'a> Asked<'a> {
    /// With what the Service may keep of what it has. An edit may have put it in the way of somebody who has the same
    /// address for longer: then it loses that.
    fn new(book: &'a Book, svc: &'a ServiceView, mut held: Vec<IpAddr>, group: Option<String>) -> Self {
        let (claim, mut lost) = (svc.claim(), None);
        held.retain(|&addr| match book.outranked(addr, &claim) {
            Err(why) if !is_inherited(svc, addr) => {
                lost.get_or_insert(Reason::AddressLost { addr, why: why.to_string() });
                false
            }
            _ => true,
        });
        Self { book, svc, claim, held, lost, group }
    }
}

/// Whether a Service may have had an address together with strangers ever since it was first seen: an older release
/// gave it so. Nobody loses an address for that; the condition says what is wrong.
///
/// A condition may be about an address that the Service did not get: that says nothing about those that it has.
fn is_inherited(svc: &ServiceView, addr: IpAddr) -> bool {
    svc.condition.as_ref().is_none_or(|condition| match &*condition.reason {
        "Pending" => condition.assigned,
        "AddressInUse" | "PortInUse" => condition.assigned && condition.is_about(addr),
        _ => false,
    })
}

impl Asked<'_> {
    /// Everything stays as it is, and this is why nothing more can be done.
    fn keep(&self, reason: Reason) -> Outcome {
        Outcome { addrs: self.held.clone(), reason: Some(reason), way: Way::Group }
    }

    fn wish(&self, outcome: Outcome, configuration: Vec<Notice>) -> Decision {
        let brand = self.brand(&outcome);
        let reason = outcome.reason.clone().or_else(|| self.worth_knowing(&outcome));
        let condition = condition(&outcome.addrs, &brand, reason.as_ref());
        let mut notices = notice::changes(self, &outcome, &brand);
        if self.svc.condition.as_ref() != Some(&condition) {
            notices.splice(0..0, configuration);
            notices.extend(reason.as_ref().map(|reason| notice::refusal(self.svc, &outcome.addrs, reason)));
        }
        let (addrs, way, group) = (outcome.addrs, outcome.way, self.group.clone());
        Decision::Wish(Wish { addrs, brand, condition, reason, way, group, notices })
    }

    /// What is wrong with addresses that are there nevertheless.
    fn worth_knowing(&self, outcome: &Outcome) -> Option<Reason> {
        let kept = outcome.addrs.iter().filter(|addr| self.held.contains(addr));
        let external = matches!(outcome.way, Way::External(_)) || self.comes_from_external();
        kept.map(|&addr| match self.book.slot_of(addr) {
            Some(slot) => slot.pool.keeps(addr, &self.claim).err(),
            None if external => self.book.keeps_loose(addr, &self.claim).err(),
            None => Some(Reason::Orphaned { addr }),
        })
        .find_map(|reason| reason)
    }

    fn comes_from_external(&self) -> bool {
        let from = self.svc.brand.from.as_deref().and_then(|from| self.book.slot(from).ok());
        from.is_some_and(|slot| slot.group.ranges().is_none())
    }

    fn brand(&self, outcome: &Outcome) -> Brand {
        if outcome.addrs.is_empty() {
            return Brand::default();
        }
        if let Way::External(name) = &outcome.way {
            return brand_of(self.book.slot(name).ok().map(|slot| &slot.group), name.clone());
        }
        let groups: Vec<_> =
            outcome.addrs.iter().filter_map(|addr| self.book.slot_of(*addr)).map(|slot| &slot.group).collect();
        let mut names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        if outcome.way != Way::Pinned {
            names.dedup();
        }
        let nothing_new = outcome.addrs.iter().all(|addr| self.held.contains(addr));
        let unmoved = nothing_new && outcome.way == Way::Group && !self.svc.asks.re_evaluate;
        if unmoved && self.comes_from_external() {
            // An IPAM may give what is in a pool too.
            return Brand { ours: true, ..self.svc.brand.clone() };
        }
        match groups.first() {
            // What is in no group any more still came from somewhere, and only the annotation remembers where.
            Some(_) if groups.len() < outcome.addrs.len() && nothing_new => {
                Brand { ours: true, ..self.svc.brand.clone() }
            }
            Some(group) => brand_of(Some(group), names.join(", ")),
            None => Brand { ours: true, ..self.svc.brand.clone() },
        }
    }
}

fn brand_of(group: Option<&Group>, from: String) -> Brand {
    let pool_type = group.and_then(|group| group.placement.pool_type()).map(str::to_owned);
    Brand { ours: true, from: Some(from), pool_type, skip_ipv6_dad: group.is_some_and(|group| group.skip_ipv6_dad) }
}

fn condition(addrs: &[IpAddr], brand: &Brand, reason: Option<&Reason>) -> Condition {
    let list = notice::list(addrs);
    match reason {
        Some(reason) => Condition::troubled(reason, &list),
        None => Condition::assigned(&list, brand.from.as_deref().unwrap_or("no group")),
    }
}

fn handles(scope: &Scope, svc: &ServiceView) -> bool {
    match &svc.class {
        Some(class) => scope.classes.contains(class),
        None => scope.default_announcer,
    }
}

/// The addresses in the status that PureLB gave; `None` if somebody else put something there.
///
/// Without the brand they are ours if it was lost: a pool has every one of them free for this Service, or our own condition
/// says that it was given. `kubectl replace` takes annotations off, and leaves the status.
fn own_addresses(book: &Book, svc: &ServiceView) -> Option<Vec<IpAddr>> {
    let addrs = svc.addresses();
    if svc.brand.ours || svc.ingress.is_empty() {
        return Some(addrs);
    }
    let claim = svc.claim();
    let given: Vec<IpAddr> = svc.condition.iter().flat_map(Condition::addresses).collect();
    let free = |addr: IpAddr| book.slot_of(addr).is_some_and(|slot| slot.pool.available(addr, &claim).is_ok());
    let is_ours = |addr: &IpAddr| free(*addr) || given.contains(addr) && book.outranked(*addr, &claim).is_ok();
    let lost_brand = addrs.len() == svc.ingress.len() && addrs.iter().all(is_ours);
    lost_brand.then_some(addrs)
}

/// Nothing to decide; only what a user asked to be looked at again is acknowledged.
fn as_it_is(svc: &ServiceView, addrs: Vec<IpAddr>) -> Decision {
    match (&svc.condition, svc.asks.re_evaluate) {
        (Some(condition), true) => Decision::Wish(Wish {
            addrs,
            brand: svc.brand.clone(),
            condition: condition.clone(),
            reason: None,
            way: Way::Group,
            group: None,
            notices: Vec::new(),
        }),
        _ => Decision::LeaveAlone,
    }
}

/// Whether a group's addresses come from ranges, from an IPAM we can ask, or from one we cannot.
fn source(slot: &Slot) -> Result<Option<ExternalRequest>, Reason> {
    match &slot.group.source {
        Source::Ranges(_) => Ok(None),
        Source::External { provider, socket } => Ok(Some(ExternalRequest {
            group: slot.group.name.clone(),
            provider: provider.clone(),
            socket: socket.clone(),
            families: Vec::new(),
        })),
        Source::Netbox { .. } => Err(Reason::NetboxUnsupported { group: slot.group.name.clone() }),
    }
}

#[cfg(test)]
mod tests;
