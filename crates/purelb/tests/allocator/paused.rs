//! A leader on a machine that was paused together with its clock: its time seems not over, and another has led meanwhile.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use purelb::allocator::Settings;
use purelb::cluster::leader::{LEASE_NAME, Timing};
use serde_json::json;
use tokio::time::sleep;

use crate::cluster::{Cluster, HOME, ips};
use crate::line::Line;

/// So long that no renewal is due in the story: the clock of the leader stands still.
const STANDSTILL: Timing =
    Timing { lease: Duration::from_secs(7200), renew: Duration::from_secs(3600), margin: Duration::from_secs(5) };

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_was_taken_meanwhile_gives_out_nothing_more() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/29").await?;
    let line = Line::to(&cluster.server);
    line.be_deaf_to_the_lease();
    let allocator = cluster.allocator_with(line.client(), Settings { timing: STANDSTILL, ..Cluster::settings() });
    cluster.service("before", json!({})).await?;
    cluster.has("before", &["10.0.0.8"]).await?;
    sleep(Duration::from_secs(60)).await;
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), HOME);
    let spec = leases.get(LEASE_NAME).await?.spec.context("a lease has a holder")?;
    let term = spec.lease_transitions.context("a lease has a term")?;
    let taken = json!({"spec": {"holderIdentity": "another", "leaseTransitions": term + 1}});
    leases.patch(LEASE_NAME, &PatchParams::default(), &Patch::Merge(taken)).await?;
    cluster.service("after", json!({})).await?;
    sleep(Duration::from_secs(60)).await;
    let after = cluster.shown("after").await?;
    assert!(ips(&after).is_empty(), "the other may have given this address to somebody else: {after:#}");
    assert!(after["status"]["conditions"].as_array().is_none_or(Vec::is_empty), "{after:#}");
    allocator.stop().await
}
