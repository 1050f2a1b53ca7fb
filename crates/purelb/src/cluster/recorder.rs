//! Events: what an operator sees at the end of `kubectl describe`.
//!
//! They go out in their own time behind a bounded queue: an Event that finds no room is dropped, and the log says
//! so once: telling never delays doing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use purelb_core::alloc::{Notice, Severity};
use tokio::sync::mpsc;
use tracing::{debug, warn};

/// How many Events may wait.
const ROOM: usize = 4096;
/// How many are sent at the same time.
const AT_ONCE: usize = 4;

/// Takes Events from anywhere and never waits.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<(ObjectReference, Notice)>,
    /// Whether the log has said that Events are dropped.
    overflowed: Arc<AtomicBool>,
}

impl Recorder {
    /// A recorder and the task that sends; the task ends when the last recorder is gone and all is sent.
    pub fn new(client: Client, component: &'static str) -> (Self, impl Future<Output = ()>) {
        let (queue, mut waiting) = mpsc::channel(ROOM);
        let sending = async move {
            let events = futures::stream::poll_fn(move |context| waiting.poll_recv(context));
            events.for_each_concurrent(AT_ONCE, |(about, notice)| send(client.clone(), component, about, notice)).await;
        };
        (Self { queue, overflowed: Arc::default() }, sending)
    }

    /// Tells something about an object.
    pub fn tell(&self, about: &ObjectReference, notice: Notice) {
        if self.queue.try_send((about.clone(), notice)).is_err() && !self.overflowed.swap(true, Ordering::Relaxed) {
            warn!("too many events at once: some are dropped");
        }
    }
}

async fn send(client: Client, component: &'static str, about: ObjectReference, notice: Notice) {
    let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let event = event(component, about, notice, Timestamp::now());
    if let Err(error) = Api::namespaced(client, &namespace).create(&PostParams::default(), &event).await {
        debug!(%error, reason = event.reason, "an event could not be written");
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
