//! The other kinds that PureLB reads or writes.

use anyhow::Result;
use serde_json::{Value, json};

use super::ground::{Ground, PatchType, invalid, names, refused, text, version};
use super::manifest::{event, patch_of};

/// A Lease is renewed with microseconds, by one writer at a time.
pub async fn a_lease_is_renewed_in_microseconds_by_one_at_a_time(ground: &Ground) -> Result<()> {
    let path = ground.group("coordination.k8s.io/v1", "leases/purelb-node-a");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "purelb-node-a", "annotations": {"purelb.io/subnets": "192.0.2.0/24"}},
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 10,
            "acquireTime": "2026-01-01T00:00:00.000001Z",
            "renewTime": "2026-01-01T00:00:00.123456Z",
        },
    });
    let created = ground.create(&ground.group("coordination.k8s.io/v1", "leases"), &lease).await?;
    assert_eq!(created["spec"], lease["spec"], "times keep all six digits");

    let renewal = |seen: &Value, time: &str| patch_of(seen, json!({"spec": {"renewTime": time}}));
    let renewed = ground.patch(&path, PatchType::Merge, &renewal(&created, "2026-01-01T00:00:03.000000Z")).await?;
    assert_eq!(renewed["spec"]["renewTime"], "2026-01-01T00:00:03.000000Z");
    let late = ground.patch(&path, PatchType::Merge, &renewal(&created, "2026-01-01T00:00:04.000000Z")).await;
    refused(late, 409, "Conflict")?;

    let mut stale = created.clone();
    stale["spec"]["holderIdentity"] = json!("b");
    refused(ground.replace(&path, &stale).await, 409, "Conflict")?;
    stale["metadata"]["resourceVersion"].take();
    invalid(ground.replace(&path, &stale).await, "metadata.resourceVersion")?;
    let zero = json!({"spec": {"leaseDurationSeconds": 0}});
    invalid(ground.patch(&path, PatchType::Merge, &zero).await, "spec.leaseDurationSeconds")?;
    Ok(())
}

/// An Event is written about an object of its own namespace, and counted up by a patch.
pub async fn an_event_is_written_and_counted_up(ground: &Ground) -> Result<()> {
    let mut assigned = event(&ground.namespace, "web.1");
    assigned["count"] = json!(1);
    assigned["firstTimestamp"] = json!("2026-01-01T00:00:00Z");
    let created = ground.create(&ground.core("events"), &assigned).await?;
    assert_eq!((&created["reason"], &created["count"]), (&json!("AddressAssigned"), &json!(1)));
    let again = json!({"count": 2, "lastTimestamp": "2026-01-01T00:00:09Z"});
    let counted = ground.patch(&ground.core("events/web.1"), PatchType::Merge, &again).await?;
    assert_eq!(counted["count"], 2);
    let elsewhere = event("elsewhere", "web.2");
    invalid(ground.create(&ground.core("events"), &elsewhere).await, "involvedObject.namespace")?;
    Ok(())
}

/// EndpointSlices are found by the label that names their Service.
pub async fn endpoint_slices_are_found_by_service(ground: &Ground) -> Result<()> {
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-abc", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.0.7"], "conditions": {"ready": true}, "nodeName": "a"}],
        "ports": [{"port": 8080}],
    });
    let all = ground.group("discovery.k8s.io/v1", "endpointslices");
    let created = ground.create(&all, &slice).await?;
    assert_eq!(created["endpoints"], slice["endpoints"]);
    let found = ground.get(&format!("{all}?labelSelector=kubernetes.io%2Fservice-name%3Dweb")).await?;
    assert_eq!(names(&found), ["web-abc"]);
    let gone = json!({"endpoints": [{"addresses": ["10.1.0.7"], "conditions": {"ready": false}, "nodeName": "a"}]});
    let changed = ground.patch(&format!("{all}/web-abc"), PatchType::Merge, &gone).await?;
    assert_eq!(changed["endpoints"][0]["conditions"]["ready"], false);
    Ok(())
}

/// A Secret takes text and keeps base64.
pub async fn a_secret_takes_text_and_keeps_base64(ground: &Ground) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "bgp"},
        "stringData": {"password": "s3cret"},
        "data": {"other": "AAE="},
    });
    let created = ground.create(&ground.core("secrets"), &secret).await?;
    assert_eq!(created["data"], json!({"other": "AAE=", "password": "czNjcmV0"}));
    assert!(created["stringData"].is_null(), "what was written as text is not shown as text");
    assert_eq!(created["type"], "Opaque");
    let path = ground.core("secrets/bgp");
    let changed = ground.patch(&path, PatchType::Merge, &json!({"stringData": {"password": "other"}})).await?;
    assert_eq!(changed["data"]["password"], "b3RoZXI=");
    let broken = json!({"data": {"password": "not base64!"}});
    refused(ground.patch(&path, PatchType::Merge, &broken).await, 422, "Invalid")?;
    Ok(())
}

