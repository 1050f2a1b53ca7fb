//! SIGTERM: an allocator is gone within a second, whatever it is doing and whatever the API server does.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use purelb_lab::Daemon;
use serde_json::json;

use crate::cluster::{Cluster, ips, start};
use crate::proxy::{Mood, Proxy, all};
use crate::trouble::{everybody_is_served, leadership, served};

/// How long an allocator may take to go.
const SECOND: Duration = Duration::from_secs(1);
/// Enough to be busy for longer than that.
const SERVICES: usize = 400;

/// Ends an allocator as Kubernetes does, and reads its last words.
async fn ends_in_time(allocator: &Daemon) -> Result<()> {
    let took = allocator.terminate().await?;
    let log = allocator.log();
    ensure!(took <= SECOND, "it took {took:?} to stop:\n{log}");
    // A panic would be quick, too.
    ensure!(log.trim_end().ends_with('}') && log.contains(r#""message":"stopped""#), "no clean end:\n{log}");
    Ok(())
}

async fn holder(cluster: &Cluster) -> Result<Option<String>> {
    Ok(leadership(cluster).await?["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(str::to_owned))
}

#[tokio::test]
async fn in_the_middle_of_a_burst_it_gives_the_lease_back_and_the_next_one_goes_on() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.0/22").await?;
    let names: Vec<_> = (0..SERVICES).map(|n| format!("s{n:03}")).collect();
    // Node ports are few and come one at a time.
    let spec = || json!({"allocateLoadBalancerNodePorts": false});
    let creating = names.iter().map(|name| cluster.service(name, json!({}), spec()));
    stream::iter(creating).buffer_unordered(16).try_collect::<()>().await?;
    let allocator = cluster.allocator()?;
    cluster
        .until("the first has an address", async || {
            let first = cluster.shown(&names[0]).await?;
            Ok(if ips(&first).is_empty() { Err(json!(allocator.log())) } else { Ok(()) })
        })
        .await?;
    ends_in_time(&allocator).await?;
    assert_eq!(holder(&cluster).await?, None, "nobody has to wait for the lease to expire:\n{}", allocator.log());
    assert!(ips(&cluster.shown(&names[SERVICES - 1]).await?).is_empty(), "it was not busy any more");
    let successor = start(&cluster.account, "allocator-1", 0)?;
    // One after the other: to list them all again and again would keep the API server from its work.
    for name in &names {
        cluster.told(name, "Assigned").await?;
    }
    everybody_is_served(&cluster, SERVICES).await?;
    cluster.close(successor).await
}

#[tokio::test]
async fn an_api_server_that_says_nothing_any_more_is_not_waited_for() -> Result<()> {
    let (cluster, proxy, allocator) = served().await?;
    proxy.treat(all, Mood::Silent);
    for n in 0..8 {
        cluster.service(&format!("s{n}"), json!({}), json!({})).await?;
    }
    asked(&cluster, &proxy, 4).await?;
    ends_in_time(&allocator).await
}

#[tokio::test]
async fn an_api_server_that_never_said_anything_is_not_waited_for_either() -> Result<()> {
    let cluster = Cluster::new().await?;
    let proxy = Proxy::to(cluster.plane).await?;
    proxy.treat(all, Mood::Silent);
    let allocator = start(&cluster.account.plainly_through(proxy.port), "allocator-0", 0)?;
    asked(&cluster, &proxy, 1).await?;
    ends_in_time(&allocator).await
}

/// Waits until so many requests wait for an answer.
async fn asked(cluster: &Cluster, proxy: &Proxy, requests: usize) -> Result<()> {
    cluster
        .until(&format!("{requests} requests wait for an answer"), async || {
            let waiting = proxy.troubled();
            Ok(if waiting >= requests { Ok(()) } else { Err(json!(waiting)) })
        })
        .await
}
