//! From the first look at a Service to its last.

use anyhow::Result;
use kube::api::DeleteParams;
use serde_json::json;

use crate::cluster::{Cluster, ips};

#[tokio::test]
async fn ctl_2_a_service_gets_its_address_brand_condition_and_event_in_one_write() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let allocator = cluster.allocator();
    cluster.service("web", json!({"purelb.io/service-group": "default", "keep": "me"})).await?;
    let web = cluster.has("web", &["10.0.0.8"]).await?;
    let expected = json!({
        "keep": "me",
        "purelb.io/service-group": "default",
        "purelb.io/allocated-by": "PureLB",
        "purelb.io/allocated-from": "default",
        "purelb.io/pool-type": "local",
    });
    assert_eq!(web["metadata"]["annotations"], expected);
    assert_eq!(web["status"]["loadBalancer"]["ingress"], json!([{"ip": "10.0.0.8", "ipMode": "VIP"}]));
    let condition = &web["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("purelb.io/AddressAssigned"), &json!("True")));
    let message = "Assigned {Ingress:[{IP:10.0.0.8 Hostname: Ports:[]}]} from pool default";
    let told = cluster
        .until("an event tells of the address", async || {
            let events = cluster.events("web").await?;
            Ok(events.contains(&("AddressAssigned".to_owned(), message.to_owned())).then_some(events))
        })
        .await?;
    assert_eq!(told.len(), 1, "one event: {told:?}");
    allocator.stop().await
}

#[tokio::test]
async fn ctl_4_a_deleted_service_makes_room_for_the_one_that_waits() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/32").await?;
    let allocator = cluster.allocator();
    cluster.service("first", json!({})).await?;
    cluster.has("first", &["10.0.0.8"]).await?;
    cluster.service("second", json!({})).await?;
    assert!(cluster.told("second", "Exhausted").await?.contains("exhausted"));
    cluster.services().delete("first", &DeleteParams::default()).await?;
    cluster.has("second", &["10.0.0.8"]).await?;
    allocator.stop().await
}

#[tokio::test]
async fn a_group_that_is_created_later_serves_those_who_wait() -> Result<()> {
    let cluster = Cluster::new().await?;
    let allocator = cluster.allocator();
    cluster.service("web", json!({})).await?;
    assert!(cluster.told("web", "NoGroups").await?.contains("create one named default"));
    cluster.local("default", "10.0.0.8/30").await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    allocator.stop().await
}

#[tokio::test]
async fn bug_7_a_retyped_service_gives_its_address_back_and_loses_our_marks() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/32").await?;
    let allocator = cluster.allocator();
    cluster.service("web", json!({})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    cluster.service("waits", json!({})).await?;
    cluster.told("waits", "Exhausted").await?;
    cluster.patch("web", json!({"spec": {"type": "ClusterIP"}})).await?;
    cluster.has("waits", &["10.0.0.8"]).await?;
    cluster
        .until("our marks are gone", async || {
            let web = cluster.shown("web").await?;
            let clean = web["metadata"]["annotations"].as_object().is_none_or(serde_json::Map::is_empty);
            Ok((clean && web["status"]["conditions"].as_array().is_none_or(Vec::is_empty)).then_some(()))
        })
        .await?;
    cluster
        .until("the release is told", async || {
            let told = ("AddressReleased".to_owned(), "Service is Type ClusterIP, not LoadBalancer".to_owned());
            Ok(cluster.events("web").await?.contains(&told).then_some(()))
        })
        .await?;
    cluster.patch("web", json!({"spec": {"type": "LoadBalancer"}})).await?;
    cluster.told("web", "Exhausted").await?;
    allocator.stop().await
}

#[tokio::test]
async fn bug_7_a_service_that_waited_in_vain_is_retyped_and_loses_its_condition() -> Result<()> {
    let cluster = Cluster::new().await?;
    let allocator = cluster.allocator();
    cluster.service("web", json!({})).await?;
    cluster.told("web", "NoGroups").await?;
    cluster.patch("web", json!({"spec": {"type": "ClusterIP"}})).await?;
    cluster
        .until("our condition is gone", async || {
            let web = cluster.shown("web").await?;
            Ok(web["status"]["conditions"].as_array().is_none_or(Vec::is_empty).then_some(()))
        })
        .await?;
    let events = cluster.events("web").await?;
    assert!(events.iter().all(|(reason, _)| reason != "AddressReleased"), "it held nothing: {events:?}");
    allocator.stop().await
}

#[tokio::test]
async fn bug_15_nobody_elses_service_is_written() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    cluster.service_with("plain", json!({}), json!({"type": "ClusterIP"})).await?;
    cluster.service_with("foreign", json!({}), json!({"loadBalancerClass": "example.com/other"})).await?;
    let before = [cluster.shown("plain").await?, cluster.shown("foreign").await?];
    let allocator = cluster.allocator();
    cluster.service("ours", json!({})).await?;
    cluster.has("ours", &["10.0.0.8"]).await?;
    assert_eq!([cluster.shown("plain").await?, cluster.shown("foreign").await?], before);
    allocator.stop().await
}

