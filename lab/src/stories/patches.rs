//! Patches in three formats.

use anyhow::Result;
use serde_json::{Value, json};

use super::ground::{Ground, PatchType, conflict, invalid, refused, version};
use super::manifest::{condition, config_map, group, local_v4, patch_of, service};

/// A merge patch changes what it names, removes what it says is null, and replaces lists.
pub async fn a_merge_patch_changes_what_it_names(ground: &Ground) -> Result<()> {
    let path = ground.core("configmaps/sky");
    let mut sky = config_map("sky");
    sky["data"]["height"] = json!("high");
    sky["metadata"]["finalizers"] = json!(["purelb.io/a", "purelb.io/b"]);
    let created = ground.create(&ground.core("configmaps"), &sky).await?;
    let patch = json!({
        "metadata": {"labels": {"new": "yes"}, "finalizers": ["purelb.io/c"]},
        "data": {"colour": "grey", "height": null, "absent": null},
    });
    let patched = ground.patch(&path, PatchType::Merge, &patch).await?;
    assert_eq!(patched["data"], json!({"colour": "grey"}));
    assert_eq!(patched["metadata"]["labels"], json!({"new": "yes"}));
    assert_eq!(patched["metadata"]["finalizers"], json!(["purelb.io/c"]));
    assert_eq!(patched["metadata"]["uid"], created["metadata"]["uid"]);
    ground.patch(&path, PatchType::Merge, &json!({"metadata": {"finalizers": null}})).await?;
    Ok(())
}

/// A patch that carries a version is refused when the object has moved on.
pub async fn a_patch_with_a_stale_version_conflicts(ground: &Ground) -> Result<()> {
    let path = ground.core("configmaps/sky");
    let created = ground.create(&ground.core("configmaps"), &config_map("sky")).await?;
    let patch = |colour: &str, seen: &Value| patch_of(seen, json!({"data": {"colour": colour}}));
    let patched = ground.patch(&path, PatchType::Merge, &patch("grey", &created)).await?;
    let stale = ground.patch(&path, PatchType::Merge, &patch("red", &created)).await;
    conflict(stale, "configmaps", "sky")?;
    let stale = ground.patch(&path, PatchType::Strategic, &patch("red", &created)).await;
    refused(stale, 409, "Conflict")?;
    ground.patch(&path, PatchType::Merge, &patch("red", &patched)).await?;
    Ok(())
}

/// A JSON patch is a list of steps, all or none.
pub async fn a_json_patch_applies_all_steps_or_none(ground: &Ground) -> Result<()> {
    let path = ground.core("configmaps/sky");
    let created = ground.create(&ground.core("configmaps"), &config_map("sky")).await?;
    let steps = json!([
        {"op": "test", "path": "/data/colour", "value": "blue"},
        {"op": "replace", "path": "/data/colour", "value": "grey"},
        {"op": "add", "path": "/metadata/labels", "value": {"purelb.io/new": "yes"}},
        {"op": "copy", "from": "/data/colour", "path": "/data/shade"},
        {"op": "remove", "path": "/metadata/labels/purelb.io~1new"},
    ]);
    let patched = ground.patch(&path, PatchType::Json, &steps).await?;
    assert_eq!(patched["data"], json!({"colour": "grey", "shade": "grey"}));
    assert!(patched["metadata"]["labels"].is_null());

    let failing = json!([
        {"op": "replace", "path": "/data/colour", "value": "red"},
        {"op": "test", "path": "/data/colour", "value": "blue"},
    ]);
    refused(ground.patch(&path, PatchType::Json, &failing).await, 422, "Invalid")?;
    let absent = json!([{"op": "remove", "path": "/data/absent"}]);
    refused(ground.patch(&path, PatchType::Json, &absent).await, 422, "Invalid")?;
    refused(ground.patch(&path, PatchType::Json, &json!({"data": {}})).await, 400, "BadRequest")?;
    assert_eq!(version(&ground.get(&path).await?)?, version(&patched)?, "nothing of a failed patch is kept");
    assert!(version(&patched)? > version(&created)?);
    Ok(())
}

