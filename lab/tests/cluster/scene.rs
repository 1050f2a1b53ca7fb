//! A Service with local and one with virtual addresses, of both families, and the people who watch them through trouble:
//! a client for each address, and on the nodes' segment a witness who asks who has the local ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use purelb_core::elect::rank;
use purelb_lab::Cluster;
use purelb_lab::cluster::addresses;
use purelb_lab::net::witness::{Account, mac};
use purelb_lab::net::{Manner, Namespace, Probe, Report, Witness};
use purelb_lab::tested::seen;
use serde_json::{Value, json};

use crate::purelb::{NODES, assigned, group_v2, held_by, proxied, service, shown};
use crate::site::{SOON, deployment, rolled_out, room};

/// The node that something happens to. It is the first choice for both local addresses.
pub const VICTIM: &str = NODES[0];
/// The node that takes over, and then the one where the workload is: nothing happens to these.
pub const HEIR: &str = NODES[1];
const BYSTANDER: &str = NODES[2];
/// Virtual addresses, with their lengths on `kube-lb0`.
const FAR: [&str; 2] = ["198.51.100.1/32", "2001:db8:1::1/128"];
const UDP: u16 = 9000;
const HOME: &str = "scene";
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
/// How often a witness must have asked in a second, on average, to be believed; fifty times on a quiet machine.
const ASKED: f64 = 10.0;
/// Enough to see all ways through the router.
const FLOWS: usize = 12;

/// Both Services, and the network of the witness.
pub struct Scene<'a> {
    pub cluster: &'a Cluster,
    pub near: [IpAddr; 2],
    pub far: [IpAddr; 2],
    witness: Namespace,
    macs: BTreeMap<String, &'a str>,
}

impl<'a> Scene<'a> {
    /// Makes both Services, and waits until everybody holds what it should.
    pub async fn set(cluster: &'a Cluster) -> Result<Self> {
        let near = [
            first_choice((200..250).map(|host| format!("192.168.7.{host}")))?,
            first_choice((0x200..0x250).map(|host| format!("fd00:7::{host:x}")))?,
        ];
        let far = ["198.51.100.1".parse()?, "2001:db8:1::1".parse()?];
        room(cluster, HOME).await?;
        let mut workload = deployment(HOME, "echo", 1);
        workload["spec"]["template"]["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": BYSTANDER});
        cluster.apply(&workload).await?;
        rolled_out(cluster, HOME, "deployment/echo").await?;
        let local = pools(["192.168.7.0/24", "fd00:7::/64"], near, ["default", "default"]);
        let remote = pools(["198.51.100.0/24", "2001:db8:1::/64"], far, ["/32", "/128"]);
        offer(cluster, "near", &json!({"local": local}), near).await?;
        offer(cluster, "far", &json!({"remote": remote}), far).await?;
        let macs = cluster.nodes.iter().map(|node| Ok((mac(&node.namespace)?, node.name.as_str())));
        let (witness, macs) = (cluster.guest("witness", 101)?, macs.collect::<Result<_>>()?);
        let scene = Self { cluster, near, far, witness, macs };
        scene.settled().await?;
        for address in near.iter().chain(&far) {
            proxied(cluster, &address.to_string()).await?;
        }
        Ok(scene)
    }

    /// Waits until the victim has the local addresses, and all nodes the virtual ones.
    pub async fn settled(&self) -> Result<()> {
        self.held_near(VICTIM).await?;
        for cidr in FAR {
            held_by(self.cluster, cidr, &NODES).await?;
        }
        Ok(())
    }

    /// Waits until this node has the local addresses, and no other.
    pub async fn held_near(&self, name: &str) -> Result<()> {
        let alone = async |cluster: &Cluster| {
            for node in &cluster.nodes {
                let shown = shown(node, "eth0")?;
                for (address, length) in self.near.iter().zip([24, 64]) {
                    let holds = shown.contains(&format!("{address}/{length}"));
                    ensure!(holds == (node.name == name), "{address} on {}: {holds}", node.name);
                }
            }
            Ok(true)
        };
        self.cluster.until(&format!("{name} has the local addresses"), SOON, alone).await
    }

    /// Waits until these nodes, and no others, are where the router sends traffic for virtual addresses.
    pub async fn routed_to(&self, names: &[&str]) -> Result<()> {
        let router = self.cluster.router.as_ref().context("the cluster has a router")?;
        let hops = async |cluster: &Cluster| {
            for cidr in FAR {
                let of = |number| addresses::node(number);
                let wanted = cluster.nodes.iter().filter(|node| names.contains(&node.name.as_str()));
                let wanted: Vec<IpAddr> = wanted
                    .map(|node| if cidr.contains(':') { of(node.number).1.into() } else { of(node.number).0.into() })
                    .collect();
                let learned = router.next_hops(cidr)?;
                ensure!(learned == wanted, "the router has {learned:?} for {cidr}");
            }
            Ok(true)
        };
        self.cluster.until(&format!("the router sends traffic to {names:?}"), SOON, hops).await
    }

    /// Begins to watch. The client of each virtual address asks at this pace, and from many ports.
    pub async fn watch(&self, pace: Duration) -> Result<Watch<'_>> {
        let (near, far) = (Manner { flows: 1, pace: Duration::from_millis(5) }, Manner { flows: FLOWS, pace });
        let mut probes = Vec::new();
        for (addresses, client, manner) in
            [(self.near, self.cluster.client(), near), (self.far, self.cluster.far_client(), far)]
        {
            for address in addresses {
                probes.push((address, Probe::start_as(client, SocketAddr::new(address, UDP), manner)?));
            }
        }
        let watch = Watch { scene: self, probes, witness: Witness::start(&self.witness, &self.near)? };
        watch.everybody_is_answered().await?;
        Ok(watch)
    }

    /// The node behind an address that a Pod saw, or behind a MAC address.
    fn node(&self, sign: &str) -> String {
        let is_of = |node: &&purelb_lab::cluster::Node| {
            let ((v4, v6), (wire, _)) = (addresses::node(node.number), addresses::pod(node.number, 1));
            [v4.to_string(), v6.to_string(), wire.to_string()].iter().any(|one| one == sign)
        };
        let by_mac = self.macs.get(sign).map(|name| (*name).to_owned());
        let by_address = || self.cluster.nodes.iter().find(is_of).map(|node| node.name.clone());
        by_mac.or_else(by_address).unwrap_or_else(|| sign.to_owned())
    }
}

