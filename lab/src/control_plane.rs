//! A real etcd and kube-apiserver on loopback, for one test process.
//!
//! Everything lives in one temporary folder and ends with the handle, or with the test process however that ends:
//! see [`watchdog`]. Alone it is an API server only: no controller-manager fills namespaces, so there are no default
//! ServiceAccounts, no EndpointSlices, and deleted namespaces stay. [`Cluster`](crate::Cluster) has the rest.

pub mod credentials;
pub mod etcd;
pub mod flags;
pub mod programs;
pub mod watchdog;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use flags::{Place, Purpose};
use programs::Programs;
use watchdog::Watchdog;

/// Generous, because a loaded machine of two cores needs ten times the usual three seconds.
const READY_WITHIN: Duration = Duration::from_secs(90);
/// How often a port that somebody took between our choice and the server's bind is chosen again.
const ATTEMPTS: usize = 3;

/// A running etcd and kube-apiserver.
pub struct ControlPlane {
    config: Config,
    programs: Programs,
    place: Place,
    purpose: Purpose,
    /// The process id of the API server.
    server: Mutex<u32>,
    // Last, so that the programs outlive every other part.
    watchdog: Mutex<Watchdog>,
}

/// Why one attempt to start gave no server.
enum NoServer {
    PortTaken,
    Because(anyhow::Error),
}

impl ControlPlane {
    /// Starts both programs and waits until the API server says that it is ready.
    ///
    /// # Errors
    /// When a program cannot be built or started, or is not ready in time; the error ends with its last log lines.
    pub async fn start() -> Result<Self> {
        Self::start_with(&Programs::find().await?).await
    }

    /// The same with these programs.
    ///
    /// # Errors
    /// See [`ControlPlane::start`].
    pub async fn start_with(programs: &Programs) -> Result<Self> {
        Self::start_for(programs, Purpose::Alone).await
    }

