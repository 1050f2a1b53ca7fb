//! The rights in `deploy/rbac/agent.yaml`: enough for every other story here, and no more.

use anyhow::Result;
use serde_json::json;

use crate::site::HOME;
use crate::story::Story;

#[tokio::test]
async fn the_agent_may_not_do_what_it_has_no_need_for() -> Result<()> {
    let story = Story::begin().await?;
    let account = format!("system:serviceaccount:{HOME}:lbnodeagent");
    for (verb, group, resource, namespace) in [
        ("list", "", "secrets", HOME),
        ("watch", "", "secrets", HOME),
        ("get", "", "secrets", "default"),
        ("list", "", "pods", HOME),
        ("update", "", "services", "default"),
        ("delete", "", "services", "default"),
        ("patch", "", "services/status", "default"),
        ("patch", "", "nodes", ""),
        ("patch", "discovery.k8s.io", "endpointslices", "default"),
        ("patch", "purelb.io", "servicegroups", HOME),
        ("patch", "purelb.io", "lbnodeagents", HOME),
        ("patch", "bgp.purelb.io", "configs", HOME),
        ("delete", "bgp.purelb.io", "bgpnodestatuses", ""),
        ("list", "apps", "daemonsets", HOME),
        ("patch", "apps", "daemonsets", HOME),
        ("list", "coordination.k8s.io", "leases", "kube-node-lease"),
        ("create", "coordination.k8s.io", "leases", "default"),
    ] {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = json!({
            "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace,
        });
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": account, "resourceAttributes": attributes},
        });
        let answer = story.ground.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await?;
        assert_eq!(answer["status"]["allowed"], false, "{verb} {resource} {subresource}");
    }
    story.close().await
}
