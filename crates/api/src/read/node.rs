//! The addresses of a Node, which are never given to a Service, and its labels.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use purelb_core::bgp::NodeFacts;

/// A Node, reduced to what the allocator needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The Node's name.
    pub name: String,
    /// Its addresses, each once; IPv4-mapped ones as IPv4.
    pub addresses: Vec<IpAddr>,
    /// Its labels, which LBNodeAgents select by.
    pub labels: BTreeMap<String, String>,
}

/// Reads a Node.
///
/// The kind of an address does not matter: some clusters write an IP as the `Hostname`, and it is the Node's all the same.
pub fn node(object: &Node) -> NodeView {
    let listed = object.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let mut addresses = Vec::new();
    for addr in listed.filter_map(|listed| listed.address.trim().parse::<IpAddr>().ok()) {
        let addr = addr.to_canonical();
        if !addresses.contains(&addr) {
            addresses.push(addr);
        }
    }
    NodeView { name: object.name_any(), addresses, labels: object.labels().clone() }
}

/// Reads what BGP needs of a Node.
pub fn node_facts(object: &Node) -> NodeFacts {
    let listed = || object.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let of_type = |wanted: &str| {
        let found = listed().filter(|listed| listed.type_ == wanted);
        found.filter_map(|listed| listed.address.trim().parse().ok()).collect()
    };
    NodeFacts {
        name: object.name_any(),
        labels: object.labels().clone(),
        annotations: object.annotations().clone(),
        internal: of_type("InternalIP"),
        external: of_type("ExternalIP"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_address_of_a_node_counts_once_whatever_its_kind() {
        let object = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"},
            "status": {"addresses": [
                {"type": "InternalIP", "address": "192.0.2.1"},
                {"type": "ExternalIP", "address": "::ffff:192.0.2.1"},
                {"type": "InternalIP", "address": "2001:DB8::1"},
                {"type": "Hostname", "address": "node-1"},
                {"type": "Hostname", "address": "198.51.100.1"},
                {"type": "InternalDNS", "address": ""},
            ]},
        });
        let view = node(&serde_json::from_value(object).unwrap());
        let addresses: Vec<_> = view.addresses.iter().map(IpAddr::to_string).collect();
        assert_eq!(view.name, "node-1");
        assert_eq!(addresses, ["192.0.2.1", "2001:db8::1", "198.51.100.1"]);
    }

    #[test]
    fn bgp_tells_internal_from_external_addresses() {
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "node-1", "labels": {"rack": "1"}, "annotations": {"example.org/router-id": "10.0.0.1"}},
            "status": {"addresses": [
                {"type": "ExternalIP", "address": "198.51.100.1"},
                {"type": "InternalIP", "address": "2001:db8::1"},
                {"type": "InternalIP", "address": "192.0.2.1"},
                {"type": "Hostname", "address": "192.0.2.9"},
            ]},
        });
        let facts = node_facts(&serde_json::from_value(object).unwrap());
        let texts = |addresses: &[IpAddr]| addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&facts.internal), ["2001:db8::1", "192.0.2.1"]);
        assert_eq!(texts(&facts.external), ["198.51.100.1"]);
        assert_eq!(
            (facts.labels["rack"].as_str(), facts.annotations["example.org/router-id"].as_str()),
            ("1", "10.0.0.1")
        );
    }

    #[test]
    fn a_node_that_has_just_joined_has_no_address_yet() {
        assert_eq!(
            node(&Node::default()),
            NodeView { name: String::new(), addresses: vec![], labels: BTreeMap::new() }
        );
    }
}
