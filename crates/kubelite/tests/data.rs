//! A server that keeps its objects in a folder, and what is left of it when it dies.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams, WatchParams};
use purelb_kubelite::{DataError, Kubelite};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn open(folder: &Path) -> Result<Kubelite, DataError> {
    Kubelite::builder().open(folder)
}

/// A client lets go of its server a moment after it is dropped.
async fn reopen(folder: &Path) -> Result<Kubelite, DataError> {
    loop {
        match open(folder) {
            Err(DataError::Busy(_)) => tokio::task::yield_now().await,
            outcome => return outcome,
        }
    }
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a good object")
}

fn config_map(name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}}))
}

#[tokio::test]
async fn a_cluster_goes_on_after_a_restart_where_it_stopped() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let server = open(folder.path())?;
    let services: Api<Service> = Api::default_namespaced(server.client());
    let web = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    let web = services.create(&PostParams::default(), &object(web)).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    for definition in purelb_api::crds() {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("purelb.io", "v2", "ServiceGroup"));
    let groups = |server: &Kubelite| -> Api<DynamicObject> { Api::default_namespaced_with(server.client(), &resource) };
    let group = json!({"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": {"name": "g"},
        "spec": {"remote": {"v4pools": [{"subnet": "192.0.2.0/24", "pool": "192.0.2.0/24", "aggregation": "/32"}]}}});
    let group = groups(&server).create(&PostParams::default(), &object(group)).await?;
    let revision = server.revision();
    drop((services, definitions, server));

    let server = reopen(folder.path()).await?;
    assert_eq!(server.revision(), revision);
    let services: Api<Service> = Api::default_namespaced(server.client());
    assert_eq!(services.get("web").await?, web);
    assert_eq!(groups(&server).get("g").await?.data, group.data, "its kind is known again");
    let namespaces: Api<Namespace> = Api::all(server.client());
    assert_eq!(namespaces.list(&ListParams::default()).await?.items.len(), 4, "none twice");

    let taken = web.spec.as_ref().and_then(|spec| spec.cluster_ip.clone());
    let second = json!({"metadata": {"name": "second"}, "spec": {"clusterIP": taken, "ports": [{"port": 80}]}});
    let refused = services.create(&PostParams::default(), &object(second)).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 422), "the address is still taken");

    let mut events = Box::pin(services.watch(&WatchParams::default(), &(revision - 1).to_string()).await?);
    let first = events.try_next().await?;
    assert!(
        matches!(first, Some(kube::api::WatchEvent::Error(status)) if status.code == 410),
        "old watches start anew"
    );
    Ok(())
}

#[tokio::test]
async fn a_namespace_and_all_in_it_go_in_one_line() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let server = open(folder.path())?;
    let namespaces: Api<Namespace> = Api::all(server.client());
    namespaces.create(&PostParams::default(), &object(json!({"metadata": {"name": "shop"}}))).await?;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "shop");
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &config_map(name)).await?;
    }
    let lines =
        || Ok::<_, std::io::Error>(std::fs::read_to_string(folder.path().join("objects.jsonl"))?.lines().count());
    let before = lines()?;
    namespaces.delete("shop", &DeleteParams::default()).await?;
    assert_eq!(lines()?, before + 1, "half a deletion would never be finished");
    Ok(())
}

/// `kill -9` at any moment: everything that was acknowledged is there.
#[tokio::test]
async fn a_killed_server_has_lost_nothing_that_it_acknowledged() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut acknowledged: Vec<String> = Vec::new();
    for life in 0..5 {
        let mut server = Command::new(env::current_exe()?);
        server.args(["--exact", "the_server_that_is_killed", "--ignored", "--nocapture"]).stdout(Stdio::piped());
        let mut server = server.env("KUBELITE_DATA", folder.path()).env("KUBELITE_LIFE", life.to_string()).spawn()?;
        let mut lines = BufReader::new(server.stdout.take().context("standard output was piped")?).lines();
        let mut names =
            lines.by_ref().map_while(Result::ok).filter_map(|it| it.strip_prefix("wrote ").map(str::to_owned));
        acknowledged.extend(names.by_ref().take(20 + 37 * life));
        server.kill()?; // SIGKILL
        server.wait()?;
        // What it could still say before it died counts too.
        acknowledged.extend(names);
    }
    let server = open(folder.path())?;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let there: Vec<String> = maps.list(&ListParams::default()).await?.iter().map(|it| it.name_any()).collect();
    assert!(acknowledged.len() >= 400, "{}", acknowledged.len());
    let lost: Vec<&String> = acknowledged.iter().filter(|name| !there.contains(name)).collect();
    assert_eq!(lost, Vec::<&String>::new());
    Ok(())
}

#[tokio::test]
#[ignore = "it waits to be killed by the test above"]
async fn the_server_that_is_killed() -> Result<()> {
    let folder = env::var("KUBELITE_DATA")?;
    let life = env::var("KUBELITE_LIFE")?;
    let maps: Api<ConfigMap> = Api::default_namespaced(open(Path::new(&folder))?.client());
    println!();
    for number in 0.. {
        let name = format!("life-{life}-{number}");
        maps.create(&PostParams::default(), &config_map(&name)).await?;
        println!("wrote {name}");
    }
    Ok(())
}
