//! The endpoints as a probe, a Prometheus server and an operator see them: over real sockets, byte for byte.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;
use crate::logs::{Level, quiet_dial};

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str, body: &str) -> String {
    let length = body.len();
    let text =
        format!("{request} HTTP/1.1\r\nhost: purelb\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn fetch(port: u16, path: &str) -> String {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    ask(stream, &format!("GET {path}"), "").await
}

async fn inspect(socket: &Path, request: &str, body: &str) -> String {
    ask(UnixStream::connect(socket).await.unwrap(), request, body).await
}

/// A server on a free port; sending stops it.
async fn started(registry: Registry, readiness: Readiness) -> (u16, oneshot::Sender<()>, JoinHandle<()>) {
    let server = Server::build(0, Arc::new(registry), readiness).await.unwrap();
    let (stop, stopped) = oneshot::channel();
    let port = server.address().port();
    let task = tokio::spawn(server.run(async { stopped.await.unwrap_or(()) }));
    (port, stop, task)
}

#[tokio::test]
async fn metrics_are_text_that_prometheus_reads() {
    let mut registry = Registry::default();
    let counter = Counter::<u64>::default();
    registry.register("purelb_things", "Things", counter.clone());
    counter.inc();
    let (port, _stop, _task) = started(registry, Readiness::default()).await;
    let answer = fetch(port, "/metrics").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("purelb_things_total 1\n# EOF\n"), "{answer}");
}

#[tokio::test]
async fn a_daemon_is_ready_when_the_last_part_is_there_and_healthy_before_that() {
    let readiness = Readiness::default();
    let (services, groups) = (readiness.register("watch services"), readiness.register("watch groups"));
    let (port, _stop, _task) = started(Registry::default(), readiness).await;
    assert!(fetch(port, "/healthz").await.starts_with("HTTP/1.1 200 OK\r\n"));
    let answer = fetch(port, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.ends_with("waiting for: watch services, watch groups\n"), "{answer}");
    drop(services);
    assert!(fetch(port, "/readyz").await.ends_with("waiting for: watch groups\n"));
    drop(groups);
    assert!(fetch(port, "/readyz").await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn nothing_of_the_inside_is_served_on_the_port() {
    let (port, _stop, _task) = started(Registry::default(), Readiness::default()).await;
    for path in ["/debug/state", "/debug/loglevel", "/"] {
        assert!(fetch(port, path).await.starts_with("HTTP/1.1 404 "), "{path}");
    }
}

/// B33: the reference went on without metrics and said nothing.
#[tokio::test]
async fn a_port_in_use_is_an_error_that_names_it() {
    let first = Server::build(0, Arc::new(Registry::default()), Readiness::default()).await.unwrap();
    let port = first.address().port();
    let error = Server::build(port, Arc::new(Registry::default()), Readiness::default()).await.err().unwrap();
    assert!(error.to_string().starts_with(&format!("cannot listen on port {port}: ")), "{error}");
}

#[tokio::test]
async fn a_client_that_never_finishes_does_not_hold_up_the_end() {
    let (port, stop, task) = started(Registry::default(), Readiness::default()).await;
    let mut slow = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(1), task).await.expect("stops within a second").unwrap();
}

#[tokio::test]
async fn the_state_and_the_log_level_are_served_on_a_socket_of_the_daemons_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("debug.sock");
    let (dial, _filter) = quiet_dial();
    let server = DebugServer::build(&path, || Box::pin(async { json!({"pools": 2}) }), dial.clone()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(server.run(async { stopped.await.unwrap_or(()) }));

    assert!(inspect(&path, "GET /debug/state", "").await.ends_with("{\n  \"pools\": 2\n}\n"));
    assert!(inspect(&path, "GET /debug/loglevel", "").await.ends_with("\r\n\r\ninfo\n"));
    assert!(inspect(&path, "PUT /debug/loglevel", "debug\n").await.ends_with("\r\n\r\ndebug\n"));
    assert_eq!(dial.level(), Level::Debug);
    let refused = inspect(&path, "PUT /debug/loglevel", "loud").await;
    assert!(refused.starts_with("HTTP/1.1 400 ") && refused.ends_with("write info or debug\n"), "{refused}");
    assert_eq!(dial.level(), Level::Debug);

    stop.send(()).unwrap();
    task.await.unwrap();
    assert!(!path.exists(), "the socket is gone with its daemon");
}

#[tokio::test]
async fn a_socket_left_by_a_dead_daemon_is_replaced_and_anything_else_is_respected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("debug.sock");
    let build = || DebugServer::build(&path, || Box::pin(async { json!({}) }), quiet_dial().0);
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let alive = build().expect("a dead daemon's socket is replaced");
    let error = build().err().unwrap().to_string();
    assert!(error.contains("is in use by a running process"), "{error}");
    drop(alive);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "a file").unwrap();
    let error = build().err().unwrap().to_string();
    assert!(error.starts_with("cannot create the debug socket "), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
}

#[tokio::test]
async fn a_loop_that_stands_still_and_a_task_that_has_ended_are_not_healthy() {
    let readiness = Readiness::default();
    let (turning, task) = (readiness.pulse("the event loop"), readiness.task("the lease renewer"));
    let (port, _stop, _server) = started(Registry::default(), readiness.clone()).await;
    assert!(fetch(port, "/healthz").await.ends_with("\r\n\r\nok\n"));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(readiness.stuck(), ["the event loop"], "a task that has nothing to do is no trouble");
    tokio::time::resume();
    let answer = fetch(port, "/healthz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.ends_with("stuck or ended: the event loop\n"), "{answer}");
    turning.beat();
    assert!(fetch(port, "/healthz").await.ends_with("\r\n\r\nok\n"));
    let died = tokio::spawn(async move {
        let _task = task;
        panic!("a defect");
    });
    assert!(died.await.is_err());
    assert!(fetch(port, "/healthz").await.ends_with("stuck or ended: the lease renewer\n"));
}
