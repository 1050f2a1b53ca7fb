//! Step 6: the allocator that leads is killed while Services are created; the other one takes over.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use super::manifests::MANY;
use super::{at, ingress};
use crate::ask::ask_often;
use crate::cluster::{Cluster, TEST};
use crate::show::{Look, Show, demand};
use crate::site::{LEADER_SECONDS, Site};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases/purelb-allocator";
/// Only a guard against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn show(site: &mut Site, show: &mut Show) -> Result<()> {
    sweep(&site.cluster, show)?;
    show.types("kubectl get lease purelb-allocator -n purelb-system")?;
    let before = holder(&site.cluster)?;
    let cluster = std::sync::Arc::clone(&site.cluster);
    // Whoever watches sees the first Service get its address, and strikes.
    let witness = thread::spawn(move || first_assigned(&cluster));
    let created = {
        let show = &mut *show;
        thread::scope(|scope| {
            let typed = scope.spawn(move || show.types("kubectl apply -f many.yaml | tail -n 2"));
            witness.join().map_err(|_| anyhow!("the witness failed"))??;
            let victim = site.kill_allocator(&before)?;
            let killed = Instant::now();
            let assigned = assigned(&site.cluster)?;
            typed.join().map_err(|_| anyhow!("kubectl failed"))??;
            Ok::<_, anyhow::Error>((assigned, victim, killed))
        })
    };
    let (assigned, victim, killed) = created?;
    let some = format!("some of {MANY} Services have their address when the allocator dies");
    demand(0 < assigned && assigned < MANY, &some, format!("{assigned} have one"))?;
    show.line(&format!("{victim} led, and was killed when {assigned} of {MANY} Services had their address."));
    let all = show.until(&format!("all {MANY} Services have an address"), || assigned_to_all(&site.cluster))?;
    let took = killed.elapsed();
    let different: BTreeSet<&IpAddr> = all.iter().collect();
    demand(different.len() == MANY, &format!("{MANY} different addresses"), format!("{all:?}"))?;
    let after = holder(&site.cluster)?;
    demand(after != before, "the other allocator leads", format!("the lease names {after}"))?;
    show.line(&format!("{} leads now.", after.split('_').next().unwrap_or(&after)));
    show.types("kubectl get lease purelb-allocator -n purelb-system")?;
    show.line(&format!(
        "All {MANY} have an address, all different, {:.1} s after the death (a leadership",
        took.as_secs_f64()
    ));
    show.line(&format!("lasts {LEADER_SECONDS} s here)."));
    for address in &all {
        show.until(&format!("{address} answers a client behind the router"), || {
            Ok(ask_often(&site.client, at(*address), 1).map(drop).map_err(|error| format!("{error:#}")))
        })?;
    }
    show.line(&format!("A client behind the router got an answer from each of the {MANY}."));
    show.fact("assigned_before", assigned);
    show.fact("all_assigned_ms", json!(took.as_millis() as u64));
    show.fact("leaders", json!([before, after]));
    show.types("kubectl delete -f many.yaml --wait=false >/dev/null")?;
    site.start_allocators()
}

fn holder(cluster: &Cluster) -> Result<String> {
    let lease = cluster.get(LEASE)?.unwrap_or_default();
    lease["spec"]["holderIdentity"].as_str().map(str::to_owned).context("nobody leads the allocators")
}

fn many(cluster: &Cluster) -> Result<Vec<Value>> {
    let services = cluster.list("/api/v1/namespaces/test/services")?;
    let ours = |service: &Value| service["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("web-"));
    Ok(services.into_iter().filter(ours).collect())
}

/// Removes what a tour that was cut short has left in a data folder.
fn sweep(cluster: &Cluster, show: &mut Show) -> Result<()> {
    for service in many(cluster)? {
        let name = service["metadata"]["name"].as_str().unwrap_or_default();
        cluster.delete(&format!("/api/v1/namespaces/{TEST}/services/{name}"))?;
    }
    show.until("the Services of an earlier tour are gone", || {
        let left = many(cluster)?.len();
        Ok(if left == 0 { Ok(()) } else { Err(format!("{left} are left")) })
    })
}

/// How many of the Services have an address.
fn assigned(cluster: &Cluster) -> Result<usize> {
    Ok(many(cluster)?.iter().filter(|service| !ingress(service).is_empty()).count())
}

/// Waits for the first address.
fn first_assigned(cluster: &Cluster) -> Result<()> {
    let begun = Instant::now();
    while assigned(cluster)? == 0 && begun.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn assigned_to_all(cluster: &Cluster) -> Result<Look<Vec<IpAddr>>> {
    let all: Vec<IpAddr> = many(cluster)?.iter().flat_map(ingress).collect();
    let count = all.len();
    Ok(if count == MANY { Ok(all) } else { Err(format!("{count} of {MANY} have one")) })
}
