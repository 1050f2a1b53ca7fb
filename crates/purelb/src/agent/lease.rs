//! The lease of this node: it says that the node is alive, which subnets it serves, and what it knew when it said so.
//!
//! The desk decides when it is renewed and what it says; the keeper is a task of its own that does so and tells how it
//! went, so that a slow API server delays nothing else.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Error, ResourceExt};
use purelb_api::annotations::{LEASE_INSTANCE, LEASE_SUBNETS};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::cluster::again::until_answered;

mod record;

pub use record::{lease, subnets};

/// How long the last deed may take: the process has a second to go.
pub(super) const RELEASE_TIME: Duration = Duration::from_millis(400);

/// The wall clock, which only ever goes into the lease for others to read.
pub type WallClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What the lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The subnets in which this node can announce local addresses.
    pub subnets: BTreeSet<IpNet>,
    /// The addresses that this node comes first for, because endpoints are here.
    pub claims: BTreeSet<IpAddr>,
    /// The highest version of any lease that this node has acted on.
    pub saw: u64,
    /// Whether all nodes whose leases were deleted up to there have let go.
    pub settled: bool,
    /// Which kernel this agent works on.
    pub host: String,
    /// The UID of the Node, so that the lease goes with it.
    pub owner: String,
    /// The addresses of the Node, so that no peer announces them.
    pub addresses: BTreeSet<IpAddr>,
    /// The routers of its default routes, so that nobody announces them or gives them to a Service.
    pub gateways: BTreeSet<IpAddr>,
    /// The addresses of the API server, for the same reason.
    pub api_servers: BTreeSet<IpAddr>,
}

/// What is to be done to the lease.
#[derive(Clone, Debug)]
pub enum Order {
    /// Write it like this.
    Renew(Box<Lease>),
    /// Delete it, because this node stops and holds no local address any more: others may take over at once.
    Release,
    /// Leave it to expire, because this node stops and may still hold some.
    Abandon,
}

/// How that went.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum News {
    /// The API server has accepted a renewal and answers with the lease.
    Renewed(Box<Lease>),
    /// A renewal has failed, for this reason.
    Failed(String),
    /// Another agent writes the lease of this node; this is its instance.
    Usurped(String),
    /// The lease has a lower version than it had before: the cluster was restored from a backup.
    Restored,
}

/// Whoever writes the lease.
pub struct Keeper {
    pen: Pen,
    orders: mpsc::UnboundedReceiver<Order>,
    news: mpsc::UnboundedSender<News>,
    /// The version of the lease, as far as answers can tell. Each write names the version it replaces, so that a renewal
    /// which arrives after a later one changes nothing.
    version: Option<String>,
    /// Something was sent.
    touched: bool,
    /// The API server has accepted something.
    written: bool,
}

/// What a call to the API server needs.
struct Pen {
    leases: Api<Lease>,
    name: String,
    instance: String,
    /// How long each answer may take.
    patience: Duration,
}

/// Why a renewal failed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the API server did not answer within {0:?}")]
    Silence(Duration),
    #[error("another agent writes the lease: {0}")]
    Usurped(String),
    #[error("the lease has a lower version than it had before")]
    Restored,
    #[error(transparent)]
    Api(#[from] Error),
}

impl Keeper {
    /// A keeper of the lease of this name that has not written anything yet.
    pub fn new(
        leases: Api<Lease>,
        (name, instance): (&str, &str),
        patience: Duration,
        orders: mpsc::UnboundedReceiver<Order>,
        news: mpsc::UnboundedSender<News>,
    ) -> Self {
        let pen = Pen { leases, name: name.to_owned(), instance: instance.to_owned(), patience };
        Self { pen, orders, news, version: None, touched: false, written: false }
    }

    /// Does what is ordered, until the lease is released or nobody orders anything any more.
    pub async fn run(mut self) {
        let mut order = self.orders.recv().await;
        loop {
            order = match order {
                Some(Order::Renew(lease)) => match self.renew(&lease).await {
                    Some(next) => next,
                    None => self.orders.recv().await,
                },
                Some(Order::Release) => break,
                Some(Order::Abandon) => {
                    // One that is gone would be unknown to an agent that starts now.
                    warn!(
                        event = "deleteLease",
                        "local addresses could not be taken off; peers wait until the lease expires"
                    );
                    return;
                }
                // The owner is gone without a word, as when the process is killed.
                None => return,
            }
        }
        if timeout(RELEASE_TIME, self.release()).await.is_err() {
            warn!(event = "deleteLease", "no time left to delete the lease; peers wait until it expires");
        }
    }

