//! A node in trouble: who answers for its addresses, for how long nobody does, and that never two do.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use purelb_lab::Cluster;
use purelb_lab::cluster::{Proxy, addresses};
use purelb_lab::router::Make;
use rustix::process::Signal;

use crate::past::nothing_denied;
use crate::purelb::{HOME, NODES, install};
use crate::scene::{HEIR, Scene, Seen, VICTIM, Watch};
use crate::site::{SECOND, SOON, fresh};
use crate::speaker::configuration;

/// Between two packets of a client.
const PACE: Duration = Duration::from_millis(3);
/// How long a node may be silent before others take its addresses.
const LEASE: Duration = Duration::from_secs(7);
/// How long the router waits for a word of a node.
const HOLD: Duration = Duration::from_secs(9);
/// For a step of two kernels and a lease on a busy machine, where a second is enough on a quiet one. IPv6 takes another,
/// in which the kernel looks for a duplicate.
const MOVE: Duration = Duration::from_secs(5);
/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(60);

/// Watches all addresses while something happens and until all is as it was. What was seen is told if it is as promised.
async fn suffer(
    scene: &Scene<'_>,
    what: &str,
    trouble: impl AsyncFnOnce(&Watch<'_>) -> Result<()>,
    promised: impl FnOnce(&Seen) -> Result<()>,
) -> Result<()> {
    let watched = async {
        let watch = scene.watch(PACE).await?;
        trouble(&watch).await?;
        scene.settled().await?;
        watch.everybody_is_answered().await?;
        watch.finish()
    };
    watched.await.with_context(|| what.to_owned())?.tell("6", what, promised)
}

/// Local addresses were silent for less than this.
fn silent_for_less_than(limit: Duration, seen: &Seen) -> Result<()> {
    ensure!(seen.silence() < limit, "nobody answered for {:?}", seen.silence());
    Ok(())
}

/// Local addresses answered all the time.
fn never_silent(seen: &Seen) -> Result<()> {
    ensure!(seen.silence().is_zero(), "nobody answered for {:?}", seen.silence());
    Ok(())
}

/// Virtual addresses were silent for less than this, by whichever way.
fn far_gap_less_than(limit: Duration, seen: &Seen) -> Result<()> {
    ensure!(seen.gap() < limit, "no answer for {:?}", seen.gap());
    Ok(())
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
    let trouble = async |_: &Watch<'_>| hit(scene.cluster, Signal::KILL).await;
    suffer(scene, "agent killed", trouble, |seen| {
        silent_for_less_than(LEASE + MOVE, seen)?;
        seen.nothing_lost_far()
    })
    .await
}

async fn stopped(scene: &Scene<'_>) -> Result<()> {
    let trouble = async |_: &Watch<'_>| hit(scene.cluster, Signal::TERM).await;
    suffer(scene, "agent asked to stop", trouble, |seen| {
        silent_for_less_than(MOVE, seen)?;
        seen.nothing_lost_far()
    })
    .await
}

async fn cut_off(scene: &Scene<'_>) -> Result<()> {
    let cluster = scene.cluster;
    let victim = cluster.node(VICTIM)?;
    let trouble = async |watch: &Watch<'_>| {
        victim.plug.cut()?;
        scene.held_near(HEIR).await?;
        watch.taken_by(HEIR).await?;
        scene.routed_to(&NODES[1..]).await?;
        victim.plug.mend()
    };
    suffer(scene, "node's link cut", trouble, |seen| {
        silent_for_less_than(LEASE + MOVE, seen)?;
        far_gap_less_than(HOLD + MOVE, seen)
    })
    .await?;
    cluster.until("the node is ready", SOON, async |cluster| is_ready(cluster, VICTIM).await).await
}

async fn partitioned(scene: &Scene<'_>) -> Result<()> {
    let victim = &scene.cluster.node(VICTIM)?.namespace;
    let (v4, v6) = addresses::CONTROL;
    // Nothing comes back, as behind a broken switch; the rest of the segment works.
    let routes = |verb: &str| format!("route {verb} blackhole {v4}/32\nroute {verb} blackhole {v6}/128\n");
    let trouble = async |watch: &Watch<'_>| {
        victim.batch(&routes("add"))?;
        scene.held_near(HEIR).await?;
        watch.taken_by(HEIR).await?;
        victim.batch(&routes("del"))
    };
    suffer(scene, "node cut off from the API server only", trouble, |seen| {
        silent_for_less_than(LEASE + MOVE, seen)?;
        seen.nothing_lost_far()
    })
    .await
}

async fn without_interface(scene: &Scene<'_>) -> Result<()> {
    let victim = &scene.cluster.node(VICTIM)?.namespace;
    let trouble = async |_: &Watch<'_>| victim.batch("link del kube-lb0\n");
    suffer(scene, "kube-lb0 deleted", trouble, |seen| {
        never_silent(seen)?;
        seen.nothing_lost_far()
    })
    .await
}

async fn without_router(scene: &Scene<'_>) -> Result<()> {
    let router = scene.cluster.router.as_ref().context("the cluster has a router")?;
    suffer(
        scene,
        "router restarted",
        async |_| router.restart(),
        |seen| {
            never_silent(seen)?;
            far_gap_less_than(HOLD + MOVE, seen)
        },
    )
    .await
}

async fn without_api_server(scene: &Scene<'_>) -> Result<()> {
    let plane = &scene.cluster.plane;
    let trouble = async |_: &Watch<'_>| {
        plane.stop_server()?;
        // Not a wait for something: this is how long it is away.
        tokio::time::sleep(AWAY).await;
        plane.start_server().await
    };
    suffer(scene, "API server stopped for 60 s", trouble, |seen| {
        // Without it no node knows whether another has taken over: local addresses are given up until it is back.
        silent_for_less_than(AWAY + LEASE + SOON / 4, seen)?;
        seen.nothing_lost_far()
    })
    .await
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
            // Before the next trouble: an API server that starts answers some requests before it has read who may do what.
            nothing_denied(cluster)?;
            without_api_server(&scene).await
        })
        .await
}
