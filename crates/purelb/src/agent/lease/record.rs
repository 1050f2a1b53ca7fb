//! The Lease object as every PureLB agent writes and reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference};
use kube::api::ObjectMeta;
use purelb_api::annotations::{
    LEASE_ADDRESSES, LEASE_API_SERVERS, LEASE_CLAIMS, LEASE_GATEWAYS, LEASE_HOST, LEASE_INSTANCE, LEASE_PREFIX,
    LEASE_SAW, LEASE_SETTLED, LEASE_SUBNETS,
};

use super::Content;

/// The whole lease, as it should be after a renewal.
pub fn lease(node: &str, instance: &str, content: &Content, duration: Duration, now: Timestamp) -> Lease {
    let text = |pairs: &[(&str, String)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
    };
    let annotations = text(&[
        (LEASE_SUBNETS, subnets(content)),
        (LEASE_INSTANCE, instance.to_owned()),
        (LEASE_SAW, content.saw.to_string()),
        (LEASE_ADDRESSES, list(&content.addresses)),
        (LEASE_GATEWAYS, list(&content.gateways)),
        (LEASE_API_SERVERS, list(&content.api_servers)),
        // Always there, like the next two: a merge patch would leave an old one as it is.
        (LEASE_CLAIMS, list(&content.claims)),
        (LEASE_SETTLED, content.settled.to_string()),
        (LEASE_HOST, content.host.clone()),
    ]);
    let labels = text(&[
        ("app.kubernetes.io/component", "lbnodeagent".to_owned()),
        ("app.kubernetes.io/name", "purelb".to_owned()),
    ]);
    Lease {
        metadata: ObjectMeta {
            name: Some(format!("{LEASE_PREFIX}{node}")),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![owner(node, &content.owner)]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(node.to_owned()),
            lease_duration_seconds: Some(i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

fn list(addrs: &BTreeSet<IpAddr>) -> String {
    addrs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The subnets as the allocator and other agents compare them: byte order, commas, no blanks.
pub fn subnets(content: &Content) -> String {
    let mut texts: Vec<_> = content.subnets.iter().map(|subnet| subnet.trunc().to_string()).collect();
    texts.sort();
    texts.dedup();
    texts.join(",")
}

fn owner(node: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: uid.to_owned(),
        controller: Some(false),
        block_owner_deletion: Some(false),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn e09_the_lease_is_byte_for_byte_what_other_agents_expect() {
        let subnets = ["2001:db8::/64", "192.168.1.0/24", "10.0.0.0/24"].map(|text| text.parse().unwrap());
        let addresses = ["192.168.1.11", "2001:db8::11"].map(|text| text.parse().unwrap()).into();
        let claims = ["192.168.1.100", "2001:db8::100"].map(|text| text.parse().unwrap()).into();
        let content = Content {
            subnets: subnets.into(),
            claims,
            saw: 17,
            settled: true,
            host: "kernel-1".to_owned(),
            owner: "node-uid".to_owned(),
            addresses,
            gateways: ["192.168.1.1".parse().unwrap()].into(),
            api_servers: ["192.168.1.5".parse().unwrap()].into(),
        };
        let now = "2026-01-02T03:04:05.000006Z".parse().unwrap();
        let lease = lease("node-a", "pod-uid", &content, Duration::from_millis(10_900), now);
        let expected = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": "purelb-node-node-a",
                "labels": {"app.kubernetes.io/component": "lbnodeagent", "app.kubernetes.io/name": "purelb"},
                "annotations": {
                    "purelb.io/subnets": "10.0.0.0/24,192.168.1.0/24,2001:db8::/64",
                    "purelb.io/instance": "pod-uid",
                    "purelb.io/claims": "192.168.1.100,2001:db8::100",
                    "purelb.io/saw": "17",
                    "purelb.io/settled": "true",
                    "purelb.io/host": "kernel-1",
                    "purelb.io/node-addresses": "192.168.1.11,2001:db8::11",
                    "purelb.io/gateways": "192.168.1.1",
                    "purelb.io/api-servers": "192.168.1.5",
                },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "node-uid",
                    "controller": false, "blockOwnerDeletion": false,
                }],
            },
            "spec": {
                "holderIdentity": "node-a",
                "leaseDurationSeconds": 10,
                "renewTime": "2026-01-02T03:04:05.000006Z",
            },
        });
        assert_eq!(serde_json::to_value(lease).unwrap(), expected);
    }

    #[test]
    fn e09_a_node_without_subnets_says_so() {
        let lease = lease("node-a", "", &Content::default(), Duration::from_secs(5), Timestamp::UNIX_EPOCH);
        let annotations = lease.metadata.annotations.unwrap();
        assert_eq!((&*annotations["purelb.io/subnets"], &*annotations["purelb.io/claims"]), ("", ""));
    }
}
