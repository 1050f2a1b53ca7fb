//! Whether this process still leads, asked of the API server wherever the clock alone may be wrong.
//!
//! A clock that stands still together with its machine, as when a hypervisor pauses it, does not show that a lease is over.
//! What is then under way is stopped by the next leader's fence. What would follow is stopped here: after anything that may
//! have happened while the machine stood still, the lease is read before the next write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::Body;
use kube::{Api, Client};
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};
use tower::service_fn;
use tracing::{debug, warn};

use super::{LEASE_NAME, Leadership, change, record};

/// The standing of one candidate; clones share their doubts.
#[derive(Clone)]
pub struct Standing {
    leases: Api<Lease>,
    identity: String,
    leadership: watch::Sender<Leadership>,
    /// How long an answer may take.
    patience: Duration,
    /// How often there was reason to doubt.
    doubts: Arc<AtomicU64>,
    /// How many of these doubts the lease has dispelled. Who wants to know more waits for the one who asks.
    dispelled: Arc<Mutex<u64>>,
}

/// What the lease says about a leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It lasts.
    Leads,
    /// It is over.
    Over,
    /// The API server does not say.
    Unknown,
}

impl Standing {
    pub(crate) fn new(
        leases: Api<Lease>,
        identity: String,
        leadership: watch::Sender<Leadership>,
        patience: Duration,
    ) -> Self {
        Self { leases, identity, leadership, patience, doubts: Arc::default(), dispelled: Arc::default() }
    }

    /// Whether this process leads in this term, by its clock.
    pub fn by_the_clock(&self, term: u64) -> bool {
        self.leadership.borrow().term_at(Instant::now()) == Some(term)
    }

    /// Something happened after which the clock alone does not count.
    pub fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether this process leads in this term: by its clock, and by the lease if there was doubt since it was last read.
    /// One who finds that another leads ends the leadership.
    pub async fn confirm(&self, term: u64) -> Answer {
        if !self.by_the_clock(term) {
            return Answer::Over;
        }
        let mut dispelled = self.dispelled.lock().await;
        let doubts = self.doubts.load(Ordering::SeqCst);
        if *dispelled < doubts {
            match self.ask(term).await {
                Answer::Leads => *dispelled = doubts,
                other => return other,
            }
        }
        if self.by_the_clock(term) { Answer::Leads } else { Answer::Over }
    }

    async fn ask(&self, term: u64) -> Answer {
        match timeout(self.patience, self.leases.get_opt(LEASE_NAME)).await {
            Ok(Ok(Some(lease))) if record::holder(&lease) == Some(&self.identity) && record::term(&lease) == term => {
                Answer::Leads
            }
            Ok(Ok(Some(lease))) => {
                warn!(term, holder = record::holder(&lease), "another allocator leads; this one stops at once");
                self.end(term);
                Answer::Over
            }
            // Deleted by somebody, and about to be written anew.
            Ok(Ok(None)) => Answer::Unknown,
            Ok(Err(error)) => {
                debug!(%error, "the lease cannot be read; nothing is written before it can");
                Answer::Unknown
            }
            Err(_) => Answer::Unknown,
        }
    }

    fn end(&self, term: u64) {
        self.leadership.send_if_modified(|now| {
            matches!(now, Leadership::Leading { term: current, .. } if *current == term)
                && change(now, Leadership::Standby)
        });
    }

    /// A client whose watches are reason to doubt whenever they begin, be it anew: what they tell may have happened long
    /// after this process last knew that it leads.
    pub fn doubting(&self, client: &Client) -> Client {
        let (standing, inner, namespace) = (self.clone(), client.clone(), client.default_namespace().to_owned());
        let service = service_fn(move |request: Request<Body>| {
            let (standing, inner) = (standing.clone(), inner.clone());
            async move {
                let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                let answer = inner.send(request).await;
                if is_watch {
                    standing.doubt();
                }
                answer
            }
        });
        Client::new(service, namespace)
    }
}

#[cfg(test)]
mod tests {
    use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchParams};
    use purelb_kubelite::Kubelite;
    use serde_json::json;

    use super::*;

    const TERM: u64 = 7;

    /// A leader by its clock and by the lease, and the API server.
    async fn leader() -> (Standing, Kubelite) {
        let server = Kubelite::new();
        let leases: Api<Lease> = Api::namespaced(server.client(), "default");
        let now = jiff::Timestamp::UNIX_EPOCH;
        let lease = record::held(None, "me", TERM, Duration::from_secs(15), now);
        leases.create(&PostParams::default(), &lease).await.unwrap();
        let until = Instant::now() + Duration::from_secs(3600);
        let (leadership, _) = watch::channel(Leadership::Leading { term: TERM, until });
        (Standing::new(leases, "me".to_owned(), leadership, Duration::from_secs(5)), server)
    }

    /// While this machine stood still, another has taken the lease.
    async fn lose_it(standing: &Standing) {
        let taken = json!({"spec": {"holderIdentity": "another", "leaseTransitions": TERM + 1}});
        standing.leases.patch(LEASE_NAME, &PatchParams::default(), &Patch::Merge(taken)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn without_doubt_the_clock_counts_and_with_doubt_the_lease() {
        let (standing, _) = leader().await;
        standing.doubt();
        assert_eq!(standing.confirm(TERM).await, Answer::Leads);
        lose_it(&standing).await;
        assert_eq!(standing.confirm(TERM).await, Answer::Leads, "nothing has happened that it could know of");
        standing.doubt();
        assert_eq!(standing.confirm(TERM).await, Answer::Over);
        assert!(!standing.by_the_clock(TERM), "the leadership has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_begins_anew_is_reason_to_doubt() {
        let (standing, server) = leader().await;
        lose_it(&standing).await;
        let services: Api<k8s_openapi::api::core::v1::Service> = Api::all(standing.doubting(&server.client()));
        services.list(&ListParams::default()).await.unwrap();
        assert_eq!(standing.confirm(TERM).await, Answer::Leads);
        drop(services.watch(&WatchParams::default(), "0").await.unwrap());
        assert_eq!(standing.confirm(TERM).await, Answer::Over);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_cannot_be_read_ends_nothing_and_confirms_nothing() {
        let (standing, _) = leader().await;
        standing.leases.delete(LEASE_NAME, &kube::api::DeleteParams::default()).await.unwrap();
        standing.doubt();
        assert_eq!(standing.confirm(TERM).await, Answer::Unknown);
        assert!(standing.by_the_clock(TERM));
    }
}
