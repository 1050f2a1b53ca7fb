//! Two of our own speakers on loopback, and peers that misbehave.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::sync::atomic::{AtomicU8, Ordering};

use ipnet::IpNet;
use tokio::time::timeout;

use super::*;
use crate::report::{Listening, State};
use crate::wish::{self, Families, Listen};
use crate::{Secret, wire};

/// Only a guard against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(20);

const PORT: u16 = 1790;

/// Two loopback addresses that no other test has.
fn two() -> [IpAddr; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let third = NEXT.fetch_add(1, Ordering::Relaxed);
    let second = u8::try_from(std::process::id() % 200).unwrap() + 10;
    [1, 2].map(|last| Ipv4Addr::new(127, second, third, last).into())
}

fn wish(own: IpAddr, asn: u32, peers: Vec<Peer>, routes: &[&str]) -> Wish {
    let IpAddr::V4(id) = own else { panic!("tests run on IPv4 loopback") };
    let listen = Some(Listen { port: PORT, addresses: vec![own] });
    let global = Global { listen, ..Global::new(asn, id) };
    let routes = wish::routes(routes.iter().map(|route| route.parse().unwrap()));
    Wish { global, peers, routes, complete: true }
}

fn peer(own: IpAddr, other: IpAddr, asn: u32) -> Peer {
    Peer { port: PORT, source: Some(own), hold: Duration::from_secs(9), ..Peer::new(other, asn) }
}

/// Waits until the report of one peer is as told.
async fn until(handle: &Handle, peer: IpAddr, what: &str, holds: impl Fn(&PeerReport) -> bool) -> PeerReport {
    let mut reports = handle.reports();
    let wait = reports.wait_for(|report| report.peers.get(&peer).is_some_and(&holds));
    match timeout(PATIENCE, wait).await {
        Ok(report) => report.unwrap().peers[&peer].clone(),
        Err(_) => panic!("it never came true that {what}: {:#?}", handle.reports().borrow()),
    }
}

async fn established(handle: &Handle, peer: IpAddr) -> PeerReport {
    until(handle, peer, "the session is up", |report| report.state == State::Established).await
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[tokio::test]
async fn two_speakers_meet_tell_and_take_back() {
    let [a, b] = two();
    let (one, other) = (Speaker::start().unwrap(), Speaker::start().unwrap());
    one.set(wish(a, 65001, vec![peer(a, b, 65002)], &["192.0.2.1/32", "192.0.2.2/32", "2001:db8::1/128"]));
    other.set(wish(b, 65002, vec![Peer { passive: true, ..peer(b, a, 65001) }], &[]));
    let told = until(&one, b, "both routes are told", |report| report.told.len() == 2 && report.converged).await;
    assert_eq!(told.families, Families { v4: true, v6: false });
    until(&other, a, "both routes are heard", |report| report.state == State::Established).await;
    one.set(wish(a, 65001, vec![peer(a, b, 65002)], &["192.0.2.2/32"]));
    until(&one, b, "one is taken back", |report| *report.told == [net("192.0.2.2/32")].into() && report.converged)
        .await;
    one.stop(Farewell::Cease("node drained".into())).await;
    let fallen = until(&other, a, "the session falls", |report| report.state != State::Established).await;
    let words = fallen.fault.unwrap().to_string();
    assert!(words.ends_with("6/2 (administrative shutdown), saying \"node drained\""), "{words}");
    assert_eq!((fallen.counts.routes_heard, fallen.counts.routes_withdrawn), (2, 1));
}

#[tokio::test]
async fn a_report_says_which_wish_it_speaks_of() {
    let [a, b] = two();
    let (one, other) = (Speaker::start().unwrap(), Speaker::start().unwrap());
    other.set(wish(b, 65002, vec![Peer { passive: true, ..peer(b, a, 65001) }], &[]));
    let with_route = wish(a, 65001, vec![peer(a, b, 65002)], &["192.0.2.1/32"]);
    let first = one.set(with_route.clone());
    until(&one, b, "the route is told", |report| report.wish == first && report.told.len() == 1).await;
    let second = one.set(with_route);
    let same = until(&one, b, "the same wish is another one", |report| report.wish == second).await;
    assert!(second > first && same.told.len() == 1 && same.counts.flaps == 0);
    let third = one.set(wish(a, 65001, vec![peer(a, b, 65002)], &[]));
    until(&one, b, "nobody has the route", |report| report.wish == third && report.told.is_empty()).await;
}

#[tokio::test]
async fn both_sides_dial_and_one_session_remains() {
    for _ in 0..5 {
        let [a, b] = two();
        let (one, other) = (Speaker::start().unwrap(), Speaker::start().unwrap());
        one.set(wish(a, 65001, vec![peer(a, b, 65001)], &["192.0.2.1/32"]));
        other.set(wish(b, 65001, vec![peer(b, a, 65001)], &["192.0.2.2/32"]));
        until(&one, b, "the route is told", |report| report.told.len() == 1 && report.converged).await;
        until(&other, a, "the route is told", |report| report.told.len() == 1 && report.converged).await;
    }
}

#[tokio::test]
async fn a_speaker_that_was_away_is_found_again() {
    let [a, b] = two();
    let (one, other) = (Speaker::start().unwrap(), Speaker::start().unwrap());
    one.set(wish(a, 65001, vec![peer(a, b, 65002)], &["192.0.2.1/32"]));
    other.set(wish(b, 65002, vec![Peer { passive: true, ..peer(b, a, 65001) }], &[]));
    established(&one, b).await;
    other.stop(Farewell::Silent).await;
    let fallen = until(&one, b, "the loss is seen", |report| report.state != State::Established).await;
    assert!(fallen.told.is_empty(), "nobody has our routes now");
    let again = Speaker::start().unwrap();
    again.set(wish(b, 65002, vec![Peer { passive: true, ..peer(b, a, 65001) }], &[]));
    let back = until(&one, b, "it is back", |report| report.told.len() == 1 && report.converged).await;
    assert_eq!((back.counts.ups, back.counts.flaps), (2, 1));
    assert_eq!(back.fault, None);
}

#[tokio::test]
async fn a_wrong_as_is_said_in_one_sentence_on_both_sides() {
    let [a, b] = two();
    let (one, other) = (Speaker::start().unwrap(), Speaker::start().unwrap());
    one.set(wish(a, 65001, vec![peer(a, b, 65099)], &[]));
    other.set(wish(b, 65002, vec![Peer { passive: true, ..peer(b, a, 65001) }], &[]));
    let says = |words: &'static str| {
        move |report: &PeerReport| report.fault.as_ref().is_some_and(|fault| fault.to_string().contains(words))
    };
    until(&one, b, "we say so", says("the peer says that its AS is 65002, the configuration says 65099")).await;
    until(&other, a, "it was told", says("2/2 (bad peer AS")).await;
}

