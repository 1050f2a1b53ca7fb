//! A small stand-in for the kubelet: one thread for each node, which registers the node and runs the Pods bound to it.
//!
//! The thread lives in the node's network namespace, and so do its connections: a node whose wire is cut loses the API
//! server like a real one. Containers are processes with the root, the user, the capabilities and the filter that their
//! Pod asks for; see [`inside`]. Exec probes, and volumes and images that it does
//! not know, are refused with a word in the Pod's status. Limits of memory and CPU are not applied.

mod container;
pub mod images;
pub mod inside;
mod journal;
mod life;
mod node;
mod probes;
pub mod recipe;
mod rights;
mod seccomp;
mod status;
mod variables;
mod volumes;
mod wiring;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Config, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::net::Namespace;
use images::Images;
use journal::Journal;
use life::Order;
use wiring::Wiring;

/// How often the node says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(3);

/// What a runner knows of its node.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Its name.
    pub name: String,
    /// The network that the node is.
    pub namespace: Namespace,
    /// Its first address.
    pub v4: Ipv4Addr,
    /// Its second address.
    pub v6: Ipv6Addr,
    /// Its number: which part of the Pods' addresses is its own.
    pub number: u8,
    /// With all rights.
    pub config: Config,
    /// The images that its Pods may name.
    pub images: Arc<Images>,
    /// The program that becomes containers, which is `lab`.
    pub lab: PathBuf,
    /// A folder for its Pods.
    pub folder: PathBuf,
    /// Where logs go.
    pub logs: PathBuf,
}

/// A node that works. Its Pods end with this value.
pub struct Runner {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Runner {
    /// Starts to work for a node. What goes wrong later is in its log, `runner-NODE.log`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(seat: Seat) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let journal = Journal::open(&seat.logs.join(format!("runner-{}.log", seat.name)))?;
        let body = move || {
            if let Err(error) = work(seat, journal.clone(), stopped) {
                journal.tell(&format!("the runner has ended: {error:#}"));
            }
        };
        let thread = thread::Builder::new().name("runner".to_owned()).spawn(body).context("cannot start a thread")?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Runner {
    /// Lets its Pods end, without waiting for it.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // Its own log has its last words.
            let _ = thread.join();
        }
    }
}

fn work(seat: Seat, journal: Journal, mut stopped: watch::Receiver<bool>) -> Result<()> {
    // Sockets belong to the namespace of the thread that opens them, and this runtime has no other thread.
    seat.namespace.step_in()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            ended = run(seat, journal) => ended,
            _ = stopped.changed() => Ok(()),
        }
    })
}

/// What all Pods of a node share.
struct Shop {
    seat: Seat,
    client: Client,
    journal: Journal,
    wiring: Wiring,
}

async fn run(seat: Seat, journal: Journal) -> Result<()> {
    let client = Client::try_from(seat.config.clone())?;
    let wiring = Wiring::new(&seat);
    let shop = Arc::new(Shop { seat, client, journal, wiring });
    let (orders, listed) = (BTreeMap::new(), BTreeSet::new());
    let mut crew = Crew { shop: Arc::clone(&shop), orders, lives: JoinSet::new(), listed };
    let settings = watcher::Config::default().fields(&format!("spec.nodeName={}", shop.seat.name));
    let pods: Api<Pod> = Api::all(shop.client.clone());
    let mut news = pin!(watcher(pods, settings).default_backoff());
    let mut beat = tokio::time::interval(HEARTBEAT);
    loop {
        tokio::select! {
            _ = beat.tick() => {
                let said = tokio::time::timeout(HEARTBEAT, node::assert_ready(&shop)).await;
                if let Err(error) = said.map_err(anyhow::Error::from).flatten() {
                    shop.journal.tell(&format!("the node cannot say that it is ready: {error:#}"));
                }
            }
            event = news.next() => match event {
                Some(Ok(event)) => crew.hear(event),
                Some(Err(error)) => shop.journal.tell(&format!("the watch of Pods broke: {error:#}")),
                None => return Ok(()),
            },
            Some(ended) = crew.lives.join_next() => {
                let uid = ended.context("the life of a Pod panicked")?;
                crew.orders.remove(&uid);
            }
        }
    }
}

/// The Pods that live here, by uid.
struct Crew {
    shop: Arc<Shop>,
    orders: BTreeMap<String, watch::Sender<Order>>,
    lives: JoinSet<String>,
    /// Those of the list that is being read.
    listed: BTreeSet<String>,
}

impl Crew {
    fn hear(&mut self, event: Event<Pod>) {
        match event {
            Event::Apply(pod) => self.see(pod),
            Event::Delete(pod) => self.tell(&pod, Order::Vanish),
            Event::Init => self.listed.clear(),
            Event::InitApply(pod) => {
                self.listed.extend(pod.uid());
                self.see(pod);
            }
            Event::InitDone => self.forget(),
        }
    }

    /// Nobody tells of Pods that were deleted while the node could not be told.
    fn forget(&self) {
        for (_, orders) in self.orders.iter().filter(|(uid, _)| !self.listed.contains(*uid)) {
            orders.send_replace(Order::Vanish);
        }
    }

    /// A Pod that is already ending when it is first seen has nothing to end: its life reports that.
    fn see(&mut self, pod: Pod) {
        let uid = pod.uid().unwrap_or_default();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let over = matches!(phase, Some("Succeeded" | "Failed")) && pod.metadata.deletion_timestamp.is_none();
        if !self.orders.contains_key(&uid) && !over {
            let (sender, orders) = watch::channel(Order::Live);
            self.orders.insert(uid.clone(), sender);
            let shop = Arc::clone(&self.shop);
            let own = pod.clone();
            self.lives.spawn(async move {
                life::live(shop, own, orders).await;
                uid
            });
        }
        if pod.metadata.deletion_timestamp.is_some() {
            let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
            self.tell(&pod, Order::End(Duration::from_secs(grace.try_into().unwrap_or_default())));
        }
    }

    fn tell(&self, pod: &Pod, order: Order) {
        if let Some(orders) = pod.uid().and_then(|uid| self.orders.get(&uid)) {
            orders.send_replace(order);
        }
    }
}