    /// The same for a purpose.
    ///
    /// # Errors
    /// See [`ControlPlane::start`].
    pub async fn start_for(programs: &Programs, purpose: Purpose) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            match Self::attempt(programs, purpose).await {
                Ok(plane) => return Ok(plane),
                Err(NoServer::PortTaken) => {}
                Err(NoServer::Because(error)) => return Err(error),
            }
        }
        bail!("kube-apiserver found its port taken {ATTEMPTS} times in a row: is something scanning 127.0.0.1?")
    }

    async fn attempt(programs: &Programs, purpose: Purpose) -> Result<Self, NoServer> {
        let (place, mut watchdog) = prepare(purpose).map_err(NoServer::Because)?;
        let server = launch(&place, programs, &mut watchdog, purpose).map_err(NoServer::Because)?;
        let config = connection(&place.kubeconfig()).await.map_err(NoServer::Because)?;
        let (server, watchdog) = (Mutex::new(server), Mutex::new(watchdog));
        let plane = Self { config, programs: programs.clone(), place, purpose, server, watchdog };
        plane.ready().await?;
        Ok(plane)
    }

    async fn ready(&self) -> Result<(), NoServer> {
        let client = self.client().map_err(NoServer::Because)?;
        let deadline = Instant::now() + READY_WITHIN;
        while let Err(answer) = readyz(&client).await {
            // In this order: a program's last words are in its log before it has ended.
            let ended = self.watchdog().any_ended();
            if flags::port_taken(&self.place.log("kube-apiserver")) {
                return Err(NoServer::PortTaken);
            }
            if ended || Instant::now() > deadline {
                return Err(NoServer::Because(self.place.failure(&answer)));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// How to reach the API server as a member of `system:masters`.
    ///
    /// Put another token into `auth_info` for a client with fewer rights.
    #[must_use]
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// A client with all rights. Each async runtime needs its own: connections belong to the runtime that made them.
    ///
    /// # Errors
    /// When the TLS set-up is refused.
    pub fn client(&self) -> Result<Client> {
        Client::try_from(self.config()).context("cannot make a client for the API server just started")
    }

    /// A kubeconfig file with all rights, for `kubectl`.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.place.kubeconfig()
    }

    /// A `kubectl` with all rights, which keeps its cache in the folder of this control plane.
    #[must_use]
    pub fn kubectl(&self) -> Command {
        let mut kubectl = Command::new(self.programs.path("kubectl"));
        kubectl.arg("--kubeconfig").arg(self.kubeconfig()).arg("--cache-dir").arg(self.place.file("kubectl"));
        kubectl
    }

    /// The programs it is made of, and others beside them.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Where its files are.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The port of the API server on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.config.cluster_url.port_u16().unwrap_or_default()
    }

    /// Starts the controllers and the scheduler of a cluster. They come and go with this value.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start_controllers(&mut self) -> Result<()> {
        let server = format!("127.0.0.1:{}", self.port());
        for (program, user) in
            [("kube-controller-manager", "system:kube-controller-manager"), ("kube-scheduler", "system:kube-scheduler")]
        {
            let kubeconfig = credentials::write_for(&self.place, user, &server)?;
            let arguments = match program {
                "kube-scheduler" => flags::scheduler(&kubeconfig),
                _ => flags::controller_manager(&self.place, &kubeconfig),
            };
            self.watchdog().start(&self.programs.path(program), &self.place.log(program), arguments)?;
        }
        Ok(())
    }

    /// Kills the API server. Everybody else goes on without it until [`ControlPlane::start_server`].
    ///
    /// # Errors
    /// When it had ended before.
    pub fn stop_server(&self) -> Result<()> {
        let pid = *self.server.lock().expect("nobody panics while holding it");
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process has an id")?;
        kill_process(pid, Signal::KILL).context("the API server had ended before")
    }

    /// Lets the API server stand still for a while, as one that is starved of its disk or its processor does.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn freeze_server(&self, time: Duration) -> Result<()> {
        let pid = *self.server.lock().expect("nobody panics while holding it");
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process has an id")?;
        kill_process(pid, Signal::STOP).context("the API server has ended")?;
        tokio::time::sleep(time).await;
        kill_process(pid, Signal::CONT).context("the API server has ended")
    }

    /// Starts the API server again, as it was, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not get ready.
    pub async fn start_server(&self) -> Result<()> {
        let (program, log) = (self.programs.path("kube-apiserver"), self.place.log("kube-apiserver.again"));
        let arguments = flags::apiserver(&self.place, self.port(), self.purpose);
        let pid = self.watchdog().start(&program, &log, arguments)?;
        *self.server.lock().expect("nobody panics while holding it") = pid;
        let (client, deadline) = (self.client()?, Instant::now() + READY_WITHIN);
        while let Err(answer) = readyz(&client).await {
            ensure!(Instant::now() < deadline, "the API server does not come back: {answer}; see {}", log.display());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn watchdog(&self) -> MutexGuard<'_, Watchdog> {
        self.watchdog.lock().expect("nobody panics while holding it")
    }

    /// Makes etcd forget all history before `revision`; later reads of it answer 410.
    ///
    /// The API server's watch cache keeps its own history of most kinds, so this shows for what it reads from etcd
    /// directly: Events, and custom resources whose definition is younger than `revision`.
    ///
    /// # Errors
    /// When etcd refuses, for example because the revision was compacted before.
    pub fn compact(&self, revision: u64) -> Result<()> {
        etcd::compact(&self.place.etcd_socket(), revision)
    }
}

fn prepare(purpose: Purpose) -> Result<(Place, Watchdog)> {
    let folder = tempfile::Builder::new().prefix("purelb-lab-").tempdir().context("cannot make a temporary folder")?;
    let watchdog = Watchdog::guard(folder.path())?;
    // From here on the watchdog removes it.
    let place = Place::new(folder.keep());
    credentials::write(&place, purpose)?;
    Ok((place, watchdog))
}

/// Starts both, and returns the process id of the API server.
fn launch(place: &Place, programs: &Programs, watchdog: &mut Watchdog, purpose: Purpose) -> Result<u32> {
    watchdog.start(&programs.path("etcd"), &place.log("etcd"), flags::etcd(place))?;
    let port = free_port()?;
    credentials::write_kubeconfig(place, port)?;
    let arguments = flags::apiserver(place, port, purpose);
    watchdog.start(&programs.path("kube-apiserver"), &place.log("kube-apiserver"), arguments)
}

/// A port nobody listens on now. It may be taken before the server binds it, which [`ControlPlane::start`] notices.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("127.0.0.1 has no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Asks the API server whether it is ready; an error is what it said instead of `ok`.
async fn readyz(client: &Client) -> Result<(), String> {
    let request = http::Request::get("/readyz").body(Vec::new()).expect("a fixed request is well formed");
    match tokio::time::timeout(Duration::from_secs(10), client.request_text(request)).await {
        Ok(Ok(text)) if text == "ok" => Ok(()),
        Ok(Ok(text)) => Err(text),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer to /readyz within 10 s".to_owned()),
    }
}

async fn connection(kubeconfig: &Path) -> Result<Config> {
    let text = fs::read_to_string(kubeconfig)?;
    let kubeconfig = Kubeconfig::from_yaml(&text)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}
