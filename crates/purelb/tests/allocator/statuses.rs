//! What `kubectl get sg` shows.

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use purelb_api::ServiceGroupStatus;
use serde_json::{Value, json};

use crate::cluster::{Cluster, HOME};

async fn status(
    cluster: &Cluster,
    name: &str,
    wanted: impl Fn(&ServiceGroupStatus) -> bool,
) -> Result<ServiceGroupStatus> {
    let group = cluster.groups();
    cluster
        .until(&format!("the status of {name} is as wanted"), async || {
            Ok(group.get(name).await?.status.filter(|status| wanted(status)))
        })
        .await
}

fn condition(status: &ServiceGroupStatus, name: &str) -> Value {
    let found = status.conditions.iter().find(|condition| condition.type_ == name);
    found.map_or(Value::Null, |found| json!([found.status, found.reason]))
}

#[tokio::test]
async fn sts_1_and_5_every_group_has_a_status_idle_or_not() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8-10.0.0.11").await?;
    let huge = json!({"remote": {"v6pools": [{"pool": "2001:db8::/64", "subnet": "2001:db8::/48"}]}});
    cluster.group("huge", huge).await?;
    let allocator = cluster.allocator();
    cluster.service("web", json!({})).await?;
    let default = status(&cluster, "default", |status| status.allocated_ipv4 == 1).await?;
    assert_eq!((default.announce.as_str(), default.ipam.as_str()), ("Local", "Cluster"));
    assert_eq!((default.available_ipv4, default.available_ipv6), (Some(3), Some(0)));
    assert_eq!(default.addresses, ["10.0.0.8-10.0.0.11"]);
    assert_eq!(condition(&default, "Valid")[0], "True");
    let huge = status(&cluster, "huge", |status| !status.announce.is_empty()).await?;
    assert_eq!(huge.available_ipv6, Some(i64::MAX), "bug-8: it saturates");
    allocator.stop().await
}

#[tokio::test]
async fn b37_a_broken_edit_leaves_the_last_valid_form_in_force_also_after_a_restart() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let allocator = cluster.allocator();
    status(&cluster, "default", |status| condition(status, "Valid")[0] == "True").await?;
    let broken = json!({"spec": {"local": {"v4pools": [{"pool": "10.0.0.20-10.0.0.9", "subnet": "10.0.0.0/16"}]}}});
    cluster.groups().patch("default", &PatchParams::default(), &Patch::Merge(&broken)).await?;
    let told = status(&cluster, "default", |status| condition(status, "Valid")[0] == "False").await?;
    assert_eq!(condition(&told, "Valid")[1], "RangeReversed");
    cluster.service("web", json!({})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    allocator.stop().await?;
    let successor = cluster.allocator();
    cluster.service("later", json!({})).await?;
    cluster.has("later", &["10.0.0.9"]).await?;
    successor.stop().await
}

#[tokio::test]
async fn bug_3_and_b23_a_group_that_clashes_says_so_and_serves_nobody() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("aaa", "10.0.0.0/24").await?;
    cluster.local("bbb", "10.0.0.16/28").await?;
    let allocator = cluster.allocator();
    let refused = status(&cluster, "bbb", |status| condition(status, "Valid")[0] == "False").await?;
    assert_eq!(condition(&refused, "Valid")[1], "GroupsOverlap");
    assert!(!refused.announce.is_empty(), "no blank row");
    cluster.service("web", json!({"purelb.io/service-group": "bbb"})).await?;
    assert!(cluster.told("web", "GroupUnusable").await?.contains("overlaps"));
    cluster
        .until("the refusal is told", async || {
            let events = cluster.events("bbb").await?;
            Ok(events
                .iter()
                .any(|(reason, message)| reason == "ParseFailed" && message.contains("\"aaa\""))
                .then_some(()))
        })
        .await?;
    allocator.stop().await
}