/// Pools of one address for each family.
fn pools(subnets: [&str; 2], addresses: [IpAddr; 2], aggregations: [&str; 2]) -> Value {
    let pool = |index: usize| {
        let range = format!("{0}-{0}", addresses[index]);
        json!([{"subnet": subnets[index], "pool": range, "aggregation": aggregations[index]}])
    };
    json!({"v4pools": pool(0), "v6pools": pool(1)})
}

/// A group, and a Service of the same name that gets its addresses.
async fn offer(cluster: &Cluster, name: &str, spec: &Value, addresses: [IpAddr; 2]) -> Result<()> {
    cluster.apply(&group_v2(name, spec)).await?;
    let mut service = service(HOME, name, "echo", name, &FAMILIES);
    service["spec"]["ports"] = json!([
        {"name": "web", "port": 80, "targetPort": 8080},
        {"name": "udp", "port": UDP, "protocol": "UDP", "targetPort": 8080},
    ]);
    // What the cluster thinks of the workload's node is not the question here.
    service["spec"]["publishNotReadyAddresses"] = json!(true);
    cluster.apply(&service).await?;
    assert_eq!(assigned(cluster, HOME, name).await?, addresses.map(|address| address.to_string()));
    Ok(())
}

/// The first of these addresses that the nodes take in their own order.
fn first_choice(mut candidates: impl Iterator<Item = String>) -> Result<IpAddr> {
    let fits = |text: String| {
        let address = text.parse().ok()?;
        NODES.is_sorted_by_key(|node| rank(node, address)).then_some(address)
    };
    candidates.find_map(fits).context("no address has this order")
}

/// The clients and the witness at work.
pub struct Watch<'a> {
    scene: &'a Scene<'a>,
    probes: Vec<(IpAddr, Probe)>,
    witness: Witness,
}

