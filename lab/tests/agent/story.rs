//! One story on the shared site: what a user writes, and what an outsider then sees.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use purelb_lab::net::{Echo, Probe, Report};
use purelb_lab::stories::{Past, PatchType};
use purelb_lab::{Daemon, Ground};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::groups;
use crate::node::Shown;
use crate::site::{HOME, NODES, Site};

static SITE: Mutex<Option<Site>> = Mutex::const_new(None);

/// Only a guard against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(20);
/// The port of the services.
const PORT: u16 = 7000;

/// The site, as long as the story lasts. A story that fails leaves a site that nobody trusts: the next one builds anew.
pub struct Story {
    pub ground: Ground,
    site: MutexGuard<'static, Option<Site>>,
    forbidden_before: f64,
    good: bool,
}

/// Who holds an address: node, interface, prefix length.
pub type Holder = (String, String, u64);

impl Story {
    /// A whole site without groups and Services, whose nodes hold nothing.
    pub async fn begin() -> Result<Self> {
        let mut site = SITE.lock().await;
        if site.is_none() {
            *site = Some(Site::build().await?);
        }
        let plane = site.as_ref().context("it was just built")?.plane;
        let ground = Ground::fresh(plane.client()?, Past::default()).await?;
        let mut story = Self { ground, site, forbidden_before: 0.0, good: false };
        story.forbidden_before = story.forbidden().await?;
        story.sweep().await?;
        for name in NODES {
            if story.site().node(name)?.agent.as_ref().is_none_or(Daemon::has_ended) {
                story.site_mut().start(name)?;
            }
        }
        story.members(&NODES).await?;
        story.until("the nodes hold nothing", async |story| story.is_clean()).await?;
        Ok(story)
    }

    /// Ends a story that went well; a request that the rights did not allow fails it.
    pub async fn close(mut self) -> Result<()> {
        let forbidden = self.forbidden().await? - self.forbidden_before;
        let logs = self.site().logs();
        ensure!(forbidden == 0.0, "deploy/rbac/agent.yaml lacks something: {forbidden} requests forbidden\n{logs}");
        ensure!(!logs.contains("panicked"), "an agent panicked\n{logs}");
        self.good = true;
        Ok(())
    }

    pub fn site(&self) -> &Site {
        self.site.as_ref().expect("a story has a site")
    }

    pub fn site_mut(&mut self) -> &mut Site {
        self.site.as_mut().expect("a story has a site")
    }

    async fn sweep(&self) -> Result<()> {
        self.ground.delete(&format!("/apis/purelb.io/v2/namespaces/{HOME}/servicegroups")).await?;
        let services = self.ground.get("/api/v1/services?fieldSelector=spec.type=LoadBalancer").await?;
        for service in services["items"].as_array().into_iter().flatten() {
            let text = |field: &str| service["metadata"][field].as_str().unwrap_or_default().to_owned();
            self.ground.delete(&format!("/api/v1/namespaces/{}/services/{}", text("namespace"), text("name"))).await?;
        }
        Ok(())
    }

