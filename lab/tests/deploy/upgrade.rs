//! Our manifests over those of PureLB 0.13 and 0.17: nothing is deleted, nothing of theirs stays in the way.

use anyhow::Result;
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Way, container, data, shipped};

/// A cluster on which this release was installed, with an LBNodeAgent that its operator has edited.
async fn installed(release: &str, way: Way, edit: &str) -> Result<Cluster> {
    let cluster = Cluster::bare().await?;
    cluster.learn(&["-f", &data(&format!("{release}/crds"))]).await?;
    cluster.apply(way, &data(&format!("{release}/workloads.yaml"))).await?;
    let (namespace, version) = if release == "0.13" { ("purelb", "v1") } else { ("purelb-system", "v2") };
    let agent = json!({
        "apiVersion": format!("purelb.io/{version}"),
        "kind": "LBNodeAgent",
        "metadata": {"name": "default", "namespace": namespace},
        "spec": {"local": {}},
    });
    cluster.send(&["apply", "-f", "-"], &agent.to_string()).await?;
    cluster.kubectl(&["patch", "lbnodeagent", "default", "-n", namespace, "--type=merge", "-p", edit]).await?;
    Ok(cluster)
}

/// What identifies an object over its whole life.
async fn identities(cluster: &Cluster, namespace: &str) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for object in ["deployment/allocator", "daemonset/lbnodeagent", "serviceaccount/allocator", "lbnodeagent/default"] {
        found.push(cluster.get(&["-n", namespace, object]).await?["metadata"]["uid"].take());
    }
    Ok(found)
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|item| item["name"].as_str()).collect()
}

/// Nothing of the older install is left in the pods.
async fn pods_are_ours(cluster: &Cluster, namespace: &str) -> Result<()> {
    let allocator = cluster.get(&["-n", namespace, "deployment/allocator"]).await?;
    assert_eq!(
        allocator["spec"]["strategy"],
        json!({"type": "Recreate"}),
        "never beside an allocator that knows no lease"
    );
    assert_eq!(allocator["spec"]["replicas"], 2);
    assert_eq!(names(&container(&allocator)?["env"]), ["PURELB_NAMESPACE", "DEFAULT_ANNOUNCER"]);
    let agent = cluster.get(&["-n", namespace, "daemonset/lbnodeagent"]).await?;
    let mut variables = names(&container(&agent)?["env"]);
    variables.sort_unstable();
    assert_eq!(variables, ["PURELB_NAMESPACE", "PURELB_NODE_NAME", "PURELB_POD_UID"]);
    assert_eq!(agent["spec"]["template"]["spec"]["volumes"], Value::Null);
    assert_eq!(container(&agent)?["securityContext"]["privileged"], false);
    assert_eq!(container(&agent)?["securityContext"]["appArmorProfile"], Value::Null);
    for workload in [&allocator, &agent] {
        assert_eq!(container(workload)?["image"], concat!("purelb:", env!("CARGO_PKG_VERSION")));
    }
    Ok(())
}

#[rstest]
#[case(Way::Client, Way::Client)]
#[case(Way::Server, Way::Server)]
#[tokio::test]
async fn over_0_17_with_its_bgp_container(#[case] theirs: Way, #[case] ours: Way) -> Result<()> {
    let edit = r#"{"spec": {"local": {"localInterface": "^eth1$"}}}"#;
    let cluster = installed("0.17", theirs, edit).await?;
    let before = identities(&cluster, "purelb-system").await?;
    let account = "purelb-system:lbnodeagent";
    assert!(cluster.can(account, &["get", "secrets", "-n", "default"]).await?, "as it was with 0.17");

    cluster.learn(&["-f", &shipped("install-crds.yaml")]).await?;
    cluster.apply(ours, &shipped("upgrade-from-0.17.yaml")).await?;

    assert_eq!(identities(&cluster, "purelb-system").await?, before, "the same objects, not new ones");
    pods_are_ours(&cluster, "purelb-system").await?;
    let agent = cluster.get(&["-n", "purelb-system", "daemonset/lbnodeagent"]).await?;
    assert_eq!(agent["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], 1, "one node after another");
    let configuration = cluster.get(&["-n", "purelb-system", "lbnodeagent/default"]).await?;
    assert_eq!(configuration["spec"]["local"]["localInterface"], "^eth1$", "the operator's edit stays");
    assert!(!cluster.can(account, &["get", "secrets", "-n", "default"]).await?);
    assert!(!cluster.can(account, &["list", "pods", "-n", "purelb-system"]).await?);
    Ok(())
}

#[rstest]
#[case(Way::Client, Way::Client)]
#[case(Way::Client, Way::Server)]
#[tokio::test]
async fn over_0_13_in_its_own_namespace(#[case] theirs: Way, #[case] ours: Way) -> Result<()> {
    let cluster = installed("0.13", theirs, r#"{"spec": {"local": {"localint": "eth1"}}}"#).await?;
    let before = identities(&cluster, "purelb").await?;

    cluster.learn(&["-f", &shipped("install-crds-nobgp.yaml")]).await?;
    if ours == Way::Server {
        // 0.13 wrote no strategy, and what the API server filled in instead would stay beside ours.
        let refused =
            cluster.apply(ours, &shipped("upgrade-from-0.13.yaml")).await.expect_err("see docs/how-to/upgrade.md");
        assert!(refused.to_string().contains("spec.strategy.rollingUpdate: Forbidden"), "{refused}");
        let patch = r#"[{"op": "replace", "path": "/spec/strategy", "value": {"type": "Recreate"}}]"#;
        cluster.kubectl(&["patch", "deployment", "allocator", "-n", "purelb", "--type=json", "-p", patch]).await?;
    }
    cluster.apply(ours, &shipped("upgrade-from-0.13.yaml")).await?;

    assert_eq!(identities(&cluster, "purelb").await?, before, "the same objects, not new ones");
    pods_are_ours(&cluster, "purelb").await?;
    let agent = cluster.get(&["-n", "purelb", "daemonset/lbnodeagent"]).await?;
    assert_eq!(agent["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], "100%", "all agents together");
    let configuration = cluster.get(&["-n", "purelb", "lbnodeagent/default"]).await?;
    assert_eq!(configuration["spec"]["local"]["localint"], "eth1", "the operator's edit stays");
    assert!(cluster.can("purelb:allocator", &["patch", "services", "--subresource=status", "-n", "default"]).await?);
    assert!(cluster.can("purelb:lbnodeagent", &["create", "leases", "-n", "purelb"]).await?);
    assert!(!cluster.can("purelb:lbnodeagent", &["list", "pods", "-n", "purelb"]).await?);
    let elsewhere = cluster.get(&["namespaces", "--field-selector=metadata.name=purelb-system"]).await?;
    assert_eq!(elsewhere["items"], json!([]), "there is no second install");
    Ok(())
}
