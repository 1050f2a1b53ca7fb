//! Requests that make no sense get an answer that says why.

use anyhow::{Result, ensure};
use http::Method;
use serde_json::json;

use super::ground::{Ground, invalid, refused};
use super::manifest::{config_map, group, local_v4};

/// Bodies that are no JSON, or not the JSON that was expected.
pub async fn bodies_that_are_no_object_are_refused(ground: &Ground) -> Result<()> {
    let all = ground.core("configmaps");
    for body in ["", "{", "[]", "\"text\"", "{\"data\": 7}", "\u{0}\u{1}\u{2}"] {
        let answer = ground.send(Method::POST, &all, "application/json", body.into()).await;
        refused(answer, 400, "BadRequest").map_err(|error| error.context(format!("body {body:?}")))?;
    }
    Ok(())
}

/// An object of another kind, or for another namespace.
pub async fn objects_for_another_door_are_refused(ground: &Ground) -> Result<()> {
    let all = ground.core("configmaps");
    let mut kind = config_map("sky");
    kind["kind"] = json!("Secret");
    refused(ground.create(&all, &kind).await, 400, "BadRequest")?;
    let mut group = config_map("sky");
    group["apiVersion"] = json!("apps/v1");
    refused(ground.create(&all, &group).await, 400, "BadRequest")?;
    let mut namespace = config_map("sky");
    namespace["metadata"]["namespace"] = json!("elsewhere");
    refused(ground.create(&all, &namespace).await, 400, "BadRequest")?;
    ground.create(&all, &config_map("sky")).await?;
    let answer = ground.replace(&ground.core("configmaps/sky"), &config_map("sea")).await;
    refused(answer, 400, "BadRequest")?;
    Ok(())
}

/// Custom resources are taken just as literally.
pub async fn custom_resources_for_another_door_are_refused(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let all = ground.group("purelb.io/v2", "servicegroups");
    refused(ground.create(&all, &group("v1", "default", local_v4())).await, 400, "BadRequest")?;
    let mut kind = group("v2", "default", local_v4());
    kind["kind"] = json!("LBNodeAgent");
    invalid(ground.create(&all, &kind).await, "kind")?;
    refused(ground.create(&all, &json!({"metadata": {"name": "default"}})).await, 400, "BadRequest")?;
    Ok(())
}

/// Resources that nobody serves, and verbs that a resource does not have.
pub async fn unknown_doors_and_verbs_are_refused(ground: &Ground) -> Result<()> {
    for path in ["/api/v1/nopes", "/apis/nope.io/v1/nopes", "/apis/purelb.io/v9/servicegroups", &ground.core("nopes/x")]
    {
        // Of a group that nobody has registered the server says so in plain text, without a reason.
        let answer = ground.get(path).await;
        ensure!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 404), "{path}: {answer:?}");
    }
    let all = ground.core("configmaps");
    refused(ground.replace(&all, &config_map("sky")).await, 405, "MethodNotAllowed")?;
    let one = ground.core("configmaps/sky");
    refused(ground.create(&one, &config_map("sky")).await, 405, "MethodNotAllowed")?;
    Ok(())
}

/// Selectors that cannot be parsed.
pub async fn broken_selectors_are_refused(ground: &Ground) -> Result<()> {
    for query in [
        "labelSelector=app%20in",
        "labelSelector=app%20in%20(web",
        "labelSelector=%3D%3D",
        "labelSelector=app%3Dnot%20a%20value",
        "labelSelector=-bad-key%3Dx",
        "fieldSelector=metadata.name",
        "fieldSelector=metadata.nope%3D1",
    ] {
        let answer = ground.get(&ground.core(&format!("configmaps?{query}"))).await;
        refused(answer, 400, "BadRequest").map_err(|error| error.context(query))?;
    }
    Ok(())
}

/// Versions and limits that are no numbers, and tokens that nobody gave out.
pub async fn broken_versions_and_tokens_are_refused(ground: &Ground) -> Result<()> {
    for query in ["resourceVersion=new", "limit=2&continue=nonsense", "resourceVersion=-1"] {
        let answer = ground.get(&ground.core(&format!("configmaps?{query}"))).await;
        refused(answer, 400, "BadRequest").map_err(|error| error.context(query))?;
    }
    for query in ["resourceVersionMatch=Exact", "resourceVersionMatch=Roughly&resourceVersion=1"] {
        let answer = ground.get(&ground.core(&format!("configmaps?{query}"))).await;
        refused(answer, 422, "Invalid").map_err(|error| error.context(query))?;
    }
    let mut sky = config_map("sky");
    sky["metadata"]["resourceVersion"] = json!("7");
    // 1.36 answers the following with 500, which is nothing to insist on.
    ensure!(ground.get(&ground.core("configmaps?watch=1&resourceVersion=new")).await.is_err(), "a watch from nonsense");
    ensure!(ground.create(&ground.core("configmaps"), &sky).await.is_err(), "a new object has no version yet");
    ground.create(&ground.core("configmaps"), &config_map("sky")).await?;
    sky["metadata"]["resourceVersion"] = json!("new");
    ensure!(ground.replace(&ground.core("configmaps/sky"), &sky).await.is_err(), "no object has such a version");
    Ok(())
}
