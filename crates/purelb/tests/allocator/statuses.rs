//! What `kubectl get sg` shows.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use purelb_api::ServiceGroupStatus;
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, HOME, ips};
use crate::line::Line;

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

/// Edits a group's pools, as a user would.
async fn edit(cluster: &Cluster, name: &str, pool: &str) -> Result<()> {
    let spec = json!({"spec": {"local": {"v4pools": [{"pool": pool, "subnet": "10.0.0.0/8"}]}}});
    cluster.groups().patch(name, &PatchParams::default(), &Patch::Merge(&spec)).await?;
    Ok(())
}

#[rstest]
#[case::edited_group_sorts_first("aaa", "bbb")]
#[case::edited_group_sorts_last("bbb", "aaa")]
#[tokio::test]
async fn b37_an_edit_that_clashes_with_another_group_costs_neither_its_pool_also_after_a_restart(
    #[case] edited: &str,
    #[case] other: &str,
) -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local(edited, "10.1.0.8/30").await?;
    cluster.local(other, "10.2.0.8/30").await?;
    let allocator = cluster.allocator();
    for name in [edited, other] {
        status(&cluster, name, |status| status.last_valid.is_some()).await?;
    }
    edit(&cluster, edited, "10.2.0.0/24").await?;
    let told = status(&cluster, edited, |status| condition(status, "Valid")[0] == "False").await?;
    assert_eq!(condition(&told, "Valid")[1], "GroupsOverlap");
    assert!(told.conditions[0].message.ends_with("the last valid form of the group is in use"), "{told:?}");
    let kept = told.last_valid.map(|kept| kept.spec["local"]["v4pools"][0]["pool"].clone());
    assert_eq!(kept, Some(json!("10.1.0.8/30")), "a form that clashes was never in use");
    cluster.service("a", json!({"purelb.io/service-group": edited})).await?;
    cluster.has("a", &["10.1.0.8"]).await?;
    allocator.stop().await?;
    let successor = cluster.allocator();
    cluster.service("b", json!({"purelb.io/service-group": edited})).await?;
    cluster.has("b", &["10.1.0.9"]).await?;
    cluster.service("c", json!({"purelb.io/service-group": other})).await?;
    cluster.has("c", &["10.2.0.8"]).await?;
    successor.stop().await
}

/// Changes the CRD of ServiceGroups, as if it were of another release.
async fn with_crd(cluster: &Cluster, change: impl Fn(&mut Value)) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let mut crd = serde_json::to_value(crds.get("servicegroups.purelb.io").await?)?;
    crd["spec"]["versions"].as_array_mut().into_iter().flatten().for_each(change);
    let versions = json!({"spec": {"versions": crd["spec"]["versions"]}});
    crds.patch("servicegroups.purelb.io", &PatchParams::default(), &Patch::Merge(&versions)).await?;
    Ok(())
}

#[rstest]
#[case::broken("10.1.0.9-10.1.0.8")]
#[case::clashing("10.2.0.0/24")]
#[tokio::test]
async fn b37_without_a_status_to_keep_it_in_the_leader_remembers_the_last_valid_form(#[case] pool: &str) -> Result<()> {
    let cluster = Cluster::new().await?;
    with_crd(&cluster, |version| drop(version.as_object_mut().map(|version| version.remove("subresources")))).await?;
    cluster.local("default", "10.1.0.8/30").await?;
    cluster.local("other", "10.2.0.8/30").await?;
    let allocator = cluster.allocator();
    cluster.service("before", json!({})).await?;
    cluster.has("before", &["10.1.0.8"]).await?;
    edit(&cluster, "default", pool).await?;
    // What is heard of the marker was heard after the edit.
    cluster.local("marker", "10.3.0.8/30").await?;
    cluster.service("marked", json!({"purelb.io/service-group": "marker"})).await?;
    cluster.has("marked", &["10.3.0.8"]).await?;
    cluster.service("after", json!({})).await?;
    cluster.has("after", &["10.1.0.9"]).await?;
    allocator.stop().await
}

#[tokio::test(start_paused = true)]
async fn a_crd_that_does_not_keep_our_conditions_costs_neither_a_write_nor_an_event_at_rest() -> Result<()> {
    let cluster = Cluster::new().await?;
    let old = |version: &mut Value| {
        let status = &mut version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
        for field in ["conditions", "lastValid"] {
            status.as_object_mut().map(|status| status.remove(field));
        }
    };
    with_crd(&cluster, old).await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let line = Line::to(&cluster.server);
    let allocator = cluster.allocator_with(line.client(), Cluster::settings());
    status(&cluster, "default", |status| status.available_ipv4 == Some(4)).await?;
    let parsed = async || {
        let events = cluster.events("default").await?;
        anyhow::Ok(events.iter().filter(|(reason, _)| reason == "Parsed").count())
    };
    cluster.until("it is told of", async || Ok((parsed().await? == 1).then_some(()))).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = line.requests();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((line.requests() - asked, parsed().await?), (0, 1), "at rest");
    cluster.service("web", json!({})).await?;
    status(&cluster, "default", |status| status.allocated_ipv4 == 1).await?;
    assert_eq!(ips(&cluster.shown("web").await?), ["10.0.0.8"]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(parsed().await?, 1, "what changes is written, and nothing told again");
    allocator.stop().await
}

#[tokio::test]
async fn a_netbox_group_is_not_called_parsed() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let spec = json!({"netbox": {"url": "https://netbox.example/", "tenant": "t", "aggregation": "default"}});
    let object = json!({"apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": {"name": "boxed", "namespace": HOME}, "spec": spec});
    let request = http::Request::post(format!("/apis/purelb.io/v1/namespaces/{HOME}/servicegroups"))
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&object)?)?;
    cluster.client.request::<Value>(request).await?;
    let allocator = cluster.allocator();
    let told = status(&cluster, "boxed", |status| condition(status, "Valid")[0] == "False").await?;
    assert_eq!(condition(&told, "Valid")[1], "NetboxUnsupported");
    let events = cluster.until("it is told", async || {
        let events = cluster.events("boxed").await?;
        Ok((!events.is_empty()).then_some(events))
    });
    let events = events.await?;
    assert!(matches!(&events[..], [(reason, _)] if reason == "ParseFailed"), "{events:?}");
    cluster.service("web", json!({})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    allocator.stop().await
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

#[tokio::test(start_paused = true)]
async fn many_statuses_at_once_are_no_flood() -> Result<()> {
    let cluster = Cluster::new().await?;
    for n in 0..60 {
        cluster.local(&format!("g{n}"), &format!("10.0.{n}.8/29")).await?;
    }
    let line = Line::to(&cluster.server);
    line.slow_down();
    let allocator = cluster.allocator_with(line.client(), Cluster::settings());
    cluster
        .until("every group has a status", async || {
            let groups = cluster.groups().list(&kube::api::ListParams::default()).await?.items;
            Ok(groups.iter().all(|group| group.status.is_some()).then_some(()))
        })
        .await?;
    assert!(line.most_writing() <= 32, "{} writes at once", line.most_writing());
    allocator.stop().await
}
