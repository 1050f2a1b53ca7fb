//! One router and some nodes on a wire.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use purelb_bgp::{Farewell, Global, Handle, Peer, PeerReport, Speaker, State, Wish};
use purelb_lab::net::{Lan, Namespace};
use purelb_lab::router::{Make, Neighbour, Router, Settings};

pub const ROUTER_AS: u32 = 65100;
/// Of four octets, as many data centres have them.
pub const NODE_AS: u32 = 4_200_000_100;

/// Only a guard against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// One router, and nodes that each run a speaker.
pub struct Site {
    pub router: Option<Router>,
    pub nodes: Vec<Node>,
    pub space: Namespace,
    make: Make,
    settings: Settings,
    lan: Lan,
}

/// A node and its speaker.
pub struct Node {
    pub speaker: Option<Handle>,
    pub space: Namespace,
    id: Ipv4Addr,
}

/// The addresses of a node by its number, and of the router, which is 254.
pub fn v4(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, number).into()
}

pub fn v6(number: u8) -> IpAddr {
    Ipv6Addr::new(0xfd00, 9, 0, 0, 0, 0, 0, number.into()).into()
}

impl Site {
    /// A router that knows the nodes as told by `know`, given each node's number.
    pub fn new(make: Make, nodes: u8, know: impl Fn(u8) -> Neighbour) -> Result<Self> {
        let lan = Lan::new()?;
        let space = Namespace::new("router")?;
        lan.plug(&space, "eth0", &[&format!("{}/24", v4(254)), &format!("{}/64", v6(254))])?;
        let nodes = (1..=nodes).map(|number| Node::new(&lan, number)).collect::<Result<Vec<_>>>()?;
        let count = u8::try_from(nodes.len())?;
        let neighbours = (1..=count).map(know).collect();
        let settings = Settings { asn: ROUTER_AS, id: Ipv4Addr::new(10, 9, 0, 254), neighbours };
        let router = Some(Router::start(make, &space, &settings)?);
        Ok(Self { router, nodes, space, make, settings, lan })
    }

    pub fn router(&self) -> &Router {
        self.router.as_ref().expect("the router runs")
    }

    /// The router's machine loses power: no farewell.
    pub fn kill_router(&mut self) {
        self.router = None;
    }

    pub fn start_router(&mut self) -> Result<()> {
        self.router = Some(Router::start(self.make, &self.space, &self.settings)?);
        Ok(())
    }

    /// Nobody on the wire reaches anybody, and all links stay up: nobody is told.
    pub fn part(&self) -> Result<()> {
        self.isolate("on")
    }

    /// Ends [`Site::part`].
    pub fn join(&self) -> Result<()> {
        self.isolate("off")
    }

    /// The bridge numbers its ports: the router came first, and the nodes after it.
    fn isolate(&self, word: &str) -> Result<()> {
        let line = |port| format!("link set port{port} type bridge_slave isolated {word}\n");
        self.lan.switch().batch(&(0..=self.nodes.len()).map(line).collect::<String>())
    }

    pub fn has(&self, prefix: &str, hops: &[IpAddr]) -> Result<()> {
        let what = format!("{prefix} goes through {hops:?}, and not {:?}", self.router().next_hops(prefix));
        self.router().wait_for(&what, |router| router.next_hops(prefix).is_ok_and(|found| found == hops))
    }
}

impl Node {
    pub fn new(lan: &Lan, number: u8) -> Result<Self> {
        let space = Namespace::new(&format!("node-{number}"))?;
        lan.plug(&space, "eth0", &[&format!("{}/24", v4(number)), &format!("{}/64", v6(number))])?;
        let speaker = Some(space.run(Speaker::start)?);
        Ok(Self { speaker, space, id: Ipv4Addr::new(10, 9, 0, number) })
    }

    /// What a node wants with these peers and routes.
    pub fn wish(&self, peers: Vec<Peer>, routes: &[&str]) -> Wish {
        let routes = purelb_bgp::routes(routes.iter().map(|route| route.parse().expect("a prefix")));
        Wish { global: Global { name: "node".into(), ..Global::new(NODE_AS, self.id) }, peers, routes, complete: true }
    }

    pub fn set(&self, peers: Vec<Peer>, routes: &[&str]) {
        self.speaker().set(self.wish(peers, routes));
    }

    pub fn speaker(&self) -> &Handle {
        self.speaker.as_ref().expect("the speaker runs")
    }

    pub fn restart(&mut self) -> Result<()> {
        self.speaker = Some(self.space.run(Speaker::start)?);
        Ok(())
    }

    pub fn stop(&mut self, farewell: Farewell) {
        let Some(speaker) = self.speaker.take() else { return };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(speaker.stop(farewell));
    }

    pub fn report(&self, peer: IpAddr) -> Option<PeerReport> {
        self.speaker().reports().borrow().peers.get(&peer).cloned()
    }

    /// Waits until the report about a peer is as told.
    pub fn wait_for(&self, peer: IpAddr, what: &str, holds: impl Fn(&PeerReport) -> bool) -> Result<PeerReport> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let report = self.report(peer);
            if let Some(report) = report.clone().filter(&holds) {
                return Ok(report);
            }
            ensure!(Instant::now() < deadline, "it never came true that {what}: {report:#?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until an operator reads a sentence with these words.
    pub fn says(&self, peer: IpAddr, words: &str) -> Result<()> {
        let said = |report: &PeerReport| report.fault.as_ref().is_some_and(|fault| fault.to_string().contains(words));
        self.wait_for(peer, &format!("the fault says {words:?}"), said).map(drop)
    }

    pub fn in_session(&self, peer: IpAddr) -> Result<PeerReport> {
        self.wait_for(peer, "the session is up", |report| report.state == State::Established && report.converged)
    }
}

/// The router as the nodes know it.
pub fn router_peer(address: IpAddr) -> Peer {
    let hold = Duration::from_secs(9);
    Peer { families: purelb_bgp::Families::BOTH, hold, ..Peer::new(address, ROUTER_AS) }
}
