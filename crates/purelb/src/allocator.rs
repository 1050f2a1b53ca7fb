//! The allocator: gives each LoadBalancer Service its addresses. Any number of replicas run, one of them leads.
//!
//! ```text
//! leader ──▶ term ─┬─ watches ──▶ desk ──▶ jobs ──▶ workshop ──▶ API server, sidecars
//!                  │               ▲                   │
//!                  └───────────────┴───── outcomes ────┘
//! ```

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{Either, select};
use kube::Client;
use purelb_core::alloc::Scope;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::info;

use crate::cluster::leader::{Candidate, Timing, identity};
use crate::cluster::recorder::Recorder;
use crate::http::Guard;
use crate::signals::stopped;
use inspect::Questions;
use metrics::Metrics;
use work::Workshop;

pub mod agents;
pub mod bgp;
pub mod command;
pub mod desk;
pub mod groups;
pub mod inspect;
pub mod job;
mod ledger;
pub mod metrics;
pub mod term;
pub mod work;

/// The component that Events come from.
pub const COMPONENT: &str = "purelb-allocator";

/// How long Events may take to be written when all else has ended and the process has to stop.
const LAST_EVENTS: Duration = Duration::from_millis(150);

/// How an allocator is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace PureLB runs in; empty if nobody knows, and then groups count wherever they are.
    pub namespace: String,
    /// Which Services are ours.
    pub scope: Scope,
    /// The name of this replica, such as its pod's.
    pub replica: String,
    /// How leadership is timed.
    pub timing: Timing,
}

impl Settings {
    /// Where the leases are.
    pub fn home(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }
}

/// Stands for election and leads whenever elected, until `stop`.
///
/// Ready is an allocator that has seen the lease, be it to lead or to stand by: then `ready` is let go.
pub async fn lead(
    client: Client,
    settings: &Settings,
    metrics: Arc<Metrics>,
    ready: Guard,
    mut questions: Questions,
    stop: watch::Receiver<bool>,
) {
    let (candidate, leadership) =
        Candidate::new(client.clone(), settings.home(), identity(&settings.replica), settings.timing);
    let candidate = candidate.keeping(ready);
    let (recorder, sending) = Recorder::counting(client.clone(), COMPONENT, metrics.events_lost());
    let (over, mut campaign_over) = watch::channel(false);
    let workshop = Workshop::new(client, recorder, leadership, metrics.clone(), settings.home());
    let campaign = candidate.run(async move { drop(campaign_over.wait_for(|over| *over).await) });
    let terms = async {
        serve_terms(&workshop, settings, &mut questions, stop).await;
        // Only now: the last write has been answered, so that a successor may start at once.
        over.send_replace(true);
        drop(workshop);
    };
    let work = pin!(async { tokio::join!(campaign, terms) });
    match select(work, pin!(sending)).await {
        Either::Left((_, sending)) => {
            if timeout(LAST_EVENTS, sending).await.is_err() {
                info!("some events were not written in time and are dropped");
            }
        }
        Either::Right(((), work)) => drop(work.await),
    }
}

async fn serve_terms(workshop: &Workshop, settings: &Settings, questions: &mut Questions, stop: watch::Receiver<bool>) {
    let mut leadership = workshop.leadership.clone();
    loop {
        let now = tokio::select! {
            () = stopped(stop.clone()) => return,
            changed = leadership.changed() => if changed.is_ok() { *leadership.borrow_and_update() } else { return },
            Some(reply) = questions.recv() => {
                drop(reply.send(inspect::standby()));
                continue;
            }
        };
        let Some(term) = now.term_at(Instant::now()) else { continue };
        info!(term, "this allocator leads");
        workshop.metrics.leader(true);
        term::serve(workshop, settings, term, questions, stopped(stop.clone())).await;
        workshop.metrics.leader(false);
        info!(term, "this allocator no longer leads");
    }
}
