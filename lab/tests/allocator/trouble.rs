//! An API server that answers badly, or not at all: nothing is given twice, nothing is lost, and nobody is flooded.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::Result;
use purelb_lab::Daemon;
use serde_json::{Value, json};

use crate::cluster::{Cluster, HOME, ips, start};
use crate::proxy::{Mood, Proxy, addresses, all};

const SERVICES: usize = 12;
/// Of the lease and of one call; what is tried again is tried less often than this, in seconds.
const PER_SECOND: f64 = 4.0;

/// All Services of the story with their addresses.
async fn given(cluster: &Cluster) -> Result<Vec<(String, Vec<String>)>> {
    let list = cluster.ground.get(&cluster.ground.core("services")).await?;
    let one = |service: &Value| {
        let name = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        (name, ips(service).into_iter().map(str::to_owned).collect())
    };
    Ok(list["items"].as_array().into_iter().flatten().map(one).collect())
}

pub async fn everybody_is_served(cluster: &Cluster, count: usize) -> Result<Vec<(String, Vec<String>)>> {
    let all = cluster
        .until("every Service has an address", async || {
            let given = given(cluster).await?;
            let served = given.iter().filter(|(_, addrs)| addrs.len() == 1).count();
            Ok(if served == count { Ok(given) } else { Err(json!(given)) })
        })
        .await?;
    let distinct: BTreeSet<_> = all.iter().flat_map(|(_, addrs)| addrs).collect();
    assert_eq!(distinct.len(), count, "an address was given twice: {all:?}");
    Ok(all)
}

/// An allocator that hears the API server through a proxy, and has served a first Service.
pub async fn served() -> Result<(Cluster, Proxy, Daemon)> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.0/24").await?;
    let proxy = Proxy::to(cluster.plane).await?;
    let allocator = start(&cluster.account.plainly_through(proxy.port), "allocator-0", 0)?;
    cluster.service("first", json!({}), json!({})).await?;
    cluster.has("first", &["10.0.0.1"]).await?;
    Ok((cluster, proxy, allocator))
}

/// What the lease says of the leader.
pub async fn leadership(cluster: &Cluster) -> Result<Value> {
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/purelb-allocator");
    Ok(cluster.ground.get(&lease).await?["spec"].take())
}

async fn leader(cluster: &Cluster) -> Result<Value> {
    Ok(leadership(cluster).await?["leaseTransitions"].take())
}

#[tokio::test]
async fn whatever_the_api_server_answers_no_address_is_given_twice_or_lost() -> Result<()> {
    let (cluster, proxy, allocator) = served().await?;
    let (term, mut count) = (leader(&cluster).await?, 1);
    for mood in [Mood::Code(429), Mood::Code(500), Mood::Code(504), Mood::Reset, Mood::AnswerLost, Mood::Silent] {
        let before = given(&cluster).await?;
        proxy.treat(addresses, mood);
        let begun = Instant::now();
        for n in 0..SERVICES {
            cluster.service(&format!("s{count}-{n}"), json!({}), json!({})).await?;
        }
        cluster
            .until(&format!("every Service has met {mood:?}"), async || {
                let met = proxy.troubled();
                Ok(if met >= 2 * SERVICES { Ok(()) } else { Err(json!(met)) })
            })
            .await?;
        let (met, seconds) = (proxy.troubled() as f64, begun.elapsed().as_secs_f64());
        let bound = SERVICES as f64 * (12.0 + PER_SECOND * seconds);
        assert!(met <= bound, "{mood:?} is met with a hot loop: {met} requests in {seconds:.1} s");
        proxy.treat(addresses, Mood::Well);
        count += SERVICES;
        let after = everybody_is_served(&cluster, count).await?;
        for had in before {
            assert!(after.contains(&had), "{had:?} was changed unasked after {mood:?}");
        }
    }
    assert_eq!(leader(&cluster).await?, term, "the leader has led all the time");
    cluster.close(allocator).await
}

#[tokio::test]
async fn an_api_server_that_is_away_is_waited_for_without_a_flood() -> Result<()> {
    let (cluster, proxy, allocator) = served().await?;
    for mood in [Mood::Code(429), Mood::Code(503), Mood::Reset, Mood::Silent] {
        proxy.treat(all, mood);
        let begun = Instant::now();
        cluster
            .until("the leadership is over", async || {
                let log = allocator.log();
                let (led, lost) = (log.matches("this allocator leads").count(), log.matches("no longer leads").count());
                Ok(if led == lost { Ok(()) } else { Err(json!(proxy.troubled())) })
            })
            .await?;
        let (met, seconds) = (proxy.troubled() as f64, begun.elapsed().as_secs_f64());
        assert!(met <= 60.0 + 40.0 * seconds, "{mood:?} is met with a hot loop: {met} requests in {seconds:.1} s");
        proxy.treat(all, Mood::Well);
        let name = format!("after-{}", begun.elapsed().as_nanos());
        cluster.service(&name, json!({}), json!({})).await?;
        cluster.told(&name, "Assigned").await?;
    }
    everybody_is_served(&cluster, 5).await?;
    cluster.close(allocator).await
}
