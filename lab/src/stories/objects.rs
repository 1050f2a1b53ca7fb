//! Objects come, change and go: create, get, list, update, delete.

use anyhow::{Result, ensure};
use serde_json::json;

use super::ground::{Ground, PatchType, conflict, invalid, names, refused, text, version};
use super::manifest::{config_map, labelled};

/// The whole life of an ordinary object.
pub async fn an_object_is_created_read_listed_changed_and_deleted(ground: &Ground) -> Result<()> {
    let (all, one) = (ground.core("configmaps"), ground.core("configmaps/sky"));
    let created = ground.create(&all, &config_map("sky")).await?;
    assert_eq!(created["metadata"]["namespace"], json!(ground.namespace));
    for field in ["uid", "creationTimestamp", "resourceVersion"] {
        assert!(created["metadata"][field].is_string(), "the server fills metadata.{field}: {created}");
    }
    assert_eq!(ground.get(&one).await?, created);

    let list = ground.get(&all).await?;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(names(&list), ["sky"]);
    assert!(version(&list)? >= version(&created)?);

    let mut wanted = created.clone();
    wanted["data"]["colour"] = json!("grey");
    let changed = ground.replace(&one, &wanted).await?;
    assert_eq!(changed["data"]["colour"], "grey");
    assert_eq!(changed["metadata"]["uid"], created["metadata"]["uid"]);
    assert!(version(&changed)? > version(&created)?);

    let gone = ground.delete(&one).await?;
    assert_eq!((&gone["kind"], &gone["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(gone["details"]["uid"], created["metadata"]["uid"]);
    refused(ground.get(&one).await, 404, "NotFound")?;
    Ok(())
}

/// A name is taken once per namespace.
pub async fn a_name_is_taken_once_per_namespace(ground: &Ground) -> Result<()> {
    let neighbour = ground.neighbour().await?;
    ground.create(&ground.core("configmaps"), &config_map("sky")).await?;
    let again = ground.create(&ground.core("configmaps"), &config_map("sky")).await;
    let status = refused(again, 409, "AlreadyExists")?;
    assert_eq!(status.message, r#"configmaps "sky" already exists"#);
    neighbour.create(&neighbour.core("configmaps"), &config_map("sky")).await?;
    assert_eq!(names(&ground.get(&ground.core("configmaps")).await?), ["sky"]);
    Ok(())
}

/// Every verb on an absent object says that it is absent.
pub async fn what_is_absent_is_not_found(ground: &Ground) -> Result<()> {
    let path = ground.core("configmaps/sky");
    let answers = [
        ground.get(&path).await,
        ground.replace(&path, &config_map("sky")).await,
        ground.patch(&path, PatchType::Merge, &json!({"data": {"colour": "red"}})).await,
        ground.delete(&path).await,
    ];
    for answer in answers {
        let status = refused(answer, 404, "NotFound")?;
        assert_eq!(status.message, r#"configmaps "sky" not found"#);
        let details = status.details.as_ref().map(|details| (details.name.as_str(), details.kind.as_str()));
        assert_eq!(details, Some(("sky", "configmaps")));
    }
    Ok(())
}

/// Nothing can be written into a namespace that does not exist, and listing one shows nothing.
pub async fn a_missing_namespace_takes_no_objects(ground: &Ground) -> Result<()> {
    let path = "/api/v1/namespaces/nowhere/configmaps";
    let status = refused(ground.create(path, &config_map("sky")).await, 404, "NotFound")?;
    assert_eq!(status.message, r#"namespaces "nowhere" not found"#);
    assert_eq!(names(&ground.get(path).await?), [""; 0]);
    Ok(())
}

/// Names follow RFC 1123; the oldest PureLB document has one that does not.
pub async fn names_follow_rfc_1123(ground: &Ground) -> Result<()> {
    for name in ["VirtualAddressRange", "under_score", "-dash", "dot.", &"x".repeat(254)] {
        let answer = ground.create(&ground.core("configmaps"), &config_map(name)).await;
        invalid(answer, "metadata.name")?;
    }
    ground.create(&ground.core("configmaps"), &config_map("0.dots-and-digits.9")).await?;
    let unnamed = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    refused(ground.create(&ground.core("configmaps"), &unnamed).await, 422, "Invalid")?;
    Ok(())
}

/// An update decided on an old version is refused; without a version it wins.
pub async fn a_stale_update_conflicts(ground: &Ground) -> Result<()> {
    let path = ground.core("configmaps/sky");
    let old = ground.create(&ground.core("configmaps"), &config_map("sky")).await?;
    let mut first = old.clone();
    first["data"]["colour"] = json!("grey");
    ground.replace(&path, &first).await?;

    let mut second = old.clone();
    second["data"]["colour"] = json!("red");
    conflict(ground.replace(&path, &second).await, "configmaps", "sky")?;
    assert_eq!(ground.get(&path).await?["data"]["colour"], "grey");

    second["metadata"]["resourceVersion"].take();
    assert_eq!(ground.replace(&path, &second).await?["data"]["colour"], "red");
    Ok(())
}

/// An update that changes nothing writes nothing.
pub async fn an_unchanged_update_keeps_the_resource_version(ground: &Ground) -> Result<()> {
    let path = ground.core("configmaps/sky");
    let created = ground.create(&ground.core("configmaps"), &config_map("sky")).await?;
    assert_eq!(version(&ground.replace(&path, &created).await?)?, version(&created)?);
    let same = json!({"data": {"colour": "blue"}});
    assert_eq!(version(&ground.patch(&path, PatchType::Merge, &same).await?)?, version(&created)?);
    Ok(())
}

/// What the server fills in cannot be changed by a client.
pub async fn identity_cannot_be_changed(ground: &Ground) -> Result<()> {
    let path = ground.core("configmaps/sky");
    let created = ground.create(&ground.core("configmaps"), &config_map("sky")).await?;
    let mut stranger = created.clone();
    stranger["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    refused(ground.replace(&path, &stranger).await, 409, "Conflict")?;
    let mut older = created.clone();
    older["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    older["data"]["colour"] = json!("grey");
    let changed = ground.replace(&path, &older).await?;
    assert_eq!(changed["metadata"]["creationTimestamp"], created["metadata"]["creationTimestamp"]);
    Ok(())
}

/// A delete may name the very object and the very version that it means.
pub async fn delete_preconditions_are_respected(ground: &Ground) -> Result<()> {
    let path = ground.core("configmaps/sky");
    let created = ground.create(&ground.core("configmaps"), &config_map("sky")).await?;
    let uid = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}});
    refused(ground.delete_with(&path, &uid).await, 409, "Conflict")?;
    let stale = json!({"preconditions": {"resourceVersion": "1"}});
    refused(ground.delete_with(&path, &stale).await, 409, "Conflict")?;
    assert_eq!(ground.get(&path).await?, created);
    let right = json!({"preconditions": {
        "uid": created["metadata"]["uid"],
        "resourceVersion": created["metadata"]["resourceVersion"],
    }});
    ground.delete_with(&path, &right).await?;
    refused(ground.get(&path).await, 404, "NotFound")?;
    Ok(())
}

/// An object with a finalizer stays until the finalizer is removed.
pub async fn finalizers_delay_deletion(ground: &Ground) -> Result<()> {
    let (all, path) = (ground.core("configmaps"), ground.core("configmaps/sky"));
    let mut held = config_map("sky");
    held["metadata"]["finalizers"] = json!(["purelb.io/story"]);
    let created = ground.create(&all, &held).await?;

    let leaving = ground.delete(&path).await?;
    assert_eq!(leaving["kind"], "ConfigMap", "the object itself is the answer while it stays");
    assert!(leaving["metadata"]["deletionTimestamp"].is_string());
    assert!(version(&leaving)? > version(&created)?);
    assert_eq!(version(&ground.delete(&path).await?)?, version(&leaving)?, "a second delete changes nothing");
    refused(ground.create(&all, &held).await, 409, "AlreadyExists")?;

    let more = json!({"metadata": {"finalizers": ["purelb.io/story", "purelb.io/another"]}});
    refused(ground.patch(&path, PatchType::Merge, &more).await, 422, "Invalid")?;
    ground.patch(&path, PatchType::Merge, &json!({"metadata": {"finalizers": null}})).await?;
    refused(ground.get(&path).await, 404, "NotFound")?;
    Ok(())
}

/// `generateName` makes a name that is free.
pub async fn generated_names_are_fresh(ground: &Ground) -> Result<()> {
    let wish = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "sky-"}});
    let mut seen = Vec::new();
    for _ in 0..5 {
        let made = ground.create(&ground.core("configmaps"), &wish).await?;
        let name = text(&made["metadata"]["name"])?;
        ensure!(name.starts_with("sky-") && name.len() == "sky-".len() + 5, "unexpected name {name}");
        ensure!(!seen.contains(&name), "{name} was given twice");
        seen.push(name);
    }
    Ok(())
}

/// A dry run answers as if, and stores nothing.
pub async fn a_dry_run_stores_nothing(ground: &Ground) -> Result<()> {
    let (all, path) = (ground.core("configmaps"), ground.core("configmaps/sky"));
    let pretended = ground.create(&format!("{all}?dryRun=All"), &config_map("sky")).await?;
    assert_eq!(pretended["metadata"]["name"], "sky");
    refused(ground.get(&path).await, 404, "NotFound")?;
    let created = ground.create(&all, &config_map("sky")).await?;
    ground.delete(&format!("{path}?dryRun=All")).await?;
    let patch = json!({"data": {"colour": "red"}});
    let patched = ground.patch(&format!("{path}?dryRun=All"), PatchType::Merge, &patch).await?;
    assert_eq!(patched["data"]["colour"], "red");
    assert_eq!(ground.get(&path).await?, created);
    Ok(())
}

/// Many objects are deleted by one request, by label.
pub async fn a_collection_is_deleted_by_label(ground: &Ground) -> Result<()> {
    let all = ground.core("configmaps");
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "api")] {
        ground.create(&all, &labelled(name, json!({"app": app}))).await?;
    }
    ground.delete(&format!("{all}?labelSelector=app%3Dweb")).await?;
    assert_eq!(names(&ground.get(&all).await?), ["c"]);
    Ok(())
}
