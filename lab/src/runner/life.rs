//! The life of one Pod: its network and volumes, its containers one after another and side by side, and its end.

mod member;

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::Value;
use tokio::sync::watch;

use super::Shop;
use super::container::Process;
use super::recipe::{Mount, Recipe};
use super::rights;
use super::status::Portrait;
use super::variables::View;
use super::volumes::Volumes;
use super::wiring::Wire;
use member::Member;

/// How often a life looks at its containers.
const LOOK: Duration = Duration::from_millis(50);
/// How long a status may take to be written; a node without a wire must go on.
const WRITES_WITHIN: Duration = Duration::from_secs(2);
/// After which something that failed is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// What a Pod is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Go on.
    Live,
    /// End within this time.
    End(Duration),
    /// The API knows you no more: end at once.
    Vanish,
}

/// Runs a Pod until it has ended and the API has forgotten it.
pub(super) async fn live(shop: Arc<Shop>, pod: Pod, mut orders: watch::Receiver<Order>) {
    let mut life = Life::new(shop, pod);
    life.tell("begins");
    life.work(&mut orders).await;
    let order = *orders.borrow();
    if let Order::End(grace) = order {
        tokio::select! {
            () = life.end(grace) => {}
            _ = orders.wait_for(|order| *order == Order::Vanish) => {}
        }
    }
    life.dissolve().await;
    let vanished = *orders.borrow() == Order::Vanish;
    if !vanished {
        life.sign_off().await;
    }
    life.tell("has ended");
}

struct Life {
    shop: Arc<Shop>,
    pod: Pod,
    spec: PodSpec,
    uid: String,
    folder: PathBuf,
    started: Timestamp,
    wire: Option<Wire>,
    volumes: Option<Volumes>,
    init: Vec<Member>,
    members: Vec<Member>,
    reported: Value,
    next_report: Instant,
}

impl Life {
    fn new(shop: Arc<Shop>, pod: Pod) -> Self {
        let (spec, uid) = (pod.spec.clone().unwrap_or_default(), pod.uid().unwrap_or_default());
        let member = |container: &Container| Member::new(container, spec.restart_policy.as_deref());
        Self {
            folder: shop.seat.folder.join(&uid),
            started: Timestamp::now(),
            wire: None,
            volumes: None,
            init: spec.init_containers.iter().flatten().map(member).collect(),
            members: spec.containers.iter().map(member).collect(),
            reported: Value::Null,
            next_report: Instant::now(),
            shop,
            pod,
            spec,
            uid,
        }
    }

