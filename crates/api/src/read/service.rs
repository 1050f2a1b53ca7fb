//! From a Service to what decisions need of it; whole Services are not kept, so that 10,000 of them stay small.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, ServicePort, ServiceSpec};
use kube::ResourceExt;
use purelb_core::addr::Family;
use purelb_core::pool::{Port, Protocol, ServiceKey};
use purelb_core::service::{Asks, Brand, Condition, Ingress, ServiceView};
use serde_json::Value;

use super::ServiceObject;
use crate::annotations::{
    ADDRESS_ASSIGNED, ADDRESSES, ALLOCATED_BY, ALLOCATED_FROM, ALLOW_SHARED_IP, ANNOUNCING, ANNOUNCING_IPV4,
    ANNOUNCING_IPV6, ANNOUNCING_UNKNOWN, BRAND, MULTI_POOL, POLICY_REWRITTEN, POOL_TYPE, RE_EVALUATE, SERVICE_GROUP,
    SKIP_IPV6_DAD, TRUE,
};

/// The Services that a cluster's own parts need and that PureLB never touches, whatever they say.
const IGNORED: [&str; 4] =
    ["default/kubernetes", "kube-system/kube-dns", "kube-system/kube-controller-manager", "kube-system/kube-scheduler"];

/// The annotations that only the allocator writes.
pub(crate) const OWN: [&str; 4] = [ALLOCATED_BY, ALLOCATED_FROM, POOL_TYPE, SKIP_IPV6_DAD];

/// The annotations that node agents write, of this release and of earlier ones.
pub(crate) const AGENTS: [&str; 5] =
    [ANNOUNCING, ANNOUNCING_IPV4, ANNOUNCING_IPV6, ANNOUNCING_UNKNOWN, POLICY_REWRITTEN];

/// What stands between a condition's sentence and the term of the allocator that wrote it.
const TERM: (&str, &str) = (" (allocator term ", ")");

/// A Service as decisions see it, with what is needed to write to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRecord {
    /// What decisions need.
    pub view: ServiceView,
    /// The version that was read; a write that names it fails if somebody was faster.
    pub resource_version: String,
    /// The conditions of others as they are, kept because a merge patch replaces the whole list.
    pub other_conditions: Vec<Value>,
    /// Since when PureLB's own condition has had its status.
    pub since: Option<Timestamp>,
    /// The term of the allocator that last wrote the condition, if it said so.
    pub term: Option<u64>,
    /// Who announces the addresses, as node agents have written it: `purelb.io/announcing-IPv4` and `-IPv6`.
    pub announcing: BTreeMap<&'static str, String>,
    /// `spec.externalTrafficPolicy: Local`.
    pub external_traffic_policy_local: bool,
    /// Which of [`OWN`] are there, whatever they say.
    pub(crate) own: [bool; OWN.len()],
    /// Which of [`AGENTS`] are there, whatever they say.
    pub(crate) agents: [bool; AGENTS.len()],
}

impl ServiceRecord {
    /// Whether something on the Service is PureLB's: an annotation, or the condition.
    pub fn is_marked(&self) -> bool {
        self.own.contains(&true) || self.agents.contains(&true) || self.view.condition.is_some()
    }
}

/// Whether PureLB passes a Service over by its `namespace/name` alone.
pub fn is_ignored(key: &str) -> bool {
    IGNORED.contains(&key)
}

/// The `spec.type` of a Service, which the API server never leaves out.
pub fn service_type(object: &ServiceObject) -> &str {
    object.spec.as_ref().and_then(|spec| spec.type_.as_deref()).unwrap_or("ClusterIP")
}

/// Reads a Service.
pub fn service(object: &ServiceObject) -> ServiceRecord {
    let none = (ServiceSpec::default(), BTreeMap::new());
    let spec = object.spec.as_ref().unwrap_or(&none.0);
    let annotations = object.metadata.annotations.as_ref().unwrap_or(&none.1);
    let own_condition = conditions(object).find(|condition| condition["type"] == ADDRESS_ASSIGNED);
    let (condition, term) = own_condition.map(condition).unzip();
    ServiceRecord {
        view: ServiceView {
            key: key(object),
            uid: object.metadata.uid.clone().unwrap_or_default(),
            class: spec.load_balancer_class.clone(),
            has_cluster_ip: spec.cluster_ip.as_deref().is_some_and(|addr| addr.parse::<IpAddr>().is_ok()),
            is_leaving: object.metadata.deletion_timestamp.is_some(),
            families: families(spec),
            prefers_dual_stack: spec.ip_family_policy.as_deref() == Some("PreferDualStack"),
            ports: spec.ports.iter().flatten().filter_map(port).collect(),
            load_balancer_ip: spec.load_balancer_ip.clone().filter(|text| !text.is_empty()),
            asks: asks(annotations),
            brand: brand(annotations),
            ingress: ingress(object),
            condition,
        },
        resource_version: object.metadata.resource_version.clone().unwrap_or_default(),
        other_conditions: conditions(object)
            .filter(|condition| condition["type"] != ADDRESS_ASSIGNED)
            .cloned()
            .collect(),
        since: own_condition.and_then(|condition| text(condition, "lastTransitionTime").parse().ok()),
        term: term.flatten(),
        announcing: announcing(annotations),
        external_traffic_policy_local: spec.external_traffic_policy.as_deref() == Some("Local"),
        own: OWN.map(|key| annotations.contains_key(key)),
        agents: AGENTS.map(|key| annotations.contains_key(key)),
    }
}

