//! What the allocator writes about node agents.

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::{Cluster, HOME};

async fn lease(cluster: &Cluster, node: &str, subnets: &str) -> Result<()> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let object = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": format!("purelb-node-{node}"), "annotations": {"purelb.io/subnets": subnets}},
        "spec": {"holderIdentity": node, "renewTime": now, "leaseDurationSeconds": 600},
    });
    cluster.ground.create(&format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"), &object).await?;
    Ok(())
}

#[tokio::test]
async fn an_lbnodeagent_says_whether_it_is_understood_and_how_many_of_its_nodes_live() -> Result<()> {
    let cluster = Cluster::new().await?;
    let agents = format!("/apis/purelb.io/v2/namespaces/{HOME}/lbnodeagents");
    for (name, spec) in [("default", json!({"local": {}})), ("wrong", json!({"local": {"localInterface": "("}}))] {
        let object =
            json!({"apiVersion": "purelb.io/v2", "kind": "LBNodeAgent", "metadata": {"name": name}, "spec": spec});
        cluster.ground.create(&agents, &object).await?;
    }
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lab-node"}});
    cluster.ground.create("/api/v1/nodes", &node).await?;
    lease(&cluster, "lab-node", "10.0.0.0/24").await?;
    let allocator = cluster.allocator()?;
    let status = async |name: &str, wanted: fn(&Value) -> bool| {
        cluster
            .until(&format!("the status of {name} is as wanted"), async || {
                let status = cluster.ground.get(&format!("{agents}/{name}")).await?["status"].take();
                Ok(if wanted(&status) { Ok(status) } else { Err(status) })
            })
            .await
    };
    let default = status("default", |status| status["activeLeases"] == 1).await?;
    assert_eq!(default["conditions"][0]["status"], "True", "{default}");
    let wrong = status("wrong", |status| status["conditions"][0]["status"] == "False").await?;
    assert_eq!(wrong["conditions"][0]["reason"], "InterfacePattern", "{wrong}");
    cluster.close(allocator).await?;
    cluster.ground.delete(&agents).await?;
    cluster.ground.delete("/api/v1/nodes/lab-node").await?;
    cluster
        .ground
        .delete(&format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/purelb-node-lab-node"))
        .await?;
    Ok(())
}