    fn is_clean(&self) -> Result<bool> {
        for node in &self.site().nodes {
            if node.on("eth0")? != node.own() || !node.on("kube-lb0")?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until exactly these nodes have a lease of the agent that runs there, and these agents are ready.
    pub async fn members(&self, names: &[&str]) -> Result<()> {
        self.until(&format!("{names:?} are members"), async |story| {
            for name in NODES {
                let lease = story.lease(name).await?;
                let node = story.site().node(name)?;
                let serves = lease["metadata"]["annotations"]["purelb.io/subnets"] == "192.168.7.0/24,fd00:7::/64";
                let mine = lease["metadata"]["annotations"]["purelb.io/instance"] == node.instance.as_str();
                if names.contains(&name) != (serves && mine) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    /// The lease of a node, or null.
    pub async fn lease(&self, node: &str) -> Result<Value> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/purelb-node-{node}");
        match self.ground.get(&path).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
            answer => Ok(answer?),
        }
    }

    /// A ServiceGroup in PureLB's own namespace.
    pub async fn group(&self, name: &str, mut object: Value) -> Result<()> {
        object["kind"] = json!("ServiceGroup");
        object["metadata"] = json!({"name": name, "namespace": HOME});
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let path = format!("/apis/{version}/namespaces/{HOME}/servicegroups");
        self.ground.create(&path, &object).await?;
        Ok(())
    }

    pub async fn edit_group(&self, name: &str, spec: &Value) -> Result<()> {
        let path = format!("/apis/purelb.io/v2/namespaces/{HOME}/servicegroups/{name}");
        self.ground.patch(&path, PatchType::Merge, &json!({"spec": spec})).await?;
        Ok(())
    }

    /// A Service of a group in both families, unless `spec` says otherwise; returns its addresses, IPv4 first.
    pub async fn service(&self, name: &str, group: &str, spec: Value) -> Result<Vec<IpAddr>> {
        let both = spec["ipFamilies"].as_array().map_or(2, Vec::len);
        self.create(name.to_owned(), group, spec).await?;
        self.until(&format!("{name} has an address"), async |story| Ok(story.ingress(name).await?.len() == both))
            .await?;
        self.ingress(name).await
    }

    /// The same, without waiting for its addresses.
    pub async fn create(&self, name: String, group: &str, spec: Value) -> Result<()> {
        let mut service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "annotations": {"purelb.io/service-group": group}},
            "spec": {
                "type": "LoadBalancer",
                "ipFamilyPolicy": "RequireDualStack",
                "ipFamilies": ["IPv4", "IPv6"],
                "ports": [{"port": PORT, "protocol": "UDP"}],
            },
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            service["spec"][field] = value.clone();
        }
        self.ground.create(&self.ground.core("services"), &service).await?;
        Ok(())
    }

    pub async fn ingress(&self, name: &str) -> Result<Vec<IpAddr>> {
        let shown = self.shown(name).await?;
        let ingress = shown["status"]["loadBalancer"]["ingress"].as_array();
        let texts = ingress.into_iter().flatten().filter_map(|entry| entry["ip"].as_str());
        Ok(texts.map(str::parse).collect::<Result<_, _>>()?)
    }

    pub async fn shown(&self, name: &str) -> Result<Value> {
        Ok(self.ground.get(&self.ground.core(&format!("services/{name}"))).await?)
    }

    pub async fn annotation(&self, name: &str, key: &str) -> Result<Option<String>> {
        Ok(self.shown(name).await?["metadata"]["annotations"][key].as_str().map(str::to_owned))
    }

    pub async fn edit(&self, name: &str, patch: Value) -> Result<()> {
        self.ground.patch(&self.ground.core(&format!("services/{name}")), PatchType::Merge, &patch).await?;
        Ok(())
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        self.ground.delete(&self.ground.core(&format!("services/{name}"))).await?;
        Ok(())
    }

    /// Who holds an address, in the order of the nodes.
    pub fn holders(&self, address: IpAddr) -> Result<Vec<Holder>> {
        let found = self.views(address)?.into_iter();
        Ok(found.map(|(node, shown)| (node, shown.interface, shown.length)).collect())
    }

    /// The same, as each kernel shows it.
    pub fn views(&self, address: IpAddr) -> Result<Vec<(String, Shown)>> {
        let mut all = Vec::new();
        for node in &self.site().nodes {
            let here = node.shown()?.into_iter().filter(|shown| shown.address == address);
            all.extend(here.map(|shown| (node.name().to_owned(), shown)));
        }
        Ok(all)
    }

    /// Waits until exactly these hold the address; returns how long it took.
    pub async fn held(&self, address: IpAddr, by: &[(&str, &str, u64)]) -> Result<Duration> {
        let want: Vec<Holder> =
            by.iter().map(|(node, link, length)| (node.to_string(), link.to_string(), *length)).collect();
        let began = Instant::now();
        let what = format!("{address} is held by {by:?}");
        let answer = self.until(&what, async |story| Ok(story.holders(address)? == want)).await;
        answer.with_context(|| format!("it is held by {:?}", self.holders(address)))?;
        Ok(began.elapsed())
    }

    /// Waits until every node has the address on `kube-lb0` with this length, and nowhere else.
    pub async fn everywhere(&self, address: IpAddr, length: u64) -> Result<Duration> {
        self.held(address, &NODES.map(|node| (node, "kube-lb0", length))).await
    }

    /// Waits until an Event with these words is there.
    pub async fn event(&self, about: &str, reason: &str, message: &str) -> Result<Value> {
        let path = format!("/api/v1/events?fieldSelector=involvedObject.name={about},reason={reason}");
        let found = async |story: &Self| {
            let mut events = story.ground.get(&path).await?;
            let mut items = events["items"].as_array_mut().map(std::mem::take).unwrap_or_default().into_iter();
            anyhow::Ok(items.find(|event| event["message"].as_str().is_some_and(|text| text.contains(message))))
        };
        self.until(&format!("an Event {reason} says {message:?}"), async |story| Ok(found(story).await?.is_some()))
            .await?;
        found(self).await?.context("an Event went away")
    }

    /// Asks again and again. In the end the agents' logs tell why not.
    pub async fn until(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self).await? {
            if Instant::now() > deadline {
                bail!("it never came true that {what}\n{}", self.site().logs());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// A server on every node for this address; which of them gets a packet is for the network to decide.
    pub fn serve(&self, address: IpAddr) -> Result<Vec<Echo>> {
        let at = SocketAddr::new(address, PORT);
        self.site().nodes.iter().map(|node| Echo::start(&node.namespace, at)).collect()
    }

    /// A client on the segment that begins to ask.
    pub fn ask(&self, address: IpAddr) -> Result<Probe> {
        Probe::start(&self.site().client, SocketAddr::new(address, PORT))
    }

    /// A Service of the group `remotedual` on every node; its addresses.
    pub async fn dual(&self) -> Result<Vec<IpAddr>> {
        self.group("remotedual", groups::remotedual()).await?;
        let addresses = self.service("web", "remotedual", json!({})).await?;
        self.everywhere(addresses[0], 32).await?;
        self.everywhere(addresses[1], 128).await?;
        Ok(addresses)
    }

    /// Somebody who answers at an address of `remotedual` on every node, and a client that asks through the first node and
    /// is answered.
    pub async fn asked(&self, address: IpAddr) -> Result<(Vec<Echo>, Probe)> {
        let servers = self.serve(address)?;
        self.route("172.32.100.0/24", "node-a")?;
        let probe = self.ask(address)?;
        self.until("it answers", async |_| Ok(probe.answers() > 100)).await?;
        Ok((servers, probe))
    }

    /// Asks until a hundred packets are answered.
    pub async fn reach(&self, address: IpAddr) -> Result<Report> {
        let probe = self.ask(address)?;
        self.until(&format!("{address} answers"), async |_| Ok(probe.answers() >= 100)).await?;
        probe.finish()
    }

    /// Makes the client send packets for this network through this node, as a router would.
    pub fn route(&self, network: &str, node: &str) -> Result<()> {
        let node = self.site().node(node)?;
        let via = if network.contains(':') { node.v6 } else { node.v4 };
        self.site().client.batch(&format!("route replace {network} via {via}\n"))
    }

    /// How many requests were forbidden: none of the administrator's can be.
    async fn forbidden(&self) -> Result<f64> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.ground.client.request_text(request).await?;
        let lines = text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")?.rsplit_once("} "));
        let forbidden = lines.filter(|(labels, _)| labels.contains(r#"code="403""#));
        Ok(forbidden.filter_map(|(_, count)| count.parse::<f64>().ok()).sum())
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        if !self.good {
            *self.site = None;
        }
    }
}