/// A sentence that also says in which term it was written, so that the same sentence of another term is another text.
pub(crate) fn with_term(sentence: &str, term: u64) -> String {
    format!("{sentence}{}{term}{}", TERM.0, TERM.1)
}

/// The sentence without its term, and the term.
fn without_term(message: &str) -> (&str, Option<u64>) {
    let parts = message.strip_suffix(TERM.1).and_then(|rest| rest.rsplit_once(TERM.0));
    match parts.and_then(|(sentence, term)| Some((sentence, term.parse().ok()?))) {
        Some((sentence, term)) => (sentence, Some(term)),
        None => (message, None),
    }
}

pub(super) fn key(object: &ServiceObject) -> ServiceKey {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any()).into()
}

fn conditions(object: &ServiceObject) -> impl Iterator<Item = &Value> {
    object.status.iter().flat_map(|status| status.conditions.iter().flatten())
}

fn condition(written: &Value) -> (Condition, Option<u64>) {
    let (message, term) = without_term(text(written, "message"));
    let assigned = written["status"] == "True";
    (Condition { assigned, reason: text(written, "reason").to_owned(), message: message.to_owned() }, term)
}

fn text<'a>(condition: &'a Value, field: &str) -> &'a str {
    condition[field].as_str().unwrap_or_default()
}

fn families(spec: &ServiceSpec) -> Vec<Family> {
    let mut families = Vec::new();
    for text in spec.ip_families.iter().flatten() {
        let family = match text.as_str() {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            _ => continue,
        };
        if !families.contains(&family) {
            families.push(family);
        }
    }
    families
}

fn port(port: &ServicePort) -> Option<Port> {
    let protocol = match port.protocol.as_deref() {
        None | Some("TCP" | "") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(_) => return None,
    };
    Some(Port { protocol, number: u16::try_from(port.port).ok()? })
}

fn asks(annotations: &BTreeMap<String, String>) -> Asks {
    Asks {
        group: annotations.get(SERVICE_GROUP).cloned(),
        addresses: annotations.get(ADDRESSES).cloned(),
        sharing_key: annotations.get(ALLOW_SHARED_IP).filter(|key| !key.is_empty()).map(|key| key.as_str().into()),
        multi_pool: annotations.get(MULTI_POOL).map(|value| value == TRUE),
        re_evaluate: annotations.get(RE_EVALUATE).is_some_and(|value| value == TRUE),
    }
}

fn announcing(annotations: &BTreeMap<String, String>) -> BTreeMap<&'static str, String> {
    let keys = [ANNOUNCING_IPV4, ANNOUNCING_IPV6].into_iter();
    keys.filter_map(|key| Some((key, annotations.get(key)?.clone()))).collect()
}

fn brand(annotations: &BTreeMap<String, String>) -> Brand {
    Brand {
        ours: annotations.get(ALLOCATED_BY).is_some_and(|value| value == BRAND),
        from: annotations.get(ALLOCATED_FROM).cloned(),
        pool_type: annotations.get(POOL_TYPE).cloned(),
        skip_ipv6_dad: annotations.get(SKIP_IPV6_DAD).is_some_and(|value| value == TRUE),
    }
}

pub(super) fn ingress(object: &ServiceObject) -> Vec<Ingress> {
    let balancer = object.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.iter().flat_map(|balancer| balancer.ingress.iter().flatten()).map(entry).collect()
}

fn entry(entry: &LoadBalancerIngress) -> Ingress {
    let addr = entry.ip.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
    let bare = entry.hostname.as_deref().is_none_or(str::is_empty) && entry.ports.as_ref().is_none_or(Vec::is_empty);
    // Kubernetes 1.29 takes the mode and does not keep it; what it does with such an address is what VIP means.
    let vip = entry.ip_mode.as_deref().is_none_or(|mode| mode == "VIP");
    Ingress { addr: addr.map(|addr| addr.to_canonical()), plain: bare && vip }
}

#[cfg(test)]
mod tests;
