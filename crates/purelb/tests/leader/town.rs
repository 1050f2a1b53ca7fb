//! Replicas with a line to the API server that can be disturbed, a process that can be frozen, and a chronicle of who led when.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use kube::{Api, Client};
use purelb::cluster::leader::{Candidate, LEASE_NAME, Leadership, Timing, identity};
use purelb_kubelite::{Kubelite, ResponseBody};
use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::{BoxError, Service, ServiceExt};

/// What happens on the way to the API server and back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weather {
    /// Nothing.
    Fair,
    /// No connection.
    Refused,
    /// Requests get lost.
    Silent,
    /// Requests arrive, answers get lost.
    Deaf,
    /// Requests and answers take this long each.
    Slow(Duration),
    /// Somebody else edits the lease just before every write.
    Meddled,
}

/// A replica's line to the API server.
#[derive(Clone)]
struct Line {
    server: Kubelite,
    weather: watch::Receiver<Weather>,
    requests: Arc<AtomicUsize>,
}

impl Service<Request<Body>> for Line {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (server, weather) = (self.server.clone(), *self.weather.borrow());
        Box::pin(async move {
            match weather {
                Weather::Fair => Ok(server.oneshot(request).await?),
                Weather::Refused => Err("connection refused".into()),
                Weather::Silent => std::future::pending().await,
                Weather::Deaf => {
                    server.oneshot(request).await?;
                    std::future::pending().await
                }
                Weather::Slow(delay) => travel(server, request, delay).await,
                Weather::Meddled => {
                    if request.method() == Method::PATCH {
                        meddle(&server).await;
                    }
                    Ok(server.oneshot(request).await?)
                }
            }
        })
    }
}

/// A request on its way arrives also when its sender has stopped waiting for the answer.
async fn travel(server: Kubelite, request: Request<Body>, delay: Duration) -> Result<Response<ResponseBody>, BoxError> {
    let arrival = tokio::spawn(async move {
        sleep(delay).await;
        server.oneshot(request).await
    });
    let answer = arrival.await??;
    sleep(delay).await;
    Ok(answer)
}

async fn meddle(server: &Kubelite) {
    static ROUND: AtomicUsize = AtomicUsize::new(0);
    let round = ROUND.fetch_add(1, Ordering::Relaxed).to_string();
    let label = json!({"metadata": {"labels": {"round": round}}});
    let leases: Api<Lease> = Api::namespaced(server.client(), "default");
    // It may have been deleted just now.
    drop(leases.patch(LEASE_NAME, &PatchParams::default(), &Patch::Merge(label)).await);
}

/// One running candidate.
pub struct Replica {
    pub identity: String,
    pub weather: watch::Sender<Weather>,
    pub frozen: watch::Sender<bool>,
    news: watch::Receiver<Leadership>,
    requests: Arc<AtomicUsize>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Starts a candidate in fair weather.
pub fn start(name: &str, server: &Kubelite, chronicle: &Chronicle) -> Replica {
    start_with_clock(name, server, chronicle, SignedDuration::ZERO)
}

/// Starts a candidate whose clock is wrong by so much.
pub fn start_with_clock(name: &str, server: &Kubelite, chronicle: &Chronicle, wrong: SignedDuration) -> Replica {
    let (weather, line) = watch::channel(Weather::Fair);
    let requests = Arc::new(AtomicUsize::new(0));
    let line = Line { server: server.clone(), weather: line, requests: requests.clone() };
    let identity = identity(name);
    let client = Client::new(line, "default");
    let (candidate, news) = Candidate::new(client, "default", identity.clone(), Timing::default());
    let began = chronicle.began;
    let candidate = candidate.with_clock(move || wall(began.elapsed()) + wrong);
    let (stop, stopped) = oneshot::channel();
    let (frozen, freezer) = watch::channel(false);
    let run = candidate.run(async move { stopped.await.unwrap_or(()) });
    let task = tokio::spawn(freezable(run, freezer));
    tokio::spawn(chronicle.clone().follow(identity.clone(), news.clone()));
    Replica { identity, weather, frozen, news, requests, stop, task }
}

/// The wall clock of the story, which passes with the paused clock of the test.
fn wall(passed: Duration) -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_secs(1_800_000_000) + passed
}

impl Replica {
    /// The term this replica may write in now.
    pub fn term(&self) -> Option<u64> {
        self.news.borrow().term_at(Instant::now())
    }

    /// How long it may write from now on without another renewal; waits until it leads.
    pub async fn remaining(&mut self) -> Duration {
        match *self.news.wait_for(|news| *news != Leadership::Standby).await.expect("it runs") {
            Leadership::Leading { until, .. } => until - Instant::now(),
            Leadership::Standby => Duration::ZERO,
        }
    }

    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Ends as on SIGTERM.
    pub async fn stop(self) {
        self.stop.send(()).expect("it runs");
        self.task.await.expect("it ends well");
    }

    /// Ends as on SIGKILL.
    pub fn kill(self) {
        self.task.abort();
    }
}

/// Runs a future except while it is frozen, as SIGSTOP and SIGCONT do with a process.
async fn freezable(run: impl Future<Output = ()>, mut frozen: watch::Receiver<bool>) {
    let mut run = pin!(run);
    loop {
        let _ = frozen.wait_for(|frozen| !frozen).await;
        let freeze = async {
            if frozen.wait_for(|frozen| *frozen).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = freeze => {}
            () = &mut run => return,
        }
    }
}

/// A time in which one replica had the right to write.
#[derive(Clone, Debug)]
pub struct Reign {
    pub who: String,
    pub term: u64,
    pub from: Instant,
    pub to: Instant,
}

/// All reigns, in the order they began.
#[derive(Clone)]
pub struct Chronicle {
    began: Instant,
    reigns: Arc<Mutex<Vec<Reign>>>,
}

impl Default for Chronicle {
    fn default() -> Self {
        Self { began: Instant::now(), reigns: Arc::default() }
    }
}

impl Chronicle {
    async fn follow(self, who: String, mut news: watch::Receiver<Leadership>) {
        while news.changed().await.is_ok() {
            let leadership = *news.borrow_and_update();
            self.note(&who, leadership, Instant::now());
        }
    }

    fn note(&self, who: &str, leadership: Leadership, now: Instant) {
        let mut reigns = self.reigns.lock().expect("no test has failed");
        let last = reigns.iter_mut().rev().find(|reign| reign.who == who);
        match (leadership, last) {
            (Leadership::Leading { term, until }, Some(reign)) if reign.term == term => {
                assert!(now < reign.to, "{who} revived term {term}");
                reign.to = until;
            }
            (Leadership::Leading { term, until }, _) => {
                reigns.push(Reign { who: who.to_owned(), term, from: now, to: until });
            }
            (Leadership::Standby, Some(reign)) => reign.to = reign.to.min(now),
            (Leadership::Standby, None) => {}
        }
    }

    /// Fails when two reigns overlap, or when a later one has no higher term; returns them all.
    pub fn check(&self) -> Vec<Reign> {
        let reigns = self.reigns.lock().expect("no test has failed").clone();
        for pair in reigns.windows(2) {
            assert!(pair[0].to <= pair[1].from, "two leaders at once: {pair:#?}");
            assert!(pair[0].term < pair[1].term, "a term that is not higher: {pair:#?}");
        }
        reigns
    }
}
