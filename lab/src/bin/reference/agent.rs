//! The node agents: 0.13's, which gossip among themselves, and 0.17's, which have leases.

use std::collections::BTreeMap;
use std::env;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::HeaderValue;
use http::header::USER_AGENT;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use tokio::signal::unix::Signal;
use tokio::time::sleep;

use super::election::{Member, PREFIX, winner};
use super::node;

/// The real ones are told of changes; to ask this often is as good.
const LOOK: Duration = Duration::from_millis(300);
/// How often an address with a lifetime is put again. (Theirs: half its lifetime.)
const AGAIN: Duration = Duration::from_secs(60);
/// How long 0.17 goes on after it was told to end, before it lets go.
const DRAIN: Duration = Duration::from_secs(2);
/// The node whose agent of 0.13 is killed before it has tidied up, as one that takes longer than its two seconds.
const KILLED: &str = "node3";

enum Release {
    /// 0.13.
    Gossip,
    /// 0.17, and how long its lease lasts.
    Lease(Duration),
}

struct Agent {
    client: Client,
    release: Release,
    namespace: String,
    node: String,
    instance: String,
    networks: Vec<IpNet>,
    renewed: Option<Instant>,
    /// What it has put on its node, and when.
    put: BTreeMap<IpAddr, Instant>,
}

/// A client whose requests can be told from those of today's programs.
pub async fn client() -> Result<Client> {
    let mut config = Config::incluster()?;
    config.headers.push((USER_AGENT, HeaderValue::from_static("reference")));
    Ok(Client::try_from(config)?)
}

pub async fn run(told: &mut Signal) -> Result<()> {
    let mut agent = Agent::begin().await?;
    loop {
        if let Err(error) = agent.look().await {
            println!("{error:#}");
        }
        tokio::select! {
            _ = told.recv() => return agent.end().await,
            () = sleep(LOOK) => {}
        }
    }
}

impl Agent {
    async fn begin() -> Result<Self> {
        let variable = |name: &str| env::var(name).with_context(|| format!("{name} is not set"));
        let release = match env::var("PURELB_LEASE_DURATION") {
            Ok(text) => Release::Lease(Duration::from_secs(text.trim_end_matches('s').parse()?)),
            Err(_) => Release::Gossip,
        };
        let namespace = variable("PURELB_NAMESPACE").or_else(|_| variable("PURELB_ML_NAMESPACE"))?;
        node::make_virtual()?;
        Ok(Self {
            client: client().await?,
            release,
            namespace,
            node: variable("PURELB_NODE_NAME")?,
            instance: env::var("PURELB_POD_UID").unwrap_or_default(),
            networks: node::networks()?,
            renewed: None,
            put: BTreeMap::new(),
        })
    }

    /// Looks at everything once, and does what is to be done.
    async fn look(&mut self) -> Result<()> {
        self.renew().await?;
        let members = self.members().await?;
        let services: Api<Service> = Api::all(self.client.clone());
        let mut wanted = Vec::new();
        for service in services.list(&ListParams::default()).await? {
            for address in ingress(&service) {
                let Some(network) = self.network(address) else {
                    wanted.push(address);
                    self.put_again(address, None)?;
                    continue;
                };
                if winner(&members, address) == Some(&self.node) {
                    wanted.push(address);
                    self.put_again(address, Some(network))?;
                    self.sign(&service, address).await?;
                }
            }
        }
        let lost: Vec<IpAddr> = self.put.keys().copied().filter(|address| !wanted.contains(address)).collect();
        lost.into_iter().try_for_each(|address| self.drop(address))
    }

    /// The node's own network that an address is in, which makes it a local one.
    fn network(&self, address: IpAddr) -> Option<IpNet> {
        self.networks.iter().copied().find(|network| network.contains(&address))
    }

    fn put_again(&mut self, address: IpAddr, network: Option<IpNet>) -> Result<()> {
        if self.put.get(&address).is_some_and(|put| put.elapsed() < AGAIN) {
            return Ok(());
        }
        match network {
            Some(network) => {
                node::put_local(address, network.prefix_len(), matches!(self.release, Release::Gossip))?;
            }
            None => node::put_virtual(address)?,
        }
        self.put.insert(address, Instant::now());
        Ok(())
    }

    fn drop(&mut self, address: IpAddr) -> Result<()> {
        self.put.remove(&address);
        self.network(address).map_or(Ok(()), |network| node::drop_local(address, network.prefix_len()))
    }

