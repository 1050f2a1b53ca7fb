//! PureLB is replaced while clients are at work.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb_lab::cluster::Proxy;
use purelb_lab::net::Namespace;
use purelb_lab::router::Make;
use purelb_lab::tested::seen;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::purelb::{HOME, prepare};
use crate::scene::Scene;
use crate::site::{SECOND, ask, fresh, rolled_out};

/// Between two packets of a client of a virtual address: well over a thousand in a second, also on a busy machine.
const PACE: Duration = Duration::from_micros(600);
/// What clients of virtual addresses must have sent in a second to be believed.
const RATE: f64 = 1000.0;
/// Between two connections of a customer, so that it makes some thousands of them.
///
/// From about nine thousand in a minute on, some take a second, without PureLB as well: kube-proxy's masquerading gives a
/// connection a port whose last one the Pod has in TIME-WAIT (RFC 9293, section 3.6.1), the Pod answers the SYN with that
/// one's ACK, and the client, which cannot make sense of it, sends its SYN again a second later.
const PAUSE: Duration = Duration::from_millis(5);
/// What a local address may cost, twice for each node that has it: the owner goes, and the owner is back.
const MOVE: Duration = Duration::from_secs(5);

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
        thread::sleep(PAUSE);
    }
    tally
}

/// How many first packets of connections the kernel of a network has sent again, which it does after a second.
fn asked_again(network: &Namespace) -> Result<u64> {
    let output = network.command("cat").arg("/proc/net/netstat").output()?;
    let text = String::from_utf8(output.stdout)?;
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:")).map(str::split_whitespace);
    let (names, numbers) = (lines.next().context("names")?, lines.next().context("numbers")?);
    let found = names.zip(numbers).find(|(name, _)| *name == "TCPSynRetrans");
    Ok(found.context("the kernel does not count them")?.1.parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_and_allocators_are_replaced_and_no_packet_is_lost() -> Result<()> {
    let story = "upgrade::agents_and_allocators_are_replaced_and_no_packet_is_lost";
    let _alone = SECOND.lock().await;
    let cluster = fresh(Some(Make::Bird), Proxy::Nftables).await?;
    cluster
        .prove(story, async |cluster| {
            let _routers = prepare(cluster).await?;
            let scene = Scene::set(cluster).await?;
            let watch = scene.watch(PACE).await?;
            let again = asked_again(cluster.far_client())?;
            let customer = Customer::send(cluster.far_client(), SocketAddr::new(scene.far[0], 80));
            for workload in ["daemonset/lbnodeagent", "deployment/allocator"] {
                cluster.kubectl(&["rollout", "restart", "-n", HOME, workload]).await?;
                rolled_out(cluster, HOME, workload).await?;
            }
            scene.settled().await?;
            watch.everybody_is_answered().await?;
            let (tally, views) = (customer.recall().await?, watch.finish()?);
            let again = asked_again(cluster.far_client())? - again;
            views.tell("7", "agents and allocators replaced")?;
            let Tally { answered, refused, slowest } = &tally;
            let (refusals, slowest) = (refused.len(), slowest.as_millis());
            let connections = format!(
                "{answered} answered, {refusals} failed, the slowest took {slowest} ms, {again} SYNs sent again"
            );
            println!("connections to the virtual IPv4 address: {connections}");
            seen("7", "agents and allocators replaced: connections to the virtual IPv4 address", connections);
            views.nothing_lost_far()?;
            let rate: f64 = views.far.iter().map(|view| view.report.rate()).sum();
            ensure!(rate >= RATE, "too few packets to tell: {rate:.0} a second");
            ensure!(views.silence() < MOVE, "{:?}", views.silence());
            ensure!(refused.is_empty() && *answered > 100, "{tally:?}");
            Ok(())
        })
        .await
}
