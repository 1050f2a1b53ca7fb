//! The one write on which allocation stands: a merge patch on `services/status`.

use anyhow::Result;
use serde_json::{Value, json};

use super::ground::{Ground, PatchType, conflict, invalid, version};
use super::manifest::{condition, load_balancer, patch_of, service};

fn assignment(seen: &Value, address: &str) -> Value {
    let assigned = condition("purelb.io/AddressAssigned", "True");
    let annotations = json!({
        "purelb.io/allocated-by": "PureLB",
        "purelb.io/allocated-from": "default",
        "purelb.io/re-evaluate": null,
    });
    let status = json!({
        "loadBalancer": {"ingress": [{"ip": address, "ipMode": "VIP"}]},
        "conditions": [assigned],
    });
    patch_of(seen, json!({"metadata": {"annotations": annotations}, "status": status}))
}

/// Annotations, ingress and condition arrive together, and nothing else changes.
pub async fn one_merge_patch_sets_annotations_ingress_and_condition(ground: &Ground) -> Result<()> {
    let mut wish = service("web", "LoadBalancer");
    wish["metadata"]["annotations"] = json!({"purelb.io/service-group": "default", "purelb.io/re-evaluate": "true"});
    let created = ground.create(&ground.core("services"), &wish).await?;
    let mut watch = ground.watch(&ground.core("services"), &format!("resourceVersion={}", version(&created)?)).await?;

    let path = ground.core("services/web/status");
    let patched = ground.patch(&path, PatchType::Merge, &assignment(&created, "192.0.2.1")).await?;
    let annotations = json!({
        "purelb.io/service-group": "default",
        "purelb.io/allocated-by": "PureLB",
        "purelb.io/allocated-from": "default",
    });
    assert_eq!(patched["metadata"]["annotations"], annotations);
    assert_eq!(patched["status"]["loadBalancer"]["ingress"], json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]));
    assert_eq!(patched["status"]["conditions"][0]["type"], "purelb.io/AddressAssigned");
    assert_eq!(patched["spec"], created["spec"]);
    let seen = watch.expect("MODIFIED", "web").await?;
    assert_eq!(seen["metadata"]["annotations"], annotations, "nobody sees the address without its brand");
    assert_eq!(seen["status"], patched["status"]);
    assert_eq!(ground.get(&ground.core("services/web")).await?["status"], patched["status"]);
    Ok(())
}

/// A decision on an old version of the Service is not written.
pub async fn a_decision_on_a_stale_service_conflicts(ground: &Ground) -> Result<()> {
    let created = ground.create(&ground.core("services"), &service("web", "LoadBalancer")).await?;
    let label = json!({"metadata": {"labels": {"changed": "meanwhile"}}});
    let newer = ground.patch(&ground.core("services/web"), PatchType::Merge, &label).await?;
    let path = ground.core("services/web/status");
    let stale = ground.patch(&path, PatchType::Merge, &assignment(&created, "192.0.2.1")).await;
    conflict(stale, "services", "web")?;
    assert!(ground.get(&path).await?["status"]["loadBalancer"]["ingress"].is_null());
    ground.patch(&path, PatchType::Merge, &assignment(&newer, "192.0.2.1")).await?;
    Ok(())
}

/// The same patch again is no write.
pub async fn the_same_status_again_is_no_write(ground: &Ground) -> Result<()> {
    let created = ground.create(&ground.core("services"), &service("web", "LoadBalancer")).await?;
    let path = ground.core("services/web/status");
    let first = ground.patch(&path, PatchType::Merge, &assignment(&created, "192.0.2.1")).await?;
    let second = ground.patch(&path, PatchType::Merge, &assignment(&first, "192.0.2.1")).await?;
    assert_eq!(version(&second)?, version(&first)?);
    Ok(())
}

/// The status door does not let a spec in, nor the front door a status.
pub async fn spec_and_status_have_doors_of_their_own(ground: &Ground) -> Result<()> {
    let created = ground.create(&ground.core("services"), &service("web", "LoadBalancer")).await?;
    let spec = json!({"spec": {"externalTrafficPolicy": "Local", "ports": [{"port": 81}]}});
    let patched = ground.patch(&ground.core("services/web/status"), PatchType::Merge, &spec).await?;
    assert_eq!(patched["spec"], created["spec"]);
    assert_eq!(version(&patched)?, version(&created)?);

    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}});
    let patched = ground.patch(&ground.core("services/web"), PatchType::Merge, &status).await?;
    assert_eq!(patched["status"], json!({"loadBalancer": {}}));

    let mut whole = created.clone();
    whole["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    whole["spec"]["externalTrafficPolicy"] = json!("Local");
    let replaced = ground.replace(&ground.core("services/web/status"), &whole).await?;
    let ingress = json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]);
    assert_eq!(replaced["status"]["loadBalancer"]["ingress"], ingress, "ipMode has a default");
    assert_eq!(replaced["spec"], created["spec"]);
    Ok(())
}

/// Dual stack: two addresses in the order written.
pub async fn ingress_keeps_its_order(ground: &Ground) -> Result<()> {
    let wish = load_balancer("web", json!({"ipFamilyPolicy": "RequireDualStack"}));
    ground.create(&ground.core("services"), &wish).await?;
    let ingress = json!([{"ip": "fc00:370:155:0:8000::", "ipMode": "VIP"}, {"ip": "172.32.100.225", "ipMode": "VIP"}]);
    let patch = json!({"status": {"loadBalancer": {"ingress": ingress}}});
    let patched = ground.patch(&ground.core("services/web/status"), PatchType::Merge, &patch).await?;
    assert_eq!(patched["status"]["loadBalancer"]["ingress"], ingress);
    Ok(())
}

/// Ingress is checked: an address must be one, and only LoadBalancers have it.
pub async fn wrong_ingress_is_refused(ground: &Ground) -> Result<()> {
    ground.create(&ground.core("services"), &service("web", "LoadBalancer")).await?;
    ground.create(&ground.core("services"), &service("inside", "ClusterIP")).await?;
    let patch = |ingress: Value| json!({"status": {"loadBalancer": {"ingress": [ingress]}}});
    let web = ground.core("services/web/status");
    let answer = ground.patch(&web, PatchType::Merge, &patch(json!({"ip": "not.an.address"}))).await;
    invalid(answer, "status.loadBalancer.ingress[0].ip")?;
    let answer = ground.patch(&web, PatchType::Merge, &patch(json!({"ip": "192.0.2.1", "ipMode": "Other"}))).await;
    invalid(answer, "status.loadBalancer.ingress[0].ipMode")?;
    let inside = ground.core("services/inside/status");
    let answer = ground.patch(&inside, PatchType::Merge, &patch(json!({"ip": "192.0.2.1"}))).await;
    invalid(answer, "status.loadBalancer.ingress")?;
    Ok(())
}
