//! `purelb allocator`: flags and environment, the servers beside it, and the way it stops.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use futures::future::OptionFuture;
use prometheus_client::registry::Registry;
use purelb_api::annotations;
use purelb_core::alloc::Scope;
use tokio::sync::watch;
use tracing::info;

use super::metrics::Metrics;
use super::{Settings, lead};
use crate::cluster::connection::{client, config, install_namespace};
use crate::cluster::leader::Timing;
use crate::http::{DebugServer, Readiness, Server};
use crate::logs::{self, Level};
use crate::signals::{stopped, terminated};

/// How the allocator is started; the names are those of the PureLB it replaces.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Port for /metrics, /healthz and /readyz
    #[arg(long, default_value_t = 7472)]
    port: u16,
    /// Kubeconfig file; without one, the pod's own account is used
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The namespace PureLB is installed in [default: the pod's own]
    #[arg(long, env = "PURELB_NAMESPACE", value_name = "NAME")]
    namespace: Option<String>,
    /// Load balancer classes to answer to; narrow the list to run beside another PureLB
    #[arg(long = "class", value_name = "CLASS", default_values = [annotations::CLASS, annotations::CLASS_V2])]
    classes: Vec<String>,
    /// Whether Services without a class are served: yes, if it says PureLB
    #[arg(long, env = "DEFAULT_ANNOUNCER", value_name = "NAME", default_value = "")]
    default_announcer: String,
    /// Unix socket for /debug/state and /debug/loglevel
    #[arg(long, value_name = "PATH")]
    debug_socket: Option<PathBuf>,
    /// How long a leadership lasts without renewal; tests shorten it to see many of them
    #[arg(long, value_name = "SECONDS", hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    lease_seconds: Option<u32>,
}

/// Runs until a signal says stop.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // Two threads: a burst of decisions must not keep the lease from being renewed.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let ended = runtime.block_on(serve(args));
    // Not waited for: looking a name up, say, may take longer than a daemon has to stop.
    runtime.shutdown_background();
    ended
}

async fn serve(args: &Args) -> anyhow::Result<()> {
    let dial = logs::start(Level::from_env()).context("cannot set up logging")?;
    let settings = args.settings();
    info!(version = env!("CARGO_PKG_VERSION"), namespace = settings.namespace, "Starting");
    let config = config(args.kubeconfig.as_deref()).await?;
    let client = client(&config).context("cannot set up the connection to the API server")?;
    let mut registry = Registry::default();
    let metrics = Arc::new(Metrics::new(&mut registry));
    let readiness = Readiness::default();
    let server = Server::build(args.port, Arc::new(registry), readiness.clone()).await?;
    let (stop, stopping) = watch::channel(false);
    let (inspector, questions) = super::inspect::channel();
    let debug = args.debug_socket.as_ref();
    let debug = debug.map(|path| DebugServer::build(path, inspector, dial)).transpose()?;
    let ready = readiness.register("a look at the lease");
    let daemon = lead(client, &settings, metrics, ready, questions, stopping.clone());
    let debug: OptionFuture<_> = debug.map(|debug| debug.run(stopped(stopping.clone()))).into();
    let signals = async { terminated().await.map(|()| stop.send_replace(true)) };
    let (_, _, _, signalled) = tokio::join!(daemon, server.run(stopped(stopping.clone())), debug, signals);
    signalled.context("cannot listen for signals")?;
    info!("stopped");
    Ok(())
}

impl Args {
    fn settings(&self) -> Settings {
        Settings {
            namespace: install_namespace(self.namespace.as_deref()),
            scope: Scope {
                classes: self.classes.clone(),
                default_announcer: self.default_announcer == annotations::BRAND,
            },
            replica: std::env::var("HOSTNAME").unwrap_or_else(|_| "allocator".to_owned()),
            timing: self.timing(),
        }
    }

    /// The usual timing, or the same in proportion.
    fn timing(&self) -> Timing {
        let Timing { lease, renew, margin } = Timing::default();
        let scale = self.lease_seconds.map_or(1.0, |seconds| f64::from(seconds) / lease.as_secs_f64());
        Timing { lease: lease.mul_f64(scale), renew: renew.mul_f64(scale), margin: margin.mul_f64(scale) }
    }
}

#[cfg(test)]
mod tests {
    use clap::Args as _;

    use super::*;

    /// What manifests and charts of every PureLB say, and the defaults they rely on.
    #[test]
    fn flags_environment_and_port_have_the_names_they_always_had() {
        let command = Args::augment_args(clap::Command::new("allocator"));
        let told = |long: &str| {
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(long)).expect(long);
            let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
            (arg.get_env().map(text), arg.get_default_values().iter().map(|value| text(value)).collect::<Vec<_>>())
        };
        let env = |name: &str| Some(name.to_owned());
        assert_eq!(told("port"), (None, vec!["7472".to_owned()]));
        assert_eq!(told("kubeconfig"), (env("KUBECONFIG"), vec![]));
        assert_eq!(told("namespace"), (env("PURELB_NAMESPACE"), vec![]));
        assert_eq!(told("default-announcer"), (env("DEFAULT_ANNOUNCER"), vec![String::new()]));
        assert_eq!(told("class").1, ["purelb.io/purelb", "purelb.io/purelbv2"], "both, unless told otherwise");
    }

    #[test]
    fn k8s_7_the_install_namespace_is_what_was_said_without_blanks() {
        assert_eq!(install_namespace(Some(" purelb-system\n")), "purelb-system");
        assert_eq!(install_namespace(Some("  ")), "", "outside a pod nobody knows, and that is not fatal");
        assert_eq!(install_namespace(None), "");
    }
}
