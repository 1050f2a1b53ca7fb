//! Random histories of a town, told again by their seed: never two holders of a local address, no virtual address missing
//! without a cause, and peace once everybody is left alone.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::DeleteParams;
use purelb::agent::stop::OnStop;
use purelb_core::addr::Family;
use purelb_core::plan::Step;
use rstest::rstest;
use serde_json::{Value, json};

use crate::line::{READ_TIMEOUT, Weather};
use crate::town::{HOME, Town};

/// How many histories each of the four tests tells.
const HISTORIES: u64 = 25;
const NODES: usize = 4;
/// How many Services have local addresses wherever the election puts them, and how many near their endpoints.
const FREE: usize = 3;
const NEAR: usize = 2;
/// The virtual address that nothing in a history gives a reason to take off.
const STEADY: &str = "172.30.0.0";

/// SplitMix64: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("small")
    }
}

/// The seed of a run: said, or new each time.
fn seed() -> u64 {
    let said = std::env::var("PURELB_SEED").ok().and_then(|text| text.parse().ok());
    said.unwrap_or_else(|| u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0))
}

#[rstest]
#[case::first(0)]
#[case::second(1)]
#[case::third(2)]
#[case::fourth(3)]
fn random_histories(#[case] part: u64) -> Result<()> {
    let base = seed();
    for number in 0..HISTORIES {
        let seed = base.wrapping_add(part * HISTORIES + number);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let mut log = Vec::new();
        let told = runtime.block_on(history(seed, &mut log));
        told.with_context(|| format!("PURELB_SEED={seed}; {log:#?}"))?;
    }
    println!("{HISTORIES} histories from seed {}", base.wrapping_add(part * HISTORIES));
    Ok(())
}

async fn history(seed: u64, log: &mut Vec<String>) -> Result<()> {
    let mut dice = Dice(seed);
    let mut town = Town::new(u8::try_from(NODES).expect("few")).await?;
    for node in &mut town.nodes {
        node.on_stop = OnStop::Stay;
        node.skew = jiff::SignedDuration::from_mins(60 * (i64::try_from(dice.below(3)).expect("small") - 1));
    }
    town.local_group().await?;
    town.remote_group("edge", "default").await?;
    town.service("steady", json!({"purelb.io/service-group": "edge"}), json!({})).await?;
    for node in 0..NODES {
        if dice.below(4) > 0 {
            town.start(node);
        }
    }
    for number in 0..FREE {
        local_service(&town, &format!("web{number}")).await?;
    }
    for number in 0..NEAR {
        local_service(&town, &format!("near{number}")).await?;
    }
    for _ in 0..20 {
        let deed = deed(&mut town, &mut dice).await?;
        log.push(format!("{:?} {deed}", town.clock.now().0));
        town.pass(Duration::from_millis(dice.next() % [50, 500, 4000, 12_000][dice.below(4)])).await;
        town.check()?;
    }
    log.push(format!("{:?} peace", town.clock.now().0));
    peace(&mut town).await?;
    town.check()?;
    let missing = town.losses_of(STEADY.parse()?);
    anyhow::ensure!(missing.is_empty(), "the steady virtual address was missing: {missing:?}");
    Ok(())
}

/// A Service with local addresses of both families, near its endpoints if its name says so.
async fn local_service(town: &Town, name: &str) -> Result<()> {
    let near = json!({"purelb.io/node-affinity": "service-endpoints"});
    let annotations = if name.starts_with("near") { near } else { json!({}) };
    town.service(name, annotations, json!({"ipFamilyPolicy": "PreferDualStack"})).await
}

/// One of the Services with local addresses.
fn any_service(dice: &mut Dice) -> String {
    let number = dice.below(FREE + NEAR);
    number.checked_sub(FREE).map_or_else(|| format!("web{number}"), |near| format!("near{near}"))
}

