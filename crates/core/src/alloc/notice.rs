//! What a decision tells the user: the Events, with the words that scripts and documents know.

use std::net::IpAddr;

use crate::reason::Reason;
use crate::service::{Brand, ServiceView};

use super::{Asked, Outcome, Way};

/// Whether an Event is news or trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// News.
    Normal,
    /// Trouble.
    Warning,
}

/// One Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// News or trouble.
    pub severity: Severity,
    /// The Event's reason.
    pub reason: &'static str,
    /// The Event's message.
    pub message: String,
}

impl Notice {
    fn normal(reason: &'static str, message: String) -> Self {
        Self { severity: Severity::Normal, reason, message }
    }

    fn warning(reason: &'static str, message: String) -> Self {
        Self { severity: Severity::Warning, reason, message }
    }

    pub(super) fn load_balancer_ip_is_deprecated() -> Self {
        let message =
            "Service.Spec.LoadBalancerIP is deprecated, please use the \"purelb.io/addresses\" annotation instead";
        Self::normal("DeprecationWarning", message.to_owned())
    }

    pub(super) fn group_is_ignored() -> Self {
        let message = "Both the addresses annotation and the service-group annotation were provided. service-group will \
                       be ignored.";
        Self::normal("ConfigurationWarning", message.to_owned())
    }

    pub(super) fn ambiguous(why: &str) -> Self {
        Self::warning("ConfigurationWarning", format!("{why}; allocated from \"default\" instead"))
    }
}

/// Addresses joined by commas.
pub(super) fn list(addrs: &[IpAddr]) -> String {
    addrs.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// The Events about addresses that come and go.
pub(super) fn changes(asked: &Asked<'_>, outcome: &Outcome, brand: &Brand) -> Vec<Notice> {
    let gone: Vec<_> = asked.held.iter().filter(|addr| !outcome.addrs.contains(addr)).map(IpAddr::to_string).collect();
    let come = outcome.addrs.iter().filter(|addr| !asked.held.contains(addr)).count();
    let mut notices = Vec::new();
    if !gone.is_empty() {
        let why = if asked.svc.asks.re_evaluate { "re-evaluation" } else { "IP family transition" };
        let message = format!("Released addresses no longer needed after {why}: [{}]", gone.join(" "));
        notices.push(Notice::normal("AddressReleased", message));
    }
    if come > 0 {
        notices.push(Notice::normal("AddressAssigned", assigned(asked, outcome, brand, come)));
    }
    notices
}

fn assigned(asked: &Asked<'_>, outcome: &Outcome, brand: &Brand, come: usize) -> String {
    let (from, total) = (brand.from.as_deref().unwrap_or_default(), outcome.addrs.len());
    match outcome.way {
        Way::MultiPool if asked.held.is_empty() => format!("Multi-pool: assigned {total} IPs from pool {from}"),
        Way::MultiPool => format!("Incremental multi-pool: added {come} IPs (total {total}) from pool {from}"),
        _ => format!("Assigned {} from pool {from}", status(&outcome.addrs)),
    }
}

/// The Event about what could not be done, or about what is not right with what is there.
pub(super) fn refusal(svc: &ServiceView, addrs: &[IpAddr], reason: &Reason) -> Notice {
    if addrs.is_empty() && !matches!(reason, Reason::AddressLost { .. }) {
        return Notice::warning("AllocationFailed", format!("Failed to allocate IP for \"{}\": {reason}", svc.key));
    }
    if is_about_growth(reason) {
        let message = format!("Incremental multi-pool allocation refused for \"{}\": {reason}", svc.key);
        return Notice::warning("AllocationFailed", message);
    }
    Notice::warning(reason.name(), reason.to_string())
}

/// Whether a Service with addresses is refused further ones of other ranges.
fn is_about_growth(reason: &Reason) -> bool {
    matches!(reason, Reason::MultiPoolAndBalancePools | Reason::MultiPoolShared | Reason::MultiPoolSpans { .. })
}

/// The status as the first documents of PureLB show it.
fn status(addrs: &[IpAddr]) -> String {
    let ingress: Vec<_> = addrs.iter().map(|addr| format!("{{IP:{addr} Hostname: Ports:[]}}")).collect();
    format!("{{Ingress:[{}]}}", ingress.join(" "))
}