#[tokio::test]
async fn at_rest_nothing_is_written_but_the_lease() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let allocator = cluster.allocator();
    cluster.service("a", json!({})).await?;
    cluster.service("b", json!({"purelb.io/service-group": "none"})).await?;
    cluster.has("a", &["10.0.0.8"]).await?;
    cluster.told("b", "UnknownPool").await?;
    cluster
        .until("the group's status is written", async || {
            let status = cluster.groups().get("default").await?.status;
            Ok(status.is_some_and(|status| status.allocated_ipv4 == 1).then_some(()))
        })
        .await?;
    let versions = async || -> Result<Vec<_>> {
        let group = cluster.groups().get("default").await?.metadata.resource_version;
        let services = [cluster.shown("a").await?, cluster.shown("b").await?];
        let events = cluster.events("a").await?.len() + cluster.events("b").await?.len();
        Ok(vec![
            json!(group),
            services[0]["metadata"]["resourceVersion"].clone(),
            services[1]["metadata"]["resourceVersion"].clone(),
            json!(events),
        ])
    };
    // Settled when a whole renewal of the lease brings no other write.
    let mut settled = versions().await?;
    let lease = async || -> Result<String> {
        let api: kube::Api<k8s_openapi::api::coordination::v1::Lease> =
            kube::Api::namespaced(cluster.client.clone(), crate::cluster::HOME);
        Ok(api.get("purelb-allocator").await?.metadata.resource_version.unwrap_or_default())
    };
    for _ in 0..10 {
        let before = lease().await?;
        cluster.until("the lease is renewed", async || Ok((lease().await? != before).then_some(()))).await?;
        let now = versions().await?;
        if now == settled {
            return allocator.stop().await;
        }
        settled = now;
    }
    anyhow::bail!("something is written again and again: {settled:?}")
}

#[tokio::test]
async fn dual_stack_grows_and_shrinks_with_the_service() -> Result<()> {
    let cluster = Cluster::new().await?;
    let spec = json!({"local": {
        "v4pools": [{"pool": "10.0.0.8/30", "subnet": "10.0.0.0/16"}],
        "v6pools": [{"pool": "2001:db8::8/126", "subnet": "2001:db8::/64"}],
    }});
    cluster.group("default", spec).await?;
    let allocator = cluster.allocator();
    cluster
        .service_with("web", json!({}), json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}))
        .await?;
    cluster.has("web", &["10.0.0.8", "2001:db8::8"]).await?;
    let single = json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIPs": null}});
    let first = cluster.shown("web").await?["spec"]["clusterIPs"][0].clone();
    let mut single = single;
    single["spec"]["clusterIPs"] = json!([first]);
    cluster.patch("web", single).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    allocator.stop().await
}

#[tokio::test]
async fn re_evaluate_is_acknowledged_and_carried_out() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    cluster.local("other", "10.1.0.8/30").await?;
    let allocator = cluster.allocator();
    cluster.service("web", json!({})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    cluster.patch("web", json!({"metadata": {"annotations": {"purelb.io/service-group": "other"}}})).await?;
    cluster.told("web", "MovePending").await?;
    assert_eq!(ips(&cluster.shown("web").await?), ["10.0.0.8"]);
    cluster.patch("web", json!({"metadata": {"annotations": {"purelb.io/re-evaluate": "true"}}})).await?;
    let moved = cluster.has("web", &["10.1.0.8"]).await?;
    assert!(moved["metadata"]["annotations"]["purelb.io/re-evaluate"].is_null());
    assert_eq!(moved["metadata"]["annotations"]["purelb.io/allocated-from"], "other");
    allocator.stop().await
}

#[tokio::test]
async fn mp_13_a_retyped_multi_pool_service_gives_all_its_addresses_back() -> Result<()> {
    let cluster = Cluster::new().await?;
    let pools = [
        json!({"pool": "10.1.0.8/32", "subnet": "10.1.0.0/16"}),
        json!({"pool": "10.2.0.8/32", "subnet": "10.2.0.0/16"}),
    ];
    cluster.group("default", json!({"remote": {"v4pools": pools, "multiPool": true}})).await?;
    let allocator = cluster.allocator();
    cluster.service("web", json!({})).await?;
    cluster.has("web", &["10.1.0.8", "10.2.0.8"]).await?;
    cluster.service("waits", json!({})).await?;
    cluster.told("waits", "Exhausted").await?;
    cluster.patch("web", json!({"spec": {"type": "ClusterIP"}})).await?;
    cluster.has("waits", &["10.1.0.8", "10.2.0.8"]).await?;
    cluster
        .until("our marks are gone", async || {
            let web = cluster.shown("web").await?;
            Ok(web["metadata"]["annotations"].get("purelb.io/allocated-from").is_none().then_some(()))
        })
        .await?;
    allocator.stop().await
}
