//! A thousand routes told to a router, and taken back, until its kernel has them, and has them no more.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ipnet::IpNet;
use purelb_bgp::{Global, Handle, Peer, Speaker, State, Wish};
use purelb_lab::net::{Lan, Namespace};
use purelb_lab::router::{Make, Neighbour, Router, Settings};

use crate::bird;
use crate::ear::{Change, Ear};
use crate::numbers::{ms, quantile, ratio};

pub const ROUTER_AS: u32 = 65100;
pub const NODE_AS: u32 = 65000;
/// How many routes, and how often they come and go.
pub const ROUTES: u32 = 1000;
const TIMES: usize = 20;
/// Longer than anything here takes, so that a defect ends the run.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much longer than with BIRD they may take at p50.
const MOST: f64 = 1.5;

/// Answers with the promises that are broken.
pub fn measure() -> Result<Vec<String>> {
    let lan = Lan::new()?;
    let spaces = ["router", "ours", "bird"].map(Namespace::new);
    let [router_space, our_space, bird_space] = spaces;
    let (router_space, our_space, bird_space) = (router_space?, our_space?, bird_space?);
    for (space, address) in [(&router_space, node(254)), (&our_space, node(1)), (&bird_space, node(2))] {
        lan.plug(space, "eth0", &[&format!("{address}/24")])?;
    }
    let neighbours = [1, 2].map(|number| Neighbour { v6: false, hold: 90, ..Neighbour::new(node(number), NODE_AS) });
    let settings = Settings { asn: ROUTER_AS, id: Ipv4Addr::new(10, 9, 0, 254), neighbours: neighbours.into() };
    let router = Router::start(Make::Bird, &router_space, &settings)?;
    let (ours, theirs) = (routes(100), routes(101));
    let speaker = our_space.run(Speaker::start)?;
    say(&speaker, &[]);
    in_session(&speaker, node(254))?;
    let config = bird::has_routes(node(254), NODE_AS, ROUTER_AS, &theirs);
    let bird = Router::start_with(Make::Bird, &bird_space, &config)?;
    router
        .wait_for("both are in session", |router| [1, 2].iter().all(|number| router.is_established(node(*number))))?;
    let ear = Ear::new(&router_space)?;
    let mut took: [Vec<Duration>; 4] = Default::default();
    for _ in 0..TIMES {
        for (slot, change) in [(0, Change::Come), (1, Change::Gone)] {
            let begun = Instant::now();
            say(&speaker, if change == Change::Come { &ours } else { &[] });
            took[slot].push(ear.when(change, ours.iter().copied())?.duration_since(begun));
            let begun = Instant::now();
            bird.ask(if change == Change::Come { "enable many" } else { "disable many" })?;
            took[slot + 2].push(ear.when(change, theirs.iter().copied())?.duration_since(begun));
        }
    }
    println!("\n{ROUTES} routes, {TIMES} times         p50        max");
    for (what, slot) in [("ours, come", 0), ("BIRD, come", 2), ("ours, gone", 1), ("BIRD, gone", 3)] {
        println!("{what:<24} {:>10} {:>10}", ms(quantile(&took[slot], 0.5)), ms(quantile(&took[slot], 1.0)));
    }
    let ratio = |slot: usize| ratio(quantile(&took[slot], 0.5), quantile(&took[slot + 2], 0.5));
    println!("{:<24} {:>10.2} come {:>5.2} gone", "ratio to BIRD", ratio(0), ratio(1));
    let judged = [("the coming of a thousand routes", 0), ("the going of a thousand routes", 1)];
    Ok(judged.into_iter().filter_map(|(what, slot)| crate::broken(what, ratio(slot), MOST)).collect())
}

/// Who is on the segment with this number.
pub fn node(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, number).into()
}

/// Host routes of one network.
pub fn routes(net: u8) -> Vec<Ipv4Addr> {
    (0..ROUTES).map(|n| Ipv4Addr::from(u32::from(Ipv4Addr::new(10, net, 0, 0)) + n)).collect()
}

fn say(speaker: &Handle, routes: &[Ipv4Addr]) {
    let peer = Peer { hold: Duration::from_secs(90), ..Peer::new(node(254), ROUTER_AS) };
    set(speaker, vec![peer], routes);
}

/// States the wish of `node(1)`.
pub fn set(speaker: &Handle, peers: Vec<Peer>, routes: &[Ipv4Addr]) {
    let routes = purelb_bgp::routes(routes.iter().map(|route| IpNet::new((*route).into(), 32).expect("a prefix")));
    let global = Global::new(NODE_AS, Ipv4Addr::new(10, 9, 0, 1));
    let _ = speaker.set(Wish { global, peers, routes, complete: true });
}

pub fn in_session(speaker: &Handle, peer: IpAddr) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let up = || {
        let reports = speaker.reports();
        let report = reports.borrow().peers.get(&peer).cloned();
        report.is_some_and(|report| report.state == State::Established && report.converged)
    };
    while !up() {
        ensure!(Instant::now() < deadline, "{peer} does not come into session: {:?}", speaker.reports().borrow().peers);
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
