//! A cluster with PureLB 0.17, whose API is v2 only, gets our CRDs.

use anyhow::{Context, Result, ensure};
use futures::try_join;
use http::Method;
use purelb_lab::stories::PatchType;
use serde_json::{Value, json};

use crate::cluster::{Cluster, PLURALS, Tenant, is_group, shipped};

/// Each promise has the stored objects for itself, in a namespace of its own; the upgrade is one for all.
#[tokio::test]
async fn a_cluster_of_0_17_is_upgraded_in_place() -> Result<()> {
    let cluster = Cluster::of_release("0.17").await?;
    let (reader, allocators) = (cluster.tenant("0.17").await?, cluster.tenant("0.17").await?);
    let (editor, operator) = (cluster.tenant("0.17").await?, cluster.tenant("0.17").await?);
    cluster.upgrade().await?;
    assert_eq!(reader.objects("v2").await?, reader.before, "nothing at all has changed, and placement is not there");
    try_join!(
        old_and_new_allocators_report_side_by_side(&allocators),
        objects_are_edited_through_v2_even_where_a_new_rule_would_refuse_them(&editor),
        an_edit_through_v1_is_refused_with_a_sentence(&reader),
        groups_are_shown_in_columns_under_their_short_names(&operator),
        the_crds_are_applied_again_without_a_change(&cluster),
    )?;
    for plural in PLURALS {
        assert_eq!(cluster.stored_versions(plural).await?, json!(["v2"]));
    }
    Ok(())
}

async fn old_and_new_allocators_report_side_by_side(tenant: &Tenant<'_>) -> Result<()> {
    for old in tenant.before.iter().filter(|object| is_group(object)) {
        // 0.17 applies its status on the server side.
        let mut status = json!({"apiVersion": "purelb.io/v2", "kind": "ServiceGroup"});
        status["metadata"] = json!({"name": old["metadata"]["name"]});
        status["status"] = json!({"announce": "Local", "ipam": "Cluster", "allocatedIPv4": 7, "allocatedIPv6": 0});
        let path = format!("{}/status?fieldManager=purelb-allocator&force=true", tenant.path("v2", old));
        let body = status.to_string().into_bytes();
        let applied = tenant.ground.send(Method::PATCH, &path, "application/apply-patch+yaml", body).await;
        let applied = applied.with_context(|| format!("status of {}", old["metadata"]["name"]))?;
        assert_eq!(applied["status"]["allocatedIPv4"], 7);
    }
    for old in &tenant.before {
        let judged = tenant.judge(old).await?;
        assert_eq!(judged["status"]["conditions"][0]["type"], "Valid");
        assert_eq!(judged["spec"], old["spec"]);
    }
    Ok(())
}

async fn objects_are_edited_through_v2_even_where_a_new_rule_would_refuse_them(tenant: &Tenant<'_>) -> Result<()> {
    for old in tenant.before.iter().filter(|object| is_group(object)) {
        let patch = json!({"metadata": {"labels": {"edited": "yes"}}, "spec": {"namespaces": ["red"]}});
        let edited = tenant.ground.patch(&tenant.path("v2", old), PatchType::Merge, &patch).await;
        let edited = edited.with_context(|| format!("edit of {}", old["metadata"]["name"]))?;
        assert_eq!(edited["spec"]["namespaces"], json!(["red"]));
        assert_eq!(edited["spec"]["placement"], Value::Null);
    }
    Ok(())
}

async fn an_edit_through_v1_is_refused_with_a_sentence(tenant: &Tenant<'_>) -> Result<()> {
    let read = tenant.kubectl(&["get", "servicegroups.v1.purelb.io", "routed", "-o", "name"]).await?;
    assert_eq!(read.trim(), "servicegroup.purelb.io/routed", "reading through v1 is fine");
    let complaint = tenant.kubectl(&["label", "servicegroups.v1.purelb.io", "routed", "edited=yes"]).await;
    let complaint = complaint.expect_err("an edit through v1 would make the group automatic").to_string();
    assert!(complaint.contains("edit it as v2"), "{complaint}");
    tenant.kubectl(&["label", "servicegroups", "routed", "edited=yes"]).await?;
    Ok(())
}

async fn groups_are_shown_in_columns_under_their_short_names(tenant: &Tenant<'_>) -> Result<()> {
    for object in &tenant.before {
        tenant.judge(object).await?;
    }
    let header =
        |table: &str| table.lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    let table = tenant.kubectl(&["get", "sg"]).await?;
    assert_eq!(header(&table), "NAME ANNOUNCE IPAM ALLOCATED-V4 ALLOCATED-V6 AGE");
    let wide = tenant.kubectl(&["get", "sgs", "-o", "wide"]).await?;
    let columns = "NAME ANNOUNCE IPAM ALLOCATED-V4 ALLOCATED-V6 ADDRESSES AVAILABLE-V4 AVAILABLE-V6 \
                   NAMESPACES ENFORCED BOUND AGE";
    assert_eq!(header(&wide), columns);
    let routed = wide.lines().find(|line| line.starts_with("routed")).unwrap_or_default();
    assert!(routed.contains(r#"["red","blue"]"#) && routed.contains("true"), "{routed}");
    for short in ["lbna", "lbnas"] {
        assert!(tenant.kubectl(&["get", short]).await?.contains("rack-a"));
    }
    Ok(())
}

async fn the_crds_are_applied_again_without_a_change(cluster: &Cluster) -> Result<()> {
    for line in cluster.apply(&shipped()).await?.lines() {
        ensure!(line.ends_with("unchanged"), "{line}");
    }
    Ok(())
}
