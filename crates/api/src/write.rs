//! From decisions to the patches that carry them out; nothing else in PureLB composes what it writes to an object.
//!
//! Every patch is a JSON merge patch that names the version it was decided on: if somebody was faster it fails, and
//! the object is looked at again.

mod group;
mod merge;
mod service;

pub use group::{group_patch, group_status};
pub use service::{released_patch, service_patch, touch_patch};

use jiff::Timestamp;

/// A moment as Kubernetes stores it, in whole seconds, so that what was written equals what is read back.
fn stored(moment: Timestamp) -> Timestamp {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment)
}
