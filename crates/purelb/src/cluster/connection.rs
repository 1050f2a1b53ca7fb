//! How a daemon finds the API server, by a kubeconfig file or the account of its pod, and notices that it is gone.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{Client as Http, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
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
///
/// Every answer reaches whoever asked. What kube would do by default, to ask again up to fifteen times when the API server
/// says that it cannot answer now, leaves a watch blind for minutes after the API server is back, and hides from a writer
/// that its first attempt may still arrive. Whoever asks knows better when to ask again, and says so in the log.
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
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::StatusCode;
    use k8s_openapi::api::core::v1::Service;
    use kube::api::{Patch, PatchParams};
    use kube::{Api, Error};
    use rstest::rstest;
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;

    /// An API server that answers everything with one code; its address, and how often it was asked.
    async fn server(code: u16) -> (Config, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let (counter, code) = (asked.clone(), StatusCode::from_u16(code).unwrap());
        let answer = move || async move {
            counter.fetch_add(1, Ordering::Relaxed);
            code
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        (Config::new(uri.parse().unwrap()), asked)
    }

    #[rstest]
    #[case::too_many_requests(429)]
    #[case::unavailable(503)]
    #[case::timed_out(504)]
    #[tokio::test]
    async fn every_answer_reaches_whoever_asked_and_nothing_is_sent_twice(#[case] code: u16) {
        let (config, asked) = server(code).await;
        let services: Api<Service> = Api::default_namespaced(client(&config).unwrap());
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({})));
        match services.patch_status("web", &params, &patch).await {
            Err(Error::Api(status)) => assert_eq!(status.code, code),
            other => panic!("{other:?}"),
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
