//! A proxy between an allocator and the API server that, when told so, answers in the server's place, and badly.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use purelb_lab::ControlPlane;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// Whether a request is one of those meant.
type Which = fn(&Request<Incoming>) -> bool;

/// How the proxy treats the requests that it is to treat badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Everything is passed on.
    Well,
    /// Answered with this code, and nothing is passed on; 429 asks to wait a second.
    Code(u16),
    /// The connection is closed, and nothing is passed on.
    Reset,
    /// Nothing is passed on, and nothing answered.
    Silent,
    /// Passed on and carried out, but the answer never comes.
    AnswerLost,
}

/// One proxy, which ends with this value.
pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
    _task: JoinSet<()>,
}

struct Shared {
    server: Client,
    mood: Mutex<(Mood, Which)>,
    /// Requests that were treated badly.
    troubled: AtomicUsize,
}

/// The writes that give addresses.
pub fn addresses(request: &Request<Incoming>) -> bool {
    request.method() == Method::PATCH && request.uri().path().contains("/services/")
}

/// Everything.
pub fn all(_: &Request<Incoming>) -> bool {
    true
}

impl Proxy {
    /// A proxy that adds nothing of its own: who asks is told by the request.
    pub async fn to(plane: &ControlPlane) -> Result<Self> {
        let mut config = plane.config();
        (config.auth_info, config.default_retry) = (kube::config::AuthInfo::default(), false);
        let server = Client::try_from(config)?;
        let mood: (Mood, Which) = (Mood::Well, all);
        let shared = Arc::new(Shared { server, mood: Mutex::new(mood), troubled: AtomicUsize::new(0) });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let mut task = JoinSet::new();
        task.spawn(accept(listener, shared.clone()));
        Ok(Self { port, shared, _task: task })
    }

    /// From now on, these requests are treated so; counting starts anew.
    pub fn treat(&self, which: Which, mood: Mood) {
        *self.shared.mood.lock().unwrap_or_else(PoisonError::into_inner) = (mood, which);
        self.shared.troubled.store(0, Ordering::Relaxed);
    }

    /// How many requests were treated badly.
    pub fn troubled(&self) -> usize {
        self.shared.troubled.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut links = JoinSet::new();
    while let Ok((link, _)) = listener.accept().await {
        links.spawn(serve(link, shared.clone()));
    }
}

async fn serve(link: TcpStream, shared: Arc<Shared>) {
    let answer = service_fn(move |request| {
        let shared = shared.clone();
        async move { shared.answer(request).await }
    });
    // How a link ends is the client's business.
    drop(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(link), answer).await);
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Result<Answer> {
        let (mood, which) = *self.mood.lock().unwrap_or_else(PoisonError::into_inner);
        if mood == Mood::Well || !which(&request) {
            return self.pass_on(request).await;
        }
        self.troubled.fetch_add(1, Ordering::Relaxed);
        match mood {
            Mood::Code(code) => refusal(code),
            Mood::Silent => std::future::pending().await,
            Mood::AnswerLost => {
                drop(self.pass_on(request).await?);
                bail!("the answer is lost")
            }
            _ => bail!("the connection is closed"),
        }
    }

    async fn pass_on(&self, request: Request<Incoming>) -> Result<Answer> {
        let (mut parts, body) = request.into_parts();
        parts.headers.remove(header::HOST);
        let body = body.collect().await.context("the request broke off")?.to_bytes();
        let answer = self.server.send(Request::from_parts(parts, Body::from(body.to_vec()))).await?;
        let (mut parts, body) = answer.into_parts();
        parts.headers.remove(header::TRANSFER_ENCODING);
        Ok(Response::from_parts(parts, body.boxed_unsync()))
    }
}

fn refusal(code: u16) -> Result<Answer> {
    let text = format!("the lab says {code}\n");
    let body = Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code)?;
    if code == 429 {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    Ok(answer)
}
