//! PureLB is replaced while clients are at work.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use purelb_lab::cluster::Proxy;
use purelb_lab::net::Namespace;
use purelb_lab::router::Make;
use serde_json::json;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::purelb::{HOME, NODES, assigned, group, held_by, prepare, proxied, service};
use crate::site::{SECOND, ask, deployment, fresh, rolled_out, room};

/// A client that never stops connecting, one connection after another.
struct Customer {
    leave: Arc<AtomicBool>,
    visit: JoinHandle<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    refused: Vec<String>,
    slowest: Duration,
}

impl Customer {
    fn send(from: &Namespace, at: SocketAddr) -> Self {
        let leave = Arc::new(AtomicBool::new(false));
        let (from, watched) = (from.clone(), Arc::clone(&leave));
        let visit = spawn_blocking(move || from.run(|| shop(at, &watched)));
        Self { leave, visit }
    }

    async fn recall(self) -> Result<Tally> {
        self.leave.store(true, Ordering::Relaxed);
        Ok(self.visit.await?)
    }
}

fn shop(at: SocketAddr, leave: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    while !leave.load(Ordering::Relaxed) {
        let asked = Instant::now();
        match ask(at) {
            Ok(_) => tally.answered += 1,
            Err(error) => tally.refused.push(format!("{error:#}")),
        }
        tally.slowest = tally.slowest.max(asked.elapsed());
    }
    tally
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_and_allocators_are_replaced_and_no_connection_is_lost() -> Result<()> {
    let story = "upgrade::agents_and_allocators_are_replaced_and_no_connection_is_lost";
    let _alone = SECOND.lock().await;
    let cluster = fresh(Some(Make::Bird), Proxy::Nftables).await?;
    let pools = json!({"local": {
        "v4pools": [{"aggregation": "/32", "pool": "172.36.0.1-172.36.0.9", "subnet": "172.36.0.0/24"}],
    }});
    cluster
        .prove(story, async |cluster| {
            let _routers = prepare(cluster).await?;
            let home = "busy";
            room(cluster, home).await?;
            cluster.apply(&deployment(home, "echo", 3)).await?;
            rolled_out(cluster, home, "deployment/echo").await?;
            cluster.apply(&group("busy", &pools)).await?;
            cluster.apply(&service(home, "echo", "echo", "busy", &["IPv4"])).await?;
            assert_eq!(assigned(cluster, home, "echo").await?, ["172.36.0.1"]);
            held_by(cluster, "172.36.0.1/32", &NODES).await?;
            proxied(cluster, "172.36.0.1").await?;

            let customer = Customer::send(cluster.far_client(), "172.36.0.1:80".parse()?);
            for workload in ["daemonset/lbnodeagent", "deployment/allocator"] {
                cluster.kubectl(&["rollout", "restart", "-n", HOME, workload]).await?;
                rolled_out(cluster, HOME, workload).await?;
            }
            let tally = customer.recall().await?;
            println!("{} connections, the slowest took {:?}", tally.answered, tally.slowest);
            ensure!(tally.refused.is_empty() && tally.answered > 100, "{tally:?}");
            held_by(cluster, "172.36.0.1/32", &NODES).await
        })
        .await
}
