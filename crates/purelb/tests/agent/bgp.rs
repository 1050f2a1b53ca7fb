//! The speaker in the agent, with a second one on the loopback that plays the router; in real time, because both have
//! threads and sockets of their own.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use purelb::agent::kernel::pretended::Pretended;
use purelb::agent::stop::OnStop;
use purelb_api::{BGPConfiguration, BGPNodeStatus, crds};
use purelb_bgp::{Farewell, Global, Handle, Listen, Peer, PeerReport, Speaker, Wish};
use purelb_core::links::HeldAddr;
use serde_json::{Value, json};

use crate::town::{HOME, Town};

/// Where the agent listens: any port that needs no rights.
const PORT: u16 = 1790;
const ROUTER_AS: u32 = 64513;

/// The loopback addresses of the agent and of the router; each test has its own.
fn ends(third: u8) -> [IpAddr; 2] {
    let second = u8::try_from(std::process::id() % 200).unwrap_or_default() + 10;
    [1, 2].map(|last| Ipv4Addr::new(127, second, 200 + third, last).into())
}

/// A router that dials the agent. Like any speaker of ours it counts what it hears, and drops it.
struct Router {
    speaker: Handle,
    agent: IpAddr,
}

impl Router {
    fn start(own: IpAddr, agent: IpAddr, password: Option<&str>, graceful: bool) -> Result<Self> {
        let speaker = Speaker::start()?;
        let IpAddr::V4(id) = own else { anyhow::bail!("tests run on IPv4 loopback") };
        let global = Global { listen: Some(Listen { port: PORT, addresses: vec![own] }), ..Global::new(ROUTER_AS, id) };
        let peer = Peer {
            port: PORT,
            source: Some(own),
            connect_retry: Duration::from_secs(1),
            password: password.and_then(purelb_bgp::Secret::new),
            graceful_restart: graceful.then_some(Duration::from_secs(90)),
            ..Peer::new(agent, 64512)
        };
        speaker.set(Wish { global, peers: vec![peer], routes: Arc::default(), complete: true });
        Ok(Self { speaker, agent })
    }

    fn report(&self) -> PeerReport {
        self.speaker.reports().borrow().peers.get(&self.agent).cloned().unwrap_or_default()
    }

    /// How many routes it was told and not told otherwise, in this session.
    fn routes(&self) -> u64 {
        let counts = self.report().counts;
        counts.routes_heard - counts.routes_withdrawn
    }
}

fn configuration([own, router]: [IpAddr; 2]) -> Value {
    json!({
        "global": {"asn": 64512, "routerID": "192.0.2.1", "listenPort": PORT, "listenAddresses": [own]},
        "neighbors": [{
            "config": {"neighborAddress": router, "peerAsn": ROUTER_AS, "description": "the only one"},
            "transport": {"localAddress": own, "passiveMode": true},
        }],
        "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb*"]},
    })
}

impl Town {
    async fn bgp(&self, spec: Value) -> Result<()> {
        let metadata = json!({"name": "default", "namespace": HOME});
        let object = json!({
            "apiVersion": "bgp.purelb.io/v1", "kind": "BGPConfiguration", "metadata": metadata, "spec": spec,
        });
        self.create("configs", object).await
    }

    fn configurations(&self) -> Api<BGPConfiguration> {
        Api::namespaced(self.client.clone(), HOME)
    }

    async fn node_status(&self) -> Result<Value> {
        let statuses: Api<BGPNodeStatus> = Api::all(self.client.clone());
        Ok(serde_json::to_value(statuses.get_opt("node1").await?)?)
    }

    /// Why the router thinks that the session is down, once it does.
    async fn down(&self, router: &Router) -> Result<String> {
        let fault = async |_: &Town| Ok(router.report().fault.map(|fault| fault.to_string()));
        self.until("the session is down", fault).await
    }

    async fn routed(&self, router: &Router, routes: u64) -> Result<()> {
        self.until(&format!("the router has {routes} routes"), async |_| Ok((router.routes() == routes).then_some(())))
            .await
    }
}

/// One node whose agent talks to one router.
async fn site(third: u8, change: impl FnOnce(&mut Value)) -> Result<(Town, [IpAddr; 2])> {
    let mut town = Town::new(1).await?;
    town.remote_group("edge", "/32").await?;
    let ends = ends(third);
    let mut spec = configuration(ends);
    change(&mut spec);
    town.bgp(spec).await?;
    town.start(0);
    Ok((town, ends))
}

