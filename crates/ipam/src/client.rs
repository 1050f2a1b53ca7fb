//! Asks a sidecar for addresses, and checks what it answers.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Response, Status};

use crate::error::{IpamError, broken, code_name};
use crate::message::{Stats, Wanted, addresses};
use crate::v1::ipam_client::IpamClient;
use crate::v1::release_request::Target;
use crate::v1::{AllocateRequest, AllocateResponse, ReleaseRequest, StatsRequest};

/// How long a sidecar has for its answer, connecting included.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// One call as it went, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Path of the sidecar's socket.
    pub socket: &'a str,
    /// Full name of the method, such as `/purelb.ipam.v1.IPAM/Allocate`.
    pub method: &'static str,
    /// Name of the gRPC code, such as `OK`.
    pub code: &'static str,
    /// From the question to the answer.
    pub took: Duration,
}

/// A sidecar, reached through its socket. Clones share one connection.
///
/// The connection is made by the first call and again after the sidecar went away, so that the sidecar need not be there.
/// Every call is one question with a deadline: nothing is tried again here but an Allocate that is answered with
/// `AlreadyExists`. Dropping a call cancels it.
#[derive(Clone)]
pub struct Ipam {
    client: IpamClient<Channel>,
    socket: Arc<str>,
    provider: Arc<str>,
    deadline: Duration,
    observer: Observer,
}

type Observer = Arc<dyn Fn(Call<'_>) + Send + Sync>;

impl Ipam {
    /// The sidecar behind a socket, whether it is there or not.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, which is to run the connection.
    pub fn new(socket: &str) -> Self {
        // The name a gRPC server is given when it is reached through a file. A path would be refused by some.
        let host = Uri::from_static("http://localhost");
        let endpoint = Endpoint::from_shared(format!("unix:{socket}")).expect("a path is taken as it is");
        Self {
            client: IpamClient::new(endpoint.origin(host).connect_lazy()),
            socket: socket.into(),
            provider: socket.into(),
            deadline: DEADLINE,
            observer: Arc::new(|_| ()),
        }
    }

    /// The same sidecar and connection, under the name that a ServiceGroup gives the IPAM. Errors speak of it.
    pub fn named(&self, provider: &str) -> Self {
        Self { provider: provider.into(), ..self.clone() }
    }

    /// The same sidecar and connection, with another deadline for each call.
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// The same sidecar and connection, with every call reported when it is over; a cancelled call is not.
    pub fn observed(&self, observer: impl Fn(Call<'_>) + Send + Sync + 'static) -> Self {
        Self { observer: Arc::new(observer), ..self.clone() }
    }

    /// Gives a Service addresses, or answers with those it has; each address once.
    ///
    /// A sidecar that answers `AlreadyExists` is asked once more, the same question: two calls for one Service may have
    /// crossed, and by the contract the answer is the held address. It is never asked another question instead, since
    /// that could be answered with an address that nobody wants and nobody would release.
    ///
    /// An answer that makes no sense releases nothing: among its addresses may be one that the Service is using.
    pub async fn allocate(
        &self,
        pool: &str,
        service: &str,
        sharing_key: Option<&str>,
        wanted: Wanted<'_>,
    ) -> Result<Vec<IpAddr>, IpamError> {
        let request = AllocateRequest {
            pool: pool.to_owned(),
            service: service.to_owned(),
            sharing_key: sharing_key.unwrap_or_default().to_owned(),
            selector: Some(wanted.selector()),
        };
        let mut answer = self.ask_allocate(request.clone()).await;
        if answer.as_ref().is_err_and(|error| error.code() == Code::AlreadyExists) {
            answer = self.ask_allocate(request).await.map_err(|error| match error {
                IpamError::Refused { provider, code: Code::AlreadyExists, message, .. } => {
                    IpamError::AlreadyHeld { provider, pool: pool.to_owned(), service: service.to_owned(), message }
                }
                other => other,
            });
        }
        addresses(answer?, &self.provider)
    }

    /// Takes every address of a pool from a Service. That it has none is fine.
    pub async fn release_all(&self, pool: &str, service: &str) -> Result<(), IpamError> {
        self.ask_release(pool, service, Target::All(true)).await
    }

    /// Takes one address from a Service. That it does not have it is fine.
    pub async fn release(&self, pool: &str, service: &str, addr: IpAddr) -> Result<(), IpamError> {
        self.ask_release(pool, service, Target::Ip(addr.to_string())).await
    }

    /// How full a pool is.
    pub async fn stats(&self, pool: &str) -> Result<Stats, IpamError> {
        let mut client = self.client.clone();
        let request = self.request(StatsRequest { pool: pool.to_owned() });
        self.call("/purelb.ipam.v1.IPAM/Stats", client.stats(request)).await.map(Stats::from)
    }

    async fn ask_allocate(&self, request: AllocateRequest) -> Result<AllocateResponse, IpamError> {
        let mut client = self.client.clone();
        let request = self.request(request);
        self.call("/purelb.ipam.v1.IPAM/Allocate", client.allocate(request)).await
    }

    async fn ask_release(&self, pool: &str, service: &str, target: Target) -> Result<(), IpamError> {
        let mut client = self.client.clone();
        let (pool, service) = (pool.to_owned(), service.to_owned());
        let request = self.request(ReleaseRequest { pool, service, target: Some(target) });
        match self.call("/purelb.ipam.v1.IPAM/Release", client.release(request)).await {
            // What is not there is released, even if the sidecar should have said OK.
            Err(IpamError::Refused { code: Code::NotFound, .. }) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// A message that tells the sidecar how long we wait.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.deadline);
        request
    }

    /// One call, from the question to the answer or the deadline.
    async fn call<T>(
        &self,
        method: &'static str,
        answer: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, IpamError> {
        let started = Instant::now();
        let outcome = match tokio::time::timeout(self.deadline, answer).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(self.error(method, &status, started.elapsed())),
            Err(_) => Err(self.silent(method)),
        };
        let code = outcome.as_ref().err().map_or(Code::Ok, IpamError::code);
        (self.observer)(Call { socket: &self.socket, method, code: code_name(code), took: started.elapsed() });
        outcome
    }

    fn error(&self, method: &'static str, status: &Status, took: Duration) -> IpamError {
        // Both ends of the connection watch the deadline, too, and call its end a cancellation.
        if took >= self.deadline && matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded) {
            return self.silent(method);
        }
        if let Some(cause) = broken(status) {
            return IpamError::Unreachable { socket: self.socket.to_string(), cause };
        }
        let (provider, code, message) = (self.provider.to_string(), status.code(), status.message().to_owned());
        IpamError::Refused { provider, method: short(method), code, message }
    }

    fn silent(&self, method: &'static str) -> IpamError {
        IpamError::Silent { socket: self.socket.to_string(), method: short(method), deadline: self.deadline }
    }
}

impl fmt::Debug for Ipam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ipam")
            .field("provider", &self.provider)
            .field("socket", &self.socket)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// The last part of a method's full name.
fn short(method: &'static str) -> &'static str {
    method.rsplit('/').next().unwrap_or(method)
}
