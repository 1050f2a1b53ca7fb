//! What an operator sees of groups, with `kubectl` and in their status.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::cluster::{Cluster, HOME, local};

fn condition<'a>(status: &'a Value, name: &str) -> &'a Value {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == name).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn b37_a_broken_edit_leaves_the_last_valid_form_in_force_also_after_a_restart() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let allocator = cluster.allocator()?;
    cluster.group_status("default", |status| condition(status, "Valid")["status"] == "True").await?;
    cluster.edit_group("default", &local("10.0.0.20-10.0.0.9")).await?;
    let told = cluster.group_status("default", |status| condition(status, "Valid")["status"] == "False").await?;
    assert_eq!(condition(&told, "Valid")["reason"], "RangeReversed");
    cluster.service("web", json!({}), json!({})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    cluster.close(allocator).await?;
    let successor = cluster.allocator()?;
    cluster.service("later", json!({}), json!({})).await?;
    cluster.has("later", &["10.0.0.9"]).await?;
    cluster.edit_group("default", &local("10.0.0.16/30")).await?;
    cluster.group_status("default", |status| condition(status, "Valid")["status"] == "True").await?;
    cluster.service("last", json!({}), json!({})).await?;
    cluster.has("last", &["10.0.0.16"]).await?;
    cluster.close(successor).await
}

#[tokio::test]
async fn sts_1_and_5_kubectl_get_sg_has_no_blank_row() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8-10.0.0.11").await?;
    let idle = json!({"remote": {"v6pools": [{"pool": "2001:db8::/64", "subnet": "2001:db8::/48"}]}});
    cluster.group("idle", idle).await?;
    let allocator = cluster.allocator()?;
    cluster.service("web", json!({}), json!({})).await?;
    cluster.group_status("default", |status| status["allocatedIPv4"] == 1).await?;
    cluster.group_status("idle", |status| status["announce"] != Value::Null).await?;
    let table = cluster.kubectl(&["--namespace", HOME, "get", "sg"]).await?;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    let shown = |name: &str| -> Result<Vec<&str>> {
        let row = rows.iter().find(|row| row[0] == name).with_context(|| format!("no row {name} in\n{table}"))?;
        Ok(row[..row.len() - 1].to_vec())
    };
    assert_eq!(shown("NAME")?, ["NAME", "ANNOUNCE", "IPAM", "ALLOCATED-V4", "ALLOCATED-V6"]);
    assert_eq!(shown("default")?, ["default", "Local", "Cluster", "1", "0"]);
    assert_eq!(shown("idle")?, ["idle", "Remote", "Cluster", "0", "0"]);
    cluster.close(allocator).await
}
