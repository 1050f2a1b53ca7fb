//! `purelb agent`: flags and environment, the servers beside it, and the way it stops.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::future::OptionFuture;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use purelb_api::read;
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::clock::Clock;
use super::guarded;
use super::metrics::Metrics;
use super::stop::OnStop;
use super::{Settings, Timing, World, cleanup, kernel};
use crate::cluster::connection::{client, config, install_namespace};
use crate::cluster::leader::identity;
use crate::http::{DebugServer, Readiness, Server, channel};
use crate::logs::{self, Level};
use crate::signals::{stopped, terminated};

/// How long a connection to the API server may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a connection that is alive may say nothing, as one to a proxy that has lost the API server: a little longer
/// than the bookmarks of a quiet watch are apart. A dead one is noticed much sooner, see [`client`].
const SILENCE: Duration = Duration::from_secs(90);

/// How the agent is started; the names are those of the PureLB it replaces.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The Kubernetes name of this node
    #[arg(long, env = "PURELB_NODE_NAME", value_name = "NAME", default_value = "")]
    node_name: String,
    /// The namespace PureLB is installed in [default: the pod's own]
    #[arg(long, env = "PURELB_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,
    /// Kubeconfig file; without one, the pod's own account is used
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The UID of this pod, which tells the agents of one node apart
    #[arg(long, env = "PURELB_POD_UID", value_name = "UID", default_value = "")]
    pod_uid: String,
    /// Accepted for older manifests: the agent listens on all addresses, of both families
    #[arg(long, env = "PURELB_HOST", value_name = "ADDRESS", default_value = "", hide = true)]
    host: String,
    /// Port for /metrics, /healthz and /readyz
    #[arg(long, default_value_t = 7472)]
    port: u16,
    /// How long peers wait for a sign of life before they take this node's local addresses [default: 7s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    lease_duration: Option<Duration>,
    /// How long after its last renewal a node keeps its local addresses [default: 7s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    renew_deadline: Option<Duration>,
    /// How soon a failed renewal is repeated [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    retry_period: Option<Duration>,
    /// What becomes of virtual addresses when the agent stops
    #[arg(long, value_enum, default_value_t)]
    on_stop: OnStop,
    /// Unix socket for /debug/state and /debug/loglevel
    #[arg(long, value_name = "PATH")]
    debug_socket: Option<PathBuf>,
    /// Remove every address and interface that PureLB has put on this node, then exit
    #[arg(long)]
    cleanup: bool,
    /// The virtual interface that --cleanup removes if it is ours
    #[arg(long, value_name = "NAME", default_value = "kube-lb0", requires = "cleanup")]
    virtual_interface: String,
}

/// Runs until a signal says stop.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Two threads: a burst of decisions must not keep the lease from being renewed.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(serve(args))
}

async fn serve(args: &Args) -> anyhow::Result<ExitCode> {
    let dial = logs::start(Level::from_env()).context("cannot set up logging")?;
    if args.cleanup {
        return clean(&args.virtual_interface);
    }
    let settings = args.settings();
    if settings.node.is_empty() || settings.namespace.is_empty() {
        error!(op = "startup", "missing configuration: --node-name and --namespace, or their variables, are needed");
        return Ok(ExitCode::FAILURE);
    }
    info!(version = env!("CARGO_PKG_VERSION"), node = settings.node, namespace = settings.namespace, "Starting");
    let clock = Clock::new();
    let kernel = kernel::start(clock).context("cannot talk to the kernel over netlink")?;
    let mut config = config(args.kubeconfig.as_deref()).await?;
    (config.connect_timeout, config.read_timeout) = (Some(CONNECT), Some(SILENCE));
    let guarded = guarded::watch(config.cluster_url.host().unwrap_or_default().to_owned());
    let client = client(&config).context("cannot set up the connection to the API server")?;
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let readiness = Readiness::default();
    let (inspector, questions) = channel();
    let wall = Arc::new(Timestamp::now);
    let orders = kernel.orders;
    let world = World {
        client,
        kernel_news: kernel.news,
        kernel_orders: Arc::new(move |order| orders.give(order)),
        clock,
        wall,
        guarded,
        questions,
        metrics,
        readiness: readiness.clone(),
    };
    let server = Server::build(args.port, Arc::new(registry), readiness).await?;
    let debug = args.debug_socket.as_ref();
    let debug = debug.map(|path| DebugServer::build(path, inspector, dial)).transpose()?;
    let (stop, stopping) = watch::channel(false);
    let debug: OptionFuture<_> = debug.map(|debug| debug.run(stopped(stopping.clone()))).into();
    let signals = async {
        let signalled = tokio::select! {
            signalled = terminated() => signalled,
            () = stopped(stopping.clone()) => Ok(()),
        };
        stop.send_replace(true);
        signalled
    };
    let agent = async {
        let ended = super::run(world, settings, stopping.clone()).await;
        stop.send_replace(true);
        ended
    };
    let (ended, _, _, signalled) = tokio::join!(agent, server.run(stopped(stopping.clone())), debug, signals);
    signalled.context("cannot listen for signals")?;
    ended?;
    info!("graceful shutdown complete");
    Ok(ExitCode::SUCCESS)
}

