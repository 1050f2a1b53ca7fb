//! Both sides dial in the same moment: two connections stand, and one of them must go (RFC 4271 §6.8).
//!
//! A kernel that looks for a neighbour keeps what is to be sent to it. So nobody can find anybody until both have dialled;
//! the first question that gets through then releases both dials at once.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb_bgp::{Farewell, PeerReport, State};
use purelb_lab::net::{Capture, Namespace};
use purelb_lab::router::Make;
use rstest::rstest;

use crate::sessions::neighbour;
use crate::site::{Site, router_peer, v4};

/// Only a guard against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is tried: a machine that is busy may hold one of the two back.
const TRIES: usize = 10;

/// The TCP connections of BGP in this state, as `ss` shows them: the port here, and the port there.
fn connections(space: &Namespace, state: &str) -> Result<Vec<(u16, u16)>> {
    let output = space.command("ss").args(["-tnH", "state", state, "( sport = :179 or dport = :179 )"]).output()?;
    ensure!(output.status.success(), "ss failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let port = |word: &str| word.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let line = |line: &str| {
        let ports: Vec<u16> = line.split_whitespace().filter_map(port).collect();
        <[u16; 2]>::try_from(ports).map(|[here, there]| (here, there)).ok().with_context(|| format!("ss says {line}"))
    };
    text.lines().map(line).collect()
}

/// Waits until both sides have dialled, and lets them find each other.
fn dial_at_once(site: &Site) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let dials = |space: &Namespace| connections(space, "syn-sent").is_ok_and(|found| !found.is_empty());
    while !(dials(&site.space) && dials(&site.nodes[0].space)) {
        ensure!(Instant::now() < deadline, "the two sides do not dial at the same time\n{}", site.router().log());
        thread::sleep(Duration::from_millis(5));
    }
    site.join()
}

#[rstest]
fn of_two_connections_the_one_of_the_higher_router_id_stays(
    #[values(Make::Bird, Make::Frr)] make: Make,
    #[values(false, true)] ours_is_higher: bool,
) -> Result<()> {
    let mut site = Site::new(make, 1, neighbour)?;
    let id = if ours_is_higher { Ipv4Addr::new(10, 9, 1, 1) } else { Ipv4Addr::new(10, 9, 0, 1) };
    for _ in 0..TRIES {
        site.part()?;
        for space in [&site.space, &site.nodes[0].space] {
            space.batch("neigh flush dev eth0\n")?;
        }
        let wire = Capture::start(&site.nodes[0].space, "eth0", "tcp port 179")?;
        let mut wish = site.nodes[0].wish(vec![router_peer(v4(254))], &["192.0.2.1/32"]);
        wish.global.router_id = id;
        site.nodes[0].speaker().set(wish);
        dial_at_once(&site)?;
        site.has("192.0.2.1/32", &[v4(1)])?;
        site.nodes[0].in_session(v4(254))?;
        let left = left(&site)?;
        if collided(&messages(&wire), left) {
            assert_eq!(left.router_listens, ours_is_higher, "the lower side is the one that was dialled");
            return stays(&site);
        }
        println!("one of the two was in session before the other was there");
        site.nodes[0].stop(Farewell::Cease("again".into()));
        site.nodes[0].restart()?;
    }
    anyhow::bail!("the two sides dialled at once {TRIES} times, and their connections never met")
}

/// A connection, by who listens and the port of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Connection {
    router_listens: bool,
    port: u16,
}

/// One message on the wire: its connection, whether it is ours, and tcpdump's words.
type Message = (Connection, bool, String);

/// The one connection that is left.
fn left(site: &Site) -> Result<Connection> {
    let sees_one = |space: &Namespace| connections(space, "established").is_ok_and(|found| found.len() == 1);
    site.router().wait_for("one connection is left", |_| sees_one(&site.space) && sees_one(&site.nodes[0].space))?;
    let (here, there) = connections(&site.space, "established")?[0];
    let router_listens = here == 179;
    Ok(Connection { router_listens, port: if router_listens { there } else { here } })
}

/// What was said on the wire, in order. tcpdump writes who speaks to whom, and then each message on a line of its own.
fn messages(wire: &Capture) -> Vec<Message> {
    let port = |end: &str| end.rsplit_once('.').and_then(|(_, port)| port.parse::<u16>().ok());
    let (mut packet, mut found) = (None, Vec::new());
    for line in wire.lines() {
        if let Some((from, rest)) = line.trim().split_once(" > ")
            && let Some((to, _)) = rest.split_once(": Flags")
            && let (Some(source), Some(target)) = (port(from), port(to))
        {
            let ours = from.starts_with("10.9.0.1.");
            let connection = Connection { router_listens: ours == (target == 179), port: source.max(target) };
            packet = Some((connection, ours));
        } else if line.contains(" Message (")
            && let Some((connection, ours)) = packet
        {
            found.push((connection, ours, line));
        }
    }
    found
}

/// Whether two connections met before either was in session, and one was refused for it.
fn collided(messages: &[Message], left: Connection) -> bool {
    let opened = messages.iter().filter(|(_, _, words)| words.contains("Open Message"));
    let opened: BTreeSet<_> = opened.map(|(connection, _, _)| *connection).collect();
    let refused = messages.iter().position(|(_, _, words)| words.contains("Connection Collision Resolution"));
    let alive = |side: bool| {
        let first = |(connection, ours, words): &Message| {
            *connection == left && *ours == side && words.contains("Keepalive Message")
        };
        messages.iter().position(first).unwrap_or(usize::MAX)
    };
    opened.len() == 2 && refused.is_some_and(|refused| refused < alive(true).max(alive(false)))
}

/// The session that is left is not disturbed by the end of the other.
fn stays(site: &Site) -> Result<()> {
    let old =
        |report: &PeerReport| report.since.is_some_and(|since| since.elapsed().is_ok_and(|age| age.as_secs() >= 4));
    let report = site.nodes[0].wait_for(v4(254), "the session is four seconds old", old)?;
    assert_eq!((report.state, report.counts.ups, report.counts.flaps), (State::Established, 1, 0));
    site.has("192.0.2.1/32", &[v4(1)])
}
