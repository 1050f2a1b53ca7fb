//! PureLB's own LBNodeAgent, in both versions.

use anyhow::Result;
use serde_json::{Value, json};

use super::ground::{Ground, PatchType, invalid};
use super::manifest::{agent, condition};

/// v2 fills in interfaces, and the announcements only where they are configured at all.
pub async fn v2_agents_have_defaults(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let all = ground.group("purelb.io/v2", "lbnodeagents");
    let plain = ground.create(&all, &agent("v2", "plain", json!({"local": {}}))).await?;
    let local = &plain["spec"]["local"];
    assert_eq!((&local["localInterface"], &local["dummyInterface"]), (&json!("default"), &json!("kube-lb0")));
    assert!(local["garpConfig"].is_null());
    let garp = ground.create(&all, &agent("v2", "garp", json!({"local": {"garpConfig": {}}}))).await?;
    let wanted =
        json!({"enabled": true, "initialDelay": "100ms", "count": 3, "interval": "500ms", "verifyBeforeSend": true});
    assert_eq!(garp["spec"]["local"]["garpConfig"], wanted);
    let empty = ground.create(&all, &agent("v2", "empty", json!({}))).await?;
    assert!(empty["spec"]["local"].is_null());
    Ok(())
}

/// v1 fills in its own names and needs `local`.
pub async fn v1_agents_have_their_own_defaults(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let all = ground.group("purelb.io/v1", "lbnodeagents");
    let plain = ground.create(&all, &agent("v1", "plain", json!({"local": {"localint": "eth1"}}))).await?;
    let local = &plain["spec"]["local"];
    let seen = [&local["localint"], &local["extlbint"], &local["sendgarp"]];
    assert_eq!(seen, [&json!("eth1"), &json!("kube-lb0"), &json!(false)]);
    let through_v2 = ground.get(&ground.group("purelb.io/v2", "lbnodeagents/plain")).await?;
    assert_eq!(through_v2["spec"]["local"]["localint"], "eth1", "nothing is lost on the way");
    invalid(ground.create(&all, &agent("v1", "empty", json!({}))).await, "spec.local")?;
    Ok(())
}

/// Conditions of an agent are written through its status.
pub async fn an_agent_has_a_status(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let spec = json!({"local": {}, "nodeSelector": {"matchLabels": {"zone": "a"}}});
    let created = ground.create(&ground.group("purelb.io/v2", "lbnodeagents"), &agent("v2", "default", spec)).await?;
    assert_eq!(created["spec"]["nodeSelector"]["matchLabels"]["zone"], "a");
    let condition = condition("Valid", "True");
    let patch = json!({"status": {"conditions": [condition]}, "spec": {"nodeSelector": Value::Null}});
    let patched =
        ground.patch(&ground.group("purelb.io/v2", "lbnodeagents/default/status"), PatchType::Merge, &patch).await?;
    assert_eq!(patched["status"]["conditions"], json!([condition]));
    assert_eq!(patched["spec"], created["spec"]);
    Ok(())
}
