//! An allocator's line to the API server: watches on it can be cut, and what goes over it is counted.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use purelb_kubelite::{Kubelite, ResponseBody};
use tokio::sync::watch;
use tokio::time::sleep;
use tower::{BoxError, Service, ServiceExt};

/// One line; clones are the same line.
#[derive(Clone)]
pub struct Line {
    server: Kubelite,
    cut: Arc<watch::Sender<bool>>,
    counts: Arc<Counts>,
    /// Whether the server answers everything with 503.
    unavailable: Arc<AtomicBool>,
    /// Whether writes take their time.
    slow: Arc<AtomicBool>,
    /// Whether watches of a single lease tell nothing.
    deaf: Arc<AtomicBool>,
    /// Whether the server is to forget its history before it answers with the next page of a list.
    forgetful: Arc<AtomicBool>,
}

/// What went over a line.
#[derive(Default)]
struct Counts {
    /// Everything that got through, but for looks at the allocator's own lease and renewals of it.
    requests: AtomicUsize,
    /// Watches that did not get through.
    refused: AtomicUsize,
    /// Watches that were told 410 Gone.
    expired_watches: AtomicUsize,
    /// Lists that were told 410 Gone on the way.
    expired_lists: AtomicUsize,
    /// Slow writes that are under way, and the most there ever were.
    writing: AtomicUsize,
    most_writing: AtomicUsize,
}

impl Line {
    pub fn to(server: &Kubelite) -> Self {
        let (cut, _) = watch::channel(false);
        let (cut, server) = (Arc::new(cut), server.clone());
        Self {
            server,
            cut,
            counts: Arc::default(),
            unavailable: Arc::default(),
            deaf: Arc::default(),
            slow: Arc::default(),
            forgetful: Arc::default(),
        }
    }

    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Open watches end, and no new one gets through.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Open watches end, and everything is answered with 503, as where an API server restarts behind a load balancer.
    pub fn make_unavailable(&self) {
        self.unavailable.store(true, Ordering::Relaxed);
        self.cut();
    }

    /// Writes take a while from now on.
    pub fn slow_down(&self) {
        self.slow.store(true, Ordering::Relaxed);
    }

    /// How many slow writes were under way at the same time, at most.
    pub fn most_writing(&self) -> usize {
        self.counts.most_writing.load(Ordering::Relaxed)
    }

    /// What happens to the allocator's own lease is not told.
    pub fn be_deaf_to_the_lease(&self) {
        self.deaf.store(true, Ordering::Relaxed);
    }

    pub fn mend(&self) {
        self.unavailable.store(false, Ordering::Relaxed);
        self.cut.send_replace(false);
    }

    /// The next list that has more than one page does not get beyond the first.
    pub fn forget_within_a_list(&self) {
        self.forgetful.store(true, Ordering::Relaxed);
    }

    pub fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::Relaxed)
    }

    pub fn refused(&self) -> usize {
        self.counts.refused.load(Ordering::Relaxed)
    }

    /// How many watches and lists were told that what they go on from is forgotten.
    pub fn expired(&self) -> (usize, usize) {
        let Counts { expired_watches, expired_lists, .. } = &*self.counts;
        (expired_watches.load(Ordering::Relaxed), expired_lists.load(Ordering::Relaxed))
    }

    /// Something is written and all history forgotten, so that whatever was read before is too old to go on from.
    async fn forget(&self) -> kube::Result<()> {
        let api: Api<ConfigMap> = Api::namespaced(self.server.client(), "default");
        let metadata = ObjectMeta { generate_name: Some("news-".to_owned()), ..ObjectMeta::default() };
        api.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await?;
        self.server.compact();
        Ok(())
    }

    async fn send(self, request: Request<Body>) -> Result<Response<Cuttable>, BoxError> {
        let query = request.uri().query().unwrap_or_default();
        let (is_watch, is_next_page) = (query.contains("watch=true"), query.contains("continue="));
        if self.unavailable.load(Ordering::Relaxed) {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            let answer = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
            let body = http_body_util::BodyExt::boxed_unsync(http_body_util::Empty::new());
            return Ok(answer.body(self.cuttable(body, false))?);
        }
        if is_watch && query.contains("fieldSelector=metadata.name") && self.deaf.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        if is_watch && *self.cut.borrow() {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err("connection refused".into());
        }
        if is_next_page && self.forgetful.swap(false, Ordering::Relaxed) {
            self.forget().await?;
        }
        if !request.uri().path().ends_with("/leases/purelb-allocator") {
            self.counts.requests.fetch_add(1, Ordering::Relaxed);
        }
        let slow = self.slow.load(Ordering::Relaxed) && request.method() == Method::PATCH;
        if slow {
            let writing = self.counts.writing.fetch_add(1, Ordering::Relaxed) + 1;
            self.counts.most_writing.fetch_max(writing, Ordering::Relaxed);
            sleep(Duration::from_millis(50)).await;
        }
        let answer = self.server.clone().oneshot(request).await?;
        self.counts.writing.fetch_sub(usize::from(slow), Ordering::Relaxed);
        if answer.status() == StatusCode::GONE {
            self.counts.expired_lists.fetch_add(1, Ordering::Relaxed);
        }
        Ok(answer.map(|body| self.cuttable(body, is_watch)))
    }

    fn cuttable(&self, body: ResponseBody, is_watch: bool) -> Cuttable {
        let mut cut = self.cut.subscribe();
        let cut = async move { drop(cut.wait_for(|cut| *cut).await) };
        let watch = is_watch.then(|| Watch { cut: Box::pin(cut), counts: self.counts.clone() });
        Cuttable { body: Box::pin(body), watch, over: false }
    }
}

impl Service<Request<Body>> for Line {
    type Response = Response<Cuttable>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

/// An answer which, if it is a watch, ends when the line is cut.
pub struct Cuttable {
    body: Pin<Box<ResponseBody>>,
    watch: Option<Watch>,
    over: bool,
}

struct Watch {
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    counts: Arc<Counts>,
}

type Lines = <ResponseBody as http_body::Body>::Data;

impl http_body::Body for Cuttable {
    type Data = Lines;
    type Error = <ResponseBody as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Lines>, Self::Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let Some(watch) = &mut self.watch else { return self.body.as_mut().poll_frame(context) };
        if watch.cut.as_mut().poll(context).is_ready() {
            self.over = true;
            return Poll::Ready(None);
        }
        let counts = watch.counts.clone();
        let frame = self.body.as_mut().poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && frame.data_ref().is_some_and(|lines| String::from_utf8_lossy(lines).contains(r#""code":410"#))
        {
            counts.expired_watches.fetch_add(1, Ordering::Relaxed);
        }
        frame
    }
}
