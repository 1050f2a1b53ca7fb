//! What PureLB writes to a Service: annotations, addresses and condition in one patch of its status.
//!
//! The API server lets annotations through with the status, so nobody ever sees an address without its brand.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as KubeCondition, Time};
use purelb_core::alloc::Wish;
use purelb_core::service::{Brand, Condition};
use serde_json::{Map, Value, json};

use super::stored;
use crate::annotations::{ADDRESS_ASSIGNED, BRAND, RE_EVALUATE, TRUE};
use crate::read::ServiceRecord;
use crate::read::service::{AGENTS, OWN, with_term};

/// The patch of `services/status` that makes a Service as it is wished.
///
/// While a Service has no address its condition names the allocator's term, so that writing the same wish in a new term
/// changes the object, and a write that is still on its way from an earlier term fails.
pub fn service_patch(record: &ServiceRecord, wish: &Wish, term: u64, now: Timestamp) -> Value {
    let term = wish.addrs.is_empty().then_some(term);
    let ingress: Vec<_> = wish.addrs.iter().map(|addr| json!({"ip": addr.to_string(), "ipMode": "VIP"})).collect();
    let ingress = if ingress.is_empty() { Value::Null } else { ingress.into() };
    json!({
        "metadata": metadata(record, annotations(record, &wish.brand)),
        "status": {
            "loadBalancer": {"ingress": ingress},
            "conditions": conditions(record, Some(own_condition(record, &wish.condition, term, now))),
        },
    })
}

/// The patch of `services/status` that changes nothing but the term in the condition.
///
/// It is for a new leader that has not decided anything yet: a Service that no allocator has looked at is pending.
pub fn touch_patch(record: &ServiceRecord, term: u64, now: Timestamp) -> Value {
    let condition = record.view.condition.clone().unwrap_or_else(|| Condition {
        assigned: !record.view.addresses().is_empty(),
        reason: "Pending".to_owned(),
        message: "the allocator has not looked at this Service yet".to_owned(),
    });
    json!({
        "metadata": metadata(record, Map::new()),
        "status": {"conditions": conditions(record, Some(own_condition(record, &condition, Some(term), now)))},
    })
}

/// The patch of `services/status` that takes everything of ours off a Service that is no LoadBalancer any more, that of
/// node agents included: they do not see such a Service.
///
/// `None` if there is nothing of ours on it.
pub fn released_patch(record: &ServiceRecord) -> Option<Value> {
    if !record.is_marked() {
        return None;
    }
    let mut status = json!({"conditions": conditions(record, None)});
    if record.view.brand.ours && !record.view.ingress.is_empty() {
        status["loadBalancer"] = json!({"ingress": null});
    }
    let mut changes = annotations(record, &Brand::default());
    let agents = AGENTS.into_iter().zip(record.agents).filter(|(_, there)| *there);
    changes.extend(agents.map(|(key, _)| (key.to_owned(), Value::Null)));
    Some(json!({"metadata": metadata(record, changes), "status": status}))
}

/// The patch of `services/status` that sets these annotations of node agents, or takes them off.
pub fn announcing_patch(record: &ServiceRecord, changes: Vec<(&'static str, Option<String>)>) -> Value {
    let changes = changes.into_iter().map(|(key, text)| (key.to_owned(), text.into()));
    json!({"metadata": metadata(record, changes.collect())})
}

/// The object and version the patch is meant for, with the annotations to change.
fn metadata(record: &ServiceRecord, annotations: Map<String, Value>) -> Value {
    let mut metadata = json!({"resourceVersion": record.resource_version, "uid": record.view.uid});
    if !annotations.is_empty() {
        metadata["annotations"] = annotations.into();
    }
    metadata
}

/// Our annotations as they should be; null for those that are there and should not.
fn annotations(record: &ServiceRecord, brand: &Brand) -> Map<String, Value> {
    let wanted = [
        brand.ours.then(|| BRAND.to_owned()),
        brand.from.clone(),
        brand.pool_type.clone(),
        brand.skip_ipv6_dad.then(|| TRUE.to_owned()),
    ];
    let mut changes = Map::new();
    for ((key, value), there) in OWN.into_iter().zip(wanted).zip(record.own) {
        if value.is_some() || there {
            changes.insert(key.to_owned(), value.into());
        }
    }
    if record.view.asks.re_evaluate {
        changes.insert(RE_EVALUATE.to_owned(), Value::Null);
    }
    changes
}

/// The whole list, others' conditions first; a merge patch knows no way to change one item.
fn conditions(record: &ServiceRecord, own: Option<KubeCondition>) -> Value {
    let own = own.map(|own| json!(own));
    let all: Vec<_> = record.other_conditions.iter().cloned().chain(own).collect();
    if all.is_empty() { Value::Null } else { json!(all) }
}

fn own_condition(record: &ServiceRecord, wanted: &Condition, term: Option<u64>, now: Timestamp) -> KubeCondition {
    let unchanged = record.view.condition.as_ref().is_some_and(|before| before.assigned == wanted.assigned);
    let since = record.since.filter(|_| unchanged).unwrap_or(now);
    KubeCondition {
        type_: ADDRESS_ASSIGNED.to_owned(),
        status: if wanted.assigned { "True" } else { "False" }.to_owned(),
        reason: wanted.reason.clone(),
        message: term.map_or_else(|| wanted.message.clone(), |term| with_term(&wanted.message, term)),
        last_transition_time: Time(stored(since)),
        observed_generation: None,
    }
}

#[cfg(test)]
mod tests;
