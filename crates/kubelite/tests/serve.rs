//! The server on a socket: who gets in, what is too much, and what happens to clients when it stops.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use purelb_kubelite::{Access, Kubelite};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A server on some port, and a way to reach it.
struct Served {
    server: Kubelite,
    access: Access,
    address: SocketAddr,
    task: JoinHandle<()>,
}

async fn served() -> Result<Served> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, access, server) = (listener.local_addr()?, Access::new("right")?, Kubelite::new());
    let serving = server.clone().serve(listener, access.clone());
    let task = tokio::spawn(async move { match serving.await {} });
    Ok(Served { server, access, address, task })
}

async fn client(kubeconfig: &str) -> Result<Client> {
    let config =
        Config::from_custom_kubeconfig(Kubeconfig::from_yaml(kubeconfig)?, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn config_map(name: &str, size: usize) -> ConfigMap {
    let data = [("text".to_owned(), "x".repeat(size))].into();
    ConfigMap { data: Some(data), ..serde_json::from_value(json!({"metadata": {"name": name}})).expect("a config map") }
}

fn code<T>(outcome: Result<T, kube::Error>) -> Option<u16> {
    match outcome {
        Err(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

#[tokio::test]
async fn a_client_with_the_kubeconfig_reads_writes_and_watches() -> Result<()> {
    let served = served().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&served.access.kubeconfig(served.address)).await?);
    let since = served.server.revision().to_string();
    let mut events = Box::pin(maps.watch(&WatchParams::default(), &since).await?);
    maps.create(&PostParams::default(), &config_map("a", 1)).await?;
    let event = events.try_next().await?.context("an event")?;
    assert!(matches!(&event, WatchEvent::Added(map) if map.name_any() == "a"), "{event:?}");
    served.task.abort();
    assert!(matches!(events.try_next().await, Ok(None) | Err(_)), "the watch ends with the server");
    Ok(())
}

#[tokio::test]
async fn another_token_or_none_gets_401_for_everything() -> Result<()> {
    let served = served().await?;
    let good = served.access.kubeconfig(served.address);
    for bad in [good.replace("\"right\"", "\"wrong\""), good.replace("token: \"right\"", "username: nobody")] {
        let client = client(&bad).await?;
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        assert_eq!(code(maps.get("a").await), Some(401));
        assert_eq!(code(maps.create(&PostParams::default(), &config_map("a", 1)).await), Some(401));
        for path in ["/version", "/openapi/v3", "/nope", "/healthz"] {
            let answer = client.request_text(Request::get(path).body(Vec::new())?).await;
            assert_eq!(code(answer), Some(401), "{path}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_stranger_is_recognised_by_the_certificate() -> Result<()> {
    let served = served().await?;
    let other = Access::new("right")?.kubeconfig(served.address);
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&other).await?);
    let refused = maps.get("a").await.expect_err("another certificate");
    assert!(!matches!(refused, kube::Error::Api(_)), "no request was made: {refused}");
    Ok(())
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() -> Result<()> {
    let served = served().await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&served.access.kubeconfig(served.address)).await?);
    assert_eq!(code(maps.create(&PostParams::default(), &config_map("large", 4 << 20)).await), Some(413));
    maps.create(&PostParams::default(), &config_map("fits", 1 << 19)).await?;
    Ok(())
}
