//! Three allocators under random trouble, replayable by its seed: nothing is given twice, nothing is taken away unasked,
//! and in the end everybody has what there is to have.
//!
//! `PURELB_SEED` tells the story of that seed again: the same requests and the same mishaps in the same order, though
//! not to the millisecond. `PURELB_CHAOS_SECONDS` makes it longer.

use std::collections::BTreeMap;
use std::env;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use http::Method;
use serde_json::{Value, json};

use crate::cluster::{Cluster, HOME};
use crate::fleet::Fleet;
use crate::judge::{Claim, addresses, annotation, brief};
use crate::observer::{Observer, version};
use crate::user::{Dice, GROUPS, Request, User, form};

/// How long the trouble lasts, if nobody says otherwise.
const SHORT: u64 = 10;
/// How many Services there are then, about, and in a longer run.
const POPULATION: (usize, usize) = (150, 1000);
/// How long it may take until all is well after the trouble, on a machine that is busy with other things as well.
const RECOVERY: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_no_address_is_given_twice_or_taken_away_unasked() -> Result<()> {
    let asked = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = asked("PURELB_SEED").unwrap_or_else(|| u64::from(std::process::id()) ^ u64::from(now()));
    let seconds = asked("PURELB_CHAOS_SECONDS").unwrap_or(SHORT);
    eprintln!("PURELB_SEED={seed} for {seconds} s");
    let cluster = Cluster::new().await?;
    let mut fleet = Fleet::start(&cluster).await?;
    let told = story(&cluster, &mut fleet, seed, Duration::from_secs(seconds)).await;
    let told = told.with_context(|| format!("PURELB_SEED={seed}\n{}", fleet.logs()));
    fleet.stop().await?;
    told
}

fn now() -> u32 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos())
}

async fn story(cluster: &Cluster, fleet: &mut Fleet, seed: u64, lasts: Duration) -> Result<()> {
    for group in GROUPS {
        cluster.group(group, form(group, 0)).await?;
    }
    let observer = Observer::start(cluster.plane.client()?, cluster.ground.core("services")).await?;
    let population = if lasts > Duration::from_secs(SHORT * 4) { POPULATION.1 } else { POPULATION.0 };
    let counted = trouble(cluster, fleet, &observer, &mut Dice(seed), lasts, population).await?;
    let calm = Instant::now();
    fleet.recover()?;
    for group in GROUPS {
        cluster.edit_group(group, &form(group, 0)).await?;
    }
    let settled = settled(cluster, &observer).await;
    let end = cluster.ground.get(&cluster.ground.core("services")).await?;
    // The list's own version may be one that no Service has, and that the observer would wait for.
    let versions = end["items"].as_array().into_iter().flatten().filter_map(|service| version(service).ok());
    let judge = observer.verdict(versions.max().unwrap_or_default()).await?;
    let services = settled?;
    ensure!(judge.unsettled().is_empty(), "these still share and may not:\n{}", judge.unsettled().join("\n"));
    let took = calm.elapsed();
    eprintln!(
        "{counted} requests, {} addresses given, {} of them shared, {} lost again, {} mishaps, {} with writes on the wire; {services} \
         Services content after {took:?}",
        judge.given, judge.shared, judge.lost, fleet.mishaps, fleet.ambushes
    );
    // A busy machine does less in the time; one that hardly does anything proves nothing.
    ensure!(judge.given > population / 3 && fleet.mishaps > 4, "too quiet to prove anything");
    rest(cluster).await?;
    eprintln!("at rest after {:?}", calm.elapsed());
    Ok(())
}

/// Users and operators at work, allocators in trouble.
async fn trouble(
    cluster: &Cluster,
    fleet: &mut Fleet,
    observer: &Observer,
    dice: &mut Dice,
    lasts: Duration,
    population: usize,
) -> Result<usize> {
    let (mut user, mut counted, end) = (User::new(population), 0, Instant::now() + lasts);
    while Instant::now() < end && !observer.objects() {
        let ambush = dice.roll(5) == 0;
        let many = if ambush { 80 } else { 5 + dice.roll(40) };
        let wishes: Vec<_> = (0..many).map(|_| user.wish(dice)).collect();
        counted += wishes.iter().map(Vec::len).sum::<usize>();
        let burst = async { try_join_all(wishes.into_iter().map(|wish| send(cluster, wish))).await.map(drop) };
        if ambush {
            fleet.ambush(cluster, burst).await?;
        } else {
            burst.await?;
        }
        if dice.roll(4) == 0 {
            let group = *dice.pick(&GROUPS);
            cluster.edit_group(group, &form(group, dice.roll(3))).await?;
        }
        if dice.roll(3) > 0 {
            fleet.mishap(cluster, dice).await?;
        }
        tokio::time::sleep(Duration::from_millis(dice.roll(400))).await;
    }
    Ok(counted)
}

