//! An API server that answers nothing but 503 for a minute: when it is back, everybody knows within two seconds.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use purelb::allocator::Settings;
use purelb::cluster::leader::Timing;
use purelb::cluster::watch::{Change, changes};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::{Cluster, ips};
use crate::line::Line;

const OUTAGE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(2);
/// Pauses are a matter of chance: so often is enough to meet long ones.
const ROUNDS: usize = 40;

/// The API server is away for a minute and comes back, each round at another moment between two attempts; a Service is
/// created, and this is when.
async fn outage(cluster: &Cluster, line: &Line, round: usize, name: &str) -> Result<Instant> {
    line.make_unavailable();
    sleep(OUTAGE + Duration::from_millis(37) * round as u32).await;
    line.mend();
    let created = Instant::now();
    cluster.service(name, json!({})).await?;
    Ok(created)
}

fn told(what: &str, mut took: Vec<Duration>) -> Duration {
    took.sort();
    let longest = took.last().copied().unwrap_or_default();
    println!("{what}: {:?} at p50, {longest:?} at most", took[took.len() / 2]);
    longest
}

/// `history`: whether the API server still knows what happened meanwhile; one that was restarted may not.
#[rstest::rstest]
#[case::and_remembers(true)]
#[case::and_has_forgotten(false)]
#[tokio::test(start_paused = true)]
async fn a_watch_tells_within_two_seconds_of_what_happens_after_a_minute_of_503(#[case] remembers: bool) -> Result<()> {
    let cluster = Cluster::new().await?;
    let line = Line::to(&cluster.server);
    let api: Api<Service> = Api::namespaced(line.client(), "test");
    let mut news = pin!(changes("services", api, watcher::Config::default()));
    while !matches!(news.next().await, Some(Change::Complete)) {}
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let name = format!("s{round}");
        let watching = async {
            loop {
                match news.next().await {
                    Some(Change::Here(service)) if service.name_any() == name => return Ok(Instant::now()),
                    Some(_) => {}
                    None => bail!("the watch has ended"),
                }
            }
        };
        let happening = async {
            let created = outage(&cluster, &line, round, &name).await?;
            if !remembers {
                cluster.server.compact();
            }
            anyhow::Ok(created)
        };
        let (seen, created) = tokio::try_join!(watching, happening)?;
        took.push(seen.saturating_duration_since(created));
    }
    let longest = told("a Service was seen after", took);
    assert!(longest < SOON, "{longest:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_service_created_after_a_minute_of_503_has_its_address_within_two_seconds() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.1.0/24").await?;
    let line = Line::to(&cluster.server);
    let settings = Settings { timing: Timing::default(), ..Cluster::settings() };
    let allocator = cluster.allocator_with(line.client(), settings);
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let name = format!("s{round}");
        let created = outage(&cluster, &line, round, &name).await?;
        let served = async {
            while ips(&cluster.shown(&name).await?).is_empty() {
                sleep(Duration::from_millis(10)).await;
            }
            anyhow::Ok(())
        };
        timeout(OUTAGE * 10, served).await??;
        took.push(created.elapsed());
    }
    let longest = told("a Service had its address after", took);
    assert!(longest < SOON, "{longest:?}");
    allocator.stop().await
}
