//! The rights in `deploy/rbac`: enough for every other story here, and no more.

use anyhow::Result;
use serde_json::json;

use crate::cluster::{Cluster, HOME};

#[tokio::test]
async fn the_allocator_may_not_do_what_it_has_no_need_for() -> Result<()> {
    let cluster = Cluster::new().await?;
    let account = format!("system:serviceaccount:{HOME}:allocator");
    for (verb, group, resource, name) in [
        ("get", "", "secrets", ""),
        ("list", "", "pods", ""),
        ("patch", "", "services", ""),
        ("update", "", "services", ""),
        ("delete", "", "services", ""),
        ("patch", "", "nodes", ""),
        ("get", "purelb.io", "servicegroups", ""),
        ("patch", "purelb.io", "servicegroups", ""),
        ("delete", "purelb.io", "servicegroups", ""),
        ("patch", "purelb.io", "lbnodeagents", ""),
        ("create", "bgp.purelb.io", "configs", ""),
        ("delete", "bgp.purelb.io", "configs", ""),
        ("patch", "bgp.purelb.io", "bgpnodestatuses", ""),
        ("get", "", "configmaps", "somebody-elses"),
        ("patch", "", "configmaps", "somebody-elses"),
        ("delete", "", "configmaps", "purelb-external-holders"),
        ("patch", "coordination.k8s.io", "leases", "purelb-node-a"),
        ("delete", "coordination.k8s.io", "leases", "purelb-allocator"),
    ] {
        let attributes = json!({"verb": verb, "group": group, "resource": resource, "name": name, "namespace": HOME});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": account, "resourceAttributes": attributes},
        });
        let answer = cluster.ground.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
        assert_eq!(answer["status"]["allowed"], false, "{verb} {resource} {name}");
    }
    Ok(())
}
