//! What PureLB writes to a BGPConfiguration: its status, and the removal of an old finalizer.

use jiff::Timestamp;
use purelb_core::bgp::RouterIdWish;
use purelb_core::reason::{Problem, Reason};
use serde_json::{Value, json};

use super::{Past, condition, shortened, status_patch, word};
use crate::bgp_configuration::{BGPConfiguration, BGPConfigurationStatus};
use crate::read::{BgpObject, BgpReading, bgp_in_force, bgp_last_valid};

/// What earlier versions put on objects so that every node could clean up. Nobody needs it any more.
pub const FINALIZER: &str = "bgp.purelb.io/finalizer";

const READY: &str = "Ready";
const UNSUPPORTED: &str = "UnsupportedFields";
const RESOLVED: &str = "RouterIDResolved";

/// The status of a BGPConfiguration: what is true of it on every node.
///
/// `ignored` is why the object does not count at all. A condition whose status is as it was keeps its time, so that an
/// equal status is not written; conditions of others are kept, and what earlier versions wrote besides is removed.
pub fn bgp_status(read: &BgpObject, ignored: Option<&Reason>, now: Timestamp) -> BGPConfigurationStatus {
    let (object, (reading, earlier)) = (&read.object, bgp_in_force(read));
    let previous = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let past = Past { previous, generation: object.metadata.generation, now };
    let (ready, reason, message) = verdict(&reading, earlier, ignored);
    let explicit = explicit_id(&reading, ignored);
    let mut conditions = vec![condition(READY, word(ready), reason, &message, past)];
    conditions
        .extend(explicit.map(|id| condition(RESOLVED, "True", "Explicit", &format!("Every node goes by {id}"), past)));
    conditions.extend(
        unsupported(&reading).map(|reason| condition(UNSUPPORTED, "True", reason.name(), &reason.to_string(), past)),
    );
    let others =
        previous.iter().filter(|condition| ![READY, RESOLVED, UNSUPPORTED].contains(&condition.type_.as_str()));
    conditions.extend(others.cloned());
    let in_use = reading.reading.value.as_ref().filter(|_| ignored.is_none());
    BGPConfigurationStatus {
        observed_generation: object.metadata.generation,
        conditions,
        neighbor_count: i64::try_from(in_use.map_or(0, |configuration| configuration.neighbors.len())).ok(),
        message: Some(shortened(&message)),
        router_id_source: explicit.map(|_| "explicit".to_owned()),
        last_valid: bgp_last_valid(read),
        ..BGPConfigurationStatus::default()
    }
}

/// The patch of the status subresource that gives a BGPConfiguration this status; `None` if it has it already.
pub fn bgp_patch(object: &BGPConfiguration, wanted: &BGPConfigurationStatus) -> Option<Value> {
    status_patch(&object.metadata, object.status.as_ref(), wanted)
}

/// The patch that lets a deleted BGPConfiguration go; `None` if it is not ours that keeps it.
pub fn bgp_release(object: &BGPConfiguration) -> Option<Value> {
    let metadata = &object.metadata;
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    if metadata.deletion_timestamp.is_none() || !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        return None;
    }
    let others: Vec<_> = finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).collect();
    let (version, uid) = (&metadata.resource_version, &metadata.uid);
    Some(json!({"metadata": {"resourceVersion": version, "uid": uid, "finalizers": others}}))
}

/// Whether all of the object is in use, in one word and one sentence.
fn verdict(reading: &BgpReading, earlier: bool, ignored: Option<&Reason>) -> (bool, &'static str, String) {
    if let Some(reason) = ignored {
        return (false, reason.name(), reason.to_string());
    }
    let said = |problem: &Problem| format!("{}: {}", problem.field, problem.reason);
    let reading = &reading.reading;
    if let Some((first, more)) = reading.problems.split_first() {
        let sentences: Vec<_> = std::iter::once(first).chain(more).map(said).collect();
        let rest = match reading.value {
            _ if earlier => "the last valid form of the object is in use",
            Some(_) => "the rest is in use",
            None => "nodes keep the configuration they had, if any",
        };
        return (false, first.reason.name(), format!("{}; {rest}", sentences.join("; ")));
    }
    let message = match reading.warnings.first() {
        Some(warning) => format!("BGPConfiguration parsed with a warning: {}", said(warning)),
        None => "BGPConfiguration parsed successfully; BGPNodeStatus objects show the sessions".to_owned(),
    };
    (true, "ReconcileSuccess", message)
}

/// The identifier, if it is the same on all nodes.
fn explicit_id(reading: &BgpReading, ignored: Option<&Reason>) -> Option<std::net::Ipv4Addr> {
    match reading.reading.value.as_ref().filter(|_| ignored.is_none())?.router_id {
        RouterIdWish::Explicit(id) => Some(id),
        _ => None,
    }
}

fn unsupported(reading: &BgpReading) -> Option<Reason> {
    let fields = &reading.unsupported;
    (!fields.is_empty()).then(|| Reason::UnsupportedFields { fields: fields.join(", ") })
}

#[cfg(test)]
mod tests;
