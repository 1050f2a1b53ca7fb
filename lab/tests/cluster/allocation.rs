//! Addresses as a user of kubectl sees them given, refused and given back.

use anyhow::Result;
use purelb_lab::Cluster;
use serde_json::json;

use crate::purelb::{assigned, group, installed, service, shown};
use crate::site::{SOON, room};

#[tokio::test(flavor = "multi_thread")]
async fn the_last_address_is_waited_for_and_given_on_when_it_is_released() -> Result<()> {
    let story = "allocation::the_last_address_is_waited_for_and_given_on_when_it_is_released";
    let pool = json!({"local": {"v4pools": [{
        "aggregation": "/32", "pool": "172.34.0.1-172.34.0.1", "subnet": "172.34.0.0/24",
    }]}});
    installed()
        .await?
        .prove(story, async |cluster| {
            let home = "scarce";
            room(cluster, home).await?;
            cluster.apply(&group("scarce", &pool)).await?;
            cluster.apply(&service(home, "first", "nothing", "scarce", &["IPv4"])).await?;
            assert_eq!(assigned(cluster, home, "first").await?, ["172.34.0.1"]);
            cluster.apply(&service(home, "second", "nothing", "scarce", &["IPv4"])).await?;
            let told = async |cluster: &Cluster| {
                let text = cluster.kubectl(&["describe", "service", "-n", home, "second"]).await?;
                Ok(text.contains("AllocationFailed") && text.contains("exhausted: no available addresses"))
            };
            cluster.until("the second is told why it waits", SOON, told).await?;
            cluster.kubectl(&["delete", "service", "-n", home, "first"]).await?;
            assert_eq!(assigned(cluster, home, "second").await?, ["172.34.0.1"]);
            cluster.kubectl(&["delete", "service", "-n", home, "second"]).await?;
            for node in &cluster.nodes {
                let gone = async |_: &Cluster| Ok(!shown(node, "kube-lb0")?.iter().any(|cidr| cidr == "172.34.0.1/32"));
                cluster.until(&format!("{} has let it go", node.name), SOON, gone).await?;
            }
            Ok(())
        })
        .await
}