fn clean(virtual_interface: &str) -> anyhow::Result<ExitCode> {
    let cleaned = cleanup::cleanup(&[virtual_interface]).context("cannot talk to the kernel over netlink")?;
    for found in &cleaned.addrs {
        info!(addr = %found.addr, prefix = found.prefix, iface = found.link, "address removed");
    }
    for iface in &cleaned.links {
        info!(iface, "interface removed");
    }
    for found in &cleaned.kept {
        warn!(addr = %found.addr, prefix = found.prefix, iface = found.link, "address kept: it does not carry our mark");
    }
    for error in &cleaned.errors {
        error!(%error, "something could not be removed");
    }
    if !cleaned.is_complete() && cleaned.errors.is_empty() {
        error!("this kernel keeps no marks, so what was kept may be PureLB's: remove the interface by hand if it is");
    }
    Ok(if cleaned.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Args {
    fn settings(&self) -> Settings {
        let uid = self.pod_uid.trim();
        Settings {
            namespace: install_namespace(self.namespace.as_deref()),
            node: self.node_name.trim().to_owned(),
            instance: if uid.is_empty() { identity(self.node_name.trim()) } else { uid.to_owned() },
            host: host(),
            timing: self.timing(|variable| std::env::var(variable).ok()),
            on_stop: self.on_stop,
        }
    }

    /// A flag counts before its variable; a variable that cannot be read is as good as none (C11).
    fn timing(&self, variable: impl Fn(&str) -> Option<String>) -> Timing {
        let choose = |flag: Option<Duration>, name: &str, default: Duration| {
            let written = flag.or_else(|| read::duration(&variable(name)?));
            written.filter(|duration| !duration.is_zero()).unwrap_or(default)
        };
        let Timing { lease, renew_deadline, retry } = Timing::default();
        let wished = choose(self.lease_duration, "PURELB_LEASE_DURATION", lease);
        let timing = Timing {
            lease: Timing::legal_lease(wished),
            renew_deadline: choose(self.renew_deadline, "PURELB_RENEW_DEADLINE", renew_deadline),
            retry: choose(self.retry_period, "PURELB_RETRY_PERIOD", retry),
        };
        if timing.lease != wished {
            warn!(?wished, used = ?timing.lease, "a lease lasts whole seconds, and no fewer than three");
        }
        timing
    }
}

/// The network of this kernel since it was booted: addresses on its interfaces are shared with whoever ran here before.
fn host() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{} {}", boot.trim(), network.display())
}

fn duration(text: &str) -> Result<Duration, String> {
    read::duration(text).ok_or_else(|| "write a duration such as 10s, 500ms or 1m30s".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rstest::rstest;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn timing(flags: &[&str], variable: Option<&str>) -> Timing {
        let cli = Cli::try_parse_from(["agent"].iter().chain(flags)).unwrap();
        cli.args.timing(|name| variable.filter(|_| name == "PURELB_LEASE_DURATION").map(str::to_owned))
    }

    #[rstest]
    #[case::unset(&[], None, 7)]
    #[case::written(&[], Some("10s"), 10)]
    #[case::garbage(&[], Some("soon"), 7)]
    #[case::bare_number(&[], Some("10"), 7)]
    #[case::zero(&[], Some("0s"), 7)]
    #[case::flag_first(&["--lease-duration", "8s"], Some("10s"), 8)]
    #[case::b33_too_short(&[], Some("1500ms"), 3)]
    #[case::cut_to_seconds(&[], Some("4700ms"), 4)]
    fn c11_durations_come_from_flags_then_variables_then_defaults(
        #[case] flags: &[&str],
        #[case] variable: Option<&str>,
        #[case] seconds: u64,
    ) {
        assert_eq!(timing(flags, variable).lease, Duration::from_secs(seconds));
    }

    #[test]
    fn a_flag_that_is_no_duration_is_refused_with_an_example() {
        let refused = Cli::try_parse_from(["agent", "--lease-duration", "10"]).err().unwrap();
        assert_eq!(refused.exit_code(), 2);
        assert!(refused.to_string().contains("such as 10s"), "{refused}");
    }
}