#[tokio::test]
async fn passwords_that_differ_are_said_and_mended_without_a_restart() {
    let [a, b] = two();
    let (one, other) = (Speaker::start().unwrap(), Speaker::start().unwrap());
    let with = |password: &str| Peer {
        password: Secret::new(password),
        connect_retry: Duration::from_secs(1),
        ..peer(a, b, 65002)
    };
    one.set(wish(a, 65001, vec![with("battery staple")], &["192.0.2.1/32"]));
    let theirs = Peer { passive: true, password: Secret::new("correct horse"), ..peer(b, a, 65001) };
    other.set(wish(b, 65002, vec![theirs], &[]));
    let differ = |fault: &Fault| fault.to_string().contains("the passwords of the two sides may differ");
    until(&one, b, "it is said", |report| report.fault.as_ref().is_some_and(differ)).await;
    assert!(!format!("{:?}", one.reports().borrow()).contains("staple"));
    one.set(wish(a, 65001, vec![with("correct horse")], &["192.0.2.1/32"]));
    established(&one, b).await;
    established(&other, a).await;
}

#[tokio::test]
async fn a_port_that_is_taken_leaves_sessions_that_we_dial() {
    let [a, b] = two();
    let taken = StdListener::bind((a, PORT)).unwrap();
    let (one, other) = (Speaker::start().unwrap(), Speaker::start().unwrap());
    one.set(wish(a, 65001, vec![peer(a, b, 65002)], &[]));
    other.set(wish(b, 65002, vec![Peer { passive: true, ..peer(b, a, 65001) }], &[]));
    established(&one, b).await;
    let Listening::Failed(sentence) = one.reports().borrow().listening.clone() else { panic!("it must not listen") };
    assert!(sentence.starts_with("port 1790 is taken by another program on this node"), "{sentence}");
    drop(taken);
}

#[tokio::test]
async fn a_peer_that_is_removed_is_told_so_and_forgotten() {
    let [a, b] = two();
    let (one, other) = (Speaker::start().unwrap(), Speaker::start().unwrap());
    one.set(wish(a, 65001, vec![peer(a, b, 65002)], &[]));
    other.set(wish(b, 65002, vec![Peer { passive: true, ..peer(b, a, 65001) }], &[]));
    established(&other, a).await;
    one.set(wish(a, 65001, vec![], &[]));
    let fault = until(&other, a, "it is told", |report| report.fault.is_some()).await.fault.unwrap().to_string();
    assert!(fault.contains("6/3"), "{fault}");
    assert!(one.reports().borrow().peers.is_empty());
}

