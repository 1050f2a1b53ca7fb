//! What a daemon answers over HTTP: metrics and probes to the cluster, its state and log level to its own node only.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use futures::FutureExt;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::time::sleep;

mod debug;
mod question;
mod ready;

pub use debug::DebugServer;
pub use question::{Questions, channel};
pub use ready::{Guard, Pulse, Readiness};

/// How long a stopping server waits for those who are still reading.
const LAST_CALL: Duration = Duration::from_millis(300);

/// The format of what the metrics library writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port cannot be had.
    #[error(
        "cannot listen on port {port}: {source}; if another process of this host has it, choose another with --port"
    )]
    Port {
        /// The port.
        port: u16,
        /// What the kernel says.
        source: io::Error,
    },
    /// The socket cannot be created.
    #[error("cannot create the debug socket {}: {source}; its folder must exist and be writable", path.display())]
    Socket {
        /// Where it should be.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The socket belongs to a process that is alive.
    #[error("the debug socket {} is in use by a running process; give each daemon a path of its own", path.display())]
    SocketInUse {
        /// Where it is.
        path: PathBuf,
    },
}

/// Metrics and probes, for everybody who reaches the port: `/metrics`, `/healthz` and `/readyz`.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
}

impl Server {
    /// Takes the port on all addresses of the host; port 0 takes a free one.
    pub async fn build(port: u16, registry: Arc<Registry>, readiness: Readiness) -> Result<Self, Error> {
        let listener = listen(port).await.map_err(|source| Error::Port { port, source })?;
        let address = listener.local_addr().map_err(|source| Error::Port { port, source })?;
        let router = Router::new()
            .route("/metrics", get(metrics).with_state(registry))
            .route("/healthz", get(healthz).with_state(readiness.clone()))
            .route("/readyz", get(readyz).with_state(readiness));
        Ok(Self { listener, address, router })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) {
        serve(self.listener, self.router, stop).await;
    }
}

/// One listener for both families, or for IPv4 alone where the kernel has no IPv6.
async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        other => other,
    }
}

/// Serves until `stop`, and then not much longer, whatever a slow reader does.
async fn serve<L: Listener>(listener: L, router: Router, stop: impl Future<Output = ()> + Send + 'static)
where
    L::Addr: std::fmt::Debug,
{
    let stop = stop.shared();
    let last_call = stop.clone().then(|()| sleep(LAST_CALL));
    let server = axum::serve(listener, router).with_graceful_shutdown(stop);
    tokio::select! {
        _ = server.into_future() => {}
        () = last_call => {}
    }
}

async fn metrics(State(registry): State<Arc<Registry>>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write metrics: {error}\n")).into_response(),
    }
}

async fn healthz(State(readiness): State<Readiness>) -> Response {
    let stuck = readiness.stuck();
    if stuck.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("stuck or ended: {}\n", stuck.join(", "))).into_response()
}

async fn readyz(State(readiness): State<Readiness>) -> Response {
    let missing = readiness.missing();
    if missing.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for: {}\n", missing.join(", "))).into_response()
}

#[cfg(test)]
mod tests;
