//! An outsider's view: when each Service was seen to have its address.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::mpsc;

use crate::cluster::PLACE;

/// Longer than anything here takes, so that a defect ends the run.
const PATIENCE: Duration = Duration::from_secs(300);

/// A watch of all Services by a client of its own.
pub struct Witness {
    sightings: mpsc::UnboundedReceiver<(String, Instant)>,
    task: tokio::task::JoinHandle<()>,
}

impl Witness {
    pub async fn new(client: Client) -> Result<Self> {
        let (tell, sightings) = mpsc::unbounded_channel();
        let (ready, begun) = tokio::sync::oneshot::channel();
        let watch = watcher(Api::<Service>::namespaced(client, PLACE), watcher::Config::default()).boxed();
        let task = tokio::spawn(watch_all(watch, tell, ready));
        begun.await.context("the watch did not begin")?;
        Ok(Self { sightings, task })
    }

    /// When the last of these was seen with an address.
    pub async fn all(&mut self, names: &[String]) -> Result<Instant> {
        let mut missing: BTreeSet<_> = names.iter().map(String::as_str).collect();
        let mut last = Instant::now();
        while !missing.is_empty() {
            let waiting = format!("{} of {} Services got no address", missing.len(), names.len());
            let sighting = tokio::time::timeout(PATIENCE, self.sightings.recv()).await.context(waiting)?;
            let (name, at) = sighting.context("the watch has ended")?;
            if missing.remove(name.as_str()) {
                last = at;
            }
        }
        Ok(last)
    }

    /// When this one was seen with an address.
    pub async fn one(&mut self, name: &str) -> Result<Instant> {
        self.all(&[name.to_owned()]).await
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch_all(
    mut watch: impl Stream<Item = watcher::Result<watcher::Event<Service>>> + Unpin,
    tell: mpsc::UnboundedSender<(String, Instant)>,
    ready: tokio::sync::oneshot::Sender<()>,
) {
    let mut ready = Some(ready);
    while let Some(event) = watch.next().await {
        match event {
            Ok(watcher::Event::Apply(service) | watcher::Event::InitApply(service)) if has_address(&service) => {
                drop(tell.send((service.metadata.name.unwrap_or_default(), Instant::now())));
            }
            Ok(watcher::Event::InitDone) => drop(ready.take().map(|ready| ready.send(()))),
            _ => {}
        }
    }
}

fn has_address(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}
