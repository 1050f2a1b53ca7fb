//! How a daemon finds the API server, by a kubeconfig file or the account of its pod, and notices that it is gone.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{Client as Http, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

/// Where a pod finds the namespace it runs in.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// A connection on which nothing was heard for this long is asked for a sign of life, so often, at such intervals.
const IDLE: Duration = Duration::from_secs(5);
const ASKED: u32 = 2;
const INTERVAL: Duration = Duration::from_secs(2);

/// A client that notices within seconds when a connection has died without a word.
///
/// A watch says nothing for as long as nothing happens, and a machine that loses its power or a firewall that loses its
/// memory says nothing either. TCP itself can tell the two apart, at the cost of a packet every few seconds; asking the
/// API server would cost it a request from every watch of every node. Each watch has a connection of its own (HTTP/1.1),
/// so that one that is well proves nothing about the others.
pub fn client(config: &Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(IDLE));
    tcp.set_keepalive_interval(Some(INTERVAL));
    tcp.set_keepalive_retries(Some(ASKED));
    // The same for what was sent and is not acknowledged.
    tcp.set_tcp_user_timeout(Some(IDLE + INTERVAL * ASKED));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let http: Http<_, Body> = Http::builder(TokioExecutor::new()).build(connector);
    let retry = config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retry)
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// The way to the API server; an empty path is none.
pub async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            config.with_context(|| format!("cannot use {}", path.display()))
        }
        None => Config::incluster().context("not in a pod: say where the cluster is with --kubeconfig"),
    }
}

/// The install namespace: what was said, or else what the pod knows. Blanks do not count.
pub fn install_namespace(said: Option<&str>) -> String {
    let said = said.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    said.or_else(|| fs::read_to_string(POD_NAMESPACE).ok().map(|name| name.trim().to_owned())).unwrap_or_default()
}
