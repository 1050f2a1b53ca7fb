//! The examples of PureLB's own documentation, as an operator applies them.

use anyhow::Result;
use serde_json::json;

use crate::cluster::{Cluster, data};

#[tokio::test]
async fn the_documented_examples_are_accepted_once_they_are_corrected() -> Result<()> {
    let cluster = Cluster::bare().await?;
    cluster.upgrade().await?;
    for name in ["purelb", "purelb-system"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        cluster.kubectl(&["apply", "-f", "-"], &namespace.to_string()).await?;
    }
    let complaint =
        cluster.apply(&data("documented/flat-as-printed.yaml")).await.expect_err("capitals in a name").to_string();
    assert!(complaint.contains("metadata.name") && complaint.contains("VirtualAddressRange"), "{complaint}");
    // Whether a range makes sense is for `purelb validate` and the allocator; the API server stores what it is given.
    cluster.apply(&data("documented/dual-as-printed.yaml")).await?;
    cluster.apply(&data("documented/dual.yaml")).await?;
    cluster.apply(&data("documented/flat.yaml")).await?;

    let field = async |namespace: &str, name: &str, path: &str| {
        cluster.kubectl(&["get", "sg", "-n", namespace, name, "-o", &format!("jsonpath={{{path}}}")], "").await
    };
    assert_eq!(field("purelb-system", "remotedual", ".spec.placement").await?, "Auto");
    let pool = field("purelb-system", "remotedual", ".spec.local.v4pools[0].pool").await?;
    assert_eq!(pool, "172.32.100.225-172.32.100.229");
    assert_eq!(field("purelb", "virtualaddressrange", ".spec.placement").await?, "Auto");
    let pool = field("purelb", "virtualaddressrange", ".spec.pool").await?;
    assert_eq!(pool, "172.22.0.10-172.22.0.25", "the flat form is kept");
    Ok(())
}
