//! From a Service to what a node agent needs of it.

use kube::ResourceExt;
use purelb_core::want::AgentService;

use super::service::{is_ignored, key};
use super::{ServiceObject, service_type};
use crate::annotations::{
    ALLOCATED_BY, ALLOCATED_FROM, ALLOW_LOCAL, ALLOW_SHARED_IP, ANNOUNCING_IPV4, ANNOUNCING_IPV6, BRAND, NODE_AFFINITY,
    NODE_AFFINITY_ENDPOINTS, POLICY_REWRITTEN, POOL_TYPE, SKIP_IPV6_DAD, TRUE,
};

/// Reads a Service. Only one that PureLB gave its addresses is an agent's business, whatever addresses others have.
pub fn agent_service(object: &ServiceObject) -> AgentService {
    let annotations = object.annotations();
    let text = |name: &str| annotations.get(name).cloned();
    let says = |name: &str, value: &str| annotations.get(name).is_some_and(|text| text == value);
    let policy = object.spec.as_ref().and_then(|spec| spec.external_traffic_policy.as_deref());
    let key = key(object);
    AgentService {
        ours: service_type(object) == "LoadBalancer" && says(ALLOCATED_BY, BRAND) && !is_ignored(&key),
        key,
        addrs: addrs(object),
        policy_local: policy == Some("Local"),
        allow_local: annotations.contains_key(ALLOW_LOCAL),
        shared: annotations.contains_key(ALLOW_SHARED_IP),
        affinity: says(NODE_AFFINITY, NODE_AFFINITY_ENDPOINTS),
        skip_ipv6_dad: says(SKIP_IPV6_DAD, TRUE),
        pool_type: text(POOL_TYPE),
        from: text(ALLOCATED_FROM),
        announcing: [text(ANNOUNCING_IPV4), text(ANNOUNCING_IPV6)],
        policy_rewritten: annotations.contains_key(POLICY_REWRITTEN),
    }
}

/// The addresses in the status, each once, in order.
fn addrs(object: &ServiceObject) -> Vec<std::net::IpAddr> {
    let mut addrs = Vec::new();
    for addr in super::service::ingress(object).iter().filter_map(|entry| entry.addr) {
        if !addrs.contains(&addr) {
            addrs.push(addr);
        }
    }
    addrs
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn read(annotations: Value, spec: Value) -> AgentService {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "annotations": annotations}, "spec": spec,
            "status": {"loadBalancer": {"ingress": [
                {"ip": "192.0.2.1"}, {"ip": "2001:DB8::1"}, {"ip": "::ffff:192.0.2.1"}, {"hostname": "x"}, {"ip": "?"},
            ]}},
        });
        agent_service(&serde_json::from_value(object).unwrap())
    }

    fn balanced() -> Value {
        json!({"type": "LoadBalancer"})
    }

    #[test]
    fn an_agent_sees_addresses_policy_and_annotations() {
        let annotations = json!({
            "purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "edge", "purelb.io/pool-type": "local",
            "purelb.io/allow-local": "false", "purelb.io/allow-shared-ip": "", "purelb.io/skip-ipv6-dad": "true",
            "purelb.io/node-affinity": "service-endpoints", "purelb.io/announcing-IPv4": "a,eth0,192.0.2.1",
            "purelb.io/traffic-policy-rewritten": "7",
        });
        let seen = read(annotations, json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}));
        let expected = AgentService {
            key: "shop/web".into(),
            ours: true,
            addrs: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            policy_local: true,
            allow_local: true,
            shared: true,
            affinity: true,
            skip_ipv6_dad: true,
            pool_type: Some("local".to_owned()),
            from: Some("edge".to_owned()),
            announcing: [Some("a,eth0,192.0.2.1".to_owned()), None],
            policy_rewritten: true,
        };
        assert_eq!(seen, expected);
    }

    #[rstest]
    #[case::b3_i03_no_annotations(json!(null), balanced())]
    #[case::another_brand(json!({"purelb.io/allocated-by": "purelb"}), balanced())]
    #[case::b5_another_type(json!({"purelb.io/allocated-by": "PureLB"}), json!({"type": "ClusterIP"}))]
    #[case::no_spec(json!({"purelb.io/allocated-by": "PureLB"}), json!(null))]
    fn other_services_are_not_ours(#[case] annotations: Value, #[case] spec: Value) {
        assert!(!read(annotations, spec).ours);
    }

    #[rstest]
    #[case(json!(null), false)]
    #[case(json!({"purelb.io/skip-ipv6-dad": "true"}), true)]
    #[case(json!({"purelb.io/skip-ipv6-dad": "false"}), false)]
    fn a12_only_true_skips_duplicate_address_detection(#[case] annotations: Value, #[case] skips: bool) {
        assert_eq!(read(annotations, balanced()).skip_ipv6_dad, skips);
    }

    #[rstest]
    #[case(json!(null), false)]
    #[case(json!({"purelb.io/node-affinity": "other"}), false)]
    #[case(json!({"purelb.io/node-affinity": "service-endpoints"}), true)]
    fn a13_one_value_asks_for_affinity(#[case] annotations: Value, #[case] asks: bool) {
        assert_eq!(read(annotations, balanced()).affinity, asks);
    }
}
