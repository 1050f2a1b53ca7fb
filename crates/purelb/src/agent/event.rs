//! Everything an agent hears, in one enum: the cluster, the kernel, its own lease and its own writes.
//!
//! All of it can be written down and read again, so that what happened on a node can be told again to a fresh desk.

use std::collections::BTreeMap;
use std::net::IpAddr;

use futures::stream::{BoxStream, select_all};
use futures::{Stream, StreamExt, future};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use purelb_api::LBNodeAgent;
use purelb_api::read::{self, BgpObject, GroupObject, Reading, ServiceObject};
use purelb_core::bgp::{Candidate, NodeFacts};
use purelb_core::endpoints::SliceView;
use purelb_core::group::Forms;
use purelb_core::members::LeaseView;
use purelb_core::pool::ServiceKey;
use purelb_core::want::AgentService;

use super::bgp::{ConfigurationNews, SecretNews, SpeakerNews};
use super::guarded::Guarded;
use super::kernel::KernelNews;
use super::lease::{self, WallClock};
use super::work::Done;
use crate::cluster::scope::Key;
use crate::cluster::watch::{Change, changes, changes_if_any};

/// The Service whose endpoints are the API servers.
pub const API_SERVER: &str = "default/kubernetes";

/// One thing an agent hears.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub enum Event {
    /// About a Service of type LoadBalancer.
    Service(Change<Box<ServiceNews>>),
    /// About the endpoints of a Service.
    Endpoints(Change<Box<SliceNews>>),
    /// About the lease of a node.
    Lease(Change<Box<LeaseNews>>),
    /// About this node's own Node.
    Node(Change<Box<NodeNews>>),
    /// About a ServiceGroup, in the forms it may be used in.
    Group(Change<(Key, Box<Forms>)>),
    /// About an LBNodeAgent.
    Agent(Change<Box<LBNodeAgent>>),
    /// About a BGPConfiguration.
    Bgp(Change<Box<ConfigurationNews>>),
    /// About the passwords of BGP sessions.
    Secrets(SecretNews),
    /// From the BGP speaker.
    Speaker(SpeakerNews),
    /// This node's BGPNodeStatus was written, or not.
    Reported(bool),
    /// About addresses that must not be announced.
    Guarded(Guarded),
    /// From the kernel.
    Kernel(KernelNews),
    /// From whoever keeps this node's lease.
    Renewal(lease::News),
    /// A write has come to its end.
    Done(Done),
}

/// A Service with what is needed to write to it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct ServiceNews {
    /// What decisions depend on.
    pub service: AgentService,
    /// The resourceVersion.
    pub version: String,
    /// The UID, for Events.
    pub uid: String,
}

/// An EndpointSlice, reduced to its Service and what an agent needs of its endpoints.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct SliceNews {
    /// The Service it belongs to.
    pub service: ServiceKey,
    /// Its endpoints.
    pub view: SliceView,
    /// Every address in it, where the Service is the API server's own.
    pub addresses: Vec<IpAddr>,
}

/// The lease of a node agent.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct LeaseNews {
    /// What elections depend on.
    pub view: LeaseView,
    /// The addresses that it says nobody may announce.
    pub guarded: Guarded,
}

/// This node's Node.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeNews {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// What BGP needs of it.
    pub facts: NodeFacts,
}

/// Reads a Service.
pub fn service_news(object: &ServiceObject) -> Box<ServiceNews> {
    Box::new(ServiceNews {
        service: read::agent_service(object),
        version: object.resource_version().unwrap_or_default(),
        uid: object.uid().unwrap_or_default(),
    })
}

