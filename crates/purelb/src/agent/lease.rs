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
    /// The UID of the Node, so that the lease goes with it.
    pub owner: String,
    /// The addresses of the Node, so that no peer announces them.
    pub addresses: BTreeSet<IpAddr>,
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
}

/// Whoever writes the lease.
pub struct Keeper {
    leases: Api<Lease>,
    name: String,
    instance: String,
    /// How long an answer may take.
    patience: Duration,
    orders: mpsc::UnboundedReceiver<Order>,
    news: mpsc::UnboundedSender<News>,
    /// The version of the lease, as far as anybody can tell.
    version: Version,
}

/// What is known of the version of the lease. Each write names the version it replaces, so that a renewal which arrives
/// after a later one changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Version {
    /// Nothing was ever sent.
    Untouched,
    /// Somebody else may have written it, or a write of our own may have arrived.
    Unknown,
    /// It is this one, unless somebody else writes.
    At(String),
}

/// Why a renewal failed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("the API server did not answer within {0:?}")]
    Silence(Duration),
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
        let (name, instance) = (name.to_owned(), instance.to_owned());
        Self { leases, name, instance, patience, orders, news, version: Version::Untouched }
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
        let version = std::mem::replace(&mut self.version, Version::Unknown);
        let answer = tokio::select! {
            biased;
            order = self.orders.recv() => return Some(order),
            answer = timeout(self.patience, write(&self.leases, &self.name, lease, version)) => answer,
        };
        let answer = answer.map_err(|_| Trouble::Silence(self.patience));
        let news = match answer.and_then(|answer| answer.map_err(Trouble::from)) {
            Ok(lease) => {
                self.version = lease.resource_version().map_or(Version::Unknown, Version::At);
                News::Renewed(Box::new(lease))
            }
            Err(trouble) => News::Failed(trouble.to_string()),
        };
        // Whoever owns the state may be gone already.
        drop(self.news.send(news));
        None
    }

    /// Deletes the lease if it is this process's own, whatever became of a renewal that was still under way.
    async fn release(&self) {
        let mut version = match &self.version {
            Version::Untouched => return,
            Version::Unknown => None,
            Version::At(version) => Some(version.clone()),
        };
        for _ in 0..3 {
            let Some(at) = (match version.take() {
                Some(version) => Some(version),
                None => self.own_version().await,
            }) else {
                return;
            };
            match self.empty_and_delete(&at).await {
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

/// Merges, so that a lease of an earlier agent gets our words and our duration (B17), or creates it if it is gone (B8).
async fn write(leases: &Api<Lease>, name: &str, lease: &Lease, mut version: Version) -> kube::Result<Lease> {
    let mut lease = lease.clone();
    loop {
        if let Version::At(at) = version {
            lease.metadata.resource_version = Some(at);
            match leases.patch(name, &PatchParams::default(), &Patch::Merge(&lease)).await {
                // Somebody else wrote it, or an earlier renewal of our own arrived late; or it is gone.
                Err(Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                other => return other,
            }
        }
        version = match leases.get_opt(name).await? {
            Some(found) => Version::At(found.resource_version().unwrap_or_default()),
            None => {
                info!(event = "createLease", lease = name, "creating the lease");
                lease.metadata.resource_version = None;
                return leases.create(&PostParams::default(), &lease).await;
            }
        };
    }
}
