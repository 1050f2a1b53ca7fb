//! The groups of the stories: what operators write.

use serde_json::{Value, json};

/// Seed 000, with the slip in its IPv4 range mended.
pub fn remotedual() -> Value {
    json!({
        "apiVersion": "purelb.io/v1",
        "spec": {"local": {
            "v4pools": [{
                "aggregation": "/32", "pool": "172.32.100.225-172.32.100.229", "subnet": "172.32.100.0/24",
            }],
            "v6pools": [{
                "aggregation": "/128", "pool": "fc00:370:155:0:8000::/126", "subnet": "fc00:370:155::/64",
            }],
        }},
    })
}

/// A remote group in both families, with these prefix lengths.
pub fn remote(aggregation: [&str; 2]) -> Value {
    let [v4, v6] = aggregation;
    json!({
        "apiVersion": "purelb.io/v2",
        "spec": {"remote": {
            "v4pools": [{"aggregation": v4, "pool": "172.22.0.10-172.22.0.25", "subnet": "172.22.0.0/24"}],
            "v6pools": [{"aggregation": v6, "pool": "fc00:22::10-fc00:22::25", "subnet": "fc00:22::/64"}],
        }},
    })
}

/// Addresses of the nodes' own segment. Nobody else is there, so that nobody need be asked for duplicates.
pub fn local() -> Value {
    json!({
        "apiVersion": "purelb.io/v2",
        "spec": {"local": {
            "skipIPv6DAD": true,
            "v4pools": [{"pool": "192.168.7.100-192.168.7.120", "subnet": "192.168.7.0/24"}],
            "v6pools": [{"pool": "fd00:7::100-fd00:7::120", "subnet": "fd00:7::/64"}],
        }},
    })
}
