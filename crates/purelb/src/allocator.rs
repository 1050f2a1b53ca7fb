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

use futures::FutureExt;
use futures::future::{Either, select};
use kube::Client;
use purelb_core::alloc::Scope;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::info;

use crate::cluster::leader::{Candidate, Timing, identity};
use crate::cluster::recorder::Recorder;
use crate::http::{Guard, Pulse};
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

/// How often a replica that does not lead shows that its loop comes around.
const STANDBY: Duration = Duration::from_secs(3);
/// How long Events may take to be written when all else has ended and the process has to stop.
const LAST_EVENTS: Duration = Duration::from_millis(150);
/// How long after it was told to stop a process stays at the most for the sake of Events: it has to be gone in a second,
/// also where the API server says nothing and giving the lease back took all the time it may take.
const LONGEST_STAY: Duration = Duration::from_millis(800);

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
/// Ready is an allocator that has seen the lease, be it to lead or to stand by: then `ready` is let go. One that leads is
/// ready once it has read the lists of all that its decisions depend on.
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
    let (standing, readiness) = (candidate.standing(), ready.readiness());
    let pulse = readiness.pulse("the event loop");
    let candidate = candidate.keeping(ready);
    let (recorder, sending) = Recorder::counting(client.clone(), COMPONENT, metrics.events_lost());
    let (over, mut campaign_over) = watch::channel(false);
    let workshop = Workshop::new(client, recorder, (leadership, standing), readiness, metrics.clone(), settings.home());
    let campaign = candidate.run(async move { drop(campaign_over.wait_for(|over| *over).await) });
    let terms = async {
        let told = serve_terms(&workshop, settings, &mut questions, stop, &pulse).await;
        // Only now: the last write has been answered, so that a successor may start at once.
        over.send_replace(true);
        drop(workshop);
        told
    };
    let work = pin!(async { tokio::join!(terms, campaign).0 });
    match select(work, pin!(sending)).await {
        Either::Left((told, sending)) => {
            let end = (Instant::now() + LAST_EVENTS).min(told + LONGEST_STAY);
            if timeout_at(end, sending).await.is_err() {
                info!("some events were not written in time and are dropped");
            }
        }
        Either::Right(((), work)) => drop(work.await),
    }
}

/// Leads whenever elected; answers with when it was told to stop.
async fn serve_terms(
    workshop: &Workshop,
    settings: &Settings,
    questions: &mut Questions,
    stop: watch::Receiver<bool>,
    pulse: &Pulse,
) -> Instant {
    let mut leadership = workshop.leadership.clone();
    let told = stopped_at(stop.clone()).shared();
    loop {
        pulse.beat();
        let now = tokio::select! {
            told = told.clone() => return told,
            changed = leadership.changed() => match changed {
                Ok(()) => *leadership.borrow_and_update(),
                Err(_) => return Instant::now(),
            },
            Some(reply) = questions.recv() => {
                drop(reply.send(inspect::standby()));
                continue;
            }
            () = sleep(STANDBY) => continue,
        };
        let Some(term) = now.term_at(Instant::now()) else { continue };
        info!(term, "this allocator leads");
        workshop.metrics.leader(true);
        term::serve(workshop, settings, term, questions, pulse, told.clone().map(drop)).await;
        workshop.metrics.leader(false);
        info!(term, "this allocator no longer leads");
    }
}

/// Waits for the word to stop; answers with when it came.
async fn stopped_at(stop: watch::Receiver<bool>) -> Instant {
    stopped(stop).await;
    Instant::now()
}