    /// What was ordered meanwhile, if anything: who has to stop does not wait for an answer.
    async fn renew(&mut self, lease: &Lease) -> Option<Option<Order>> {
        // The watch knows what became of a write whose answer got lost.
        self.version = newest(self.version.take(), lease.resource_version());
        self.touched = true;
        let answer = tokio::select! {
            biased;
            order = self.orders.recv() => {
                self.version = None;
                return Some(order);
            }
            answer = self.pen.write(lease, self.version.clone(), self.written) => answer,
        };
        let news = match answer {
            Ok(lease) => {
                (self.version, self.written) = (lease.resource_version(), true);
                News::Renewed(Box::new(lease))
            }
            Err(Trouble::Usurped(instance)) => News::Usurped(instance),
            Err(Trouble::Restored) => News::Restored,
            Err(trouble) => News::Failed(trouble.to_string()),
        };
        // Whoever owns the state may be gone already.
        drop(self.news.send(news));
        None
    }

    /// Deletes the lease if it is this process's own, whatever became of a renewal that was still under way.
    async fn release(&self) {
        if !self.touched {
            return;
        }
        let mut version = self.version.clone();
        for _ in 0..3 {
            let Some(at) = (match version.take() {
                Some(version) => Some(version),
                None => self.pen.own_version().await,
            }) else {
                return;
            };
            match self.pen.empty_and_delete(&at).await {
                Ok(()) => {
                    info!(event = "deleteLease", "the lease is deleted");
                    return;
                }
                Err(Error::Api(status)) if status.code == 404 => return,
                Err(Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    warn!(event = "deleteLease", %error, "the lease could not be deleted; peers wait until it expires");
                    return;
                }
            }
        }
    }
}

impl Pen {
    /// Merges, so that a lease of an earlier agent gets our words and our duration (B17), or creates it if it is gone (B8).
    ///
    /// Each call has a time of its own: one that takes long leaves as much for the next.
    async fn write(&self, lease: &Lease, version: Option<String>, written: bool) -> Result<Lease, Trouble> {
        let (mut lease, mut version) = (lease.clone(), version);
        loop {
            if let Some(at) = &version {
                lease.metadata.resource_version = Some(at.clone());
                let (params, patch) = (PatchParams::default(), Patch::Merge(&lease));
                match self.in_time(self.leases.patch(&self.name, &params, &patch)).await {
                    // Somebody else wrote it, or an earlier renewal of our own arrived late; or it is gone.
                    Err(Trouble::Api(Error::Api(status))) if matches!(status.code, 404 | 409) => {}
                    other => return other,
                }
            }
            let found = self.in_time(self.leases.get_opt(&self.name)).await?;
            let Some(found) = found else {
                info!(event = "createLease", lease = self.name, "creating the lease");
                lease.metadata.resource_version = None;
                return self.in_time(self.leases.create(&PostParams::default(), &lease)).await;
            };
            if number(found.resource_version()) < number(version) {
                return Err(Trouble::Restored);
            }
            let writer = found.annotations().get(LEASE_INSTANCE).filter(|writer| **writer != self.instance);
            if let Some(writer) = writer.filter(|_| written) {
                return Err(Trouble::Usurped(writer.clone()));
            }
            version = found.resource_version();
        }
    }

    async fn in_time<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
        let answer = timeout(self.patience, call).await.map_err(|_| Trouble::Silence(self.patience))?;
        answer.map_err(Trouble::Api)
    }

    /// A lease that lists no subnet says that its node has let go; one that is gone may have been deleted by anybody.
    async fn empty_and_delete(&self, version: &str) -> kube::Result<()> {
        let metadata = json!({"resourceVersion": version, "annotations": {LEASE_SUBNETS: ""}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let params = PatchParams::default();
        let emptied = until_answered("the lease", || self.leases.patch(&self.name, &params, &patch)).await?;
        self.delete(&emptied.resource_version().unwrap_or_default()).await
    }

    async fn delete(&self, version: &str) -> kube::Result<()> {
        let condition = Preconditions { resource_version: Some(version.to_owned()), uid: None };
        let params = DeleteParams { preconditions: Some(condition), ..DeleteParams::default() };
        until_answered("the lease", || self.leases.delete(&self.name, &params)).await.map(drop)
    }

    /// The version of the lease, unless it is a successor's by now.
    async fn own_version(&self) -> Option<String> {
        let lease = until_answered("the lease", || self.leases.get(&self.name)).await.ok()?;
        let ours = lease.annotations().get(LEASE_INSTANCE) == Some(&self.instance);
        lease.resource_version().filter(|_| ours)
    }
}

fn number(version: Option<String>) -> Option<u64> {
    version?.parse().ok()
}

/// The later one of two versions of the lease.
fn newest(ours: Option<String>, watched: Option<String>) -> Option<String> {
    if number(watched.clone()) > number(ours.clone()) { watched } else { ours.or(watched) }
}
