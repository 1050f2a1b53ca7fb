//! The EndpointSlices of a Service: what a cluster's controller writes, from the pods and their readiness.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::proxy::{Front, Target};

/// What names the Service of a slice.
pub const SERVICE: &str = "kubernetes.io/service-name";
/// What says that a slice is ours to keep.
pub const KEPT_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Our name in it.
pub const KEEPER: &str = "purelb-demo";

/// A pod that runs.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Value,
    /// Its node.
    pub node: String,
    /// Its addresses, one per family.
    pub addresses: [IpAddr; 2],
    /// Whether it answers.
    pub ready: bool,
    /// Whether it was deleted and only finishes its work.
    pub leaving: bool,
}

/// The slices that a Service should have, one per family.
pub fn slices(service: &Value, pods: &[Pod]) -> Vec<Value> {
    let Some(selector) = service["spec"]["selector"].as_object() else { return Vec::new() };
    let namespace = &service["metadata"]["namespace"];
    let fits =
        |pod: &&Pod| namespace == &pod.namespace && selector.iter().all(|(label, value)| &pod.labels[label] == value);
    let chosen: Vec<&Pod> = pods.iter().filter(fits).collect();
    let families = service["spec"]["ipFamilies"].as_array().into_iter().flatten();
    families.map(|family| slice(service, family.as_str().unwrap_or("IPv4"), &chosen)).collect()
}

fn slice(service: &Value, family: &str, pods: &[&Pod]) -> Value {
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{name}-{}", family.to_lowercase()),
            "namespace": service["metadata"]["namespace"],
            "labels": {SERVICE: name, KEPT_BY: KEEPER},
        },
        "addressType": family,
        "endpoints": pods.iter().map(|pod| endpoint(pod, family)).collect::<Vec<_>>(),
        "ports": ports(service),
    })
}

fn endpoint(pod: &Pod, family: &str) -> Value {
    let address = pod.addresses[usize::from(family == "IPv6")];
    json!({
        "addresses": [address],
        "nodeName": pod.node,
        "conditions": {"ready": pod.ready && !pod.leaving, "serving": pod.ready, "terminating": pod.leaving},
        "targetRef": {"kind": "Pod", "namespace": pod.namespace, "name": pod.name},
    })
}

fn ports(service: &Value) -> Vec<Value> {
    let port = |port: &Value| {
        let target = port["targetPort"].as_u64().or(port["port"].as_u64());
        json!({"name": port["name"].as_str().unwrap_or_default(), "protocol": port["protocol"], "port": target})
    };
    service["spec"]["ports"].as_array().into_iter().flatten().map(port).collect()
}

/// What the proxies must know of a Service: each of its ports with the back-ends that its slices name.
pub fn fronts(service: &Value, slices: &[Value]) -> Vec<Front> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let meta = &service["metadata"];
    let own = |slice: &&Value| {
        slice["metadata"]["labels"][SERVICE] == meta["name"] && slice["metadata"]["namespace"] == meta["namespace"]
    };
    let own: Vec<&Value> = slices.iter().filter(own).collect();
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
    let addresses: Vec<IpAddr> = ingress.filter_map(|entry| entry["ip"].as_str()?.parse().ok()).collect();
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports
        .filter(|_| !addresses.is_empty())
        .map(|port| Front {
            service: format!("{}/{}", text(&meta["namespace"]), text(&meta["name"])),
            addresses: addresses.clone(),
            protocol: text(&port["protocol"]).to_lowercase(),
            port: number(&port["port"]),
            local: service["spec"]["externalTrafficPolicy"] == "Local",
            backends: own.iter().flat_map(|slice| targets(slice, &text(&port["name"]))).collect(),
        })
        .collect()
}

fn targets(slice: &Value, port: &str) -> Vec<Target> {
    let ports = slice["ports"].as_array().into_iter().flatten();
    let ports: Vec<u16> =
        ports.filter(|one| one["name"].as_str().unwrap_or_default() == port).map(|one| number(&one["port"])).collect();
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let serving = endpoints.filter(|endpoint| endpoint["conditions"]["serving"] != false);
    serving
        .flat_map(|endpoint| {
            let addresses = endpoint["addresses"].as_array().into_iter().flatten();
            let addresses = addresses.filter_map(|address| address.as_str()?.parse().ok());
            let node = endpoint["nodeName"].as_str().unwrap_or_default();
            let ready = endpoint["conditions"]["ready"] != false;
            let each = addresses.flat_map(|address| ports.iter().map(move |port| (address, *port)));
            let each = each.map(|(address, port)| Target { address, port, node: node.to_owned(), ready });
            each.collect::<Vec<_>>()
        })
        .collect()
}

fn number(value: &Value) -> u16 {
    value.as_u64().and_then(|number| u16::try_from(number).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Value {
        json!({
            "metadata": {"name": "kuard", "namespace": "test"},
            "spec": {
                "selector": {"app": "kuard"},
                "ipFamilies": ["IPv4", "IPv6"],
                "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}],
                "externalTrafficPolicy": "Local",
            },
            "status": {"loadBalancer": {"ingress": [{"ip": "172.32.100.225"}]}},
        })
    }

    fn pod(name: &str, app: &str, ready: bool, leaving: bool) -> Pod {
        Pod {
            namespace: "test".into(),
            name: name.into(),
            labels: json!({"app": app}),
            node: "node1".into(),
            addresses: ["10.1.1.2".parse().unwrap(), "fd98:0:0:1::2".parse().unwrap()],
            ready,
            leaving,
        }
    }

    #[test]
    fn each_family_has_a_slice_of_the_pods_that_the_selector_names() {
        let made = slices(&service(), &[pod("one", "kuard", true, false), pod("other", "web", true, false)]);
        assert_eq!(made.len(), 2);
        assert_eq!(
            (&made[0]["metadata"]["name"], &made[1]["metadata"]["name"]),
            (&json!("kuard-ipv4"), &json!("kuard-ipv6"))
        );
        for (slice, address) in made.iter().zip(["10.1.1.2", "fd98:0:0:1::2"]) {
            assert_eq!(slice["endpoints"].as_array().unwrap().len(), 1);
            assert_eq!(slice["endpoints"][0]["addresses"], json!([address]));
            assert_eq!(slice["endpoints"][0]["nodeName"], "node1");
            assert_eq!(slice["ports"], json!([{"name": "", "protocol": "TCP", "port": 8080}]));
        }
    }

    #[test]
    fn a_pod_that_does_not_answer_serves_nobody_and_one_that_leaves_is_the_last_resort() {
        let made = slices(&service(), &[pod("dead", "kuard", false, false), pod("leaving", "kuard", true, true)]);
        let [front] = &fronts(&service(), &made)[..] else { panic!("one port") };
        let v4: Vec<&Target> = front.backends.iter().filter(|target| target.address.is_ipv4()).collect();
        let [leaving] = v4[..] else { panic!("only the one that serves: {v4:?}") };
        assert!(!leaving.ready && front.local);
        assert_eq!((leaving.port, front.port, &*front.protocol), (8080, 80, "tcp"));
    }

    #[test]
    fn a_service_without_an_address_has_no_front() {
        let mut waiting = service();
        waiting["status"] = json!({});
        assert_eq!(fronts(&waiting, &[]), []);
    }
}
