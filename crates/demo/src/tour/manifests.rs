//! The files that the tour applies, as a user would write them.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::site::node::Node;

/// The Service with virtual addresses.
pub const VIRTUAL: &str = "kuard-svc-dual-remote";
/// The Service with a local address.
pub const LOCAL: &str = "kuard-svc-local";
/// How many Services are created while the allocator dies.
pub const MANY: usize = 20;

/// The group of the documentation, as its authors meant it.
const GROUP: &str = include_str!("../../../../docs/examples/virtual-dual-stack.yaml");
/// The same group as it was once published: its first range runs backwards.
const REVERSED: &str = include_str!("../../../../docs/mistakes/reversed-range.yaml");

const LOCAL_GROUP: &str = "\
apiVersion: purelb.io/v2
kind: ServiceGroup
metadata:
  name: local
  namespace: purelb-system
spec:
  local:
    v4pools:
    - pool: 192.168.7.200-192.168.7.240
      subnet: 192.168.7.0/24
---
";

const MANY_GROUP: &str = "\
apiVersion: purelb.io/v2
kind: ServiceGroup
metadata:
  name: many
  namespace: purelb-system
spec:
  remote:
    v4pools:
    - aggregation: /32
      pool: 172.22.0.10-172.22.0.250
      subnet: 172.22.0.0/24
";

/// Writes all of them.
pub fn write(folder: &Path, nodes: &[Node]) -> Result<()> {
    let folder = folder.join("manifests");
    fs::create_dir_all(&folder)?;
    let pods: Vec<String> =
        nodes.iter().map(|node| pod(&format!("kuard-{}", node.place.number), node.name())).collect();
    for (name, text) in [
        ("remotedual.yaml", GROUP.to_owned()),
        ("reversed-range.yaml", REVERSED.to_owned()),
        ("kuard.yaml", service(VIRTUAL, "remotedual", "RequireDualStack")),
        ("local.yaml", LOCAL_GROUP.to_owned() + &service(LOCAL, "local", "SingleStack")),
        ("moved.yaml", pod("kuard-moved", "node2")),
        ("pods.yaml", pods.join("---\n")),
        ("many.yaml", many()),
    ] {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}

fn service(name: &str, group: &str, policy: &str) -> String {
    format!(
        "\
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: test
  annotations:
    purelb.io/service-group: {group}
spec:
  type: LoadBalancer
  ipFamilyPolicy: {policy}
  externalTrafficPolicy: Cluster
  selector:
    app: kuard
  ports:
  - port: 80
    targetPort: 8080
"
    )
}

fn pod(name: &str, node: &str) -> String {
    format!(
        "\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: test
  labels:
    app: kuard
spec:
  nodeName: {node}
  containers:
  - name: kuard
    image: kuard
    ports:
    - containerPort: 8080
"
    )
}

fn many() -> String {
    (1..=MANY).fold(MANY_GROUP.to_owned(), |mut text, number| {
        let service = service(&format!("web-{number}"), "many", "SingleStack");
        write!(text, "---\n{service}").expect("a string takes all");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tour that was cut short may have left the other policy in a data folder, and `apply` changes only what is written.
    #[test]
    fn a_service_begins_with_the_policy_that_the_tour_expects() {
        assert!(service(VIRTUAL, "remotedual", "RequireDualStack").contains("\n  externalTrafficPolicy: Cluster\n"));
    }
}
