//! PureLB's own BGP kinds.

use anyhow::Result;
use serde_json::{Value, json};

use super::ground::{Ground, PatchType, invalid};
use super::manifest::condition;

/// Every field of the API, as clusters may have it stored.
const EVERY_FIELD: &str = include_str!("../../../crates/api/tests/data/bgp-every-field.yaml");

fn every_field() -> Result<Value> {
    let mut object: Value = serde_saphyr::from_str(EVERY_FIELD)?;
    object["metadata"] = json!({"name": "default"});
    Ok(object)
}

async fn ready(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    ground.served("/apis/bgp.purelb.io/v1/configs").await?;
    ground.served("/apis/bgp.purelb.io/v1/bgpnodestatuses").await
}

/// No field is refused, dropped or added, not even by a server that is asked to be strict.
pub async fn a_bgp_configuration_is_stored_as_written(ground: &Ground) -> Result<()> {
    ready(ground).await?;
    let object = every_field()?;
    let all = ground.group("bgp.purelb.io/v1", "configs");
    let created = ground.create(&format!("{all}?fieldValidation=Strict"), &object).await?;
    assert_eq!(created["spec"], object["spec"]);
    let read = ground.get(&format!("{all}/default")).await?;
    assert_eq!(read["spec"], object["spec"]);
    let plain = json!({
        "apiVersion": "bgp.purelb.io/v1", "kind": "BGPConfiguration", "metadata": {"name": "plain"},
        "spec": {"global": {"asn": 64512}, "netlinkImport": {}},
    });
    let created = ground.create(&format!("{all}?fieldValidation=Strict"), &plain).await?;
    assert_eq!(created["spec"], plain["spec"], "nothing is filled in");
    Ok(())
}

/// What the daemons could not do without is demanded.
pub async fn a_bgp_configuration_needs_an_as(ground: &Ground) -> Result<()> {
    ready(ground).await?;
    let all = ground.group("bgp.purelb.io/v1", "configs");
    for (spec, field) in [
        (json!({}), "spec.global"),
        (json!({"global": {}}), "spec.global.asn"),
        (json!({"global": {"asn": "64512"}}), "spec.global.asn"),
        (json!({"global": {"asn": 1}, "neighbors": [{}]}), "spec.neighbors[0].config"),
        (json!({"global": {"asn": 1}, "neighbors": [{"config": {}}]}), "spec.neighbors[0].config.peerAsn"),
        (
            json!({"global": {"asn": 1, "nodeStatus": {"heartbeatSeconds": 9}}}),
            "spec.global.nodeStatus.heartbeatSeconds",
        ),
    ] {
        let object = json!({
            "apiVersion": "bgp.purelb.io/v1", "kind": "BGPConfiguration", "metadata": {"name": "wrong"}, "spec": spec,
        });
        invalid(ground.create(&all, &object).await, field)?;
    }
    Ok(())
}

/// Conditions are written through the status, and a finalizer through the object.
pub async fn a_bgp_configuration_has_a_status_and_lets_go(ground: &Ground) -> Result<()> {
    ready(ground).await?;
    let mut object = every_field()?;
    object["metadata"]["finalizers"] = json!(["bgp.purelb.io/finalizer"]);
    let all = ground.group("bgp.purelb.io/v1", "configs");
    let created = ground.create(&all, &object).await?;
    let one = format!("{all}/default");
    let condition = condition("Ready", "True");
    let patch = json!({
        "metadata": {"finalizers": []},
        "spec": {"global": {"asn": 1}},
        "status": {"observedGeneration": 1, "conditions": [condition], "neighborCount": 2, "message": "fine"},
    });
    let patched = ground.patch(&format!("{one}/status"), PatchType::Merge, &patch).await?;
    assert_eq!(patched["status"], patch["status"]);
    assert_eq!(patched["spec"], created["spec"]);
    assert_eq!(patched["metadata"]["finalizers"], created["metadata"]["finalizers"], "not through the status");
    let deleted = ground.delete(&one).await?;
    assert!(deleted["metadata"]["deletionTimestamp"].is_string(), "{deleted}");
    ground.patch(&one, PatchType::Merge, &json!({"metadata": {"finalizers": []}})).await?;
    ground.gone(&one).await
}

/// A node's report belongs to the cluster, not to a namespace.
pub async fn a_bgp_node_status_is_of_the_whole_cluster(ground: &Ground) -> Result<()> {
    ready(ground).await?;
    let all = "/apis/bgp.purelb.io/v1/bgpnodestatuses";
    // The name is that of this story's namespace, for others run beside it.
    let name = &ground.namespace;
    let mut object = json!({
        "apiVersion": "bgp.purelb.io/v1", "kind": "BGPNodeStatus", "metadata": {"name": name}, "spec": {},
        "status": {"nodeName": "elsewhere", "neighborCount": 9},
    });
    let created = ground.create(all, &object).await?;
    assert!(created["status"].is_null() && created["metadata"]["namespace"].is_null(), "{created}");
    object["status"] = json!({
        "nodeName": name, "routerID": "192.0.2.1", "asn": 4_200_000_000_u32, "neighborCount": 1, "healthy": true,
        "neighbors": [{"address": "192.0.2.254", "peerASN": 64513, "state": "Established", "prefixesSent": 1, "prefixesReceived": 0}],
        "netlinkImport": {"enabled": true, "totalImported": 0},
    });
    let patch = json!({"status": object["status"]});
    let patched = ground.patch(&format!("{all}/{name}/status"), PatchType::Merge, &patch).await?;
    assert_eq!(patched["status"], object["status"]);
    let wrong = json!({"status": {"nodeName": Value::Null}});
    invalid(ground.patch(&format!("{all}/{name}/status"), PatchType::Merge, &wrong).await, "status.nodeName")?;
    ground.delete(&format!("{all}/{name}")).await?;
    Ok(())
}
