//! The forms a ServiceGroup may be used in: the one written now, and, if an edit broke it, the last that was valid.

use purelb_core::group::{Forms, Group};
use purelb_core::reason::Problem;

use super::{GroupObject, Reading, group};
use crate::last_valid::LastValid;
use crate::service_group::{ServiceGroup, ServiceGroupSpec};

/// A group in all its forms, with what is to be said of it as it is written now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupReading {
    /// The forms; which of them is in use depends on the other groups.
    pub forms: Forms,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
    /// What is in use, but likely not what the author meant.
    pub warnings: Vec<Problem>,
}

/// Reads a group. `kept` is the form it had when it was last in use with nothing wrong.
pub fn group_forms(read: &GroupObject, kept: Option<&LastValid>) -> GroupReading {
    let Reading { value, mut problems, warnings } = group(&read.object);
    problems.splice(0..0, read.unread.iter().cloned());
    let earlier = kept.and_then(|kept| earlier(&read.object, kept));
    let forms = Forms { sound: value.is_some() && problems.is_empty(), written: value, earlier };
    GroupReading { forms, problems, warnings }
}

/// The form that is kept in a group's status.
pub fn kept_form(read: &GroupObject) -> Option<&LastValid> {
    read.object.status.as_ref()?.last_valid.as_ref()
}

/// The form that is written now, to be kept in the group's status once it is in use with nothing wrong.
pub fn written_form(read: &GroupObject) -> Option<LastValid> {
    let spec = serde_json::to_value(&read.object.spec).ok()?;
    Some(LastValid { generation: read.object.metadata.generation.unwrap_or_default(), spec })
}

/// An earlier form; nothing if that cannot be read either, whoever wrote it.
fn earlier(object: &ServiceGroup, kept: &LastValid) -> Option<Group> {
    let spec: ServiceGroupSpec = serde_json::from_value(kept.spec.clone()).ok()?;
    let earlier = ServiceGroup { metadata: object.metadata.clone(), spec, status: None };
    let reading = group(&earlier);
    reading.value.filter(|_| reading.problems.is_empty())
}

#[cfg(test)]
mod tests;
