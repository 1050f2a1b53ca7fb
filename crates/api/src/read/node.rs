//! The addresses of a Node, which are never given to a Service, and its labels.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

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
    fn a_node_that_has_just_joined_has_no_address_yet() {
        assert_eq!(
            node(&Node::default()),
            NodeView { name: String::new(), addresses: vec![], labels: BTreeMap::new() }
        );
    }
}
