//! A segment with an API server, an allocator and a client on it, for machines to be plugged into.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb_api::crds::crds;
use purelb_kubelite::{Access, Kubelite};
use purelb_lab::daemon::Account;
use purelb_lab::net::{Lan, Namespace};
use purelb_lab::stories::Past;
use purelb_lab::vm::{Machine, Plan};
use purelb_lab::{Daemon, Ground};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Where PureLB is installed.
pub const HOME: &str = "purelb-system";
/// Where machines find the API server.
const DOOR: ([u8; 4], u16) = ([192, 168, 7, 2], 6443);
/// Only a guard against waiting for ever: programs in a machine are slow, and this computer may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Machines are plugged into `lan`; the client is on it, too.
pub struct Site {
    pub lan: Lan,
    _client: Namespace,
    ground: Ground,
    /// The API server has threads of its own: stories wait for machines, which wait for it.
    runtime: Runtime,
    kubeconfig: String,
    _control: Namespace,
    allocator: Daemon,
}

impl Site {
    /// A cluster without nodes, with PureLB installed and its allocator running.
    pub fn build() -> Result<Self> {
        let lan = Lan::new()?;
        let (client, control) = (Namespace::new("client")?, Namespace::new("control")?);
        lan.plug(&client, "eth0", &["192.168.7.1/24", "fd00:7::1/64"])?;
        lan.plug(&control, "eth0", &["192.168.7.2/24", "fd00:7::2/64"])?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let server = Kubelite::new();
        let access = Access::new("sesame")?;
        let kubeconfig = access.kubeconfig(DOOR.into());
        let listener = control.run(|| std::net::TcpListener::bind(SocketAddr::from(DOOR)))?;
        listener.set_nonblocking(true)?;
        let ground = runtime.block_on(async {
            tokio::spawn(server.clone().serve(TcpListener::from_std(listener)?, access));
            let ground = Ground::fresh(server.client(), Past::default()).await?;
            install(&ground).await?;
            anyhow::Ok(ground)
        })?;
        let account = Account::in_kubeconfig(&kubeconfig)?;
        let arguments = ["allocator", "--port", "0", "--namespace", HOME, "--lease-seconds", "2"];
        let variables = [("DEFAULT_ANNOUNCER", "PureLB"), ("HOSTNAME", "allocator-0")];
        let allocator = Daemon::start_in(&control, &account, &arguments, &variables)?;
        Ok(Self { lan, _client: client, ground, runtime, kubeconfig, _control: control, allocator })
    }

    /// A machine that will be a node of the cluster, registered as its kubelet does it. It has no network card yet.
    pub fn node<'a>(&self, name: &str) -> Result<Plan<'a>> {
        let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
        self.create("/api/v1/nodes", &json!({"metadata": {"name": name, "labels": labels}}))?;
        Ok(Plan::new(name).tools(&["ip"])?.purelb()?.file("/etc/kubeconfig", self.kubeconfig.as_str()))
    }

    /// Starts the agent of a node, as it is shipped.
    pub fn agent(&self, node: &Machine) -> Result<()> {
        let name = node.name();
        let line = format!(
            "env DEFAULT_ANNOUNCER=PureLB PURELB_LOG_LEVEL=debug purelb agent --node-name {name} --namespace {HOME} \
             --pod-uid {name} --kubeconfig /etc/kubeconfig"
        );
        node.start("agent", &line).map(drop)
    }

    pub fn create(&self, path: &str, object: &Value) -> Result<()> {
        self.runtime
            .block_on(self.ground.create(path, object))
            .map(drop)
            .with_context(|| format!("cannot create {path}"))
    }

    /// A ServiceGroup.
    pub fn group(&self, name: &str, spec: &Value) -> Result<()> {
        let object = json!({
            "apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": {"name": name}, "spec": spec,
        });
        self.create(&format!("/apis/purelb.io/v2/namespaces/{HOME}/servicegroups"), &object)
    }

    /// A Service of a group with these families; its addresses.
    pub fn service(&self, name: &str, group: &str, families: &[&str]) -> Result<Vec<IpAddr>> {
        let service = json!({
            "metadata": {"name": name, "annotations": {"purelb.io/service-group": group}},
            "spec": {
                "type": "LoadBalancer",
                "ipFamilyPolicy": if families.len() > 1 { "RequireDualStack" } else { "SingleStack" },
                "ipFamilies": families,
                "ports": [{"port": 80, "targetPort": 8080}],
            },
        });
        self.create(&self.ground.core("services"), &service)?;
        self.until(&format!("{name} has its addresses"), || Ok(self.ingress(name)?.len() == families.len()))?;
        self.ingress(name)
    }

    pub fn delete(&self, name: &str) -> Result<()> {
        self.runtime.block_on(self.ground.delete(&self.ground.core(&format!("services/{name}"))))?;
        Ok(())
    }

    fn ingress(&self, name: &str) -> Result<Vec<IpAddr>> {
        let shown = self.runtime.block_on(self.ground.get(&self.ground.core(&format!("services/{name}"))))?;
        let ingress = shown["status"]["loadBalancer"]["ingress"].as_array();
        let texts = ingress.into_iter().flatten().filter_map(|entry| entry["ip"].as_str());
        Ok(texts.map(str::parse).collect::<Result<_, _>>()?)
    }

    /// Asks again and again.
    pub fn until(&self, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !holds()? {
            ensure!(Instant::now() < deadline, "it never came true that {what}\n{}", self.allocator.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The same about a machine, whose agent has the last word if it does not come true.
    pub fn until_on(&self, node: &Machine, what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let outcome = self.until(what, &mut holds);
        outcome.with_context(|| node.run("tail -n 40 /log/*; ip addr").unwrap_or_else(|error| format!("{error:#}")))
    }
}

async fn install(ground: &Ground) -> Result<()> {
    for definition in crds() {
        let definition = serde_json::to_value(definition)?;
        ground.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
    }
    ground.create("/api/v1/namespaces", &json!({"metadata": {"name": HOME}})).await?;
    let agent = json!({
        "apiVersion": "purelb.io/v2",
        "kind": "LBNodeAgent",
        "metadata": {"name": "default"},
        "spec": {"local": {"localInterface": "default", "dummyInterface": "kube-lb0"}},
    });
    ground.create(&format!("/apis/purelb.io/v2/namespaces/{HOME}/lbnodeagents"), &agent).await?;
    Ok(())
}
