//! From decisions to the patches that carry them out; nothing else in PureLB composes what it writes to an object.
//!
//! Every patch is a JSON merge patch that names the version it was decided on: if somebody was faster it fails, and
//! the object is looked at again.

mod agent;
mod group;
mod merge;
mod service;

pub use agent::{agent_patch, agent_status};
pub use group::{group_patch, group_status};
pub(crate) use merge::difference;
pub use service::{announcing_patch, released_patch, service_patch, touch_patch};

use jiff::Timestamp;

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
