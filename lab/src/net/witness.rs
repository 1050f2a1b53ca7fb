//! Somebody on a segment who asks all the time which node has an address, and hears everybody who says "I do".
//!
//! It is what `arping` does, for both families and fifty times a second. The questions are the kernel's own: it is made to
//! forget the neighbour and given a packet for it. What was asked and answered is judged afterwards, from a capture with
//! the kernel's times, so that a witness that is not scheduled for a while asks less and tells nothing wrong.

mod account;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::{Capture, Namespace};
pub use account::Account;
use account::Sighting;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(20);
/// Nobody listens there.
const DISCARD: u16 = 9;
const INTERFACE: &str = "eth0";

/// A witness at work.
pub struct Witness {
    own: String,
    capture: Capture,
    stop: Arc<AtomicBool>,
    asker: JoinHandle<()>,
}

impl Witness {
    /// Begins to ask for these addresses, from a network that nobody else uses: its neighbours are forgotten all the time.
    ///
    /// # Errors
    /// When the network has no `eth0`, or a program is missing.
    pub fn start(namespace: &Namespace, addresses: &[IpAddr]) -> Result<Self> {
        let own = mac(namespace)?;
        let capture = Capture::start(namespace, INTERFACE, "arp or icmp6")?;
        insist(namespace)?;
        let sockets =
            namespace.run(|| -> Result<_> { Ok((open(Ipv4Addr::UNSPECIFIED)?, open(Ipv6Addr::UNSPECIFIED)?)) })?;
        let mut ip = namespace.command("ip");
        ip.args(["-force", "-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut forgetting = ip.spawn().context("cannot run ip")?;
        let orders = forgetting.stdin.take().context("the input is a pipe")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stop2, addresses) = (Arc::clone(&stop), addresses.to_vec());
        let asker = thread::spawn(move || ask(&sockets, forgetting, orders, &addresses, &stop2));
        Ok(Self { own, capture, stop, asker })
    }

    /// What it has heard so far about an address.
    #[must_use]
    pub fn account(&self, address: IpAddr) -> Account {
        let lines = self.capture.lines();
        Account::of(lines.iter().filter_map(|line| Sighting::read(line, &self.own, address)))
    }

    /// Stops asking, and tells what it has heard about each of these addresses.
    ///
    /// # Errors
    /// When its thread failed.
    pub fn finish(self, addresses: &[IpAddr]) -> Result<Vec<Account>> {
        self.stop.store(true, Ordering::Relaxed);
        let accounts = addresses.iter().map(|address| self.account(*address)).collect();
        self.asker.join().map_err(|_| anyhow!("the asking thread failed"))?;
        Ok(accounts)
    }
}

/// The MAC address of a network's `eth0`, as `ip` and `tcpdump` write it.
///
/// # Errors
/// When it has none.
pub fn mac(namespace: &Namespace) -> Result<String> {
    let shown = namespace.ip(&["-j", "link", "show", "dev", INTERFACE])?;
    Ok(shown[0]["address"].as_str().with_context(|| format!("{} has no {INTERFACE}", namespace.name()))?.to_owned())
}

/// As long as nobody answers, the kernel repeats the question by itself. It usually does so once a second and gives up.
fn insist(namespace: &Namespace) -> Result<()> {
    for family in ["ipv4", "ipv6"] {
        let parameters = format!("net.{family}.neigh.{INTERFACE}");
        namespace.sysctl(&format!("{parameters}.retrans_time_ms"), &PAUSE.as_millis().to_string())?;
        namespace.sysctl(&format!("{parameters}.mcast_solicit"), "1000000")?;
        // Packets are only there to make it ask.
        namespace.sysctl(&format!("{parameters}.unres_qlen_bytes"), "0")?;
    }
    Ok(())
}

fn open(any: impl Into<IpAddr>) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((any.into(), 0))?;
    // A packet for a neighbour that does not answer must not hold up the next question.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn ask(
    (four, six): &(UdpSocket, UdpSocket),
    mut forgetting: Child,
    mut orders: ChildStdin,
    addresses: &[IpAddr],
    stop: &AtomicBool,
) {
    // Not `del`, with which `ip` ends where there is nothing to forget.
    let forget: String =
        addresses.iter().map(|address| format!("neigh flush to {address} dev {INTERFACE}\n")).collect();
    while !stop.load(Ordering::Relaxed) {
        for address in addresses {
            let socket = if address.is_ipv4() { four } else { six };
            // Nobody there is an answer, too.
            let _ = socket.send_to(b"who?", (*address, DISCARD));
        }
        // In this order: whoever answers does so while the packet is sent, and `ip` has until the next question.
        let _ = orders.write_all(forget.as_bytes());
        thread::sleep(PAUSE);
    }
    drop(orders);
    // It ends with its orders; there is nothing to be done about a failure.
    let _ = forgetting.wait();
}
