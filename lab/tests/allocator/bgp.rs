//! What the allocator writes about BGPConfigurations, with its own rights, and what kubectl makes of the kinds.

use anyhow::{Result, ensure};
use purelb_lab::stories::PatchType;
use serde_json::{Value, json};

use crate::cluster::{Cluster, HOME};

const EVERY_FIELD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/api/tests/data/bgp-every-field.yaml");

fn all() -> String {
    format!("/apis/bgp.purelb.io/v1/namespaces/{HOME}/configs")
}

/// The status once the condition Ready has this reason.
async fn told(cluster: &Cluster, name: &str, reason: &str) -> Result<Value> {
    cluster
        .until(&format!("{name} is told {reason}"), async || {
            let status = cluster.ground.get(&format!("{}/{name}", all())).await?["status"].take();
            Ok(if status["conditions"][0]["reason"] == reason { Ok(status) } else { Err(status) })
        })
        .await
}

/// A person applies a manifest with every field of the API: no field is refused or warned about, the allocator names
/// what has no effect, and taking the manifest away again is not held up by the finalizer of an older PureLB.
#[tokio::test]
async fn a_manifest_of_an_older_purelb_is_applied_judged_and_deleted() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.ground.served("/apis/bgp.purelb.io/v1/configs").await?;
    let allocator = cluster.allocator()?;
    let namespace = ["--namespace", HOME];
    let apply = [&namespace[..], &["apply", "--validate=strict", "-f", EVERY_FIELD]].concat();
    let applied = cluster.kubectl(&apply).await?;
    ensure!(applied == "bgpconfiguration.bgp.purelb.io/default created\n", "{applied}");
    let status = told(&cluster, "default", "ReconcileSuccess").await?;
    let unsupported = &status["conditions"][1];
    assert_eq!((&unsupported["type"], &unsupported["status"]), (&json!("UnsupportedFields"), &json!("True")));
    let sentence = unsupported["message"].as_str().unwrap_or_default();
    ensure!(sentence.contains("spec.netlinkExport") && sentence.contains("spec.vrfs"), "{sentence}");
    assert_eq!(status["neighborCount"], 2);

    let one = format!("{}/default", all());
    let spoil = json!({"spec": {"neighbors": [{"config": {"neighborAddress": "router", "peerAsn": 64513}}]}});
    cluster.ground.patch(&one, PatchType::Merge, &spoil).await?;
    let status = told(&cluster, "default", "AddressSyntax").await?;
    ensure!(status["message"].to_string().contains("spec.neighbors[0].config.neighborAddress"), "{status}");

    let finalizers = json!({"metadata": {"finalizers": ["bgp.purelb.io/finalizer"]}});
    cluster.ground.patch(&one, PatchType::Merge, &finalizers).await?;
    let short = [&namespace[..], &["delete", "bgpconfig", "default", "--timeout=30s"]].concat();
    cluster.kubectl(&short).await?;
    cluster.ground.gone(&one).await?;
    cluster.close(allocator).await
}

#[tokio::test]
async fn a_second_configuration_is_told_that_it_is_ignored() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.ground.served("/apis/bgp.purelb.io/v1/configs").await?;
    let spec = json!({"global": {"asn": 64512}});
    let object = |name: &str| json!({"apiVersion": "bgp.purelb.io/v1", "kind": "BGPConfiguration", "metadata": {"name": name}, "spec": spec});
    for name in ["aaa", "default"] {
        cluster.ground.create(&all(), &object(name)).await?;
    }
    let elsewhere = cluster.ground.group("bgp.purelb.io/v1", "configs");
    cluster.ground.create(&elsewhere, &object("lost")).await?;
    let allocator = cluster.allocator()?;
    told(&cluster, "default", "ReconcileSuccess").await?;
    told(&cluster, "aaa", "BgpConfigurationIgnored").await?;
    cluster
        .until("the one in another namespace is told so", async || {
            let mut lost = cluster.ground.get(&format!("{elsewhere}/lost")).await?;
            let reason = lost["status"]["conditions"][0]["reason"].take();
            Ok(if reason == "BgpConfigurationOutOfScope" { Ok(()) } else { Err(lost) })
        })
        .await?;
    cluster.ground.delete(&all()).await?;
    cluster.close(allocator).await
}
