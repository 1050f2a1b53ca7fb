//! Where a Service's addresses should come from: what it pins, the group it names, or the group of its namespace.

use std::net::IpAddr;

use crate::book::{Book, DEFAULT_GROUP, NamespaceDefault, Slot};
use crate::reason::Reason;
use crate::service::ServiceView;

use super::notice::Notice;

/// Where to take addresses from.
pub(super) enum Target<'a> {
    /// From this group.
    Group(&'a Slot),
    /// Exactly these.
    Pins(Vec<IpAddr>),
}

/// Finds the target, with what the user should know about how it was found.
pub(super) fn resolve<'a>(book: &'a Book, svc: &ServiceView) -> (Result<Target<'a>, Reason>, Vec<Notice>) {
    let mut notices = Vec::new();
    let pins = match (&svc.asks.addresses, &svc.load_balancer_ip) {
        (Some(text), _) => Some(text),
        (None, Some(text)) => {
            notices.push(Notice::load_balancer_ip_is_deprecated());
            Some(text)
        }
        (None, None) => None,
    };
    let target = match pins {
        Some(text) => {
            if svc.asks.group.is_some() {
                notices.push(Notice::group_is_ignored());
            }
            pinned(book, svc, text).map(Target::Pins)
        }
        None => group(book, svc, &mut notices).map(Target::Group),
    };
    (target, notices)
}

/// The pinned addresses, each once, all of groups that the namespace may use.
fn pinned(book: &Book, svc: &ServiceView, text: &str) -> Result<Vec<IpAddr>, Reason> {
    let mut pins = Vec::new();
    for part in text.split(',').map(str::trim) {
        let addr: IpAddr = part.parse().map_err(|_| Reason::PinSyntax { text: part.to_owned() })?;
        let addr = addr.to_canonical();
        let slot = book.slot_of(addr).ok_or(Reason::PinOutsideGroups { addr })?;
        book.bindings().check(svc.namespace(), &slot.group)?;
        if !pins.contains(&addr) {
            pins.push(addr);
        }
    }
    Ok(pins)
}

fn group<'a>(book: &'a Book, svc: &ServiceView, notices: &mut Vec<Notice>) -> Result<&'a Slot, Reason> {
    let namespace = svc.namespace();
    let name = match (&svc.asks.group, book.bindings().default_of(namespace)) {
        (Some(name), _) => name.clone(),
        (None, NamespaceDefault::Group(name)) => name,
        (None, NamespaceDefault::Unbound) => DEFAULT_GROUP.to_owned(),
        (None, NamespaceDefault::Ambiguous { why, enforcing: true }) => {
            return Err(Reason::AmbiguousNamespaceDefault { why });
        }
        (None, NamespaceDefault::Ambiguous { why, enforcing: false }) => {
            notices.push(Notice::ambiguous(&why));
            DEFAULT_GROUP.to_owned()
        }
    };
    let slot = book.slot(&name)?;
    book.bindings().check(namespace, &slot.group)?;
    Ok(slot)
}
