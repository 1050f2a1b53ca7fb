//! The allocator's token appears nowhere, whatever goes wrong.

use std::path::Path;

use anyhow::{Context, Result};
use purelb_lab::Daemon;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::cluster::{Cluster, HOME};
use crate::proxy::{Mood, Proxy, all};

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn state(socket: &Path) -> Result<String> {
    ask(UnixStream::connect(socket).await?, "/debug/state").await
}

#[tokio::test]
async fn a_token_appears_in_no_log_state_metric_event_or_object() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    let proxy = Proxy::to(cluster.plane).await?;
    let account = cluster.account.plainly_through(proxy.port);
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port().to_string();
    let arguments = ["allocator", "--port", &port, "--namespace", HOME, "--lease-seconds", "2"];
    let variables = [("DEFAULT_ANNOUNCER", "PureLB"), ("HOSTNAME", "allocator-0"), ("PURELB_LOG_LEVEL", "debug")];
    let allocator = Daemon::start(&account, &arguments, &variables)?;
    cluster.service("web", json!({}), json!({})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    let mut seen = Vec::new();
    for mood in [Mood::Code(401), Mood::Code(403), Mood::Code(500), Mood::Reset] {
        proxy.treat(all, mood);
        cluster
            .until(&format!("{mood:?} is met"), async || {
                let met = proxy.troubled();
                Ok(if met > 5 { Ok(()) } else { Err(json!(met)) })
            })
            .await?;
        seen.push(state(&allocator.debug_socket()).await?);
        seen.push(ask(TcpStream::connect(format!("127.0.0.1:{port}")).await?, "/metrics").await?);
    }
    proxy.treat(all, Mood::Well);
    cluster.service("later", json!({}), json!({})).await?;
    cluster.has("later", &["10.0.0.9"]).await?;
    seen.push(state(&allocator.debug_socket()).await?);
    for kind in ["events", "services", "configmaps", "servicegroups.purelb.io", "leases.coordination.k8s.io"] {
        seen.push(cluster.kubectl(&["get", kind, "--all-namespaces", "-o", "json"]).await?);
    }
    let log = allocator.log();
    assert!(log.contains("the lab says 401") && log.contains("the lab says 403"), "the trouble is told:\n{log}");
    assert!(seen[0].contains("\"leading\"") && seen[1].contains("purelb_allocator_leader"), "{seen:?}");
    seen.push(log);
    let signature = account.token().rsplit('.').next().context("a token has a signature")?;
    for text in &seen {
        assert!(!text.contains(signature), "the token is in\n{text}");
    }
    drop(allocator);
    Ok(())
}
