//! Services through the cluster's own kube-proxy.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use purelb_lab::Cluster;
use purelb_lab::cluster::addresses;
use purelb_lab::net::Namespace;
use serde_json::{Value, json};

use crate::site::{SOON, cluster, deployment, fetch, rolled_out, room, url};

fn service(room: &str, name: &str, kind: &str, policy: Option<&str>) -> Value {
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": room},
        "spec": {
            "type": kind,
            "ipFamilyPolicy": "RequireDualStack",
            "selector": {"app": "echo"},
            "ports": [{"port": 80, "targetPort": "http"}],
        },
    });
    if let Some(policy) = policy {
        service["spec"]["externalTrafficPolicy"] = json!(policy);
    }
    service
}

/// Who answers a number of questions.
fn answers(from: &Namespace, url: &str, times: usize) -> Result<BTreeSet<String>> {
    (0..times).map(|_| Ok(fetch(from, url)?.split(' ').next().unwrap_or_default().to_owned())).collect()
}

async fn nodes_of(cluster: &Cluster, room: &str) -> Result<BTreeSet<String>> {
    let nodes = "jsonpath={.items[*].spec.nodeName}";
    let nodes = cluster.kubectl(&["get", "pods", "-n", room, "-l", "app=echo", "-o", nodes]).await?;
    Ok(nodes.split_whitespace().map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_on_three_nodes_answer_for_their_service_on_every_node() -> Result<()> {
    let story = "services::pods_on_three_nodes_answer_for_their_service_on_every_node";
    cluster()
        .await?
        .prove(story, async |cluster| {
            let home = "everywhere";
            room(cluster, home).await?;
            cluster.apply(&deployment(home, "echo", 3)).await?;
            cluster.apply(&service(home, "echo", "ClusterIP", None)).await?;
            rolled_out(cluster, home, "deployment/echo").await?;
            assert_eq!(nodes_of(cluster, home).await?.len(), 3, "one on each");
            let object = cluster.object(&["service", "-n", home, "echo"]).await?;
            let addresses = object["spec"]["clusterIPs"].as_array().context("a Service has addresses")?.clone();
            assert_eq!(addresses.len(), 2, "both families");
            for node in &cluster.nodes {
                for address in &addresses {
                    let url = url(address.as_str().unwrap_or_default(), 80, "/");
                    let all = async |_: &Cluster| Ok(answers(&node.namespace, &url, 20)?.len() == 3);
                    cluster.until(&format!("all three answer on {} at {url}", node.name), SOON, all).await?;
                }
            }
            Ok(())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_sees_its_client_only_with_traffic_policy_local() -> Result<()> {
    let story = "services::a_pod_sees_its_client_only_with_traffic_policy_local";
    cluster()
        .await?
        .prove(story, async |cluster| {
            let home = "policies";
            room(cluster, home).await?;
            cluster.apply(&deployment(home, "echo", 1)).await?;
            cluster.apply(&service(home, "by-node", "NodePort", Some("Local"))).await?;
            cluster.apply(&service(home, "by-any", "NodePort", Some("Cluster"))).await?;
            rolled_out(cluster, home, "deployment/echo").await?;
            let here = nodes_of(cluster, home).await?.into_iter().next().context("the Pod is on a node")?;
            let port = async |name: &str| -> Result<u16> {
                let object = cluster.object(&["service", "-n", home, name]).await?;
                Ok(object["spec"]["ports"][0]["nodePort"].as_u64().context("it has a port")?.try_into()?)
            };
            let (by_node, by_any) = (port("by-node").await?, port("by-any").await?);
            let client = addresses::FAR_CLIENT.0.to_string();
            for node in &cluster.nodes {
                let address = addresses::node(node.number).0.to_string();
                let sees = |port| fetch(cluster.far_client(), &url(&address, port, "/"));
                let masked = async |_: &Cluster| Ok(!sees(by_any)?.contains(&client));
                cluster.until(&format!("{} answers, with its own address", node.name), SOON, masked).await?;
                if node.name == here {
                    let plain = async |_: &Cluster| Ok(sees(by_node)?.contains(&client));
                    cluster.until("the Pod sees the client", SOON, plain).await?;
                } else {
                    ensure!(sees(by_node).is_err(), "{} has no Pod, and answered", node.name);
                }
            }
            Ok(())
        })
        .await
}