/// What a kernel has on `kube-lb0`, beside its own IPv6 address.
fn virtual_addresses(kernel: &Pretended) -> Vec<HeldAddr> {
    let links = kernel.links();
    let on = links.by_index.values().filter(|link| link.name == "kube-lb0");
    on.flat_map(|link| &link.addrs).filter(|held| held.addr.is_ipv4()).copied().collect()
}

async fn web(town: &Town, name: &str) -> Result<()> {
    town.service(name, json!({"purelb.io/service-group": "edge"}), json!({})).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_told_when_its_address_is_there_and_taken_back_before_it_leaves() -> Result<()> {
    let (town, [own, peer]) = site(1, |_| ()).await?;
    let router = Router::start(peer, own, None, false)?;
    web(&town, "web").await?;
    town.routed(&router, 1).await?;
    assert_eq!(town.on(0, "kube-lb0"), ["172.30.0.0/32"]);
    town.until("the node reports it", async |town| {
        let status = town.node_status().await?["status"].clone();
        let told = &status["rib"]["localRoutes"][0];
        let right =
            told["prefix"] == "172.30.0.0/32" && told["advertisedTo"] == json!([peer]) && status["healthy"] == true;
        Ok(right.then_some(()))
    })
    .await?;
    town.told("default", "RouterIDResolved", "192.0.2.1 (explicit)").await?;
    // Whenever the kernel loses the address, the router has been told so before.
    let routes_then: Arc<Mutex<Vec<u64>>> = Arc::default();
    let watching = {
        let (kernel, routes_then) = (town.nodes[0].kernel.clone(), routes_then.clone());
        let (reports, own) = (router.speaker.reports(), own);
        tokio::task::spawn_blocking(move || {
            while !virtual_addresses(&kernel).is_empty() {
                std::thread::yield_now();
            }
            let counts = reports.borrow().peers[&own].counts;
            routes_then.lock().expect("nobody panics with it").push(counts.routes_heard - counts.routes_withdrawn);
        })
    };
    town.delete_service("web").await?;
    watching.await?;
    assert_eq!(*routes_then.lock().expect("nobody panics with it"), [0]);
    assert_eq!(router.report().counts.flaps, 0, "the session stays");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_configuration_nobody_speaks_and_one_that_is_deleted_ends_the_sessions() -> Result<()> {
    let (town, [own, peer]) = site(2, |_| ()).await?;
    let router = Router::start(peer, own, None, false)?;
    web(&town, "web").await?;
    town.routed(&router, 1).await?;
    town.configurations().delete("default", &DeleteParams::default()).await?;
    town.until("the session ends", async |_| {
        let words = router.report().fault.map(|fault| fault.to_string()).unwrap_or_default();
        Ok(words.contains("6/3").then_some(()))
    })
    .await?;
    town.until("nobody listens", async |_| Ok(std::net::TcpStream::connect((own, PORT)).is_err().then_some(())))
        .await?;
    assert_eq!(town.on(0, "kube-lb0"), ["172.30.0.0/32"], "other routers may read it");
    town.until("the node says so", async |town| {
        let status = town.node_status().await?["status"].clone();
        Ok((status["neighborCount"] == 0 && status["asn"].is_null()).then_some(()))
    })
    .await?;
    town.bgp(configuration([own, peer])).await?;
    town.routed(&router, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_the_kinds_of_bgp_is_fine_and_may_get_them_later() -> Result<()> {
    let mut town = Town::new(1).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(town.client.clone());
    let kinds: Vec<_> = crds().into_iter().filter(|crd| crd.spec.group == "bgp.purelb.io").collect();
    for kind in &kinds {
        definitions.delete(&kind.name_any(), &DeleteParams::default()).await?;
    }
    town.remote_group("edge", "/32").await?;
    town.start(0);
    web(&town, "web").await?;
    town.everywhere(&["172.30.0.0/32"]).await?;
    for kind in &kinds {
        definitions.create(&PostParams::default(), kind).await?;
    }
    let [own, peer] = ends(8);
    town.bgp(configuration([own, peer])).await?;
    let router = Router::start(peer, own, None, false)?;
    town.routed(&router, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_groups_a_neighbor_is_for_are_told_to_it() -> Result<()> {
    let (town, [own, peer]) =
        site(3, |spec| spec["neighbors"][0]["advertise"] = json!({"serviceGroups": ["other"]})).await?;
    let v4 = json!([{"pool": "172.31.0.0/24", "subnet": "172.31.0.0/24", "aggregation": "/32"}]);
    town.group("v2", "other", json!({"remote": {"v4pools": v4}})).await?;
    let router = Router::start(peer, own, None, false)?;
    web(&town, "web").await?;
    town.service("shop", json!({"purelb.io/service-group": "other"}), json!({})).await?;
    town.everywhere(&["172.30.0.0/32", "172.31.0.0/32"]).await?;
    town.routed(&router, 1).await?;
    town.delete_service("shop").await?;
    town.routed(&router, 0).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_read_from_its_secret_and_again_when_it_changes() -> Result<()> {
    let reference = json!({"name": "router", "key": "password"});
    let (town, [own, peer]) =
        site(4, |spec| spec["neighbors"][0]["config"]["authPasswordSecretRef"] = reference).await?;
    let said = town.told("default", "SecretMissing", "Secret purelb-system/router does not exist").await?;
    assert!(said.starts_with("Node node1: "), "{said}");
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "router", "namespace": HOME},
        "data": {"password": base64("battery staple")},
    });
    town.create("secrets", object).await?;
    let router = Router::start(peer, own, Some("battery staple"), false)?;
    web(&town, "web").await?;
    town.routed(&router, 1).await?;
    // The router changes first; the session falls, and the agent looks again.
    router.speaker.stop(Farewell::Cease("new password".to_owned())).await;
    let router = Router::start(peer, own, Some("correct horse"), false)?;
    let secrets: Api<Secret> = Api::namespaced(town.client.clone(), HOME);
    let patch = json!({"data": {"password": base64("correct horse")}});
    secrets.patch("router", &PatchParams::default(), &Patch::Merge(patch)).await?;
    town.routed(&router, 1).await?;
    let everything = format!("{} {:?}", town.node_status().await?, town.events("default").await?);
    assert!(!everything.contains("staple") && !everything.contains("horse"), "{everything}");
    Ok(())
}

/// As the API server shows bytes.
fn base64(text: &str) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec())).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_leaves_for_good_takes_routes_back_and_says_goodbye() -> Result<()> {
    let (mut town, [own, peer]) = site(5, |_| ()).await?;
    let router = Router::start(peer, own, None, false)?;
    web(&town, "web").await?;
    town.routed(&router, 1).await?;
    town.kill(0);
    town.nodes[0].on_stop = OnStop::Leave;
    town.start(0);
    town.until("the agent is back", async |_| {
        Ok((router.report().counts.ups == 2 && router.routes() == 1).then_some(()))
    })
    .await?;
    town.stop(0).await?;
    assert!(town.on(0, "kube-lb0").is_empty());
    let words = town.down(&router).await?;
    assert!(words.contains("PureLB leaves this node"), "{words}");
    let last = router.report();
    assert_eq!(last.counts.routes_heard, last.counts.routes_withdrawn, "taken back before the goodbye");
    let status = town.node_status().await?["status"].clone();
    assert_eq!(status["conditions"][0]["reason"], "AgentShutdown", "{status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_will_be_back_leaves_routes_and_addresses_for_longer_than_routers_keep_them() -> Result<()> {
    let graceful = json!({"enabled": true, "restartTime": 90});
    let (mut town, [own, peer]) = site(6, |spec| spec["neighbors"][0]["gracefulRestart"] = graceful).await?;
    town.nodes[0].on_stop = OnStop::Stay;
    town.kill(0);
    town.start(0);
    let router = Router::start(peer, own, None, true)?;
    web(&town, "web").await?;
    town.routed(&router, 1).await?;
    town.stop(0).await?;
    let words = town.down(&router).await?;
    assert!(words.contains("without a notification"), "{words}");
    let left = virtual_addresses(&town.nodes[0].kernel)[0].valid_until.context("it ends")?.since(town.clock.now());
    assert!(
        (Duration::from_secs(80)..=Duration::from_secs(100)).contains(&left),
        "restart time and ten seconds: {left:?}"
    );
    town.start(0);
    town.until("the successor is heard", async |_| {
        Ok((router.report().counts.ups == 2 && router.routes() == 1).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregate_that_would_swallow_the_way_to_a_router_is_refused() -> Result<()> {
    let mut town = Town::new(1).await?;
    let mut spec = configuration(ends(7));
    spec["neighbors"][0]["config"]["neighborAddress"] = json!("172.30.0.254");
    spec["neighbors"][0]["transport"] = json!({"passiveMode": true});
    spec["global"]["listenPort"] = json!(-1);
    town.bgp(spec).await?;
    town.remote_group("edge", "default").await?;
    town.start(0);
    web(&town, "web").await?;
    town.told("web", "AggregateCaptures", "172.30.0.254, the address of a BGP peer").await?;
    let none: BTreeSet<String> = BTreeSet::new();
    assert_eq!(town.on(0, "kube-lb0").into_iter().collect::<BTreeSet<_>>(), none);
    Ok(())
}
