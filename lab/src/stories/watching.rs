//! Watches, as they are on the wire.

use anyhow::{Result, ensure};
use serde_json::json;

use super::ground::{Ground, PatchType, refused, text, version};
use super::manifest::{config_map, labelled, service};

/// A watch that starts at a list's version sees each later change once and in order, and nothing older.
pub async fn a_watch_from_a_resource_version_sees_each_change_once_and_in_order(ground: &Ground) -> Result<()> {
    let (all, sky) = (ground.core("configmaps"), ground.core("configmaps/sky"));
    ground.create(&all, &config_map("before")).await?;
    let start = text(&ground.get(&all).await?["metadata"]["resourceVersion"])?;
    ground.create(&all, &config_map("sky")).await?;
    let mut watch = ground.watch(&all, &format!("resourceVersion={start}")).await?;
    for colour in ["grey", "red", "red", "black"] {
        ground.patch(&sky, PatchType::Merge, &json!({"data": {"colour": colour}})).await?;
    }
    ground.delete(&sky).await?;
    ground.create(&all, &config_map("after")).await?;

    let mut versions = vec![];
    let first = watch.expect("ADDED", "sky").await?;
    assert_eq!((&first["kind"], &first["data"]["colour"]), (&json!("ConfigMap"), &json!("blue")));
    versions.push(version(&first)?);
    for colour in ["grey", "red", "black"] {
        let changed = watch.expect("MODIFIED", "sky").await?;
        assert_eq!(changed["data"]["colour"], colour, "a change that changed nothing is no event");
        versions.push(version(&changed)?);
    }
    let gone = watch.expect("DELETED", "sky").await?;
    assert_eq!(gone["data"]["colour"], "black", "the last state travels with the deletion");
    versions.push(version(&gone)?);
    versions.push(version(&watch.expect("ADDED", "after").await?)?);
    ensure!(versions.is_sorted_by(|a, b| a < b), "versions grow, also by the deletion: {versions:?}");
    Ok(())
}

/// A watch without a version, or from version 0, begins with what is there.
pub async fn a_watch_without_a_resource_version_begins_with_what_is_there(ground: &Ground) -> Result<()> {
    let all = ground.core("configmaps");
    let mut there = Vec::new();
    for name in ["a", "b"] {
        there.push(ground.create(&all, &config_map(name)).await?);
    }
    // Version 0 means "any version will do", so make sure that the server's cache is this far.
    ground.get(&format!("{all}?resourceVersion={}", version(&there[1])?)).await?;
    for query in ["", "resourceVersion=", "resourceVersion=0"] {
        let mut watch = ground.watch(&all, query).await?;
        let mut seen = [watch.next_brief().await?, watch.next_brief().await?];
        seen.sort();
        assert_eq!(seen, ["ADDED a", "ADDED b"], "with query {query:?}");
        let name = format!("c{}", query.len());
        ground.create(&all, &config_map(&name)).await?;
        watch.expect("ADDED", &name).await?;
        ground.delete(&ground.core(&format!("configmaps/{name}"))).await?;
        watch.expect("DELETED", &name).await?;
    }
    Ok(())
}

/// A Service that stops being a LoadBalancer leaves the watch on LoadBalancers as if deleted, and comes back as if new.
pub async fn a_service_leaves_and_enters_the_watch_on_its_type(ground: &Ground) -> Result<()> {
    let (all, web) = (ground.core("services"), ground.core("services/web"));
    let mut watch = ground.watch(&all, "fieldSelector=spec.type%3DLoadBalancer").await?;
    ground.create(&all, &service("inside", "ClusterIP")).await?;
    ground.create(&all, &service("web", "LoadBalancer")).await?;
    watch.expect("ADDED", "web").await?;

    let away = ground.patch(&web, PatchType::Merge, &json!({"spec": {"type": "ClusterIP"}})).await?;
    let left = watch.expect("DELETED", "web").await?;
    assert_eq!(left["spec"]["type"], "LoadBalancer", "the event shows the last state that was selected");
    assert_eq!(version(&left)?, version(&away)?, "with the version of the change that ended it");

    ground.patch(&web, PatchType::Merge, &json!({"metadata": {"labels": {"unseen": "yes"}}})).await?;
    ground.patch(&web, PatchType::Merge, &json!({"spec": {"type": "LoadBalancer"}})).await?;
    watch.expect("ADDED", "web").await?;
    ground.patch(&web, PatchType::Merge, &json!({"metadata": {"labels": {"seen": "yes"}}})).await?;
    watch.expect("MODIFIED", "web").await?;
    ground.delete(&web).await?;
    watch.expect("DELETED", "web").await?;
    Ok(())
}

