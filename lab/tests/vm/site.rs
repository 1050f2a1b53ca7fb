//! A segment with an API server, an allocator and a client on it, for machines to be plugged into.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb_api::crds::crds;
use purelb_kubelite::{Access, Kubelite};
use purelb_lab::daemon::Account;
use purelb_lab::net::{Lan, Namespace};
use purelb_lab::stories::{Past, PatchType};
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
const PATIENCE: Duration = Duration::from_secs(240);

/// Machines are plugged into `lan`; the client is on it, too.
pub struct Site {
    pub lan: Lan,
    pub client: Namespace,
    ground: Ground,
    /// The API server has threads of its own: stories wait for machines, which wait for it.
    runtime: Runtime,
    kubeconfig: String,
    account: Account,
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
        Ok(Self { lan, client, ground, runtime, kubeconfig, account, _control: control, allocator })
    }

    /// A machine that will be a node of the cluster. It has no network card yet.
    pub fn node<'a>(&self, name: &str) -> Result<Plan<'a>> {
        self.register(name, 11)?;
        Ok(Plan::new(name).tools(&["ip"])?.purelb()?.file("/etc/kubeconfig", self.kubeconfig.as_str()))
    }

    /// What a kubelet does at its start.
    fn register(&self, name: &str, number: u8) -> Result<()> {
        let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
        self.create("/api/v1/nodes", &json!({"metadata": {"name": name, "labels": labels}}))?;
        let addresses = [format!("192.168.7.{number}"), format!("fd00:7::{number}")];
        let addresses = addresses.map(|address| json!({"type": "InternalIP", "address": address}));
        let (path, status) = (format!("/api/v1/nodes/{name}/status"), json!({"status": {"addresses": addresses}}));
        self.runtime.block_on(self.ground.patch(&path, PatchType::Merge, &status))?;
        Ok(())
    }

    /// A node outside of all machines, on this segment, with its agent, as it is shipped but for these flags.
    pub fn outside(&self, name: &str, number: u8, lan: &Lan, flags: &[&str]) -> Result<(Namespace, Daemon)> {
        self.register(name, number)?;
        let node = Namespace::new(name)?;
        lan.plug(&node, "eth0", &[&format!("192.168.7.{number}/24"), &format!("fd00:7::{number}/64")])?;
        node.batch("route add default via 192.168.7.1\nroute add ::/0 via fd00:7::1\n")?;
        let arguments = ["agent", "--node-name", name, "--namespace", HOME, "--pod-uid", name];
        let arguments = [&arguments[..], flags].concat();
        let agent = Daemon::start_in(&node, &self.account, &arguments, &[("DEFAULT_ANNOUNCER", "PureLB")])?;
        Ok((node, agent))
    }

    /// Starts the agent of a node, as it is shipped; returns its process id there.
    pub fn agent(&self, node: &Machine) -> Result<u32> {
        self.agent_with(node, &[])
    }

    /// The same with more flags.
    pub fn agent_with(&self, node: &Machine, flags: &[&str]) -> Result<u32> {
        let name = node.name();
        let line = format!(
            "env DEFAULT_ANNOUNCER=PureLB PURELB_LOG_LEVEL=debug purelb agent --node-name {name} --namespace {HOME} \
             --pod-uid {name} --kubeconfig /etc/kubeconfig {}",
            flags.join(" ")
        );
        node.start("agent", &line)
    }

    pub fn create(&self, path: &str, object: &Value) -> Result<()> {
        self.runtime
            .block_on(self.ground.create(path, object))
            .map(drop)
            .with_context(|| format!("cannot create {path}"))
    }

    /// All objects of a kind.
    pub fn list(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.runtime.block_on(self.ground.get(path))?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// A path of a named group in the namespace of the Services.
    pub fn namespaced(&self, group: &str, kind: &str) -> String {
        self.ground.group(group, kind)
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

    /// What a web server answers to the client.
    pub fn fetch(&self, address: IpAddr) -> std::io::Result<String> {
        self.client.run(|| {
            let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, 80), Duration::from_secs(2))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"GET /greeting HTTP/1.0\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        })
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

/// The group `local`, with addresses of one subnet.
pub fn local(subnet: &str, pool: &str) -> Value {
    json!({"local": {"v4pools": [{"pool": pool, "subnet": subnet}]}})
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