/// A strategic merge patch knows that the ports of a Service are told apart by their number.
pub async fn a_strategic_patch_merges_ports_by_number(ground: &Ground) -> Result<()> {
    let path = ground.core("services/web");
    let mut web = service("web", "ClusterIP");
    web["spec"]["ports"] = json!([{"name": "http", "port": 80}, {"name": "https", "port": 443}]);
    ground.create(&ground.core("services"), &web).await?;
    let patch = json!({"spec": {"ports": [
        {"port": 443, "targetPort": 8443},
        {"name": "metrics", "port": 9090},
        {"port": 80, "$patch": "delete"},
    ]}});
    let patched = ground.patch(&path, PatchType::Strategic, &patch).await?;
    let ports = patched["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let mut brief: Vec<String> =
        ports.iter().map(|p| format!("{} {} {}", p["name"], p["port"], p["targetPort"])).collect();
    brief.sort();
    assert_eq!(brief, [r#""https" 443 8443"#, r#""metrics" 9090 9090"#]);

    let replace = json!({"spec": {"ports": [{"$patch": "replace"}, {"port": 53, "protocol": "UDP"}]}});
    let patched = ground.patch(&path, PatchType::Strategic, &replace).await?;
    assert_eq!(patched["spec"]["ports"], json!([{"port": 53, "protocol": "UDP", "targetPort": 53}]));
    assert_eq!(patched["spec"]["selector"], json!({"app": "web"}), "what the patch does not name stays");
    Ok(())
}

/// A strategic merge patch tells conditions apart by their type and replaces ingress as a whole.
pub async fn a_strategic_patch_merges_conditions_by_type(ground: &Ground) -> Result<()> {
    let path = ground.core("services/web/status");
    ground.create(&ground.core("services"), &service("web", "LoadBalancer")).await?;
    for (patch, conditions, ingress) in [
        (
            json!({"conditions": [condition("a", "True")], "loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}),
            "aTrue",
            1,
        ),
        (json!({"conditions": [condition("b", "True")]}), "aTrue bTrue", 1),
        (
            json!({"conditions": [condition("a", "False")], "loadBalancer": {"ingress": [{"ip": "192.0.2.2"}]}}),
            "aFalse bTrue",
            1,
        ),
    ] {
        let patched = ground.patch(&path, PatchType::Strategic, &json!({"status": patch})).await?;
        let status = &patched["status"];
        let mut seen: Vec<String> = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|condition| format!("{}{}", condition["type"], condition["status"]).replace('"', ""))
            .collect();
        seen.sort();
        assert_eq!(seen.join(" "), conditions);
        assert_eq!(status["loadBalancer"]["ingress"].as_array().map(Vec::len), Some(ingress), "{status}");
    }
    Ok(())
}

/// Custom resources have no merge keys, so they take no strategic merge patches; nobody takes unheard-of formats.
pub async fn unsupported_patch_formats_are_refused(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    ground.create(&ground.group("purelb.io/v2", "servicegroups"), &group("v2", "default", local_v4())).await?;
    let path = ground.group("purelb.io/v2", "servicegroups/default");
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    refused(ground.patch(&path, PatchType::Strategic, &patch).await, 415, "UnsupportedMediaType")?;
    refused(ground.patch(&path, PatchType::Unknown, &patch).await, 415, "UnsupportedMediaType")?;
    ground.patch(&path, PatchType::Merge, &patch).await?;
    ground.create(&ground.core("configmaps"), &config_map("sky")).await?;
    let sky = ground.core("configmaps/sky");
    refused(ground.patch(&sky, PatchType::Unknown, &patch).await, 415, "UnsupportedMediaType")?;
    Ok(())
}

/// What a patch makes must be as valid as what an update brings.
pub async fn a_patch_cannot_make_an_invalid_object(ground: &Ground) -> Result<()> {
    let path = ground.core("services/web");
    let created = ground.create(&ground.core("services"), &service("web", "LoadBalancer")).await?;
    let port = json!({"spec": {"ports": [{"port": 99999}]}});
    invalid(ground.patch(&path, PatchType::Merge, &port).await, "spec.ports[0].port")?;
    let text = json!({"spec": {"ports": "eighty"}});
    refused(ground.patch(&path, PatchType::Merge, &text).await, 422, "Invalid")?;
    let name = json!({"metadata": {"name": "other"}});
    refused(ground.patch(&path, PatchType::Merge, &name).await, 400, "BadRequest")?;
    assert_eq!(version(&ground.get(&path).await?)?, version(&created)?);
    Ok(())
}
