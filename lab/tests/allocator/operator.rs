//! The commands of an operator, and what they print.

use anyhow::{Context, Result};
use serde_json::json;

use crate::cluster::{Cluster, HOME};

/// The group of the documentation, as version 1 of the API writes it; its reversed range is put right.
fn remotedual() -> serde_json::Value {
    json!({
        "apiVersion": "purelb.io/v1",
        "kind": "ServiceGroup",
        "metadata": {"name": "remotedual"},
        "spec": {"local": {
            "v4pools": [{"aggregation": "/32", "pool": "172.32.100.225-172.32.100.229", "subnet": "172.32.100.0/24"}],
            "v6pools": [{"aggregation": "/128", "pool": "fc00:370:155:0:8000::/126", "subnet": "fc00:370:155::/64"}],
        }},
    })
}

#[tokio::test]
async fn kubectl_describe_prints_what_the_documentation_shows() -> Result<()> {
    let cluster = Cluster::new().await?;
    let groups = format!("/apis/purelb.io/v1/namespaces/{HOME}/servicegroups");
    cluster.ground.create(&groups, &remotedual()).await?;
    let allocator = cluster.allocator()?;
    let name = "kuard-svc-dual-remote";
    let spec = json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]});
    cluster.service(name, json!({"purelb.io/service-group": "remotedual"}), spec).await?;
    cluster.has(name, &["172.32.100.225", "fc00:370:155:0:8000::"]).await?;
    let words = "Assigned {Ingress:[{IP:172.32.100.225 Hostname: Ports:[]} \
                 {IP:fc00:370:155:0:8000:: Hostname: Ports:[]}]} from pool remotedual";
    cluster.event(name, "AddressAssigned", words).await?;
    let described = cluster.kubectl(&["describe", "service", name]).await?;
    let annotations = "Annotations:              purelb.io/allocated-by: PureLB\n                          \
                       purelb.io/allocated-from: remotedual\n                          \
                       purelb.io/service-group: remotedual\nSelector:";
    assert!(described.contains(annotations), "{described}");
    let ingress = described.lines().find(|line| line.starts_with("LoadBalancer Ingress:")).context("no ingress")?;
    let given = ingress.trim_start_matches("LoadBalancer Ingress:").replace(" (VIP)", "");
    assert_eq!(given.trim(), "172.32.100.225, fc00:370:155:0:8000::");
    let event = described.lines().find(|line| line.contains("AddressAssigned ")).context("no event")?;
    let columns: Vec<&str> = event.split_whitespace().collect();
    assert_eq!((columns[0], columns[1], columns[3]), ("Normal", "AddressAssigned", "purelb-allocator"), "{event}");
    assert!(event.ends_with(words), "{event}");
    cluster.close(allocator).await
}

#[tokio::test]
async fn kubectl_wait_returns_when_the_address_is_there() -> Result<()> {
    let cluster = Cluster::new().await?;
    let allocator = cluster.allocator()?;
    cluster.service("web", json!({}), json!({})).await?;
    assert!(cluster.told("web", "NoGroups").await?.contains("create one named default"));
    let wait = ["wait", "--for=condition=purelb.io/AddressAssigned", "service/web"];
    let refused = cluster.kubectl(&[&wait[..], &["--timeout=0"]].concat()).await;
    assert!(refused.is_err(), "there is no address yet: {refused:?}");
    cluster.local("default", "10.0.0.8/30").await?;
    let printed = cluster.kubectl(&[&wait[..], &["--timeout=30s"]].concat()).await?;
    assert_eq!(printed.trim(), "service/web condition met");
    cluster.has("web", &["10.0.0.8"]).await?;
    cluster.close(allocator).await
}
