//! Events: what an operator sees at the end of `kubectl describe`.
//!
//! They go out in their own time behind a bounded queue: an Event that finds no room is dropped and counted, and the
//! log says so once: telling never delays doing. An Event costs the API server as much as any other write, so that they
//! make way for others while a burst of Services is being served, and hurry only when the queue fills up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use purelb_core::alloc::{Notice, Severity};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::again::until_answered;

/// How many Events may wait.
const ROOM: usize = 4096;
/// How many may wait before they are sent several at a time.
const CROWD: usize = ROOM / 2;
/// How many are then sent at the same time.
const AT_ONCE: usize = 4;
/// How long one makes way for other writes.
const MAKES_WAY: Duration = Duration::from_millis(100);
/// How long one may take before the next one goes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes Events from anywhere and never waits.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<(ObjectReference, Notice)>,
    /// Whether something else is being written.
    busy: watch::Sender<bool>,
    /// Whether the log has said that Events are dropped.
    overflowed: Arc<AtomicBool>,
    /// Events that nobody will see.
    lost: Counter,
}

impl Recorder {
    /// A recorder and the task that sends; the task ends when the last recorder is gone and all is sent.
    pub fn new(client: Client, component: &'static str) -> (Self, impl Future<Output = ()>) {
        Self::counting(client, component, Counter::default())
    }

    /// The same, and Events that find no room or that the API server does not take are counted.
    pub fn counting(client: Client, component: &'static str, lost: Counter) -> (Self, impl Future<Output = ()>) {
        let (queue, mut waiting) = mpsc::channel(ROOM);
        let (busy, mut others) = watch::channel(false);
        let unsent = lost.clone();
        let sending = async move {
            let mut under_way = FuturesUnordered::new();
            while let Some((about, notice)) = waiting.recv().await {
                let crowded = waiting.len() > CROWD;
                if !crowded {
                    // Who waits long goes, busy or not.
                    let _ = timeout(MAKES_WAY, others.wait_for(|busy| !busy)).await;
                }
                under_way.push(send_or_count(client.clone(), component, about, notice, unsent.clone()));
                let room = if crowded { AT_ONCE } else { 1 };
                while under_way.len() >= room && under_way.next().await.is_some() {}
            }
            while under_way.next().await.is_some() {}
        };
        (Self { queue, busy, overflowed: Arc::default(), lost }, sending)
    }

    /// Whether something else is being written, for which Events make way.
    pub fn make_way(&self, busy: bool) {
        self.busy.send_if_modified(|before| std::mem::replace(before, busy) != busy);
    }

    /// Tells something about an object.
    pub fn tell(&self, about: &ObjectReference, notice: Notice) {
        if self.queue.try_send((about.clone(), notice)).is_ok() {
            return;
        }
        self.lost.inc();
        if !self.overflowed.swap(true, Ordering::Relaxed) {
            warn!("too many events at once: some are dropped");
        }
    }
}

async fn send_or_count(
    client: Client,
    component: &'static str,
    about: ObjectReference,
    notice: Notice,
    unsent: Counter,
) {
    let error = match timeout(PATIENCE, send(client, component, about, notice)).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {PATIENCE:?}"),
    };
    unsent.inc();
    debug!(error, "an event could not be written");
}

async fn send(
    client: Client,
    component: &'static str,
    about: ObjectReference,
    notice: Notice,
) -> Result<(), kube::Error> {
    let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let event = event(component, about, notice, Timestamp::now());
    let (api, params) = (Api::namespaced(client, &namespace), PostParams::default());
    match until_answered("an event", || api.create(&params, &event)).await {
        // An attempt that failed, as far as anybody could tell, has arrived.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        written => written.map(drop),
    }
}

fn event(component: &str, about: ObjectReference, notice: Notice, now: Timestamp) -> Event {
    let name = format!("{}.{:x}", about.name.as_deref().unwrap_or_default(), now.as_nanosecond());
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: about.namespace.clone(), ..ObjectMeta::default() },
        involved_object: about,
        type_: Some(match notice.severity {
            Severity::Normal => "Normal".to_owned(),
            Severity::Warning => "Warning".to_owned(),
        }),
        reason: Some(notice.reason.to_owned()),
        message: Some(notice.message),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        reporting_component: Some(component.to_owned()),
        count: Some(1),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    /// An API server that takes every Event, and tells of it.
    fn server() -> (Client, mpsc::UnboundedReceiver<()>) {
        let (tell, told) = mpsc::unbounded_channel();
        let answer = move |_: Request<Body>| {
            let _ = tell.send(());
            let event = serde_json::to_vec(&Event::default()).expect("an Event is JSON");
            std::future::ready(Ok::<_, Infallible>(Response::new(Body::from(event))))
        };
        (Client::new(tower::service_fn(answer), "default"), told)
    }

    fn notice() -> Notice {
        Notice { severity: Severity::Normal, reason: "AddressAssigned", message: "it has an address".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn events_make_way_for_other_writes_but_not_for_ever() {
        let (client, mut sent) = server();
        let (recorder, sending) = Recorder::new(client, "test");
        tokio::spawn(sending);
        let about = ObjectReference { name: Some("web".into()), ..ObjectReference::default() };
        recorder.make_way(true);
        recorder.tell(&about, notice());
        assert!(timeout(MAKES_WAY / 2, sent.recv()).await.is_err(), "something else is being written");
        recorder.make_way(false);
        timeout(MAKES_WAY / 4, sent.recv()).await.expect("nothing else is being written").expect("an Event");
        recorder.make_way(true);
        recorder.tell(&about, notice());
        timeout(MAKES_WAY * 2, sent.recv()).await.expect("it has waited long enough").expect("an Event");
    }
}