#[tokio::test]
async fn k8s_8_groups_elsewhere_do_not_count_unless_they_are_automatic() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let client = cluster.client.clone();
    let ranges = |pool: &str| json!({"v4pools": [{"pool": pool, "subnet": "10.0.0.0/8", "aggregation": "default"}]});
    for (version, name, spec) in [
        ("v2", "elsewhere", json!({"local": ranges("10.1.0.8/30")})),
        ("v2", "far", json!({"remote": ranges("10.3.0.8/30")})),
        ("v2", "asked", json!({"external": {"provider": "acme", "socket": "/run/acme.sock", "announce": "remote"}})),
        ("v1", "automatic", json!({"local": ranges("10.2.0.8/30")})),
    ] {
        let metadata = json!({"name": name, "namespace": "tenant"});
        let object = json!({"apiVersion": format!("purelb.io/{version}"), "kind": "ServiceGroup", "metadata": metadata, "spec": spec});
        let request = http::Request::post(format!("/apis/purelb.io/{version}/namespaces/tenant/servicegroups"))
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&object)?)?;
        client.request::<Value>(request).await?;
    }
    let allocator = cluster.allocator();
    cluster.service("a", json!({"purelb.io/service-group": "elsewhere"})).await?;
    cluster.told("a", "UnknownPool").await?;
    cluster.service("b", json!({"purelb.io/service-group": "automatic"})).await?;
    let b = cluster.has("b", &["10.2.0.8"]).await?;
    assert!(b["metadata"]["annotations"]["purelb.io/pool-type"].is_null(), "automatic groups have no type");
    for (group, words) in [
        ("elsewhere", "This group is local, so its pool is not allocatable. Move it: "),
        ("far", "This group is remote, so addresses allocated from it are withdrawn from every node. Move it: "),
        ("asked", "This group is external, so its pool is not allocatable. Move it: "),
    ] {
        cluster
            .until(&format!("{group} is told that it is ignored"), async || {
                let told = cluster.events(group).await?;
                let says = |message: &str| message.contains(words) && message.contains(HOME);
                let told = told.iter().any(|(reason, message)| reason == "ServiceGroupOutOfScope" && says(message));
                Ok(told.then_some(()))
            })
            .await?;
    }
    allocator.stop().await
}

#[tokio::test]
async fn ns_10_bound_namespaces_follow_an_edit_of_the_list_alone() -> Result<()> {
    let cluster = Cluster::new().await?;
    let pools = json!([{"pool": "10.0.0.8/30", "subnet": "10.0.0.0/16"}]);
    cluster.group("default", json!({"local": {"v4pools": pools}, "namespaces": ["b", "a", "b"]})).await?;
    let allocator = cluster.allocator();
    status(&cluster, "default", |status| status.bound_namespaces == ["b", "a", "b"]).await?;
    let edit = json!({"spec": {"namespaces": ["c"]}});
    cluster.groups().patch("default", &PatchParams::default(), &Patch::Merge(&edit)).await?;
    status(&cluster, "default", |status| status.bound_namespaces == ["c"]).await?;
    allocator.stop().await
}

#[tokio::test]
async fn an_lbnodeagent_says_whether_it_is_understood_and_how_many_nodes_live() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.agent("default", json!({"local": {}})).await?;
    cluster.agent("wrong", json!({"local": {"localInterface": "("}})).await?;
    cluster.node("n1", json!({})).await?;
    cluster.lease("n1", "10.0.0.0/24").await?;
    let allocator = cluster.allocator();
    let default = cluster.agent_status("default", |status| status.active_leases == Some(1)).await?;
    assert_eq!((default.conditions[0].type_.as_str(), default.conditions[0].status.as_str()), ("Valid", "True"));
    let wrong = cluster.agent_status("wrong", |status| !status.conditions.is_empty()).await?;
    assert_eq!(
        (wrong.conditions[0].status.as_str(), wrong.conditions[0].reason.as_str()),
        ("False", "InterfacePattern")
    );
    allocator.stop().await
}