    /// Writes into the Service who announces it: the whole object, as both releases do.
    async fn sign(&self, service: &Service, address: IpAddr) -> Result<()> {
        let key = if address.is_ipv4() { "purelb.io/announcing-IPv4" } else { "purelb.io/announcing-IPv6" };
        let mut value = format!("{},{}", self.node, node::NIC);
        if let Release::Lease(_) = self.release {
            value += &format!(",{address}");
        }
        if service.annotations().get(key) == Some(&value) {
            return Ok(());
        }
        let mut signed = service.clone();
        signed.annotations_mut().insert(key.to_owned(), value);
        let services: Api<Service> = Api::namespaced(self.client.clone(), &service.namespace().unwrap_or_default());
        services.replace(&service.name_any(), &PostParams::default(), &signed).await?;
        Ok(())
    }

    async fn members(&self) -> Result<Vec<Member>> {
        if let Release::Lease(_) = self.release {
            let now = Timestamp::now();
            let leases = self.leases().list(&ListParams::default()).await?;
            return Ok(leases.iter().filter_map(|lease| Member::of(lease, now)).collect());
        }
        // Gossip finds out soon who is there. The API server knows it too.
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let pods = pods.list(&ListParams::default().labels("app=purelb,component=lbnodeagent")).await?;
        let alive = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let nodes = alive.filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
        Ok(nodes.map(|node| Member { node, subnets: None }).collect())
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Every half of its duration the lease is written anew, or made if there is none yet.
    async fn renew(&mut self) -> Result<()> {
        let Release::Lease(duration) = self.release else { return Ok(()) };
        if self.renewed.is_some_and(|renewed| renewed.elapsed() < duration / 2) {
            return Ok(());
        }
        let name = format!("{PREFIX}{}", self.node);
        let fresh = self.lease(&name, duration).await?;
        match self.leases().get_opt(&name).await? {
            None => self.leases().create(&PostParams::default(), &fresh).await?,
            Some(mut found) => {
                found.metadata.annotations = fresh.metadata.annotations;
                let spec = found.spec.get_or_insert_default();
                spec.renew_time = fresh.spec.and_then(|spec| spec.renew_time);
                self.leases().replace(&name, &PostParams::default(), &found).await?
            }
        };
        self.renewed = Some(Instant::now());
        Ok(())
    }

    async fn lease(&self, name: &str, duration: Duration) -> Result<Lease> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let uid = nodes.get(&self.node).await?.uid();
        let mut subnets: Vec<String> = self.networks.iter().map(|network| network.trunc().to_string()).collect();
        subnets.sort();
        Ok(serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {"app.kubernetes.io/component": "lbnodeagent", "app.kubernetes.io/name": "purelb"},
                "annotations": {"purelb.io/subnets": subnets.join(","), "purelb.io/instance": self.instance},
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid,
                    "controller": false, "blockOwnerDeletion": false,
                }],
            },
            "spec": {
                "holderIdentity": self.node,
                "leaseDurationSeconds": duration.as_secs(),
                "renewTime": format!("{:.6}", Timestamp::now()),
            },
        }))?)
    }

    /// 0.13 lets go at once; 0.17 waits, deletes its lease, and then lets go. Both take the interface with them.
    async fn end(mut self) -> Result<()> {
        if let Release::Lease(_) = self.release {
            sleep(DRAIN).await;
            self.release_lease().await?;
        } else if self.node == KILLED {
            return Ok(());
        }
        for address in self.put.clone().into_keys() {
            self.drop(address)?;
        }
        node::drop_virtual()
    }

    /// Only if it is this Pod's own, and nobody has written it meanwhile.
    async fn release_lease(&self) -> Result<()> {
        let name = format!("{PREFIX}{}", self.node);
        let Some(lease) = self.leases().get_opt(&name).await? else { return Ok(()) };
        if lease.annotations().get("purelb.io/instance") == Some(&self.instance) {
            let conditions = Preconditions { resource_version: lease.resource_version(), uid: None };
            let parameters = DeleteParams { preconditions: Some(conditions), ..DeleteParams::default() };
            self.leases().delete(&name, &parameters).await?;
        }
        Ok(())
    }
}

/// The addresses of a Service that PureLB has given.
fn ingress(service: &Service) -> Vec<IpAddr> {
    let ours = service.annotations().get("purelb.io/allocated-by").is_some_and(|by| by == "PureLB");
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_ref()).into_iter().flatten();
    ingress.filter(|_| ours).filter_map(|one| one.ip.as_ref()?.parse().ok()).collect()
}
