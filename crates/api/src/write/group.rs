//! What PureLB writes to a ServiceGroup: its status, and only when it has changed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use purelb_core::report::{Finding, GroupReport};
use serde_json::{Map, Value, json};

use super::merge::difference;
use super::{shortened, stored};
use crate::service_group::{LastValid, ServiceGroup, ServiceGroupStatus};

/// The status that a report stands for.
///
/// A condition whose status is as it was in `previous` keeps its time; so the same report gives an equal status, and an
/// equal status is not written. Conditions of others are kept.
pub fn group_status(
    report: &GroupReport,
    previous: &[Condition],
    generation: Option<i64>,
    last_valid: Option<LastValid>,
    now: Timestamp,
) -> ServiceGroupStatus {
    let is_ours = |condition: &&Condition| report.findings.iter().any(|ours| ours.aspect.name() == condition.type_);
    let others = previous.iter().filter(|condition| !is_ours(condition)).cloned();
    let ours = report.findings.iter().map(|finding| condition(finding, previous, generation, now));
    ServiceGroupStatus {
        announce: report.announce.to_owned(),
        ipam: report.ipam.clone(),
        addresses: report.addresses.clone(),
        allocated_ipv4: report.v4.allocated,
        allocated_ipv6: report.v6.allocated,
        available_ipv4: report.v4.available,
        available_ipv6: report.v6.available,
        bound_namespaces: report.bound_namespaces.clone(),
        conditions: ours.chain(others).collect(),
        last_valid,
    }
}

/// The patch of the status subresource that gives a group this status; `None` if it has it already.
pub fn group_patch(object: &ServiceGroup, wanted: &ServiceGroupStatus) -> Option<Value> {
    if object.status.as_ref() == Some(wanted) {
        return None;
    }
    let before = object.status.as_ref().map(fields).unwrap_or_default();
    let metadata = json!({"resourceVersion": object.metadata.resource_version, "uid": object.metadata.uid});
    Some(json!({"metadata": metadata, "status": difference(&before, &fields(wanted))}))
}

fn fields(status: &ServiceGroupStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        // Plain data with text keys always becomes an object; an empty one would only write too much.
        _ => Map::new(),
    }
}

fn condition(finding: &Finding, previous: &[Condition], generation: Option<i64>, now: Timestamp) -> Condition {
    let (type_, status) = (finding.aspect.name(), word(finding.holds));
    let before = previous.iter().find(|before| before.type_ == type_ && before.status == status);
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: finding.reason.to_owned(),
        message: shortened(&finding.sentence),
        last_transition_time: before.map_or(Time(stored(now)), |before| before.last_transition_time.clone()),
        observed_generation: generation,
    }
}

fn word(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    }
}

#[cfg(test)]
mod tests;
