//! What the API server saw PureLB ask for.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::purelb::{HOME, assigned, group, installed, service};
use crate::site::room;

/// Who asked for what and was told that it may not.
fn denied(log: &str) -> BTreeSet<String> {
    let account = format!("system:serviceaccount:{HOME}:");
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ours =
        entries.filter(|entry| entry["user"]["username"].as_str().is_some_and(|user| user.starts_with(&account)));
    let refused = ours.filter(|entry| entry["responseStatus"]["code"] == 403);
    refused.map(|entry| format!("{} {} {}", entry["user"]["username"], entry["verb"], entry["requestURI"])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn purelb_asks_for_nothing_that_it_may_not_have() -> Result<()> {
    let story = "rights::purelb_asks_for_nothing_that_it_may_not_have";
    let pool = json!({"local": {"v4pools": [{
        "aggregation": "/32", "pool": "172.35.0.1-172.35.0.1", "subnet": "172.35.0.0/24",
    }]}});
    installed()
        .await?
        .prove(story, async |cluster| {
            let home = "audited";
            room(cluster, home).await?;
            cluster.apply(&group("audited", &pool)).await?;
            cluster.apply(&service(home, "echo", "nothing", "audited", &["IPv4"])).await?;
            assigned(cluster, home, "echo").await?;
            let log = fs::read_to_string(cluster.plane.place().file("audit.log")).context("no audit log")?;
            assert!(log.contains("system:serviceaccount:purelb-system:lbnodeagent"), "the agents were heard");
            assert_eq!(denied(&log), BTreeSet::new());
            Ok(())
        })
        .await
}
