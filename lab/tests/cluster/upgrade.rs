//! PureLB is replaced while clients are at work.

use std::net::{SocketAddr, TcpStream};
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

use crate::past::nothing_denied;
use crate::purelb::{HOME, NODES, install, prepare};
use crate::scene::{Scene, Seen};
use crate::site::{SECOND, ask_over, fresh, rolled_out};
use crate::speaker::configuration;

/// Between two packets of a client of a virtual address: well over a thousand in a second, also on a busy machine.
const PACE: Duration = Duration::from_micros(500);
/// What each client of a virtual address must have sent in a second to be believed.
const RATE: f64 = 1000.0;
/// Between two connections of a customer, so that it makes some thousands of them.
///
/// From about nine thousand in a minute on, some take a second, without PureLB as well: kube-proxy's masquerading gives a
/// connection a port whose last one the Pod has in TIME-WAIT (RFC 9293, section 3.6.1), the Pod answers the SYN with that
/// one's ACK, and the client, which cannot make sense of it, sends its SYN again a second later.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a connection or an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
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
    /// Attempts that made no connection.
    lost: Vec<String>,
    /// Connections that did not last until the answer was there.
    cut: Vec<String>,
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
        match TcpStream::connect_timeout(&at, PATIENCE).map(|stream| ask_over(stream, PATIENCE)) {
            Ok(Ok(_)) => tally.answered += 1,
            Ok(Err(error)) => tally.cut.push(format!("{error:#}")),
            Err(error) => tally.lost.push(error.to_string()),
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

/// How PureLB is installed, and how many connections may be cut: one for each change of the router's next hops. A router
/// without a memory for flows then sends what is on its way to another node, which knows nothing of it.
struct Act {
    what: &'static str,
    cut: usize,
}

/// Routing software of the operator's goes on while agents are replaced: nothing changes for the router.
const BESIDE: Act = Act { what: "agents and allocators replaced, BIRD on the nodes", cut: 0 };
/// The speaker goes with its agent: each node leaves and comes back.
const BUILT_IN: Act = Act { what: "agents and allocators replaced, the built-in speaker", cut: 2 * NODES.len() };

impl Act {
    /// Replaces everything under all clients.
    async fn play(&self, scene: &Scene<'_>) -> Result<()> {
        let cluster = scene.cluster;
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
        views.tell("7", self.what, Self::promised)?;
        self.tell(&tally, again)
    }

    /// Every client of a virtual address asked often enough to be believed, and every packet was answered.
    fn promised(views: &Seen) -> Result<()> {
        for view in &views.far {
            let rate = view.report.rate();
            ensure!(rate >= RATE, "{}: too few packets to tell: {rate:.0} a second: {view:?}", view.address);
        }
        ensure!(views.silence() < MOVE, "nobody answered for {:?}", views.silence());
        views.nothing_lost_far()
    }

    /// What became of connections.
    fn tell(&self, tally: &Tally, again: u64) -> Result<()> {
        let Tally { answered, lost, cut, slowest } = tally;
        let (refusals, cuts, slowest) = (lost.len(), cut.len(), slowest.as_millis());
        let words = format!(
            "{answered} answered, {refusals} not made, {cuts} cut, the slowest took {slowest} ms, {again} SYNs sent again"
        );
        println!("{}: connections to the virtual IPv4 address: {words}", self.what);
        ensure!(lost.is_empty() && cuts <= self.cut && *answered > 100, "{}: {tally:?}", self.what);
        seen("7", &format!("{}: connections to the virtual IPv4 address", self.what), words);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_and_allocators_are_replaced_and_no_packet_is_lost() -> Result<()> {
    let story = "upgrade::agents_and_allocators_are_replaced_and_no_packet_is_lost";
    let _alone = SECOND.lock().await;
    let cluster = fresh(Some(Make::Bird), Proxy::Nftables).await?;
    cluster
        .prove(story, async |cluster| {
            let routers = prepare(cluster).await?;
            let scene = Scene::set(cluster).await?;
            BESIDE.play(&scene).await?;
            // Not at the end: programs without rights to the kinds of BGP meet these while the manifests are exchanged.
            nothing_denied(cluster)?;

            // The operator has PureLB do what BIRD did.
            drop(routers);
            install(cluster, "default").await?;
            cluster.apply(&configuration()).await?;
            scene.settled().await?;
            BUILT_IN.play(&scene).await
        })
        .await
}