/// Fresh watches of everything but leases.
pub fn watches(client: &Client, node: &str, namespace: &str) -> impl Stream<Item = Event> + Send + Unpin + use<> {
    let balancers = watcher::Config::default().fields("spec.type=LoadBalancer");
    // A Service of type LoadBalancer always has a cluster address, so that slices of headless ones need no look.
    let slices = watcher::Config::default().labels("kubernetes.io/service-name,!service.kubernetes.io/headless");
    let own = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let any = watcher::Config::default;
    let services = changes("services", Api::<ServiceObject>::all(client.clone()), balancers);
    let slices = changes("endpointslices", Api::<EndpointSlice>::all(client.clone()), slices);
    let nodes = changes("nodes", Api::<Node>::all(client.clone()), own);
    let groups = changes("servicegroups", Api::<GroupObject>::all(client.clone()), any());
    let agents = changes("lbnodeagents", Api::<LBNodeAgent>::all(client.clone()), any());
    let bgp = changes_if_any("bgpconfigurations", Api::<BgpObject>::namespaced(client.clone(), namespace), any());
    select_all([
        services.map(|change| Event::Service(change.map(|object| service_news(&object)))).boxed(),
        slices.filter_map(|change| future::ready(some(change.map(slice_news)).map(Event::Endpoints))).boxed(),
        nodes.map(|change| Event::Node(change.map(|object| Box::new(node_news(object))))).boxed(),
        groups.map(|change| Event::Group(change.map(|object| group_news(&object)))).boxed(),
        agents.map(|change| Event::Agent(change.map(Box::new))).boxed(),
        bgp.map(|change| Event::Bgp(change.map(|object| Box::new(configuration_news(&object))))).boxed(),
    ])
}

/// A fresh watch of the agents' leases: it shows all of them anew.
pub fn leases(client: &Client, namespace: &str, wall: WallClock) -> BoxStream<'static, Event> {
    let leases = changes("leases", Api::<Lease>::namespaced(client.clone(), namespace), watcher::Config::default());
    leases
        .filter_map(move |change| {
            let news = some(change.map(|lease| lease_news(&lease, wall())));
            future::ready(news.map(Event::Lease))
        })
        .boxed()
}

fn lease_news(lease: &Lease, now: Timestamp) -> Option<Box<LeaseNews>> {
    let view = read::lease_view(lease, now)?;
    Some(Box::new(LeaseNews { view, guarded: read::lease_guards(lease) }))
}

fn slice_news(object: EndpointSlice) -> Option<Box<SliceNews>> {
    let (service, view) = read::endpoint_slice(&object)?;
    let listed = object.endpoints.iter().flat_map(|endpoint| &endpoint.addresses).filter(|_| *service == *API_SERVER);
    let addresses = listed.filter_map(|text| text.parse().ok()).collect();
    Some(Box::new(SliceNews { service, view, addresses }))
}

fn node_news(object: Node) -> NodeNews {
    let addresses = read::node(&object).addresses;
    let uid = object.uid().unwrap_or_default();
    let facts = read::node_facts(&object);
    NodeNews { name: object.name_any(), uid, labels: object.metadata.labels.unwrap_or_default(), addresses, facts }
}

pub(super) fn configuration_news(object: &BgpObject) -> ConfigurationNews {
    let Candidate { namespace, name, created, leaving } = read::bgp_candidate(object);
    let uid = object.uid().unwrap_or_default();
    let (reading, earlier) = read::bgp_in_force(object);
    let Reading { value: configuration, problems, .. } = reading.reading;
    let mistake = problems.first().map(|problem| format!("{}: {}", problem.field, problem.reason));
    ConfigurationNews { key: (namespace, name), uid, created, leaving, configuration, mistake, earlier }
}

fn group_news(read: &GroupObject) -> (Key, Box<Forms>) {
    let metadata = &read.object.metadata;
    let key = (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default());
    (key, Box::new(read::group_forms(read, read::kept_form(read)).forms))
}

/// A change about nothing is no change.
fn some<T>(change: Change<Option<T>>) -> Option<Change<T>> {
    match change {
        Change::Restarted => Some(Change::Restarted),
        Change::Here(object) => object.map(Change::Here),
        Change::Gone(object) => object.map(Change::Gone),
        Change::Complete => Some(Change::Complete),
    }
}
