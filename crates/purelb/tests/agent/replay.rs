//! What an agent heard can be written down and told again: a fresh desk decides the same, step by step.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use prometheus_client::registry::Registry;
use purelb::agent::Settings;
use purelb::agent::desk::{Desk, Turn};
use purelb::agent::event::{self, Event};
use purelb::agent::kernel::Order;
use purelb::agent::metrics::Metrics;
use purelb::agent::stop::OnStop;
use purelb::agent::{lease, work};
use purelb_core::moment::Moment;
use purelb_core::plan::Step;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::town::{HOME, TIMING, Town};

/// One turn of the desk.
#[derive(Serialize, Deserialize)]
struct Page {
    now: Moment,
    wall: Timestamp,
    heard: Option<Event>,
    /// What the kernel was told to do.
    orders: Vec<Order>,
    /// Everything that was decided.
    decided: String,
}

fn desk(node: &str) -> Desk {
    let settings = Settings {
        namespace: HOME.to_owned(),
        node: node.to_owned(),
        instance: "recorded".to_owned(),
        host: String::new(),
        timing: TIMING,
        on_stop: OnStop::Auto,
    };
    Desk::new(settings, Metrics::new(&mut Registry::default()))
}

/// Runs the agent of a node as the daemon does, one event a turn, and writes down a line for each.
async fn record(town: &Town, node: usize, until: Moment) -> Result<Vec<String>> {
    let node = &town.nodes[node];
    let (mut news, give) = node.kernel.plug();
    let start: Timestamp = "2026-01-01T00:00:00Z".parse()?;
    let clock = town.clock;
    let wall = move || start + SignedDuration::try_from(clock.now().0).expect("short");
    let mut watches = event::watches(&town.client, &node.name, crate::town::HOME);
    let mut leases = event::leases(&town.client, HOME, std::sync::Arc::new(wall));
    let (mut desk, mut lines, mut answers) = (desk(&node.name), Vec::new(), VecDeque::new());
    let mut wake = None;
    while town.clock.now() < until {
        let heard = match answers.pop_front() {
            Some(answer) => Some(answer),
            None => tokio::select! {
                biased;
                Some(news) = news.recv() => Some(Event::Kernel(news)),
                Some(event) = leases.next() => Some(event),
                Some(event) = watches.next() => Some(event),
                () = tokio::time::sleep_until(town.clock.instant(wake.unwrap_or(until))) => None,
            },
        };
        // Written first, so that nothing the desk does to it can get into the book.
        let written = serde_json::to_value(&heard)?;
        let (now, wall) = (town.clock.now(), wall());
        heard.into_iter().for_each(|event| desk.hear(event, now));
        let urgent = desk.hurry(now);
        let turn = desk.turn(now, wall);
        let decided = format!("{urgent:?} {turn:?}");
        let page = json!({"now": now, "wall": wall, "heard": written, "orders": urgent.orders, "decided": decided});
        lines.push(page.to_string());
        wake = turn.wake.map(|wake| wake.max(now + Duration::from_millis(1)));
        urgent.orders.into_iter().for_each(&*give);
        answers.extend(carry_out(town, turn, &*give).await?);
    }
    Ok(lines)
}

/// Does what the desk decided; answers with what it hears of that.
async fn carry_out(town: &Town, turn: Turn, give: &(dyn Fn(Order) + Send + Sync)) -> Result<Vec<Event>> {
    turn.orders.into_iter().for_each(give);
    let mut answers = Vec::new();
    if let Some(mut wanted) = turn.renewal {
        // The version that the watch has shown may be older than the answer to our last write, which only the renewer knows.
        wanted.metadata.resource_version = None;
        let leases: Api<Lease> = Api::namespaced(town.client.clone(), HOME);
        let name = wanted.metadata.name.clone().context("a lease has a name")?;
        let written = match leases.get_opt(&name).await? {
            None => leases.create(&PostParams::default(), &wanted).await?,
            Some(_) => leases.patch(&name, &PatchParams::default(), &Patch::Merge(&wanted)).await?,
        };
        answers.push(Event::Renewal(lease::News::Renewed(Box::new(written))));
    }
    for job in turn.jobs {
        let done = work::run(town.client.clone(), Metrics::new(&mut Registry::default()), job).await;
        answers.push(Event::Done(done));
    }
    Ok(answers)
}

/// What happens while the first node is recorded: addresses of both kinds, a failover, edits, endpoints, an end.
async fn story(town: &Town, other: tokio::sync::oneshot::Sender<()>) -> Result<()> {
    let near = json!({"purelb.io/node-affinity": "service-endpoints"});
    town.local_group().await?;
    town.remote_group("edge", "/32").await?;
    town.service("far", json!({"purelb.io/service-group": "edge"}), json!({})).await?;
    for name in ["one", "two", "three"] {
        town.service(name, json!({}), json!({"ipFamilyPolicy": "PreferDualStack"})).await?;
    }
    town.service("near", near, json!({"ipFamilyPolicy": "SingleStack"})).await?;
    town.pass(Duration::from_secs(20)).await;
    town.endpoints("near", &[&town.nodes[0].name]).await?;
    town.pass(Duration::from_secs(5)).await;
    let _ = other.send(());
    town.pass(Duration::from_secs(20)).await;
    town.patch_service("far", json!({"spec": {"externalTrafficPolicy": "Local"}})).await?;
    town.patch_node_agent("default", json!({"local": {"localInterface": "["}})).await?;
    town.nodes[0].kernel.meddle(|kernel| kernel.set_carrier("eth0", false));
    town.pass(Duration::from_secs(5)).await;
    town.nodes[0].kernel.meddle(|kernel| kernel.set_carrier("eth0", true));
    town.delete_service("one").await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_recorded_history_replays_to_the_same_steps() -> Result<()> {
    let mut town = Town::new(2).await?;
    town.start(1);
    let (dies, die) = tokio::sync::oneshot::channel();
    let until = town.clock.now() + Duration::from_secs(70);
    // The other node's agent ends in the middle: what it held comes to the recorded one.
    let end = town.end_of(1, die);
    let (lines, told, ()) = tokio::join!(record(&town, 0, until), story(&town, dies), end);
    told?;
    let lines = lines?;
    let mut desk = desk(&town.nodes[0].name);
    let (mut puts, mut drops) = (0, 0);
    for (number, line) in lines.iter().enumerate() {
        let page: Page = serde_json::from_str(line).with_context(|| format!("line {number}: {line}"))?;
        page.heard.into_iter().for_each(|event| desk.hear(event, page.now));
        let decided = format!("{:?} {:?}", desk.hurry(page.now), desk.turn(page.now, page.wall));
        ensure!(decided == page.decided, "line {number}: {decided} instead of {}", page.decided);
        let steps = page
            .orders
            .iter()
            .filter_map(|order| if let Order::Apply { steps, .. } = order { Some(steps) } else { None });
        for step in steps.flatten() {
            puts += usize::from(matches!(step, Step::PutAddr { refresh: false, .. }));
            drops += usize::from(matches!(step, Step::DropAddr { .. }));
        }
    }
    println!("{} turns, {puts} addresses put, {drops} dropped", lines.len());
    assert!(lines.len() > 100 && puts >= 5 && drops >= 3, "a history worth telling: {puts} put, {drops} dropped");
    Ok(())
}