/// Takes the first local address off a node behind its agent's back; answers with it.
fn take_off(town: &Town, node: usize) -> Option<IpAddr> {
    let held = town.on(node, "eth0");
    let (addr, prefix) = held.first()?.split_once('/')?;
    let (addr, prefix) = (addr.parse().ok()?, prefix.parse().ok()?);
    town.nodes[node].kernel.meddle(|kernel| kernel.delete_addr("eth0", addr, prefix));
    Some(addr)
}

/// Sets or removes the affinity of a Service that is there already.
async fn follow(town: &Town, service: &str, affinity: &Value) -> Result<()> {
    town.patch_service(service, json!({"metadata": {"annotations": {"purelb.io/node-affinity": affinity}}})).await
}

/// Stops an agent without a word, or lets it go on. Its hands stop first: what it decides meanwhile is done when all goes on.
async fn pause_or_resume(town: &mut Town, dice: &mut Dice, node: usize) -> String {
    let name = town.nodes[node].name.clone();
    if town.is_paused(node) {
        town.resume(node);
        return format!("{name} goes on");
    }
    let links = town.nodes[node].kernel.links();
    let waits_for_it =
        links.named("kube-lb0").is_some_and(|(_, link)| link.addrs.iter().any(|a| a.valid_until.is_some()));
    if !town.is_running(node) || waits_for_it {
        return format!("{name} cannot be paused without a loss that is nobody's fault");
    }
    town.nodes[node].kernel.hold();
    town.pass(Duration::from_millis(dice.next() % [1, 100, 5000][dice.below(3)])).await;
    town.pause(node);
    format!("{name} stands still")
}

/// From now on a kernel takes no address off, or does again.
fn refuse_or_not(town: &Town, dice: &mut Dice, node: usize) -> String {
    let refuse = dice.below(2) == 0;
    let refused: fn(&Step) -> bool = if refuse { |step| matches!(step, Step::DropAddr { .. }) } else { |_| false };
    town.nodes[node].kernel.refuse(refused);
    format!("{} cannot take addresses off: {refuse}", town.nodes[node].name)
}

/// Stops an agent in order whose kernel thread does nothing any more.
async fn stop_hanging(town: &mut Town, dice: &mut Dice, node: usize) -> Result<String> {
    town.nodes[node].kernel.hold();
    town.pass(Duration::from_millis(dice.next() % [1, 100, 5000][dice.below(3)])).await;
    town.stop(node).await?;
    Ok(format!("{} is stopped while its kernel hangs", town.nodes[node].name))
}

