//! A cluster with PureLB 0.13, whose API is v1 only, gets our CRDs.

use anyhow::{Context, Result};
use futures::try_join;
use purelb_lab::stories::{PatchType, contains};
use serde_json::{Value, json};

use crate::cluster::{Cluster, PLURALS, Tenant, is_group};

/// Each promise has the stored objects for itself, in a namespace of its own; the upgrade is one for all.
#[tokio::test]
async fn a_cluster_of_0_13_is_upgraded_in_place() -> Result<()> {
    let cluster = Cluster::of_release("0.13").await?;
    let (reader, allocator) = (cluster.tenant("0.13").await?, cluster.tenant("0.13").await?);
    let (editor, modern) = (cluster.tenant("0.13").await?, cluster.tenant("0.13").await?);
    cluster.upgrade().await?;
    every_object_is_still_there_and_groups_are_automatic(&reader).await?;
    try_join!(
        the_allocator_can_report_on_every_object(&allocator),
        clients_of_v1_still_edit_every_object(&editor),
        clients_of_v2_edit_what_they_understand(&modern),
    )?;
    for plural in PLURALS {
        assert_eq!(cluster.stored_versions(plural).await?, json!(["v1", "v2"]));
    }
    Ok(())
}

async fn every_object_is_still_there_and_groups_are_automatic(tenant: &Tenant<'_>) -> Result<()> {
    for version in ["v1", "v2"] {
        let after = tenant.objects(version).await?;
        assert_eq!(after.len(), tenant.before.len());
        for (old, new) in tenant.before.iter().zip(&after) {
            let name = &old["metadata"]["name"];
            assert_eq!(new["metadata"], old["metadata"], "{name}: nothing was written");
            assert!(contains(&new["spec"], &old["spec"]), "{name}: {} became {}", old["spec"], new["spec"]);
            let placement = if is_group(old) { json!("Auto") } else { Value::Null };
            assert_eq!(new["spec"]["placement"], placement, "{name} read through {version}");
        }
    }
    Ok(())
}

async fn the_allocator_can_report_on_every_object(tenant: &Tenant<'_>) -> Result<()> {
    for old in &tenant.before {
        let name = &old["metadata"]["name"];
        let judged = tenant.judge(old).await?;
        assert_eq!(judged["status"]["conditions"][0]["type"], "Valid");
        assert!(contains(&judged["spec"], &old["spec"]), "{name}: the spec stays");
        // The write has moved the object to storage version v2.
        let read = tenant.ground.get(&tenant.path("v1", old)).await?;
        assert!(contains(&read["spec"], &old["spec"]), "{name} through v1");
        assert_eq!(read["spec"]["placement"], judged["spec"]["placement"]);
        assert_eq!(judged["spec"]["placement"] == "Auto", is_group(old), "{name}");
    }
    Ok(())
}

async fn clients_of_v1_still_edit_every_object(tenant: &Tenant<'_>) -> Result<()> {
    for old in &tenant.before {
        let (name, path) = (&old["metadata"]["name"], tenant.path("v1", old));
        let label = json!({"metadata": {"labels": {"edited": "yes"}}});
        let labelled = tenant.ground.patch(&path, PatchType::Merge, &label).await?;
        assert!(contains(&labelled["spec"], &old["spec"]), "{name}");

        // A client that knows only 0.13's fields writes the whole object without the new ones.
        let mut whole = old.clone();
        whole["metadata"]["resourceVersion"] = labelled["metadata"]["resourceVersion"].clone();
        if is_group(old) {
            let pool = json!({"subnet": "192.0.2.0/24", "pool": "192.0.2.200/30", "aggregation": "default"});
            whole["spec"]["local"]["v4pool"] = pool;
        } else {
            whole["spec"]["local"]["localint"] = json!("eth7");
        }
        let edited = tenant.ground.replace(&path, &whole).await.with_context(|| format!("edit of {name}"))?;
        assert!(contains(&edited["spec"], &whole["spec"]), "{name}");
        let through_v2 = tenant.ground.get(&tenant.path("v2", old)).await?;
        assert_eq!(through_v2["spec"]["placement"] == "Auto", is_group(old), "{name} stays automatic");
    }
    Ok(())
}

async fn clients_of_v2_edit_what_they_understand(tenant: &Tenant<'_>) -> Result<()> {
    for old in tenant.before.iter().filter(|object| is_group(object)) {
        let name = &old["metadata"]["name"];
        let patch = json!({"spec": {"namespaces": ["red"]}});
        let edited = tenant.ground.patch(&tenant.path("v2", old), PatchType::Merge, &patch).await;
        let edited = edited.with_context(|| format!("edit of {name} through v2"))?;
        assert!(contains(&edited["spec"], &old["spec"]), "{name}: the rest stays, even what v2 would refuse today");
        assert_eq!(edited["spec"]["placement"], "Auto");
    }
    Ok(())
}
