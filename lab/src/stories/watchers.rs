//! `kube::runtime::watcher`, on which the daemons stand.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher::{self, Config, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::ground::{Ground, PatchType};
use super::manifest::service;

/// List, then watch.
pub async fn a_listing_watcher_sees_create_modify_and_delete(ground: &Ground) -> Result<()> {
    follow(ground, Config::default().fields("spec.type=LoadBalancer")).await
}

/// List page by page, then watch.
pub async fn a_paging_watcher_sees_create_modify_and_delete(ground: &Ground) -> Result<()> {
    follow(ground, Config::default().fields("spec.type=LoadBalancer").page_size(1)).await
}

/// One stream for what is there and what comes.
pub async fn a_streaming_watcher_sees_create_modify_and_delete(ground: &Ground) -> Result<()> {
    follow(ground, Config::default().fields("spec.type=LoadBalancer").streaming_lists()).await
}

async fn follow(ground: &Ground, config: Config) -> Result<()> {
    let all = ground.core("services");
    for name in ["old", "older"] {
        ground.create(&all, &service(name, "LoadBalancer")).await?;
    }
    ground.create(&all, &service("inside", "ClusterIP")).await?;
    let mut events = watcher(Api::<Service>::namespaced(ground.client.clone(), &ground.namespace), config).boxed();
    assert_eq!(next(&mut events).await?, "init");
    let mut there = [next(&mut events).await?, next(&mut events).await?];
    there.sort();
    assert_eq!(there, ["there old", "there older"]);
    assert_eq!(next(&mut events).await?, "init done");

    ground.create(&all, &service("web", "LoadBalancer")).await?;
    assert_eq!(next(&mut events).await?, "apply web");
    let label = json!({"metadata": {"labels": {"app": "web"}}});
    ground.patch(&ground.core("services/web"), PatchType::Merge, &label).await?;
    assert_eq!(next(&mut events).await?, "apply web");
    let away = json!({"spec": {"type": "ClusterIP"}});
    ground.patch(&ground.core("services/old"), PatchType::Merge, &away).await?;
    assert_eq!(next(&mut events).await?, "delete old");
    ground.delete(&ground.core("services/web")).await?;
    assert_eq!(next(&mut events).await?, "delete web");
    Ok(())
}

async fn next(events: &mut (impl Stream<Item = watcher::Result<Event<Service>>> + Unpin)) -> Result<String> {
    let event = tokio::time::timeout(Duration::from_secs(20), events.next()).await.context("no event came")?;
    Ok(match event {
        Some(Ok(Event::Init)) => "init".to_owned(),
        Some(Ok(Event::InitApply(service))) => format!("there {}", service.name_any()),
        Some(Ok(Event::InitDone)) => "init done".to_owned(),
        Some(Ok(Event::Apply(service))) => format!("apply {}", service.name_any()),
        Some(Ok(Event::Delete(service))) => format!("delete {}", service.name_any()),
        Some(Err(error)) => return Err(error.into()),
        None => bail!("a watcher never ends"),
    })
}
