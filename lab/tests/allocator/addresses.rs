//! What a Service gets, from its first address to its last.

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::{Cluster, ips};

fn dual() -> Value {
    json!({"local": {
        "v4pools": [{"pool": "10.0.0.8/30", "subnet": "10.0.0.0/16"}],
        "v6pools": [{"pool": "2001:db8::8/126", "subnet": "2001:db8::/64"}],
    }})
}

#[tokio::test]
async fn ctl_2_the_first_address_comes_with_annotations_condition_and_event() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let allocator = cluster.allocator()?;
    cluster.service("web", json!({"purelb.io/service-group": "default", "keep": "me"}), json!({})).await?;
    let web = cluster.has("web", &["10.0.0.8"]).await?;
    let annotations = json!({
        "keep": "me",
        "purelb.io/service-group": "default",
        "purelb.io/allocated-by": "PureLB",
        "purelb.io/allocated-from": "default",
        "purelb.io/pool-type": "local",
    });
    assert_eq!(web["metadata"]["annotations"], annotations);
    assert_eq!(web["status"]["loadBalancer"]["ingress"], json!([{"ip": "10.0.0.8", "ipMode": "VIP"}]));
    let condition = &web["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("purelb.io/AddressAssigned"), &json!("True")));
    let message = "Assigned {Ingress:[{IP:10.0.0.8 Hostname: Ports:[]}]} from pool default";
    cluster.event("web", "AddressAssigned", message).await?;
    cluster.close(allocator).await
}

#[tokio::test]
async fn a_dual_stack_service_shrinks_and_grows_and_keeps_what_it_still_wants() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.group("default", dual()).await?;
    let allocator = cluster.allocator()?;
    cluster.service("web", json!({}), json!({"ipFamilyPolicy": "RequireDualStack"})).await?;
    cluster.has("web", &["10.0.0.8", "2001:db8::8"]).await?;
    cluster.edit("web", json!({"spec": {"ipFamilyPolicy": "SingleStack"}})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    cluster.edit("web", json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}})).await?;
    cluster.has("web", &["10.0.0.8", "2001:db8::8"]).await?;
    cluster.close(allocator).await
}

#[tokio::test]
async fn a_pinned_address_is_given_once_and_refused_to_the_second() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/29").await?;
    let allocator = cluster.allocator()?;
    cluster.service("pinned", json!({"purelb.io/addresses": "10.0.0.12"}), json!({})).await?;
    cluster.has("pinned", &["10.0.0.12"]).await?;
    cluster.service("late", json!({"purelb.io/addresses": "10.0.0.12"}), json!({})).await?;
    let sentence = cluster.told("late", "AddressInUse").await?;
    assert!(sentence.contains("10.0.0.12") && sentence.contains("pinned"), "{sentence}");
    cluster.service("astray", json!({"purelb.io/addresses": "192.0.2.1"}), json!({})).await?;
    assert!(cluster.told("astray", "PinOutsideGroups").await?.contains("192.0.2.1"));
    cluster.delete("pinned").await?;
    cluster.has("late", &["10.0.0.12"]).await?;
    cluster.close(allocator).await
}

#[tokio::test]
async fn services_with_one_key_share_an_address_as_long_as_their_ports_differ() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let allocator = cluster.allocator()?;
    let key = json!({"purelb.io/allow-shared-ip": "team"});
    cluster.service("http", key.clone(), json!({})).await?;
    cluster.has("http", &["10.0.0.8"]).await?;
    cluster.service("https", key.clone(), json!({"ports": [{"port": 443}]})).await?;
    cluster.has("https", &["10.0.0.8"]).await?;
    cluster.service("clash", key, json!({})).await?;
    let sentence = cluster.told("clash", "PortInUse").await?;
    assert!(sentence.contains("80"), "{sentence}");
    cluster.close(allocator).await
}

#[tokio::test]
async fn ctl_4_a_deleted_service_makes_room_for_the_one_that_waits() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/32").await?;
    let allocator = cluster.allocator()?;
    cluster.service("first", json!({}), json!({})).await?;
    cluster.has("first", &["10.0.0.8"]).await?;
    cluster.service("second", json!({}), json!({})).await?;
    assert!(cluster.told("second", "Exhausted").await?.contains("exhausted"));
    cluster.delete("first").await?;
    cluster.has("second", &["10.0.0.8"]).await?;
    cluster.close(allocator).await
}

#[tokio::test]
async fn bug_7_a_retyped_service_gives_its_address_back_and_loses_our_marks() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/32").await?;
    let allocator = cluster.allocator()?;
    cluster.service("web", json!({}), json!({})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    cluster.service("waits", json!({}), json!({})).await?;
    cluster.told("waits", "Exhausted").await?;
    cluster.edit("web", json!({"spec": {"type": "ClusterIP"}})).await?;
    cluster.has("waits", &["10.0.0.8"]).await?;
    cluster.event("web", "AddressReleased", "Service is Type ClusterIP, not LoadBalancer").await?;
    let web = cluster.shown("web").await?;
    assert_eq!((&web["metadata"]["annotations"], &web["status"]["conditions"]), (&Value::Null, &Value::Null));
    cluster.close(allocator).await
}

#[tokio::test]
async fn b26_another_group_is_pending_until_re_evaluate_is_set() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    cluster.local("other", "10.1.0.8/30").await?;
    let allocator = cluster.allocator()?;
    cluster.service("web", json!({}), json!({})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    cluster.annotate("web", json!({"purelb.io/service-group": "other"})).await?;
    cluster.told("web", "MovePending").await?;
    assert_eq!(ips(&cluster.shown("web").await?), ["10.0.0.8"]);
    cluster.annotate("web", json!({"purelb.io/re-evaluate": "true"})).await?;
    let moved = cluster.has("web", &["10.1.0.8"]).await?;
    assert_eq!(moved["metadata"]["annotations"]["purelb.io/re-evaluate"], Value::Null);
    assert_eq!(moved["metadata"]["annotations"]["purelb.io/allocated-from"], "other");
    cluster.close(allocator).await
}

#[tokio::test]
async fn bug_11_a_restart_keeps_what_is_there_and_serves_what_waits() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let first = cluster.allocator()?;
    cluster.service("b", json!({}), json!({})).await?;
    let before = cluster.has("b", &["10.0.0.8"]).await?;
    cluster.close(first).await?;
    cluster.service("a", json!({}), json!({})).await?;
    let killed = cluster.allocator()?;
    cluster.has("a", &["10.0.0.9"]).await?;
    killed.kill();
    cluster.service("c", json!({}), json!({})).await?;
    let third = cluster.allocator()?;
    cluster.has("c", &["10.0.0.10"]).await?;
    assert_eq!(cluster.shown("b").await?, before, "not one write to a Service that needs nothing");
    cluster.close(third).await
}

#[tokio::test]
async fn bug_15_nobody_elses_service_is_written() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    cluster.service("plain", json!({}), json!({"type": "ClusterIP"})).await?;
    cluster.service("foreign", json!({}), json!({"loadBalancerClass": "example.com/other"})).await?;
    let before = [cluster.shown("plain").await?, cluster.shown("foreign").await?];
    let allocator = cluster.allocator()?;
    for (class, address) in [("purelb.io/purelb", "10.0.0.8"), ("purelb.io/purelbv2", "10.0.0.9")] {
        let name = class.replace(['.', '/'], "-");
        cluster.service(&name, json!({}), json!({"loadBalancerClass": class})).await?;
        cluster.has(&name, &[address]).await?;
    }
    assert_eq!([cluster.shown("plain").await?, cluster.shown("foreign").await?], before);
    cluster.close(allocator).await
}
