//! A small Kubernetes API server in memory, for the demo and the tests.
//!
//! It serves what a PureLB daemon needs of a cluster: Services with cluster addresses and node ports, Nodes, Namespaces, Pods,
//! DaemonSets, Deployments, Secrets, ConfigMaps, Events, EndpointSlices, Leases, and every custom resource whose definition
//! is created through the API. It answers as kube-apiserver 1.36 does, refusals included; one set of stories runs against
//! both and says so.
//!
//! ```
//! # async fn example() -> Result<(), kube::Error> {
//! use k8s_openapi::api::core::v1::Namespace;
//! use purelb_kubelite::Kubelite;
//!
//! let server = Kubelite::new();
//! let namespaces: kube::Api<Namespace> = kube::Api::all(server.client());
//! assert_eq!(namespaces.get("default").await?.metadata.name.as_deref(), Some("default"));
//! # Ok(())
//! # }
//! ```
//!
//! A real kubectl uses it over [`Kubelite::serve`], with tables, `explain` and watches as on a cluster; objects outlive the
//! process in a folder given to [`Builder::open`].
//!
//! There is no controller behind it: nothing schedules pods or fills endpoint slices. What a controller would do at once
//! and always the same way happens in the write itself (a new definition is established, a deleted namespace is emptied).
//! Server-side apply is refused.

mod access;
mod body;
mod builtin;
mod call;
mod cel;
mod custom;
mod definition;
mod delete;
mod discovery;
mod journal;
mod kinds;
mod meta;
mod names;
mod object;
mod openapi;
mod patch;
mod path;
mod protobuf;
mod query;
mod read;
mod rules;
mod select;
mod serve;
mod server;
mod service;
mod start;
mod state;
mod status;
mod store;
mod table;
mod watch;
mod write;

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{Request, Response};
use jiff::Timestamp;

pub use access::{Access, AccessError};
pub use journal::DataError;
pub use server::ResponseBody;
pub use start::Builder;
use state::{Clock, State};
use status::Refusal;

/// What all handles to one server share.
struct Shared {
    state: Mutex<State>,
    clock: Clock,
}

impl Shared {
    /// The lock is held for one step of one request and never across an await.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment at which ages are told.
    fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Changes the state. Nobody sees the change, and its author is not told of it, before the disk has it.
    fn write<T>(&self, change: impl FnOnce(&mut State) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut state = self.lock();
        let outcome = change(&mut state);
        state.store.commit().map_err(|error| Refusal::Internal(error.to_string()))?;
        outcome
    }
}

/// A handle to an API server in memory; clones are handles to the same server.
///
/// It is a [`tower::Service`] for HTTP requests, so it can be driven through [`Kubelite::client`] or served on a socket.
#[derive(Clone)]
pub struct Kubelite {
    shared: Arc<Shared>,
}

impl fmt::Debug for Kubelite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubelite").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Default for Kubelite {
    fn default() -> Self {
        Self::new()
    }
}

impl Kubelite {
    /// A new server with the namespaces and the `kubernetes` Service of every cluster.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A server with other service ranges, another clock or a shorter history.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client whose default namespace is `default`. It needs a tokio runtime around it.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// Forgets all history, as etcd does when it is compacted: watches and lists that go back further get 410 Gone.
    pub fn compact(&self) {
        self.shared.lock().store.compact();
    }

    /// The resourceVersion of the newest change.
    pub fn revision(&self) -> u64 {
        self.shared.lock().store.revision()
    }
}

impl<B> tower::Service<Request<B>> for Kubelite
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<tower::BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move { Ok(server::answer(shared, request).await) })
    }
}
