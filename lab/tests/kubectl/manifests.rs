//! What the person writes into files.

/// A Service that asks for an address.
pub const WEB: &str = "
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  type: LoadBalancer
  loadBalancerClass: purelb.io/purelb
  selector: {app: web}
  ports:
  - {name: http, port: 80}
  - {name: https, port: 443}
";

/// A group with an address for it.
pub const GROUP: &str = "
apiVersion: purelb.io/v2
kind: ServiceGroup
metadata:
  name: remotedual
spec:
  namespaces: [shop, blog]
  remote:
    v4pools:
    - {subnet: 192.0.2.0/24, pool: 192.0.2.100-192.0.2.199, aggregation: /32}
";

/// Everything else that PureLB looks at, and an Event as its recorder writes it.
pub fn kinds(namespace: &str) -> String {
    let event = format!(
        "---
apiVersion: v1
kind: Event
metadata: {{name: web.1, namespace: {namespace}}}
involvedObject: {{apiVersion: v1, kind: Service, name: web, namespace: {namespace}}}
type: Normal
reason: AddressAssigned
message: Assigned 192.0.2.100
source: {{component: purelb-allocator}}
firstTimestamp: 2026-01-01T00:00:00Z
lastTimestamp: 2026-01-01T00:00:00Z
count: 1
"
    );
    include_str!("kinds.yaml").to_owned() + &event
}

/// Writes the address as the allocator does.
pub const ASSIGN: &str = r#"kubectl patch service web --subresource=status --type=merge \
    -p '{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.100"}]}}}'"#;