    fn tell(&self, words: &str) {
        let (namespace, name) = (self.pod.namespace().unwrap_or_default(), self.pod.name_any());
        self.shop.journal.tell(&format!("{namespace}/{name} {words}"));
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.shop.client.clone(), &self.pod.namespace().unwrap_or_default())
    }

    /// Until an order says otherwise.
    async fn work(&mut self, orders: &mut watch::Receiver<Order>) {
        while *orders.borrow_and_update() == Order::Live {
            let pause = match self.turn().await {
                Ok(()) => LOOK,
                Err(error) => {
                    self.tell(&format!("cannot be prepared: {error:#}"));
                    let sentence = format!("{error:#}");
                    self.members.iter_mut().for_each(|one| one.hold_back("ContainerCreating", sentence.clone()));
                    AGAIN
                }
            };
            self.report().await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = orders.changed() => {}
            }
        }
    }

    /// Looks at everything once. It is never interrupted: what is on its way would be lost.
    async fn turn(&mut self) -> Result<()> {
        if self.volumes.is_none() {
            self.prepare().await?;
        }
        self.step().await;
        if self.volumes.as_ref().and_then(|volumes| volumes.stale).is_some_and(|stale| stale < Instant::now()) {
            self.refresh().await;
        }
        Ok(())
    }

    /// Network and volumes.
    async fn prepare(&mut self) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        if self.wire.is_none() && !self.spec.host_network.unwrap_or_default() {
            self.wire = Some(self.shop.wiring.connect(&self.pod.name_any())?);
        }
        let (addresses, hostname) = (self.addresses(), self.hostname());
        let view = View { pod: &self.pod, seat: &self.shop.seat, addresses: &addresses, hostname: &hostname };
        self.volumes = Some(Volumes::make(&self.folder.join("volumes"), &self.shop.client, &view).await?);
        let names = addresses.iter().map(|address| format!("{address} {hostname}\n")).collect::<String>();
        fs::write(self.folder.join("hosts"), format!("127.0.0.1 localhost\n::1 localhost\n{names}"))?;
        fs::write(self.folder.join("resolv.conf"), "# the lab has no DNS\n")?;
        fs::write(self.folder.join("hostname"), format!("{hostname}\n"))?;
        Ok(())
    }

    async fn refresh(&mut self) {
        let (addresses, hostname) = (self.addresses(), self.hostname());
        let view = View { pod: &self.pod, seat: &self.shop.seat, addresses: &addresses, hostname: &hostname };
        let Some(volumes) = &mut self.volumes else { return };
        if let Err(error) = volumes.fill(&self.shop.client, &view).await {
            volumes.stale = Some(Instant::now() + AGAIN);
            self.tell(&format!("has no fresh volumes: {error:#}"));
        }
    }

    /// One look at all containers: init containers first, each when the one before has done its work.
    async fn step(&mut self) {
        let (init, members) = (std::mem::take(&mut self.init), std::mem::take(&mut self.members));
        (self.init, self.members) = self.step_all(init, members).await;
    }

    async fn step_all(&mut self, mut init: Vec<Member>, mut members: Vec<Member>) -> (Vec<Member>, Vec<Member>) {
        let address = self.addresses()[0];
        if let Some(next) = init.iter_mut().find(|member| !member.is_done()) {
            next.step(address, |container, number| self.start(container, number)).await;
        } else {
            for member in &mut members {
                member.step(address, |container, number| self.start(container, number)).await;
            }
        }
        (init, members)
    }

    /// Starts a container for the nth time; an error is a reason and a sentence for the status.
    fn start(&self, container: &Container, number: u32) -> Result<Process, (&'static str, String)> {
        let recipe = self.recipe(container, number)?;
        let (namespace, pod) = (self.pod.namespace().unwrap_or_default(), self.pod.name_any());
        let log = self.shop.seat.logs.join(format!("{namespace}_{pod}_{}.{number}.log", container.name));
        let network = self.wire.as_ref().map(|wire| &wire.namespace);
        let process = Process::start(&self.shop.seat.lab, &recipe, network, &log);
        process.map_err(|error| ("RunContainerError", format!("{error:#}")))
    }

    fn recipe(&self, container: &Container, number: u32) -> Result<Recipe, (&'static str, String)> {
        let wrong = |sentence| ("CreateContainerConfigError", sentence);
        let seat = &self.shop.seat;
        let image = container.image.as_deref().unwrap_or_default();
        let image = seat.images.find(image).map_err(|sentence| ("ErrImagePull", sentence))?;
        let (addresses, hostname) = (self.addresses(), self.hostname());
        let view = View { pod: &self.pod, seat, addresses: &addresses, hostname: &hostname };
        let variables = view.variables(container, image).map_err(wrong)?;
        let volumes = self.volumes.as_ref().ok_or_else(|| wrong("the Pod is not prepared".to_owned()))?;
        let mut mounts = volumes.mounts(container).map_err(wrong)?;
        mounts.extend(["hosts", "resolv.conf", "hostname"].map(|name| Mount {
            source: self.folder.join(name),
            target: PathBuf::from("/etc").join(name),
            read_only: true,
        }));
        Ok(Recipe {
            folder: self.folder.join(format!("{}.{number}", container.name)),
            image: image.root.clone(),
            arguments: View::arguments(container, image, &variables),
            variables,
            directory: container.working_dir.clone().unwrap_or_else(|| "/".to_owned()).into(),
            hostname,
            mounts,
            rights: rights::of(&self.spec, container, image.user).map_err(wrong)?,
        })
    }

    fn addresses(&self) -> Vec<IpAddr> {
        let seat = &self.shop.seat;
        self.wire.as_ref().map_or_else(|| vec![seat.v4.into(), seat.v6.into()], |wire| wire.addresses.to_vec())
    }

    fn hostname(&self) -> String {
        let own = self.spec.hostname.clone().unwrap_or_else(|| self.pod.name_any());
        if self.spec.host_network.unwrap_or_default() { self.shop.seat.name.clone() } else { own }
    }

    /// Writes the status if it has changed, now or, if the API does not answer, a little later.
    async fn report(&mut self) {
        let addresses = self.addresses();
        let portrait = Portrait {
            uid: &self.uid,
            initialized: self.init.iter().all(Member::is_done),
            started: self.started,
            nodes: [self.shop.seat.v4.into(), self.shop.seat.v6.into()],
            // No Pod has an address before it has a network.
            addresses: if self.volumes.is_some() { &addresses } else { &[] },
            init: self.init.iter().map(Member::look).collect(),
            containers: self.members.iter().map(Member::look).collect(),
        };
        let patch = portrait.patch();
        if patch == self.reported || Instant::now() < self.next_report {
            return;
        }
        let (api, name) = (self.api(), self.pod.name_any());
        let (parameters, body) = (PatchParams::default(), Patch::Strategic(&patch));
        let write = api.patch_status(&name, &parameters, &body);
        match tokio::time::timeout(WRITES_WITHIN, write).await.context("no answer") {
            Ok(Ok(_)) => self.reported = patch,
            Ok(Err(error)) => self.put_off(&error.into()),
            Err(error) => self.put_off(&error),
        }
    }

    fn put_off(&mut self, error: &anyhow::Error) {
        self.next_report = Instant::now() + AGAIN;
        self.tell(&format!("could not write its status: {error:#}"));
    }

    /// SIGTERM to all, and time to obey; what they say of their readiness meanwhile is reported.
    async fn end(&mut self, grace: Duration) {
        let asked = Instant::now();
        let pause = self.members.iter().map(Member::pause_before_stop).max().unwrap_or_default();
        let address = self.addresses()[0];
        while asked.elapsed() < grace {
            if asked.elapsed() >= pause && self.have_stopped() {
                return;
            }
            for member in &mut self.members {
                member.ask_readiness(address).await;
            }
            self.report().await;
            tokio::time::sleep(LOOK / 5).await;
        }
    }

    /// Every container is asked, not only up to the first that still runs.
    fn have_stopped(&mut self) -> bool {
        self.members.iter_mut().filter_map(|member| (!member.has_stopped()).then_some(())).count() == 0
    }

    /// Takes everything away.
    async fn dissolve(&mut self) {
        for member in self.init.iter_mut().chain(&mut self.members) {
            member.kill().await;
        }
        if let Some(wire) = self.wire.take()
            && let Err(error) = self.shop.wiring.release(&wire)
        {
            self.tell(&format!("left its wire behind: {error:#}"));
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            self.tell(&format!("left its folder behind: {error:#}"));
        }
    }

    /// Tells the API that nothing runs any more; it then forgets the Pod.
    async fn sign_off(&mut self) {
        self.next_report = Instant::now();
        self.report().await;
        let conditions = Preconditions { uid: Some(self.uid.clone()), resource_version: None };
        let parameters =
            DeleteParams { grace_period_seconds: Some(0), preconditions: Some(conditions), ..DeleteParams::default() };
        loop {
            let (api, name) = (self.api(), self.pod.name_any());
            match tokio::time::timeout(WRITES_WITHIN, api.delete(&name, &parameters)).await {
                Ok(Ok(_)) => return,
                // Somebody else has removed it, or its name has a new owner.
                Ok(Err(kube::Error::Api(answer))) if matches!(answer.code, 404 | 409) => return,
                Ok(Err(error)) => self.tell(&format!("cannot be forgotten yet: {error:#}")),
                Err(_) => self.tell("cannot be forgotten yet: no answer"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}