/// The same with labels, from a version in the past.
pub async fn an_object_leaves_and_enters_the_watch_on_its_labels(ground: &Ground) -> Result<()> {
    let (all, sky) = (ground.core("configmaps"), ground.core("configmaps/sky"));
    let start = ground.create(&all, &labelled("sky", json!({"app": "web"}))).await?;
    for app in ["api", "web"] {
        ground.patch(&sky, PatchType::Merge, &json!({"metadata": {"labels": {"app": app}}})).await?;
    }
    ground.delete(&sky).await?;
    let query = format!("labelSelector=app%3Dweb&resourceVersion={}", version(&start)?);
    let mut watch = ground.watch(&all, &query).await?;
    for kind in ["DELETED", "ADDED", "DELETED"] {
        let object = watch.expect(kind, "sky").await?;
        assert_eq!(object["metadata"]["labels"]["app"], "web");
    }
    Ok(())
}

/// A watch on one namespace, or on one name, sees no other.
pub async fn a_watch_sees_only_what_it_asked_for(ground: &Ground) -> Result<()> {
    let neighbour = ground.neighbour().await?;
    let all = ground.core("configmaps");
    let mut namespace = ground.watch(&all, "").await?;
    let mut name = ground.watch(&all, "fieldSelector=metadata.name%3Dsky").await?;
    neighbour.create(&neighbour.core("configmaps"), &config_map("sky")).await?;
    ground.create(&all, &config_map("sea")).await?;
    ground.create(&all, &config_map("sky")).await?;
    namespace.expect("ADDED", "sea").await?;
    namespace.expect("ADDED", "sky").await?;
    let sky = name.expect("ADDED", "sky").await?;
    assert_eq!(sky["metadata"]["namespace"], json!(ground.namespace));
    Ok(())
}

/// Before a watch ends by its timeout, a bookmark says how far it has come.
pub async fn a_bookmark_tells_how_far_a_watch_has_come(ground: &Ground) -> Result<()> {
    let all = ground.core("services");
    let created = ground.create(&all, &service("web", "LoadBalancer")).await?;
    let query = format!("allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion={}", version(&created)?);
    let events = ground.watch(&all, &query).await?.until_the_end().await?;
    let Some(bookmark) = events.last() else { anyhow::bail!("the watch ended without a bookmark") };
    assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("Service")));
    assert!(version(&bookmark["object"])? >= version(&created)?, "{bookmark}");
    assert!(bookmark["object"]["metadata"]["name"].is_null(), "a bookmark is about no object: {bookmark}");
    Ok(())
}

/// A streaming list: what is there, then a marked bookmark, then changes.
pub async fn initial_events_end_with_a_marked_bookmark(ground: &Ground) -> Result<()> {
    let all = ground.core("configmaps");
    for name in ["a", "b"] {
        ground.create(&all, &config_map(name)).await?;
    }
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = ground.watch(&all, query).await?;
    let mut seen = [watch.next_brief().await?, watch.next_brief().await?];
    seen.sort();
    assert_eq!(seen, ["ADDED a", "ADDED b"]);
    let mark = watch.next().await?;
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    let next = ground.create(&all, &config_map("c")).await?;
    assert!(version(&mark["object"])? < version(&next)?);
    watch.expect("ADDED", "c").await?;

    let unmatched = ground.get(&format!("{all}?watch=1&sendInitialEvents=true")).await;
    refused(unmatched, 422, "Invalid")?;
    Ok(())
}
