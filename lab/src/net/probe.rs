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
/// How much of a pause of its own a client makes up for: a time slice of a busy machine.
const MADE_UP_FOR: Duration = Duration::from_millis(10);
/// How long a client that misses answers goes on listening after the last one: whoever answers may not be scheduled.
const LINGER: Duration = Duration::from_secs(1);
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

/// How a client asks.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// From how many ports it asks, in turn. Routers and kube-proxy choose by port: one port sees one way only.
    pub flows: usize,
    /// Between two packets.
    pub pace: Duration,
}

impl Default for Manner {
    /// From one port, two thousand times in a second.
    fn default() -> Self {
        Self { flows: 1, pace: PACE }
    }
}

/// A client at work.
pub struct Probe {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
    sender: JoinHandle<Vec<Instant>>,
    receivers: Vec<JoinHandle<()>>,
    answers: Arc<Mutex<Vec<Answer>>>,
    manner: Manner,
}

impl Probe {
    /// Begins to ask this address from the namespace. Only answers that come from that very address count.
    ///
    /// # Errors
    /// When the namespace has no route to the address.
    pub fn start(namespace: &Namespace, target: SocketAddr) -> Result<Self> {
        Self::start_as(namespace, target, Manner::default())
    }

    /// The same in another manner.
    ///
    /// # Errors
    /// See [`Probe::start`].
    pub fn start_as(namespace: &Namespace, target: SocketAddr, manner: Manner) -> Result<Self> {
        let sockets = || -> Result<Arc<[UdpSocket]>> {
            impatient()?;
            (0..manner.flows.max(1)).map(|_| connected(target)).collect()
        };
        let sockets = namespace.run(sockets).with_context(|| format!("{} cannot reach {target}", namespace.name()))?;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let answers = Arc::new(Mutex::new(Vec::new()));
        let (sockets2, stop2) = (Arc::clone(&sockets), Arc::clone(&stop));
        let sender = thread::spawn(move || send(&sockets2, manner.pace, &stop2));
        let receiver = |flow: usize| {
            let (sockets, done, answers) = (Arc::clone(&sockets), Arc::clone(&done), Arc::clone(&answers));
            thread::spawn(move || receive(&sockets[flow], &done, &answers))
        };
        let receivers = (0..sockets.len()).map(receiver).collect();
        Ok(Self { stop, done, sender, receivers, answers, manner })
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
        listen_for(sent.len(), &self.answers);
        self.done.store(true, Ordering::Relaxed);
        for receiver in self.receivers {
            receiver.join().map_err(|_| anyhow::anyhow!("a receiving thread failed"))?;
        }
        ensure!(!sent.is_empty(), "nothing was sent");
        let answers = self.answers.lock().expect("nobody panics while holding it");
        Ok(Report::of(&sent, &answers, self.manner))
    }
}

/// Until this many answers have come, or none has for a while.
fn listen_for(all: usize, answers: &Mutex<Vec<Answer>>) {
    let count = || answers.lock().expect("nobody panics while holding it").len();
    let (mut come, mut since) = (count(), Instant::now());
    while come < all && since.elapsed() < LINGER {
        thread::sleep(Duration::from_millis(1));
        let now = count();
        if now > come {
            (come, since) = (now, Instant::now());
        }
    }
}

fn send(sockets: &[UdpSocket], pace: Duration, stop: &AtomicBool) -> Vec<Instant> {
    let mut sent = Vec::new();
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let number = sent.len();
        sent.push(Instant::now());
        // A refusal (no neighbour, an ICMP error of an earlier packet) is a packet that got no answer.
        let _ = sockets[number % sockets.len()].send(&(number as u64).to_be_bytes());
        // A short pause of our own is made up for, or a busy machine would make us slow. After a longer one we go on at the
        // usual pace: a burst would say nothing of the time that was missed.
        let now = Instant::now();
        next = (next + pace).max(now.checked_sub(MADE_UP_FOR).unwrap_or(now));
    }
    sent
}

fn receive(socket: &UdpSocket, done: &AtomicBool, answers: &Mutex<Vec<Answer>>) {
    let mut packet = [0; 128];
    while !done.load(Ordering::Relaxed) {
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
