//! `purelb` daemons as a cluster runs them: processes with the rights of their ServiceAccount, to be stopped, frozen and
//! killed.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::ControlPlane;
use crate::control_plane::watchdog::Watchdog;
use crate::image;
use crate::net::Namespace;

/// Longer than any test runs.
const TOKEN_SECONDS: i64 = 24 * 3600;
/// How long a daemon that was asked to stop may take.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// The program named by `PURELB_PROGRAM`, or else a freshly built `purelb`, beside the program of the test that asks.
///
/// # Errors
/// When it does not build; the compiler's words are on standard error.
pub fn program() -> Result<PathBuf> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(|| build().map_err(|error| format!("{error:#}"))).clone().map_err(|error| anyhow!(error))
}

fn build() -> Result<PathBuf> {
    if let Some(program) = env::var_os("PURELB_PROGRAM") {
        return Ok(program.into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the lab is in the repository")?;
    let test = env::current_exe()?;
    let folder = test.parent().and_then(Path::parent).context("the test program has no folder")?;
    // Benches are there, and measure what operators run: the program of the image.
    if folder.ends_with("release") {
        return image::program::build();
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", "purelb"]).current_dir(root);
    ensure!(cargo.status().context("cannot run cargo")?.success(), "purelb does not build");
    Ok(folder.join("purelb"))
}

/// The rights of one ServiceAccount, as a kubeconfig.
#[derive(Clone, Debug)]
pub struct Account {
    kubeconfig: Value,
}

impl Account {
    /// Asks for a token of this ServiceAccount, as the kubelet does for a Pod.
    ///
    /// # Errors
    /// When there is no such account.
    pub async fn of(plane: &ControlPlane, namespace: &str, name: &str) -> Result<Self> {
        let accounts: Api<ServiceAccount> = Api::namespaced(plane.client()?, namespace);
        let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("no token for the ServiceAccount {namespace}/{name}"))?;
        let token = answer.status.context("the answer has no token")?.token;
        // The lab writes its kubeconfig as JSON.
        let mut kubeconfig: Value = serde_json::from_str(&fs::read_to_string(plane.kubeconfig())?)?;
        kubeconfig["users"] = json!([{"name": "administrator", "user": {"token": token}}]);
        Ok(Self { kubeconfig })
    }

    /// The rights that a kubeconfig file gives.
    ///
    /// # Errors
    /// When the text is none.
    pub fn in_kubeconfig(text: &str) -> Result<Self> {
        let kubeconfig = serde_saphyr::from_str(text).context("this is no kubeconfig")?;
        Ok(Self { kubeconfig })
    }

    /// How to reach the API server with these rights.
    ///
    /// # Errors
    /// When a file that it names is gone.
    pub async fn config(&self) -> Result<Config> {
        let kubeconfig: Kubeconfig = serde_json::from_value(self.kubeconfig.clone())?;
        Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
    }

    /// The address of the API server, `host:port`.
    #[must_use]
    pub fn server(&self) -> &str {
        self.kubeconfig["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default().trim_start_matches("https://")
    }

    /// The secret that stands for the account.
    #[must_use]
    pub fn token(&self) -> &str {
        self.kubeconfig["users"][0]["user"]["token"].as_str().unwrap_or_default()
    }

    /// The same rights, but the server is reached without TLS through this port of the loopback interface.
    #[must_use]
    pub fn plainly_through(&self, port: u16) -> Self {
        let mut other = self.clone();
        other.kubeconfig["clusters"][0]["cluster"] = json!({"server": format!("http://127.0.0.1:{port}")});
        other
    }

    /// The same rights, but the server is reached through this port of the loopback interface.
    #[must_use]
    pub fn through(&self, port: u16) -> Self {
        let mut other = self.clone();
        other.kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://127.0.0.1:{port}"));
        other
    }

    /// The same rights, but the server is reached at this address, which its certificate does not name.
    #[must_use]
    pub fn at(&self, door: SocketAddr) -> Self {
        let mut other = self.clone();
        let cluster = &mut other.kubeconfig["clusters"][0]["cluster"];
        cluster["server"] = json!(format!("https://{door}"));
        cluster["tls-server-name"] = json!("localhost");
        other
    }
}

/// One running daemon. It ends with this value, or with the test however that ends.
pub struct Daemon {
    pid: u32,
    folder: PathBuf,
    watchdog: Watchdog,
}

impl Daemon {
    /// Starts `purelb` with these arguments and variables, beside those that say where the cluster is.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn start(account: &Account, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Self> {
        Self::launch(&Command::new("env"), account, arguments, variables)
    }

    /// The same on a node: the daemon sees the network of this namespace.
    ///
    /// # Errors
    /// See [`Daemon::start`].
    pub fn start_in(node: &Namespace, account: &Account, arguments: &[&str], named: &[(&str, &str)]) -> Result<Self> {
        Self::launch(&node.command("env"), account, arguments, named)
    }

    /// `env` is how to run `env`, which becomes the daemon.
    fn launch(env: &Command, account: &Account, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("purelb-lab-").tempdir().context("cannot make a folder")?;
        let mut watchdog = Watchdog::guard(folder.path())?;
        let folder = TempDir::keep(folder);
        let kubeconfig = folder.join("kubeconfig");
        fs::write(&kubeconfig, account.kubeconfig.to_string())?;
        let mut line: Vec<OsString> = env.get_args().map(OsString::from).collect();
        line.extend(variables.iter().map(|(name, value)| format!("{name}={value}").into()));
        line.push(program()?.into());
        line.extend(arguments.iter().map(OsString::from));
        line.extend(["--kubeconfig".into(), kubeconfig.into()]);
        line.extend(["--debug-socket".into(), folder.join("debug.sock").into()]);
        let pid = watchdog.start(Path::new(env.get_program()), &folder.join("log"), line)?;
        Ok(Self { pid, folder, watchdog })
    }

    /// What it has printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Where it answers questions about its state.
    #[must_use]
    pub fn debug_socket(&self) -> PathBuf {
        self.folder.join("debug.sock")
    }

    /// Whether it has ended by itself.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.watchdog.any_ended()
    }

    /// A line of its `/proc` status in MiB: `VmRSS` is its memory now, `VmHWM` the most there ever was.
    ///
    /// # Errors
    /// When it runs no more.
    pub fn memory(&self, line: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).context("the daemon has ended")?;
        let found = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
        let kib = found.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("/proc tells no {line}"))? / 1024.0)
    }

    /// SIGSTOP: it stands still, and its connections stay open.
    ///
    /// # Errors
    /// When it runs no more.
    pub fn freeze(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// SIGCONT: it goes on as if no time had passed.
    ///
    /// # Errors
    /// When it runs no more.
    pub fn thaw(&self) -> Result<()> {
        self.signal("CONT")
    }

    /// SIGTERM; returns how long it took to end.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn stop(self) -> Result<Duration> {
        self.terminate().await
    }

    /// The same, and its last words can still be read.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn terminate(&self) -> Result<Duration> {
        let asked = Instant::now();
        self.signal("TERM")?;
        while !self.has_ended() {
            ensure!(asked.elapsed() < STOPS_WITHIN, "it does not stop on SIGTERM:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(asked.elapsed())
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(self) {
        drop(self);
    }

    /// A daemon that ended by itself has not been waited for, so that its process id is no one else's.
    fn signal(&self, name: &str) -> Result<()> {
        let sent = Command::new("sh").args(["-c", r#"kill -"$0" "$1""#, name, &self.pid.to_string()]).status()?;
        ensure!(sent.success(), "cannot send SIG{name}: the daemon has ended:\n{}", self.log());
        Ok(())
    }
}
