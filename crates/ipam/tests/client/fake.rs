//! A sidecar that answers as a story wants it to, and remembers what it was asked.

use std::path::Path;
use std::sync::{Arc, Mutex};

use purelb_ipam::Ipam;
use purelb_ipam::v1::ipam_server::{Ipam as Contract, IpamServer};
use purelb_ipam::v1::{
    AllocateRequest, AllocateResponse, AllocatedIp, ReleaseRequest, ReleaseResponse, StatsRequest, StatsResponse,
};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Response, Status};

/// What was asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    Allocate(AllocateRequest),
    Release(ReleaseRequest),
    Stats(String),
}

/// How an Allocate is answered.
#[derive(Clone, Debug)]
pub enum Answer {
    Ips(Vec<String>),
    No(Code, &'static str),
    Never,
}

impl Answer {
    pub fn ips<T: Into<String>>(ips: impl IntoIterator<Item = T>) -> Self {
        Self::Ips(ips.into_iter().map(Into::into).collect())
    }
}

/// A sidecar that gives the answers of a list in turn, the last one for ever.
#[derive(Clone)]
pub struct Fake {
    answers: Vec<Answer>,
    release: Code,
    stats: StatsResponse,
    questions: Arc<Mutex<Vec<Question>>>,
    asked: Arc<Notify>,
    cancelled: Arc<Notify>,
    running: Arc<Mutex<Option<Running>>>,
}

/// How to stop a server, and the server.
type Running = (oneshot::Sender<()>, JoinHandle<()>);

impl Fake {
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            answers: answers.into_iter().collect(),
            release: Code::Ok,
            stats: StatsResponse::default(),
            questions: Arc::default(),
            asked: Arc::default(),
            cancelled: Arc::default(),
            running: Arc::default(),
        }
    }

    pub fn always(answer: Answer) -> Self {
        Self::new([answer])
    }

    pub fn with_release(self, release: Code) -> Self {
        Self { release, ..self }
    }

    pub fn with_stats(self, stats: StatsResponse) -> Self {
        Self { stats, ..self }
    }

    /// Listens in a folder of its own, and gives a client for it.
    pub fn start(&self) -> (TempDir, Ipam) {
        let folder = tempfile::tempdir().unwrap();
        self.start_in(folder.path());
        let ipam = Ipam::new(folder.path().join("ipam.sock").to_str().unwrap());
        (folder, ipam)
    }

    pub fn start_in(&self, folder: &Path) {
        let socket = folder.join("ipam.sock");
        let _ = std::fs::remove_file(&socket);
        let calls = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
        let (stop, stopped) = oneshot::channel();
        let server = tonic::transport::Server::builder().add_service(IpamServer::new(self.clone()));
        let task = tokio::spawn(async move {
            server.serve_with_incoming_shutdown(calls, async { drop(stopped.await) }).await.unwrap();
        });
        *self.running.lock().unwrap() = Some((stop, task));
    }

    /// Hangs up on everybody, and leaves its socket behind as a crash does.
    pub async fn stop(&self) {
        let (stop, task) = self.running.lock().unwrap().take().unwrap();
        stop.send(()).unwrap();
        task.await.unwrap();
    }

    pub fn questions(&self) -> Vec<Question> {
        self.questions.lock().unwrap().clone()
    }

    /// Told when an Allocate that is never answered has arrived.
    pub fn asked(&self) -> Arc<Notify> {
        Arc::clone(&self.asked)
    }

    /// Told when an Allocate that is never answered is given up by the client.
    pub fn cancelled(&self) -> Arc<Notify> {
        Arc::clone(&self.cancelled)
    }

    fn note(&self, question: Question) -> usize {
        let mut questions = self.questions.lock().unwrap();
        questions.push(question);
        questions.len() - 1
    }
}

/// Tells of its own end.
struct Farewell(Arc<Notify>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tonic::async_trait]
impl Contract for Fake {
    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let turn = self.note(Question::Allocate(request.into_inner()));
        match self.answers[turn.min(self.answers.len() - 1)].clone() {
            Answer::Ips(ips) => {
                let ips = ips.into_iter().map(|ip| AllocatedIp { ip }).collect();
                Ok(Response::new(AllocateResponse { ips }))
            }
            Answer::No(code, words) => Err(Status::new(code, words)),
            Answer::Never => {
                let _farewell = Farewell(Arc::clone(&self.cancelled));
                self.asked.notify_one();
                std::future::pending().await
            }
        }
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        self.note(Question::Release(request.into_inner()));
        match self.release {
            Code::Ok => Ok(Response::new(ReleaseResponse {})),
            code => Err(Status::new(code, "")),
        }
    }

    async fn stats(&self, request: Request<StatsRequest>) -> Result<Response<StatsResponse>, Status> {
        self.note(Question::Stats(request.into_inner().pool));
        Ok(Response::new(self.stats.clone()))
    }
}
