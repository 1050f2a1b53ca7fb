//! The words of an agent's Events; scripts and documents know them.

use std::net::IpAddr;

use purelb_core::alloc::{Notice, Severity};
use purelb_core::reason::{Problem, Reason};

fn normal(reason: &'static str, message: String) -> Notice {
    Notice { severity: Severity::Normal, reason, message }
}

fn warning(reason: &'static str, message: String) -> Notice {
    Notice { severity: Severity::Warning, reason, message }
}

/// An address is on an interface of this node.
pub(super) fn announcing(me: &str, addr: IpAddr, link: &str, local: bool) -> Notice {
    if local {
        normal("AnnouncingLocal", format!("Node {me} announcing {addr} on interface {link}"))
    } else {
        normal("AnnouncingNonLocal", format!("Announcing {addr} from node {me} interface {link}"))
    }
}

/// This node announces what another announced before.
pub(super) fn slot_stolen(me: &str, addr: IpAddr, other: &str) -> Notice {
    normal("AnnounceSlotSteal", format!("Node {me} took announcement of {addr} from node {other}"))
}

/// `purelb.io/allow-local` is there.
pub(super) fn policy_allowed() -> Notice {
    let message = "ExternalTrafficPolicy override annotation found, will allow Local policy. Incoming traffic will NOT be \
                   forwarded inter-node. This is not a recommended configuration; please see the PureLB docs for more info.";
    normal("LocalOverride", message.to_owned())
}

/// The policy was set to Cluster.
pub(super) fn policy_rewritten() -> Notice {
    let message = "ExternalTrafficPolicy Local not supported on local Interfaces, setting to Cluster. Please see the PureLB \
                   docs for info on why we do this, and how to override this policy.";
    normal("LocalOverride", message.to_owned())
}

/// Somebody set the policy back.
pub(super) fn policy_set_back() -> Notice {
    warning(Reason::PolicySetBack.name(), Reason::PolicySetBack.to_string())
}

/// The kernel refused an address.
pub(super) fn failed(me: &str, addr: IpAddr, link: &str, problem: &str) -> Notice {
    warning("AnnouncementFailed", format!("Node {me} could not announce {addr} on interface {link}: {problem}"))
}

/// An address must not be announced. That other nodes announce it is no trouble, and is not told.
pub(super) fn refused(reason: &Reason) -> Option<Notice> {
    (!matches!(reason, Reason::NoLocalSubnet { .. } | Reason::SubnetUnavailable { .. }))
        .then(|| warning(reason.name(), reason.to_string()))
}

/// An LBNodeAgent does not count although its author may think so.
pub(super) fn warned(reason: &Reason) -> Notice {
    warning(reason.name(), reason.to_string())
}

/// The object that counts on this node cannot be used.
pub(super) fn config_error(me: &str, problem: &Problem, keeps_last: bool) -> Notice {
    let kept = if keeps_last { "its last good configuration stays in force" } else { "what it announced before stays" };
    let message = format!(
        "invalid configuration: node {me} is announcing nothing by it until this is fixed; {kept} ({}: {})",
        problem.field, problem.reason
    );
    warning("ConfigError", message)
}

/// The virtual interface is no dummy.
pub(super) fn no_dummy(name: &str) -> Notice {
    let reason = Reason::NoDummyInterface { name: name.to_owned() };
    warning(reason.name(), reason.to_string())
}
