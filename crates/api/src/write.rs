//! From decisions to the patches that carry them out; nothing else in PureLB composes what it writes to an object.
//!
//! Every patch is a JSON merge patch that names the version it was decided on: if somebody was faster it fails, and
//! the object is looked at again.

mod agent;
mod bgp;
mod group;
mod merge;
mod node_status;
mod service;

pub use agent::{agent_patch, agent_status};
pub use bgp::{FINALIZER, bgp_patch, bgp_release, bgp_status};
pub use group::{group_patch, group_status};
pub(crate) use merge::difference;
pub use node_status::{node_status, node_status_object, node_status_patch};
pub use service::{announcing_patch, released_patch, service_patch, touch_patch};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::ObjectMeta;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The longest sentence of a condition, well inside what the schema allows: one that quotes a very long text must not
/// make the API server refuse the whole status.
const LONGEST_SENTENCE: usize = 4096;

fn shortened(sentence: &str) -> String {
    match sentence.char_indices().nth(LONGEST_SENTENCE) {
        Some((end, _)) => format!("{}…", &sentence[..end]),
        None => sentence.to_owned(),
    }
}

/// A moment as Kubernetes stores it, in whole seconds, so that what was written equals what is read back.
fn stored(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}

/// The patch of the status subresource that gives an object this status; `None` if it has it already.
fn status_patch<S: Serialize + PartialEq>(metadata: &ObjectMeta, before: Option<&S>, wanted: &S) -> Option<Value> {
    if before == Some(wanted) {
        return None;
    }
    let before = before.map(fields).unwrap_or_default();
    let version = json!({"resourceVersion": metadata.resource_version, "uid": metadata.uid});
    Some(json!({"metadata": version, "status": difference(&before, &fields(wanted))}))
}

fn fields<S: Serialize>(status: &S) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        // Plain data with text keys always becomes an object; an empty one would only write too much.
        _ => Map::new(),
    }
}

/// What a condition depends on besides what it says.
#[derive(Clone, Copy)]
struct Past<'a> {
    /// The conditions that the object shows.
    previous: &'a [Condition],
    /// The generation of the object that the condition is about.
    generation: Option<i64>,
    /// The time of a condition that changes now.
    now: Timestamp,
}

/// A condition. One whose status is as it was keeps its time, so that an equal status is not written.
fn condition(type_: &str, status: &str, reason: &str, message: &str, past: Past<'_>) -> Condition {
    let before = past.previous.iter().find(|before| before.type_ == type_ && before.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: shortened(message),
        last_transition_time: before.map_or(Time(stored(past.now)), |before| before.last_transition_time.clone()),
        observed_generation: past.generation,
    }
}

fn word(holds: bool) -> &'static str {
    if holds { "True" } else { "False" }
}
