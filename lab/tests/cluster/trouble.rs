//! A node in trouble: who answers for its addresses, for how long nobody does, and that never two do.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use purelb_lab::Cluster;
use purelb_lab::cluster::{Proxy, addresses};
use purelb_lab::router::Make;
use rustix::process::Signal;

use crate::purelb::{HOME, NODES, install};
use crate::scene::{HEIR, Scene, Seen, VICTIM, Watch};
use crate::site::{SECOND, SOON, fresh};
use crate::speaker::configuration;

/// Between two packets of a client.
const PACE: Duration = Duration::from_millis(3);
/// How long a node may be silent before others take its addresses.
const LEASE: Duration = Duration::from_secs(10);
/// How long the router waits for a word of a node.
const HOLD: Duration = Duration::from_secs(9);
/// For a step of two kernels and a lease on a busy machine, where a second is enough on a quiet one. IPv6 takes another,
/// in which the kernel looks for a duplicate.
const MOVE: Duration = Duration::from_secs(5);
/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(60);

/// Watches all addresses while something happens and until all is as it was.
async fn suffer(scene: &Scene<'_>, what: &str, trouble: impl AsyncFnOnce(&Watch<'_>) -> Result<()>) -> Result<Seen> {
    let watched = async {
        let watch = scene.watch(PACE).await?;
        trouble(&watch).await?;
        scene.settled().await?;
        watch.everybody_is_answered().await?;
        watch.finish()
    };
    let seen = watched.await.with_context(|| what.to_owned())?;
    seen.tell("6", what)?;
    Ok(seen)
}

async fn is_ready(cluster: &Cluster, node: &str) -> Result<bool> {
    let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    Ok(cluster.kubectl(&["get", "node", node, "-o", ready]).await? == "True")
}

/// Sends a signal to the victim's agent, and waits until another one is at work in its place.
async fn hit(cluster: &Cluster, signal: Signal) -> Result<()> {
    let only = format!("--field-selector=spec.nodeName={VICTIM}");
    let agent = ["get", "pods", "-n", HOME, "-l", "component=lbnodeagent", &only, "-o"];
    let ask = async |what: &str| cluster.kubectl(&[&agent[..], &[what]].concat()).await;
    let name = ask("jsonpath={.items[0].metadata.name}").await?;
    let restarts = "jsonpath={.items[0].status.containerStatuses[0].restartCount}";
    let before = ask(restarts).await?;
    cluster.signal(HOME, &name, signal).await?;
    let again = async |_: &Cluster| {
        let ready = ask("jsonpath={.items[0].status.containerStatuses[0].ready}").await?;
        Ok(ready == "true" && ask(restarts).await? != before)
    };
    cluster.until("the agent is at work again", SOON, again).await
}

async fn killed(scene: &Scene<'_>) -> Result<()> {
    let seen = suffer(scene, "agent killed", async |_| hit(scene.cluster, Signal::KILL).await).await?;
    ensure!(seen.silence() < LEASE + MOVE, "{:?}", seen.silence());
    seen.nothing_lost_far()
}

async fn stopped(scene: &Scene<'_>) -> Result<()> {
    let seen = suffer(scene, "agent asked to stop", async |_| hit(scene.cluster, Signal::TERM).await).await?;
    ensure!(seen.silence() < MOVE, "{:?}", seen.silence());
    seen.nothing_lost_far()
}

async fn cut_off(scene: &Scene<'_>) -> Result<()> {
    let cluster = scene.cluster;
    let victim = cluster.node(VICTIM)?;
    let seen = suffer(scene, "node's link cut", async |watch| {
        victim.plug.cut()?;
        scene.held_near(HEIR).await?;
        watch.taken_by(HEIR).await?;
        scene.routed_to(&NODES[1..]).await?;
        victim.plug.mend()
    });
    let seen = seen.await?;
    cluster.until("the node is ready", SOON, async |cluster| is_ready(cluster, VICTIM).await).await?;
    ensure!(seen.silence() < LEASE + MOVE && seen.gap() < HOLD + MOVE, "{:?}, {:?}", seen.silence(), seen.gap());
    Ok(())
}

async fn partitioned(scene: &Scene<'_>) -> Result<()> {
    let victim = &scene.cluster.node(VICTIM)?.namespace;
    let (v4, v6) = addresses::CONTROL;
    // Nothing comes back, as behind a broken switch; the rest of the segment works.
    let routes = |verb: &str| format!("route {verb} blackhole {v4}/32\nroute {verb} blackhole {v6}/128\n");
    let seen = suffer(scene, "node cut off from the API server only", async |watch| {
        victim.batch(&routes("add"))?;
        scene.held_near(HEIR).await?;
        watch.taken_by(HEIR).await?;
        victim.batch(&routes("del"))
    });
    let seen = seen.await?;
    ensure!(seen.silence() < LEASE + MOVE, "{:?}", seen.silence());
    seen.nothing_lost_far()
}

async fn without_interface(scene: &Scene<'_>) -> Result<()> {
    let victim = &scene.cluster.node(VICTIM)?.namespace;
    let seen = suffer(scene, "kube-lb0 deleted", async |_| victim.batch("link del kube-lb0\n")).await?;
    ensure!(seen.silence().is_zero(), "{:?}", seen.silence());
    seen.nothing_lost_far()
}

async fn without_router(scene: &Scene<'_>) -> Result<()> {
    let router = scene.cluster.router.as_ref().context("the cluster has a router")?;
    let seen = suffer(scene, "router restarted", async |_| router.restart()).await?;
    ensure!(seen.silence().is_zero() && seen.gap() < HOLD + MOVE, "{:?}, {:?}", seen.silence(), seen.gap());
    Ok(())
}

async fn without_api_server(scene: &Scene<'_>) -> Result<()> {
    let plane = &scene.cluster.plane;
    let seen = suffer(scene, "API server stopped for 60 s", async |_| {
        plane.stop_server()?;
        // Not a wait for something: this is how long it is away.
        tokio::time::sleep(AWAY).await;
        plane.start_server().await
    });
    let seen = seen.await?;
    // Without it no node knows whether another has taken over: local addresses are given up until it is back.
    ensure!(seen.silence() < AWAY + LEASE + SOON / 4, "{:?}", seen.silence());
    seen.nothing_lost_far()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_to_a_node_never_do_two_answer_for_an_address() -> Result<()> {
    let story = "trouble::whatever_happens_to_a_node_never_do_two_answer_for_an_address";
    let _alone = SECOND.lock().await;
    let cluster = fresh(Some(Make::Bird), Proxy::Nftables).await?;
    cluster
        .prove(story, async |cluster| {
            install(cluster, "default").await?;
            cluster.apply(&configuration()).await?;
            let scene = Scene::set(cluster).await?;
            killed(&scene).await?;
            stopped(&scene).await?;
            without_interface(&scene).await?;
            without_router(&scene).await?;
            partitioned(&scene).await?;
            cut_off(&scene).await?;
            without_api_server(&scene).await
        })
        .await
}
