//! The cluster's API: kubelite on a port of this machine for kubectl, and on the nodes' segment for the daemons.

mod objects;

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use http::{Method, Request};
use kube::Client;
use purelb_kubelite::{Access, Kubelite};
use purelb_net::Namespace;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

pub use objects::{HOME, TEST};

/// The API server, and a client in the same process.
pub struct Cluster {
    runtime: Runtime,
    client: Client,
    server: Kubelite,
    /// For the daemons in the namespaces.
    pub inner_kubeconfig: PathBuf,
}

impl Cluster {
    /// Serves the API, with the objects of a folder if there is one.
    pub fn start(folder: &Path, control: &Namespace, door: SocketAddr, data: Option<&Path>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let server = match data {
            Some(data) => Kubelite::builder().open(data)?,
            None => Kubelite::new(),
        };
        let access = Access::new(token()?)?;
        let outer = std::net::TcpListener::bind(("127.0.0.1", 0)).context("no port on the loopback interface")?;
        let inner = control.run(|| std::net::TcpListener::bind(door)).context("no port on the nodes' segment")?;
        let kubeconfig = |at| access.kubeconfig(at).replace("namespace: default", &format!("namespace: {TEST}"));
        fs::write(folder.join("kubeconfig"), kubeconfig(outer.local_addr()?))?;
        let inner_kubeconfig = folder.join("kubeconfig-nodes");
        fs::write(&inner_kubeconfig, kubeconfig(door))?;
        let client = {
            let _inside = runtime.enter();
            for listener in [outer, inner] {
                listener.set_nonblocking(true)?;
                runtime.spawn(server.clone().serve(TcpListener::from_std(listener)?, access.clone()));
            }
            server.client()
        };
        Ok(Self { runtime, client, server, inner_kubeconfig })
    }

    /// Changes with every change of an object.
    pub fn revision(&self) -> u64 {
        self.server.revision()
    }

    fn ask(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Result<Option<Value>> {
        let request = Request::builder().method(method).uri(path).header("Content-Type", kind);
        let body = body.map(Value::to_string).unwrap_or_default().into_bytes();
        match self.runtime.block_on(self.client.request(request.body(body)?)) {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            answer => answer.map(Some).with_context(|| format!("the API refuses {path}")),
        }
    }

    /// An object, if it is there.
    pub fn get(&self, path: &str) -> Result<Option<Value>> {
        self.ask(Method::GET, path, "application/json", None)
    }

    /// All objects of a kind.
    pub fn list(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.get(path)?.unwrap_or_default();
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Creates an object, unless there is one of this name.
    pub fn create(&self, kind: &str, object: &Value) -> Result<()> {
        let path = format!("{kind}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        if self.get(&path)?.is_none() {
            let made = self.ask(Method::POST, kind, "application/json", Some(object))?;
            ensure!(made.is_some(), "the API does not know {kind}");
        }
        Ok(())
    }

    /// Changes an object that is there.
    pub fn patch(&self, path: &str, change: &Value) -> Result<()> {
        self.ask(Method::PATCH, path, "application/merge-patch+json", Some(change)).map(drop)
    }

    /// Deletes an object, if it is there.
    pub fn delete(&self, path: &str) -> Result<()> {
        self.ask(Method::DELETE, path, "application/json", None).map(drop)
    }
}

/// Nobody else on the machine should be able to guess it.
fn token() -> Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
