//! What is too old: 410, and how each verb says it.

use anyhow::Result;
use serde_json::json;

use super::ground::{Ground, names, refused, text};
use super::manifest::{group, local_v4};

/// The second page of a list that was begun before the compaction is gone; the answer offers an inexact rest.
pub async fn an_old_continue_token_is_expired(ground: &Ground) -> Result<()> {
    let past = &ground.past;
    let events = format!("/api/v1/namespaces/{}/events", past.namespace);
    let answer = ground.get(&format!("{events}?limit=1&continue={}", past.continue_token)).await;
    let status = refused(answer, 410, "Expired")?;
    let rest = status.metadata.as_ref().and_then(|metadata| metadata.continue_.clone()).unwrap_or_default();
    let rest = ground.get(&format!("{events}?continue={rest}")).await?;
    assert_eq!(names(&rest), ["fourth", "second", "third"], "the rest, as it is now");
    Ok(())
}

/// A list at exactly one old version is gone.
pub async fn a_list_at_an_old_version_is_expired(ground: &Ground) -> Result<()> {
    let past = &ground.past;
    let query = format!("resourceVersion={}&resourceVersionMatch=Exact", past.resource_version);
    let answer = ground.get(&format!("/api/v1/namespaces/{}/events?{query}", past.namespace)).await;
    refused(answer, 410, "Expired")?;
    Ok(())
}

/// A watch from an old version opens with 200 and says 410 in its only event.
pub async fn a_watch_from_an_old_version_is_expired(ground: &Ground) -> Result<()> {
    let past = &ground.past;
    let events = format!("/api/v1/namespaces/{}/events", past.namespace);
    expired(ground, &events).await
}

/// The same of a custom resource, whose history begins with its definition.
pub async fn a_watch_from_before_the_definition_is_expired(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let groups = ground.group("purelb.io/v2", "servicegroups");
    ground.create(&groups, &group("v2", "default", local_v4())).await?;
    expired(ground, &groups).await
}

async fn expired(ground: &Ground, path: &str) -> Result<()> {
    let query = format!("resourceVersion={}&timeoutSeconds=5", ground.past.resource_version);
    let mut watch = ground.watch(path, &query).await?;
    let event = watch.next().await?;
    assert_eq!(text(&event["type"])?, "ERROR");
    let status = &event["object"];
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")));
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")), "{status}");
    assert!(watch.until_the_end().await?.is_empty(), "nothing follows an error");
    Ok(())
}