impl Watch<'_> {
    /// Waits until every client is answered, and for the local addresses it is the victim who says that it has them.
    pub async fn everybody_is_answered(&self) -> Result<()> {
        let before: Vec<usize> = self.probes.iter().map(|(_, probe)| probe.answers()).collect();
        let answered = async |_: &Cluster| {
            for ((address, probe), before) in self.probes.iter().zip(&before) {
                ensure!(probe.answers() > before + 10, "no answer from {address}");
            }
            Ok(true)
        };
        self.scene.cluster.until("everybody is answered", SOON, answered).await?;
        self.taken_by(VICTIM).await
    }

    /// Waits until this node says to the witness that it has the local addresses.
    pub async fn taken_by(&self, node: &str) -> Result<()> {
        let taken = async |_: &Cluster| {
            for address in self.scene.near {
                let last = self.witness.account(address).path.last().map(|mac| self.scene.node(mac));
                ensure!(last.as_deref() == Some(node), "{last:?} answers for {address}");
            }
            Ok(true)
        };
        self.scene.cluster.until(&format!("{node} answers for the local addresses"), SOON, taken).await
    }

    /// Ends it, and returns what was seen of the two local and the two virtual addresses.
    pub fn finish(self) -> Result<Seen> {
        let accounts = self.witness.finish(&self.scene.near)?;
        let mut accounts = accounts.into_iter();
        let mut views = Vec::new();
        for (address, probe) in self.probes {
            let (report, account) = (probe.finish()?, accounts.next());
            let name = |sign: &String| self.scene.node(sign);
            let nodes = match &account {
                Some(account) => account.path.iter().map(name).collect(),
                None => report.by_node.keys().map(name).collect::<BTreeSet<_>>().into_iter().collect(),
            };
            views.push(View { address, nodes, report, account });
        }
        let far = views.split_off(self.scene.near.len());
        Ok(Seen { near: views, far })
    }
}

/// What was seen of all addresses.
pub struct Seen {
    pub near: Vec<View>,
    pub far: Vec<View>,
}

/// What was seen of one address.
#[derive(Debug)]
pub struct View {
    pub address: IpAddr,
    /// Who had it, in order, for a local address; who let its clients in, for a virtual one.
    pub nodes: Vec<String>,
    pub report: Report,
    /// For a local address.
    pub account: Option<Account>,
}

impl View {
    fn kind(&self) -> String {
        let place = if self.account.is_some() { "local" } else { "virtual" };
        format!("{place} {}", if self.address.is_ipv4() { FAMILIES[0] } else { FAMILIES[1] })
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Account { silence, doubt, .. }) = &self.account {
            write!(f, "{}; nobody answered for {} ms, ", self.nodes.join(" → "), silence.as_millis())?;
            write!(f, "two for {} ms", doubt.as_millis())?;
        } else {
            write!(f, "by {}", self.nodes.join(", "))?;
        }
        let Report { sent, longest_gap, .. } = &self.report;
        write!(f, "; client: {} of {sent} packets lost, {:.0} a second, ", self.report.lost(), self.report.rate())?;
        write!(f, "at most {} ms without an answer", longest_gap.as_millis())
    }
}

impl Seen {
    /// Prints what was seen, demands what is always promised (never do two nodes answer for an address) and what is
    /// promised here, and notes what has stood both.
    pub fn tell(&self, proof: &str, what: &str, promised: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        for view in self.near.iter().chain(&self.far) {
            println!("{what}, {} {}: {view}", view.kind(), view.address);
        }
        self.never_two(what)?;
        promised(self).with_context(|| what.to_owned())?;
        for view in self.near.iter().chain(&self.far) {
            seen(proof, &format!("{what}: {}", view.kind()), view);
        }
        Ok(())
    }

    fn never_two(&self, what: &str) -> Result<()> {
        for (view, account) in self.near.iter().filter_map(|view| Some((view, view.account.as_ref()?))) {
            let often = account.asked as f64 / view.report.lasted.as_secs_f64();
            ensure!(often > ASKED, "{what}: the witness asked {often:.0} times a second: too seldom to tell: {view:?}");
            ensure!(account.doubt.is_zero(), "{what}: two nodes answered for {}: {view:?}", view.address);
        }
        Ok(())
    }

    /// The longest time in which nobody answered for a local address.
    pub fn silence(&self) -> Duration {
        self.near.iter().filter_map(|view| view.account.as_ref()).map(|one| one.silence).max().unwrap_or_default()
    }

    /// The longest time in which a port of a client of a virtual address got no answer.
    pub fn gap(&self) -> Duration {
        self.far.iter().map(|view| view.report.longest_gap).max().unwrap_or_default()
    }

    /// Demands that clients of virtual addresses lost nothing.
    pub fn nothing_lost_far(&self) -> Result<()> {
        self.far.iter().try_for_each(|view| {
            ensure!(view.report.lost() == 0, "{} lost packets: {view:?}", view.address);
            Ok(())
        })
    }
}
