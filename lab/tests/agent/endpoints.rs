//! externalTrafficPolicy: which nodes announce depends on where the pods are, where it may.

use anyhow::Result;
use purelb_lab::stories::PatchType;
use serde_json::{Value, json};

use crate::groups;
use crate::local_addresses::{length, ranking};
use crate::story::Story;

/// A slice of the Service `web` with one endpoint on each of these nodes.
pub fn slice(endpoints: &[(&str, Value)]) -> Value {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .enumerate()
        .map(|(number, (node, conditions))| {
            json!({"addresses": [format!("10.1.0.{}", number + 1)], "nodeName": node, "conditions": conditions})
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"port": 8080, "protocol": "UDP"}],
    })
}

/// Writes that slice anew.
pub async fn change(story: &Story, endpoints: &[(&str, Value)]) -> Result<()> {
    let path = story.ground.group("discovery.k8s.io/v1", "endpointslices/web-1");
    let patch = json!({"endpoints": slice(endpoints)["endpoints"]});
    story.ground.patch(&path, PatchType::Merge, &patch).await?;
    Ok(())
}

#[tokio::test]
async fn i13_policy_local_follows_the_ready_endpoints() -> Result<()> {
    let story = Story::begin().await?;
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    let path = story.ground.group("discovery.k8s.io/v1", "endpointslices");
    story.ground.create(&path, &slice(&[("node-a", json!({"ready": true}))])).await?;
    let addresses = story.service("web", "remote", json!({"externalTrafficPolicy": "Local"})).await?;
    let on = |nodes: &'static [&'static str]| {
        let (story, addresses) = (&story, &addresses);
        async move {
            for (address, length) in addresses.iter().zip([32, 128]) {
                let by: Vec<_> = nodes.iter().map(|node| (*node, "kube-lb0", length)).collect();
                story.held(*address, &by).await?;
            }
            anyhow::Ok(())
        }
    };
    on(&["node-a"]).await?;
    // A pod that is not ready yet, then is.
    change(&story, &[("node-a", json!({"ready": true})), ("node-b", json!({"ready": false, "serving": false}))])
        .await?;
    change(&story, &[("node-a", json!({"ready": true})), ("node-b", json!({"ready": true}))]).await?;
    on(&["node-a", "node-b"]).await?;
    // Conditions that nobody wrote mean ready.
    change(&story, &[("node-b", json!({"ready": true})), ("node-c", json!({}))]).await?;
    on(&["node-b", "node-c"]).await?;
    // A pod that is going still serves, until it does not.
    let going = |serving: bool| json!({"ready": false, "serving": serving, "terminating": true});
    change(&story, &[("node-b", going(true)), ("node-c", json!({"ready": false, "serving": false}))]).await?;
    on(&["node-b"]).await?;
    change(&story, &[("node-b", going(false))]).await?;
    on(&[]).await?;
    story.edit("web", json!({"spec": {"externalTrafficPolicy": "Cluster"}})).await?;
    on(&["node-a", "node-b", "node-c"]).await?;
    story.close().await
}

#[tokio::test]
async fn policy_local_becomes_cluster_where_the_address_is_local() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let addresses = story.service("web", "local", json!({"externalTrafficPolicy": "Local"})).await?;
    let policy = async |story: &Story| Ok(story.shown("web").await?["spec"]["externalTrafficPolicy"] == "Cluster");
    story.until("the policy is Cluster", policy).await?;
    story.event("web", "LocalOverride", "ExternalTrafficPolicy Local not supported on local Interfaces").await?;
    for address in addresses {
        story.held(address, &[(ranking(address)[0], "eth0", length(address))]).await?;
    }
    story.close().await
}

#[tokio::test]
async fn policy_local_stays_where_the_user_insists() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let annotations = json!({"purelb.io/service-group": "local", "purelb.io/allow-local": ""});
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]},
    });
    story.ground.create(&story.ground.core("services"), &service).await?;
    story.event("web", "LocalOverride", "override annotation found").await?;
    let address = story.ingress("web").await?[0];
    story.held(address, &[(ranking(address)[0], "eth0", length(address))]).await?;
    assert_eq!(story.shown("web").await?["spec"]["externalTrafficPolicy"], "Local");
    story.close().await
}

#[tokio::test]
async fn a13_with_affinity_a_local_address_follows_the_pods() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let address = story.service("web", "local", json!({})).await?[0];
    let [first, second, third] = ranking(address)[..] else { unreachable!("there are three nodes") };
    story.held(address, &[(first, "eth0", 24)]).await?;
    let path = story.ground.group("discovery.k8s.io/v1", "endpointslices");
    story.ground.create(&path, &slice(&[(third, json!({"ready": true}))])).await?;
    story.edit("web", json!({"metadata": {"annotations": {"purelb.io/node-affinity": "service-endpoints"}}})).await?;
    story.held(address, &[(third, "eth0", 24)]).await?;
    change(&story, &[(second, json!({"ready": true})), (third, json!({"ready": true}))]).await?;
    story.held(address, &[(second, "eth0", 24)]).await?;
    // Without any pod the address stays reachable.
    change(&story, &[]).await?;
    story.held(address, &[(first, "eth0", 24)]).await?;
    story.close().await
}
