//! The cluster that the stories share, and what they ask of it.

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use purelb_lab::Cluster;
use purelb_lab::cluster::{Proxy, Settings};
use purelb_lab::daemon;
use purelb_lab::net::Namespace;
use purelb_lab::router::Make;
use purelb_lab::runner::images::Source;
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};

/// Held by whoever has a cluster beside the shared one: a machine of two cores has no room for three.
pub static SECOND: Mutex<()> = Mutex::const_new(());

static CLUSTER: OnceCell<Result<Cluster>> = OnceCell::const_new();

/// Long enough for a busy machine; nobody waits for it in vain.
pub const SOON: Duration = Duration::from_secs(120);

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The cluster, which the first to ask starts.
pub async fn cluster() -> Result<&'static Cluster> {
    CLUSTER.get_or_init(start).await.as_ref().map_err(|error| anyhow!("{error:#}"))
}

async fn start() -> Result<Cluster> {
    fresh(Some(Make::Bird), Proxy::Nftables).await
}

/// A cluster of one's own, of three nodes. `PURELB_BUNDLE` names the shipped image, unpacked by `umoci`; without it, Pods
/// run the program that was built for the tests.
pub async fn fresh(router: Option<Make>, proxy: Proxy) -> Result<Cluster> {
    furnished(router, proxy, []).await
}

/// The same with more images for Pods to name.
pub async fn furnished(
    router: Option<Make>,
    proxy: Proxy,
    more: impl IntoIterator<Item = (String, Source)>,
) -> Result<Cluster> {
    let lab = env!("CARGO_BIN_EXE_lab").into();
    // The workload has two tools to try its limits with.
    let echo = [(env!("CARGO_BIN_EXE_echo"), "/echo"), ("/usr/bin/unshare", "/unshare"), ("/usr/bin/mount", "/mount")];
    let echo = echo.map(|(program, inside)| (PathBuf::from(program), inside.to_owned()));
    let purelb = match env::var_os("PURELB_BUNDLE") {
        Some(bundle) => Source::Unpacked(bundle.into()),
        None => Source::Programs(vec![(daemon::program()?, "/purelb".to_owned())]),
    };
    let images = [("echo".to_owned(), Source::Programs(echo.to_vec())), ("purelb".to_owned(), purelb)];
    let images = images.into_iter().chain(more).collect();
    Cluster::start(&Settings { nodes: 3, router, proxy, images, lab }).await
}

/// A fresh namespace of the API.
pub async fn room(cluster: &Cluster, name: &str) -> Result<()> {
    cluster.kubectl(&["create", "namespace", name]).await?;
    Ok(())
}

/// A Deployment of the workload, one Pod on each node as long as there are nodes.
pub fn deployment(room: &str, name: &str, replicas: u8) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": room},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "terminationGracePeriodSeconds": 5,
                "topologySpreadConstraints": [{
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": name}},
                }],
                "containers": [container()],
            }},
        },
    })
}

/// The workload as a container.
pub fn container() -> Value {
    json!({
        "name": "echo",
        "image": "echo",
        "ports": [{"name": "http", "containerPort": 8080}],
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1},
    })
}

/// A Pod with one container of the workload and this security context.
pub fn pod(room: &str, name: &str, security: &Value) -> Value {
    let mut container = container();
    container["securityContext"] = security.clone();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": room, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 5, "containers": [container]},
    })
}

/// Waits until a Deployment is complete.
pub async fn rolled_out(cluster: &Cluster, room: &str, what: &str) -> Result<()> {
    let timeout = format!("--timeout={}s", SOON.as_secs());
    cluster.kubectl(&["rollout", "status", "-n", room, what, &timeout]).await?;
    Ok(())
}

/// Waits until a Pod is ready, and returns its first address.
pub async fn ready(cluster: &Cluster, room: &str, name: &str) -> Result<String> {
    let timeout = format!("--timeout={}s", SOON.as_secs());
    cluster.kubectl(&["wait", "-n", room, &format!("pod/{name}"), "--for=condition=Ready", &timeout]).await?;
    let pod = cluster.object(&["pod", "-n", room, name]).await?;
    Ok(pod["status"]["podIP"].as_str().context("a ready Pod has an address")?.to_owned())
}

/// What an HTTP server says to someone in this network, without the head. A new connection each time.
pub fn fetch(from: &Namespace, url: &str) -> Result<String> {
    let mut curl = from.command("curl");
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "5", url]);
    let output = curl.output().context("cannot run curl")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} could not fetch {url}: {complaint}", from.name());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `http://` and an address of either family.
pub fn url(address: &str, port: u16, path: &str) -> String {
    if address.contains(':') {
        format!("http://[{address}]:{port}{path}")
    } else {
        format!("http://{address}:{port}{path}")
    }
}

/// Makes this many connections one after another, and returns the bodies of the answers.
pub fn talk(from: &Namespace, at: SocketAddr, times: usize) -> Result<Vec<String>> {
    from.run(|| (0..times).map(|_| ask(at)).collect())
}

/// Makes one connection to whatever serves HTTP there, from the network of the calling thread.
pub fn ask(at: SocketAddr) -> Result<String> {
    let stream = TcpStream::connect_timeout(&at, PATIENCE).with_context(|| format!("no connection to {at}"))?;
    ask_over(stream, PATIENCE)
}

/// Asks over a connection that was made, with this patience for each part of the answer.
pub fn ask_over(mut stream: TcpStream, patience: Duration) -> Result<String> {
    stream.set_read_timeout(Some(patience))?;
    write!(stream, "GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.split_once("\r\n\r\n").context("no HTTP answer")?.1.to_owned())
}