/// What two wishes at the same time may do to each other is no error.
async fn send(cluster: &Cluster, wish: Vec<Request>) -> Result<()> {
    for (method, name, body) in wish {
        let path = cluster.ground.core(&format!("services/{name}"));
        let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let text = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        match cluster.ground.send(method, path.trim_end_matches('/'), content, text).await {
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => {}
            other => drop(other.with_context(|| format!("{name} {body}"))?),
        }
    }
    Ok(())
}

/// Waits until every Service has what it can have, and tells how many Services there are.
async fn settled(cluster: &Cluster, observer: &Observer) -> Result<usize> {
    let deadline = Instant::now() + RECOVERY;
    loop {
        let list = cluster.ground.get(&cluster.ground.core("services")).await?;
        let services: Vec<Value> = list["items"].as_array().cloned().unwrap_or_default();
        let without = [without(&services), in_conflict(&services)].concat();
        if without.is_empty() || observer.objects() {
            return Ok(services.len());
        }
        let first = without.first().map(|service| brief(service)).unwrap_or_default();
        ensure!(
            Instant::now() < deadline,
            "{} Services got no address, or have one that they may not share, such as\n{first}",
            without.len()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The Services that lack an address which they could have.
fn without(services: &[Value]) -> Vec<&Value> {
    let mut holders: BTreeMap<IpAddr, Vec<&Value>> = BTreeMap::new();
    for service in services {
        addresses(service).into_iter().for_each(|address| holders.entry(address).or_default().push(service));
    }
    let held = |address: &str| address.parse().is_ok_and(|address: IpAddr| holders.contains_key(&address));
    let balanced = services.iter().filter(|service| service["spec"]["type"] == "LoadBalancer");
    let lacking = balanced.filter(|service| {
        let families = service["spec"]["ipFamilies"].as_array().map_or(0, Vec::len);
        addresses(service).len() < families
    });
    lacking
        .filter(|service| {
            let (pin, group) =
                (annotation(service, "purelb.io/addresses"), annotation(service, "purelb.io/service-group"));
            let exhausted = group == "tight" && (8..16).all(|last| held(&format!("10.3.0.{last}")));
            !held(pin) && !exhausted && !clashes(service, services)
        })
        .collect()
}

/// The Services that are on one address with somebody they cannot share it with.
fn in_conflict(services: &[Value]) -> Vec<&Value> {
    let mut holders: BTreeMap<IpAddr, Vec<&Value>> = BTreeMap::new();
    for service in services {
        addresses(service).into_iter().for_each(|address| holders.entry(address).or_default().push(service));
    }
    let strangers = |a: &Value, b: &Value| !Claim::of(a).is_related_to(&Claim::of(b));
    let shared = holders.into_values().filter(|holders| holders.len() > 1);
    shared
        .flat_map(|all| {
            let met =
                |a: &&Value| all.iter().any(|b| a["metadata"]["name"] != b["metadata"]["name"] && strangers(a, b));
            all.iter().copied().filter(met).collect::<Vec<_>>()
        })
        .collect()
}

/// Whether somebody else with the same key has one of the Service's ports already.
fn clashes(service: &Value, services: &[Value]) -> bool {
    let claim = Claim::of(service);
    let others = services.iter().filter(|other| other["metadata"]["name"] != service["metadata"]["name"]);
    let mut theirs = others.map(Claim::of);
    !claim.key.is_empty() && theirs.any(|other| other.key == claim.key && !other.ports.is_disjoint(&claim.ports))
}

/// Waits until the allocators ask nothing of the API server but their lease, for as long as it is renewed six times.
async fn rest(cluster: &Cluster) -> Result<()> {
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/purelb-allocator");
    let mut before = json!(null);
    for _ in 0..10 {
        let asked = cluster.work().await?;
        for _ in 0..6 {
            cluster
                .until("the lease is renewed", async || {
                    let lease = cluster.ground.get(&lease).await?;
                    let renewed = lease["spec"]["renewTime"] != before;
                    before = lease["spec"]["renewTime"].clone();
                    Ok(if renewed { Ok(()) } else { Err(lease) })
                })
                .await?;
        }
        if cluster.work().await? == asked {
            return Ok(());
        }
    }
    bail!("the allocators do not come to rest")
}
