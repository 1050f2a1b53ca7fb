//! Back to the CRDs of PureLB 0.17: what the API server allows, and what becomes of the objects.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::cluster::{Cluster, PLURALS, data};

const WRITTEN_AS_V1: &str = "
apiVersion: purelb.io/v1
kind: ServiceGroup
metadata: {name: automatic}
spec: {local: {v4pool: {subnet: 192.0.2.0/24, pool: 192.0.2.240/30}}}
---
apiVersion: purelb.io/v1
kind: ServiceGroup
metadata: {name: flat}
spec: {subnet: 172.22.0.0/24, pool: 172.22.0.10-172.22.0.25}
";

fn named<'a>(objects: &'a [Value], name: &Value) -> Result<&'a Value> {
    objects.iter().find(|object| object["metadata"]["name"] == *name).with_context(|| format!("{name} is gone"))
}

/// A cluster that has stored nothing but v2 goes back freely; what 0.17 does not know is hidden, not lost.
#[tokio::test]
async fn a_cluster_that_came_from_0_17_goes_back() -> Result<()> {
    let cluster = Cluster::of_release("0.17").await?;
    let tenant = cluster.tenant("0.17").await?;
    cluster.upgrade().await?;
    tenant.send("apply", WRITTEN_AS_V1).await?;
    for old in &tenant.before {
        tenant.judge(old).await?;
    }
    let ours = tenant.objects("v2").await?;

    cluster.go_back().await?;
    let theirs = tenant.objects("v2").await?;
    for old in &tenant.before {
        let same = theirs.iter().find(|object| object["metadata"]["uid"] == old["metadata"]["uid"]);
        let same = same.context("an object is gone")?;
        assert_eq!(same["spec"], old["spec"]);
        assert!(same["status"]["conditions"].is_null(), "0.17 has no conditions");
    }
    let automatic = named(&theirs, &json!("automatic"))?;
    assert!(automatic["spec"]["placement"].is_null(), "0.17 reads an automatic group as local");
    assert!(automatic["spec"]["local"]["v4pool"].is_object());
    assert!(named(&theirs, &json!("flat"))?["spec"]["pool"].is_null(), "0.17 does not know this form");
    let edit = ["patch", "sg", "flat", "--type=merge", "-p", r#"{"spec": {"namespaces": ["red"]}}"#];
    let complaint = tenant.kubectl(&edit).await.expect_err("it has no source in 0.17").to_string();
    assert!(complaint.contains("exactly one of local, remote, or external"), "{complaint}");

    cluster.upgrade().await?;
    assert_eq!(tenant.objects("v2").await?, ours, "forward again, everything that was not written is as before");
    Ok(())
}

/// A cluster that came from 0.13 may still hold objects stored as v1, and the API server insists that v1 stays.
#[tokio::test]
async fn a_cluster_that_came_from_0_13_rewrites_its_objects_first() -> Result<()> {
    let cluster = Cluster::of_release("0.13").await?;
    let tenant = cluster.tenant("0.13").await?;
    cluster.upgrade().await?;
    for release in ["0.13", "0.17"] {
        let complaint = cluster.apply(&data(release).join("crds")).await.expect_err("both versions have been stored");
        assert!(complaint.to_string().contains("status.storedVersions"), "{complaint}");
    }
    for plural in PLURALS {
        // Writing back what was read stores each object as v2; then nothing is left in v1.
        let all = cluster.kubectl(&["get", plural, "--all-namespaces", "-o", "json"], "").await?;
        cluster.kubectl(&["replace", "-f", "-"], &all).await?;
        let crd = format!("{plural}.purelb.io");
        let patch = r#"{"status": {"storedVersions": ["v2"]}}"#;
        cluster.kubectl(&["patch", "crd", &crd, "--subresource=status", "--type=merge", "-p", patch], "").await?;
    }
    cluster.go_back().await?;
    let after = tenant.objects("v2").await?;
    assert_eq!(after.len(), tenant.before.len(), "every object is readable");
    assert!(named(&after, &json!("lists"))?["spec"]["local"]["v4pools"].is_array());
    let netbox = named(&after, &json!("netbox"))?;
    assert!(netbox["spec"]["netbox"].is_null(), "0.17 has no netbox");

    cluster.upgrade().await?;
    let netbox = tenant.ground.get(&tenant.path("v2", netbox)).await?;
    assert_eq!(netbox["spec"]["placement"], "Auto");
    assert_eq!(netbox["spec"]["netbox"]["tenant"], "ipam-purelb");
    Ok(())
}