#[tokio::test]
async fn strangers_and_peers_that_talk_nonsense_harm_nobody_else() {
    let [a, b] = two();
    let [c, stranger] = two();
    let (one, other) = (Speaker::start().unwrap(), Speaker::start().unwrap());
    let bad = Peer { passive: true, connect_retry: Duration::from_secs(1), ..peer(a, c, 65003) };
    one.set(wish(a, 65001, vec![peer(a, b, 65002), bad], &["192.0.2.1/32"]));
    other.set(wish(b, 65002, vec![Peer { passive: true, ..peer(b, a, 65001) }], &[]));
    established(&one, b).await;
    let say = move |from: IpAddr, bytes: Vec<u8>| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
        socket.connect(&SocketAddr::new(a, PORT).into()).unwrap();
        let mut stream: std::net::TcpStream = socket.into();
        let mut heard = Vec::new();
        let _ = stream.write_all(&bytes);
        let _ = stream.read_to_end(&mut heard);
        heard
    };
    let heard = tokio::task::spawn_blocking(move || say(stranger, vec![0xff; 1000])).await.unwrap();
    assert!(heard.is_empty(), "a stranger hears nothing");
    let heard =
        tokio::task::spawn_blocking(move || say(c, b"GET / HTTP/1.1\r\nHost: router\r\n\r\n".to_vec())).await.unwrap();
    assert_eq!(heard[heard.len() - 3..], [3, 1, 1], "the notification says that this is not BGP");
    let fault = until(&one, c, "the fault is said", |report| report.fault.is_some()).await.fault.unwrap().to_string();
    assert!(fault.contains("1/1 (connection not synchronized)"), "{fault}");
    assert_eq!(one.reports().borrow().peers[&b].counts.flaps, 0);
}

/// A peer that comes into session and then neither reads nor closes.
#[tokio::test]
async fn a_peer_that_takes_nothing_does_not_hold_up_another() {
    let [a, b] = two();
    let [c, _] = two();
    let (one, other) = (Speaker::start().unwrap(), Speaker::start().unwrap());
    let stuck = Peer { passive: true, ..peer(a, c, 65003) };
    let many: Vec<String> = (0..20_000u32).map(|n| format!("{}/32", Ipv4Addr::from(0x0a00_0000 + n))).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let all = |routes: &[&str]| wish(a, 65001, vec![peer(a, b, 65002), stuck.clone()], routes);
    one.set(all(&[]));
    other.set(wish(b, 65002, vec![Peer { passive: true, ..peer(b, a, 65001) }], &[]));
    established(&one, b).await;
    let held = tokio::task::spawn_blocking(move || silent_peer(c, a)).await.unwrap();
    established(&one, c).await;
    for round in 0..6 {
        one.set(all(if round % 2 == 0 { &many } else { &[] }));
        let count = if round % 2 == 0 { many.len() } else { 0 };
        until(&one, b, "the other peer follows", |report| report.told.len() == count && report.converged).await;
    }
    drop(held);
}

/// A peer that comes into session and then sends as much as it can.
#[tokio::test]
async fn a_peer_that_floods_does_not_hold_up_another() {
    let [a, b] = two();
    let [c, _] = two();
    let (one, other) = (Speaker::start().unwrap(), Speaker::start().unwrap());
    let flooding = Peer { passive: true, ..peer(a, c, 65003) };
    let all = |routes: &[&str]| wish(a, 65001, vec![peer(a, b, 65002), flooding.clone()], routes);
    one.set(all(&[]));
    other.set(wish(b, 65002, vec![Peer { passive: true, ..peer(b, a, 65001) }], &[]));
    established(&one, b).await;
    let mut stream = tokio::task::spawn_blocking(move || silent_peer(c, a)).await.unwrap();
    established(&one, c).await;
    let stop = stream.try_clone().unwrap();
    // It takes what it is told: one that does not is cut off after its hold time, and is another test's story.
    let mut takes = stream.try_clone().unwrap();
    let takes = thread::spawn(move || std::io::copy(&mut takes, &mut std::io::sink()));
    let flood = thread::spawn(move || {
        let update = [&[0xff; 16][..], &[0, 28, 2, 0, 0, 0, 0, 32, 192, 0, 2, 1]].concat().repeat(1000);
        while stream.write_all(&update).is_ok() {}
    });
    let heard = |report: &PeerReport| report.counts.updates_heard > 100_000;
    for round in 0.. {
        let route = format!("192.0.2.{}/32", round % 200);
        one.set(all(&[&route]));
        until(&one, b, "the other peer follows", |report| report.told.contains(&net(&route)) && report.converged).await;
        let report = one.reports().borrow().peers[&c].clone();
        assert_eq!((report.state, report.counts.malformed), (State::Established, 0), "round {round}: {report:#?}");
        if heard(&report) {
            break;
        }
    }
    stop.shutdown(std::net::Shutdown::Both).unwrap();
    flood.join().unwrap();
    let _ = takes.join().unwrap();
    assert_eq!(one.reports().borrow().peers[&b].counts.flaps, 0);
}