/// A Node belongs to no namespace and reports its addresses through its status.
pub async fn a_node_reports_its_status(ground: &Ground) -> Result<()> {
    let name = format!("node-of-{}", ground.namespace);
    let node =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": ground.namespace}}});
    let created = ground.create("/api/v1/nodes", &node).await?;
    assert!(created["metadata"]["namespace"].is_null());
    let path = format!("/api/v1/nodes/{name}");
    let addresses = json!([{"type": "InternalIP", "address": "192.0.2.7"}]);
    let patch = json!({"status": {"addresses": addresses}});
    let through_the_front = ground.patch(&path, PatchType::Merge, &patch).await?;
    assert!(through_the_front["status"]["addresses"].is_null());
    let patched = ground.patch(&format!("{path}/status"), PatchType::Merge, &patch).await?;
    assert_eq!(patched["status"]["addresses"], addresses);

    let taint = json!({"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}});
    let tainted = ground.patch(&path, PatchType::Merge, &taint).await?;
    assert_eq!(tainted["spec"]["taints"], taint["spec"]["taints"]);
    assert_eq!(tainted["status"]["addresses"], addresses);
    let found = ground.get(&format!("/api/v1/nodes?labelSelector=zone%3D{}", ground.namespace)).await?;
    assert_eq!(names(&found), [name.as_str()]);
    ground.delete(&path).await?;
    refused(ground.get(&path).await, 404, "NotFound")?;
    Ok(())
}

/// A Pod is bound, becomes ready and is deleted.
pub async fn a_pod_becomes_ready_and_goes(ground: &Ground) -> Result<()> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-1", "labels": {"app": "web"}},
        "spec": {"nodeName": "a", "containers": [{"name": "web", "image": "web"}]},
    });
    let created = ground.create(&ground.core("pods"), &pod).await?;
    assert_eq!(created["status"]["phase"], "Pending");
    let path = ground.core("pods/web-1");
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    let ready = json!({"status": {"phase": "Running", "podIP": "10.1.0.7", "conditions": conditions}});
    let running = ground.patch(&format!("{path}/status"), PatchType::Merge, &ready).await?;
    assert_eq!((&running["status"]["phase"], &running["status"]["podIP"]), (&json!("Running"), &json!("10.1.0.7")));
    let image = json!({"spec": {"containers": [{"name": "web", "image": "web:2"}]}});
    let changed = ground.patch(&path, PatchType::Strategic, &image).await?;
    assert_eq!(changed["spec"]["containers"][0]["image"], "web:2");
    ground.delete_with(&path, &json!({"gracePeriodSeconds": 0})).await?;
    refused(ground.get(&path).await, 404, "NotFound")?;
    Ok(())
}

/// A Namespace carries its own name as a label.
pub async fn a_namespace_is_labelled_with_its_name(ground: &Ground) -> Result<()> {
    let namespace = ground.get(&format!("/api/v1/namespaces/{}", ground.namespace)).await?;
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], json!(ground.namespace));
    assert_eq!(namespace["status"]["phase"], "Active");
    assert!(version(&namespace)? > 0);
    Ok(())
}

/// Discovery tells what there is, PureLB's own kinds included.
pub async fn discovery_lists_the_kinds(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    for (path, group_version, plural, kind, namespaced) in [
        ("/api/v1", "v1", "services", "Service", true),
        ("/api/v1", "v1", "nodes", "Node", false),
        ("/apis/coordination.k8s.io/v1", "coordination.k8s.io/v1", "leases", "Lease", true),
        ("/apis/discovery.k8s.io/v1", "discovery.k8s.io/v1", "endpointslices", "EndpointSlice", true),
        ("/apis/purelb.io/v1", "purelb.io/v1", "servicegroups", "ServiceGroup", true),
        ("/apis/purelb.io/v2", "purelb.io/v2", "lbnodeagents", "LBNodeAgent", true),
    ] {
        let list = ground.get(path).await?;
        assert_eq!((&list["kind"], &list["groupVersion"]), (&json!("APIResourceList"), &json!(group_version)));
        let found = list["resources"].as_array().into_iter().flatten().find(|resource| resource["name"] == plural);
        let Some(found) = found else { anyhow::bail!("{path} does not list {plural}") };
        assert_eq!((&found["kind"], &found["namespaced"]), (&json!(kind), &json!(namespaced)));
    }
    let groups = ground.get("/apis").await?;
    let ours = groups["groups"].as_array().into_iter().flatten().find(|group| group["name"] == "purelb.io");
    let versions = ours.map(|group| group["versions"].as_array().map(Vec::len));
    assert_eq!(versions, Some(Some(2)), "{ours:?}");
    assert!(text(&ground.get("/version").await?["gitVersion"])?.starts_with("v1."));
    Ok(())
}
