//! A client that never stops asking, and what it asks: how long was an address silent, and who answered?
//!
//! Packets are counted by number at the receiver. A client that is itself not scheduled for a while sends nothing in that
//! time, so that it cannot mistake its own pause for one of the service. And its kernel must not keep packets for a
//! neighbour it is still looking for: they would be answered late, and the silence would not show.

mod report;

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use socket2::{Domain, Socket, Type};

pub use report::Report;

use super::Namespace;
use report::Answer;

/// Between two packets of a client: twice the thousand per second that are promised, so that a busy machine still makes it.
const PACE: Duration = Duration::from_micros(500);
/// How long a client listens after its last packet if answers are missing.
const LINGER: Duration = Duration::from_millis(300);
/// How often a listening thread looks whether it should end.
const LOOK: Duration = Duration::from_millis(20);
/// Room for seconds of packets: a receiver that is not scheduled for a while must lose none.
const ROOM: usize = 4 << 20;
/// The number in front of each packet.
const NUMBER: usize = size_of::<u64>();

/// A UDP server on one node and one address, which signs its answers with its name.
///
/// It may be started before the node has the address, and it goes on when the address comes back: only the node's kernel
/// decides whether packets reach it.
pub struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Serves this address and port in the namespace, signing with the namespace's name.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn start(namespace: &Namespace, at: SocketAddr) -> Result<Self> {
        let socket = namespace.run(|| bound(at)).with_context(|| format!("cannot listen on {at}"))?;
        let name = namespace.name().to_owned();
        let stop = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&stop);
        let thread = Some(thread::spawn(move || answer(&socket, &name, &watched)));
        Ok(Self { stop, thread })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It ends by itself; there is nothing to be done about a panic in it.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn answer(socket: &UdpSocket, name: &str, stop: &AtomicBool) {
    let mut packet = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, client)) = socket.recv_from(&mut packet) else { continue };
        let reply = [&packet[..length], name.as_bytes()].concat();
        // A failure shows at the client.
        let _ = socket.send_to(&reply, client);
    }
}

/// A client at work.
pub struct Probe {
    socket: Arc<UdpSocket>,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<Vec<Instant>>,
    receiver: JoinHandle<()>,
    answers: Arc<Mutex<Vec<Answer>>>,
}

impl Probe {
    /// Begins to ask this address from the namespace. Only answers that come from that very address count.
    ///
    /// # Errors
    /// When the namespace has no route to the address.
    pub fn start(namespace: &Namespace, target: SocketAddr) -> Result<Self> {
        let socket = namespace.run(|| impatient().and_then(|()| connected(target)));
        let socket = Arc::new(socket.with_context(|| format!("{} cannot reach {target}", namespace.name()))?);
        let stop = Arc::new(AtomicBool::new(false));
        let answers = Arc::new(Mutex::new(Vec::new()));
        let (socket2, stop2) = (Arc::clone(&socket), Arc::clone(&stop));
        let sender = thread::spawn(move || send(&socket2, &stop2));
        let (socket2, stop2, answers2) = (Arc::clone(&socket), Arc::clone(&stop), Arc::clone(&answers));
        let receiver = thread::spawn(move || receive(&socket2, &stop2, &answers2));
        Ok(Self { socket, stop, sender, receiver, answers })
    }

    /// How many answers have come from this node so far.
    ///
    /// # Panics
    /// Never: nobody panics while holding the lock.
    #[must_use]
    pub fn answers_of(&self, node: &str) -> usize {
        self.answers.lock().expect("nobody panics while holding it").iter().filter(|answer| answer.node == node).count()
    }

    /// How many answers have come so far.
    ///
    /// # Panics
    /// Never: nobody panics while holding the lock.
    #[must_use]
    pub fn answers(&self) -> usize {
        self.answers.lock().expect("nobody panics while holding it").len()
    }

    /// Stops asking, waits a moment for answers still on their way, and tells what happened.
    ///
    /// # Errors
    /// When a thread of the client failed, or nothing was sent.
    ///
    /// # Panics
    /// Never: nobody panics while holding the lock.
    pub fn finish(self) -> Result<Report> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().map_err(|_| anyhow::anyhow!("the sending thread failed"))?;
        let _still_open = self.socket;
        let deadline = Instant::now() + LINGER;
        while self.answers.lock().expect("nobody panics while holding it").len() < sent.len()
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(1));
        }
        self.receiver.join().map_err(|_| anyhow::anyhow!("the receiving thread failed"))?;
        ensure!(!sent.is_empty(), "nothing was sent");
        let answers = self.answers.lock().expect("nobody panics while holding it");
        Ok(Report::of(&sent, &answers))
    }
}

fn send(socket: &UdpSocket, stop: &AtomicBool) -> Vec<Instant> {
    let mut sent = Vec::new();
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        sent.push(Instant::now());
        // A refusal (no neighbour, an ICMP error of an earlier packet) is a packet that got no answer.
        let _ = socket.send(&(sent.len() as u64 - 1).to_be_bytes());
        // After a pause of our own we go on at the usual pace instead of making up for it in a burst.
        next = (next + PACE).max(Instant::now());
    }
    sent
}

fn receive(socket: &UdpSocket, stop: &AtomicBool, answers: &Mutex<Vec<Answer>>) {
    let mut packet = [0; 128];
    let mut end = None;
    while end.is_none_or(|end| Instant::now() < end) {
        if end.is_none() && stop.load(Ordering::Relaxed) {
            end = Some(Instant::now() + LINGER);
        }
        let Ok(length) = socket.recv(&mut packet) else { continue };
        let Some((number, node)) = packet[..length].split_first_chunk::<NUMBER>() else { continue };
        let answer = Answer { number: u64::from_be_bytes(*number), node: String::from_utf8_lossy(node).into_owned() };
        answers.lock().expect("nobody panics while holding it").push(answer);
    }
}

/// Bound to an address that the node may not have yet.
fn bound(at: SocketAddr) -> Result<UdpSocket> {
    let socket = roomy(at)?;
    if at.is_ipv6() {
        socket.set_freebind_v6(true)?;
        socket.set_only_v6(true)?;
    } else {
        socket.set_freebind_v4(true)?;
    }
    socket.bind(&at.into())?;
    Ok(socket.into())
}

fn connected(target: SocketAddr) -> Result<UdpSocket> {
    let socket = roomy(target)?;
    let any = if target.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    socket.bind(&SocketAddr::new(any, 0).into())?;
    socket.connect(&target.into())?;
    Ok(socket.into())
}

/// Makes the kernel drop all but one of the packets for a neighbour that has not answered yet.
fn impatient() -> Result<()> {
    for family in ["ipv4", "ipv6"] {
        for interface in fs::read_dir(format!("/proc/sys/net/{family}/neigh"))? {
            fs::write(interface?.path().join("unres_qlen_bytes"), "0").context("cannot limit the neighbour queue")?;
        }
    }
    Ok(())
}

fn roomy(peer: SocketAddr) -> Result<Socket> {
    let socket = Socket::new(Domain::for_address(peer), Type::DGRAM, None)?;
    socket.set_recv_buffer_size(ROOM)?;
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}