#[tokio::test]
async fn a_peer_whose_password_could_not_be_set_is_not_let_in() {
    let [a, b] = two();
    let mut room = Room::new(watch::channel(Report::default()).0);
    let locked = Peer { passive: true, password: Secret::new("correct horse"), ..peer(a, b, 65002) };
    room.wish = Some(Arc::new(wish(a, 65001, vec![locked], &[])));
    room.arrange();
    let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dial = async || TcpStream::connect(door.local_addr().unwrap()).await.unwrap();
    let waiting = |room: &Room| CALLS - room.desks[&b].calls.capacity();
    let (stream, other) = (dial().await, dial().await);
    // The peer's task takes none of these: nothing below waits.
    let before = waiting(&room);
    room.doors.unlocked.insert(b);
    room.admit(stream, b);
    assert_eq!(waiting(&room), before, "anybody could have signed this");
    room.arrange();
    room.admit(other, b);
    assert_eq!(waiting(&room), before + 1, "the password is there now");
}

#[tokio::test]
async fn a_peer_whose_task_dies_gets_another_and_the_rest_go_on() {
    let ([a, b], [c, _]) = (two(), two());
    let (posts, reports) = watch::channel(Report::default());
    let mut room = Room::new(posts);
    room.wish = Some(Arc::new(wish(a, 65001, vec![peer(a, b, 65002), peer(a, c, 65003)], &[])));
    room.arrange();
    let dying = room.tasks.spawn(async { panic!("a defect") }).id();
    room.desks.get_mut(&b).unwrap().task = dying;
    let untouched = room.desks[&c].task;
    let ended = room.tasks.join_next_with_id().await.unwrap();
    room.ended(ended);
    assert_eq!(reports.borrow().peers[&b].fault, Some(Fault::Internal));
    assert!(!room.desks.contains_key(&b) && room.wake().is_some());
    room.arrange();
    assert!(!room.desks.contains_key(&b), "not before its pause is over");
    room.dead.insert(b, Instant::now());
    room.arrange();
    assert!(room.desks.contains_key(&b) && room.dead.is_empty());
    assert_eq!(room.desks[&c].task, untouched);
}

/// Opens a session from here to there, and leaves it alone.
fn silent_peer(own: IpAddr, target: IpAddr) -> std::net::TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(&SocketAddr::new(own, 0).into()).unwrap();
    socket.connect(&SocketAddr::new(target, PORT).into()).unwrap();
    let mut stream: std::net::TcpStream = socket.into();
    let can = crate::message::Capabilities { four_octets: true, ..Default::default() };
    let open = crate::message::Open { asn: 65003, hold: 0, id: Ipv4Addr::new(9, 9, 9, 9), can };
    stream.write_all(&wire::encode(&crate::message::Message::Open(open)).unwrap()).unwrap();
    stream.write_all(&wire::encode(&crate::message::Message::Keepalive).unwrap()).unwrap();
    stream
}

#[tokio::test]
async fn other_addresses_to_listen_on_take_the_same_port_at_once() {
    let [a, b] = two();
    let one = Speaker::start().unwrap();
    let listening = |addresses: Vec<IpAddr>| {
        let mut wish = wish(a, 65001, vec![Peer { passive: true, ..peer(a, b, 65002) }], &[]);
        wish.global.listen = Some(Listen { port: PORT + 1, addresses });
        wish
    };
    for addresses in [vec![a], vec![Ipv4Addr::UNSPECIFIED.into()], vec![a], vec![a, b]] {
        let number = one.set(listening(addresses.clone()));
        until(&one, b, "the wish is heard", |report| report.wish == number).await;
        assert_eq!(one.reports().borrow().listening, Listening::On, "{addresses:?}");
    }
    std::net::TcpStream::connect((b, PORT + 1)).expect("the last ones are open");
}
