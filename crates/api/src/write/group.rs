//! What PureLB writes to a ServiceGroup: its status, and only when it has changed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use purelb_core::report::GroupReport;
use serde_json::Value;

use super::{Past, condition, status_patch};
use crate::last_valid::LastValid;
use crate::service_group::{ServiceGroup, ServiceGroupStatus};

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
    let past = Past { previous, generation, now };
    let ours = report
        .findings
        .iter()
        .map(|finding| condition(finding.aspect.name(), word(finding.holds), finding.reason, &finding.sentence, past));
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
    status_patch(&object.metadata, object.status.as_ref(), wanted)
}

fn word(holds: Option<bool>) -> &'static str {
    holds.map_or("Unknown", super::word)
}

#[cfg(test)]
mod tests;
