//! Which form of a ServiceGroup is in use: the one written now, or, if an edit broke it, the last that was valid.

use purelb_core::group::Group;

use super::{GroupObject, Reading, group};
use crate::last_valid::LastValid;
use crate::service_group::{ServiceGroup, ServiceGroupSpec};

/// Reads the form of a group that is in use, and says whether it is an earlier one.
///
/// The problems and warnings are always those of the group as it is written now. Where it has problems and no earlier
/// form is known, what is usable of it is in use.
pub fn group_in_force(read: &GroupObject) -> (Reading<Group>, bool) {
    let mut now = group(&read.object);
    now.problems.splice(0..0, read.unread.iter().cloned());
    if now.problems.is_empty() {
        return (now, false);
    }
    match earlier(&read.object) {
        Some(value) => (Reading { value: Some(value), ..now }, true),
        None => (now, false),
    }
}

/// The form to keep in the group's status: the one written now if nothing is wrong with it, else the one kept so far.
pub fn last_valid(read: &GroupObject) -> Option<LastValid> {
    let object = &read.object;
    let now = group(object);
    if now.value.is_none() || !now.problems.is_empty() || !read.unread.is_empty() {
        return kept(object).cloned();
    }
    let spec = serde_json::to_value(&object.spec).ok()?;
    Some(LastValid { generation: object.metadata.generation.unwrap_or_default(), spec })
}

fn kept(object: &ServiceGroup) -> Option<&LastValid> {
    object.status.as_ref()?.last_valid.as_ref()
}

/// The form kept in the status; nothing if that cannot be read either, whoever wrote it.
fn earlier(object: &ServiceGroup) -> Option<Group> {
    let spec: ServiceGroupSpec = serde_json::from_value(kept(object)?.spec.clone()).ok()?;
    let earlier = ServiceGroup { metadata: object.metadata.clone(), spec, status: None };
    let reading = group(&earlier);
    reading.value.filter(|_| reading.problems.is_empty())
}

#[cfg(test)]
mod tests;
