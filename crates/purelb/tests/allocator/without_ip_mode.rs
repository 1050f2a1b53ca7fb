//! An API server without the feature `LoadBalancerIPMode`, as Kubernetes 1.29 is and later ones can be: it drops `ipMode`.

use anyhow::Result;
use purelb_kubelite::Kubelite;
use serde_json::json;

use crate::cluster::{Cluster, ips};
use crate::forgotten::at_rest;
use crate::line::Line;

#[tokio::test(start_paused = true)]
async fn on_1_29_which_drops_ip_modes_a_service_gets_its_address_with_one_write() -> Result<()> {
    let cluster = Cluster::on(Kubelite::builder().without_ip_modes().build()).await?;
    cluster.local("default", "10.0.0.8/29").await?;
    let line = Line::to(&cluster.server);
    let allocator = cluster.allocator_with(line.client(), Cluster::settings());
    cluster.service("web", json!({})).await?;
    let web = cluster.has("web", &["10.0.0.8"]).await?;
    assert_eq!(
        web["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "10.0.0.8"}]),
        "the server has dropped the mode"
    );
    at_rest(&line).await?;
    let after = cluster.shown("web").await?;
    assert_eq!(ips(&after), ["10.0.0.8"]);
    assert_eq!(after["metadata"]["resourceVersion"], web["metadata"]["resourceVersion"], "nothing was written again");
    allocator.stop().await
}
