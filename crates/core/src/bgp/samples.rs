//! Things that tests are about.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// A configuration without neighbors.
pub fn configuration() -> Configuration {
    Configuration {
        namespace: "purelb-system".to_owned(),
        name: "default".to_owned(),
        asn: 64512,
        router_id: RouterIdWish::Automatic,
        router_id_pool: "10.255.0.0/16".parse().unwrap(),
        listen: Some(Listen { port: PORT, addresses: Vec::new() }),
        node_status: NodeStatus::default(),
        import: Import { enabled: true, interfaces: vec!["kube-lb0".to_owned()] },
        neighbors: Vec::new(),
    }
}

/// A neighbor with nothing but an address, at a place in the list.
pub fn neighbor(place: usize, address: &str) -> Neighbor {
    let address: IpAddr = address.parse().unwrap();
    Neighbor {
        path: format!("spec.neighbors[{place}]"),
        address,
        peer_as: 64513,
        local_as: None,
        description: String::new(),
        password: PasswordSource::None,
        nodes: Selector::default(),
        families: BTreeSet::from([Family::of(address)]),
        timers: Timers::default(),
        source: None,
        interface: None,
        passive: false,
        distance: Distance::Usual,
        graceful_restart: None,
        admin_down: false,
        next_hop: NextHop::default(),
        advertise: Advertise::default(),
    }
}

/// A node in rack 1 with addresses of every kind.
pub fn node(name: &str) -> NodeFacts {
    NodeFacts {
        name: name.to_owned(),
        labels: BTreeMap::from([("rack".to_owned(), "1".to_owned())]),
        annotations: BTreeMap::new(),
        internal: ["2001:db8::1", "192.0.2.1"].map(|addr| addr.parse().unwrap()).to_vec(),
        external: vec!["198.51.100.1".parse().unwrap()],
    }
}
