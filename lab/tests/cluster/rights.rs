//! What the API server saw PureLB ask for. That no right is unused is judged over all tests: see `cargo lab rights`.

use std::fs;

use anyhow::{Context, Result};
use purelb_lab::audit;
use serde_json::json;

use crate::past::nothing_denied;
use crate::purelb::{assigned, group, installed, service};
use crate::site::room;

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
            let log = fs::read_to_string(cluster.plane.place().audit_log()).context("no audit log")?;
            let requests = audit::read(&log);
            for account in ["allocator", "lbnodeagent"] {
                assert!(requests.iter().any(|request| request.right.account == account), "{account} was heard");
            }
            nothing_denied(cluster)
        })
        .await
}