/// One thing that happens.
async fn deed(town: &mut Town, dice: &mut Dice) -> Result<String> {
    let node = dice.below(NODES);
    let name = town.nodes[node].name.clone();
    Ok(match dice.below(23) {
        0 if town.is_running(node) => {
            town.kill(node);
            format!("{name} is killed")
        }
        0..=2 if !town.is_running(node) => {
            town.start(node);
            format!("{name} is started")
        }
        1 => {
            town.stop(node).await?;
            town.pass(Duration::from_millis(dice.next() % 3000)).await;
            town.start(node);
            format!("{name} is restarted in order")
        }
        2 => {
            town.kill(node);
            town.start(node);
            format!("{name} is killed and started")
        }
        3..=5 => {
            let weather =
                [Weather::Fair, Weather::Refused, Weather::Silent, Weather::Mute, Weather::Blind, Weather::Late]
                    [dice.below(6)];
            town.weather(node, weather);
            format!("{name} has {weather:?} weather")
        }
        6 => {
            let leases: Api<Lease> = Api::namespaced(town.client.clone(), HOME);
            let gone = leases.delete(&format!("purelb-node-{name}"), &DeleteParams::default()).await.is_ok();
            format!("the lease of {name} is deleted: {gone}")
        }
        7 => {
            let carrier = dice.below(2) == 0;
            town.nodes[node].kernel.meddle(|kernel| kernel.set_carrier("eth0", carrier));
            format!("{name} has a cable: {carrier}")
        }
        8 => {
            let service = any_service(dice);
            if town.delete_service(&service).await.is_err() {
                local_service(town, &service).await?;
            }
            format!("{service} goes or comes")
        }
        9 => {
            let interface = ["default", "^eth", "[", "^none$"][dice.below(4)];
            town.patch_node_agent("default", json!({"local": {"localInterface": interface}})).await?;
            format!("localInterface is {interface}")
        }
        10 => format!("{:?} is taken off {name} by hand", take_off(town, node)),
        11..=14 => {
            let service = format!("near{}", dice.below(NEAR));
            let other = town.nodes[dice.below(NODES)].name.clone();
            let nodes = [vec![], vec![&*name], vec![&*name], vec![&*name, &*other]][dice.below(4)].clone();
            town.endpoints(&service, &nodes).await?;
            format!("{service} has endpoints on {nodes:?}")
        }
        15..=17 => {
            let service = any_service(dice);
            let affinity = [json!("service-endpoints"), json!("service-endpoints"), json!(null)][dice.below(3)].clone();
            let known = follow(town, &service, &affinity).await.is_ok();
            town.endpoints(&service, &[&name]).await?;
            format!("{service} has its endpoint on {name}, affinity {affinity}: {known}")
        }
        21 => refuse_or_not(town, dice, node),
        22 if town.is_running(node) && !town.is_paused(node) => stop_hanging(town, dice, node).await?,
        18 | 19 => pause_or_resume(town, dice, node).await,
        _ => {
            let (service, policy) = (format!("web{}", dice.below(FREE)), ["Local", "Cluster"][dice.below(2)]);
            let known = town.patch_service(&service, json!({"spec": {"externalTrafficPolicy": policy}})).await.is_ok();
            town.endpoints(&service, &[&name]).await?;
            format!("{service} has its endpoint on {name}, policy {policy}: {known}")
        }
    })
}

/// Everybody is well again: after a while each address is where it belongs, and nothing more happens.
async fn peace(town: &mut Town) -> Result<()> {
    town.patch_node_agent("default", json!({"local": {"localInterface": "default"}})).await?;
    for node in 0..NODES {
        town.resume(node);
        town.nodes[node].kernel.refuse(|_| false);
        town.weather(node, Weather::Fair);
        town.nodes[node].kernel.meddle(|kernel| kernel.set_carrier("eth0", true));
        if !town.is_running(node) {
            town.start(node);
        }
    }
    for number in 0..FREE {
        // A Service that was deleted has nothing to set.
        let _ = follow(town, &format!("web{number}"), &json!(null)).await;
    }
    for number in 0..NEAR {
        let _ = follow(town, &format!("near{number}"), &json!("service-endpoints")).await;
        town.endpoints(&format!("near{number}"), &[&town.nodes[number].name]).await?;
    }
    // Requests that got lost have failed by then.
    town.pass(READ_TIMEOUT).await;
    for number in 0..FREE {
        settled(town, &format!("web{number}"), |nodes| nodes.len() == 1).await?;
    }
    for number in 0..NEAR {
        settled(town, &format!("near{number}"), |nodes| *nodes == [number]).await?;
    }
    town.everywhere(&[&format!("{STEADY}/24")]).await
}

/// Waits until both addresses of a Service, if it is there, are on the right nodes.
async fn settled(town: &Town, service: &str, right: impl Fn(&[usize]) -> bool) -> Result<()> {
    if town.services().get_opt(service).await?.is_none() {
        return Ok(());
    }
    let addrs = [town.address(service, Family::V4).await?, town.address(service, Family::V6).await?];
    town.until(&format!("{addrs:?} of {service} are where they belong"), async |town| {
        Ok(addrs.iter().all(|addr| right(&town.holders_of(*addr))).then_some(()))
    })
    .await
}
