//! The server on a socket, for a real kubectl: HTTP/1.1 over TLS, and a token at the door.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::access::Access;
use crate::server::{self, ResponseBody};
use crate::status::Refusal;
use crate::{Kubelite, Shared};

/// More connections wait at the door.
const MOST_CONNECTIONS: usize = 1000;
/// How long to wait for better times when the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Who takes longer to introduce itself is not a client.
const HANDSHAKE: Duration = Duration::from_secs(10);

impl Kubelite {
    /// Answers requests that carry the token (`Authorization: Bearer TOKEN`) and refuses all others with 401. It goes on
    /// until it is dropped, which also ends all connections.
    ///
    /// [`Access::kubeconfig`] writes the file for kubectl and other clients.
    pub async fn serve(self, listener: TcpListener, access: Access) -> Infallible {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(converse(self.shared.clone(), stream, access.clone()));
                    }
                    Err(_) => sleep(PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}

/// One connection to its end; how it ends is the client's business.
async fn converse(shared: Arc<Shared>, stream: TcpStream, access: Access) {
    // Events of a watch are small and wanted at once.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = timeout(HANDSHAKE, access.acceptor().accept(stream)).await else { return };
    let service = service_fn(|request: Request<Incoming>| {
        let (shared, access) = (shared.clone(), access.clone());
        async move { Ok::<_, Infallible>(admit(shared, request, &access).await) }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn admit(shared: Arc<Shared>, request: Request<Incoming>, access: &Access) -> Response<ResponseBody> {
    if !access.admits(request.headers().get(AUTHORIZATION).map(|value| value.as_bytes())) {
        return server::refuse(&Refusal::Unauthorized);
    }
    server::answer(shared, request).await
}
