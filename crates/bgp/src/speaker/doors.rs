//! Where routers can connect to us, and with which passwords.

mod locks;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::TRY_DOORS;
use crate::report::{Listening, Report};
use crate::socket;
use crate::wish::{Listen, Peer};
use locks::{Locks, Passwords};

/// The pause after the kernel could not accept: it may be out of file descriptors, and will not have more at once.
const AFTER_A_REFUSAL: Duration = Duration::from_millis(100);

/// All listening sockets.
pub(super) struct Doors {
    open: BTreeMap<SocketAddr, Door>,
    callers: mpsc::Sender<(TcpStream, SocketAddr)>,
    retry: Option<Instant>,
    /// Peers whose password is not on every socket: a connection of theirs may be anybody's.
    pub(super) unlocked: BTreeSet<IpAddr>,
}

struct Door {
    listener: Arc<TcpListener>,
    locks: Locks,
    task: AbortHandle,
}

impl Doors {
    pub(super) fn new(callers: mpsc::Sender<(TcpStream, SocketAddr)>) -> Self {
        Self { open: BTreeMap::new(), callers, retry: None, unlocked: BTreeSet::new() }
    }

    /// When to try again what did not work.
    pub(super) fn retry(&self) -> Option<Instant> {
        self.retry
    }

    /// Whether a connection from this peer can be trusted to be from it, as far as its password goes.
    pub(super) fn lets_in(&self, peer: IpAddr) -> bool {
        !self.unlocked.contains(&peer)
    }

    /// Opens, closes, and changes the locks.
    pub(super) fn arrange(
        &mut self,
        listen: Option<&Listen>,
        peers: &BTreeMap<IpAddr, &Peer>,
        reports: &watch::Sender<Report>,
    ) {
        let addresses = listen.map(addresses).unwrap_or_default();
        self.open.retain(|address, _| addresses.contains(address));
        let mut trouble = None;
        for address in &addresses {
            if let Err(error) = self.open_door(*address)
                && !may_lack(listen, *address, &error)
            {
                trouble = Some(sentence(*address, &error));
            }
        }
        let failed: Vec<_> = self.open.values_mut().flat_map(|door| door.change_locks(peers)).collect();
        self.unlocked = failed.iter().map(|(peer, _)| *peer).collect();
        let trouble = trouble.or_else(|| failed.first().map(|(peer, error)| unlocked(*peer, error)));
        self.retry = trouble.is_some().then(|| Instant::now() + TRY_DOORS);
        let state = match (trouble, addresses.is_empty()) {
            (Some(trouble), _) => Listening::Failed(trouble),
            (None, true) => Listening::Off,
            (None, false) => Listening::On,
        };
        reports.send_if_modified(|board| std::mem::replace(&mut board.listening, state.clone()) != state);
    }

    fn open_door(&mut self, address: SocketAddr) -> io::Result<()> {
        if self.open.contains_key(&address) {
            return Ok(());
        }
        let listener = Arc::new(TcpListener::from_std(socket::listener(address)?.into())?);
        let task = tokio::spawn(welcome(listener.clone(), self.callers.clone())).abort_handle();
        self.open.insert(address, Door { listener, locks: Locks::default(), task });
        Ok(())
    }
}

impl Door {
    /// Sets the passwords that are wanted, and says for whom that failed.
    fn change_locks(&mut self, peers: &BTreeMap<IpAddr, &Peer>) -> Vec<(IpAddr, io::Error)> {
        let Ok(own) = self.listener.local_addr() else { return Vec::new() };
        let ours = peers.values().filter(|peer| peer.address.is_ipv4() == own.is_ipv4());
        let wanted: Passwords = ours.filter_map(|peer| Some((peer.address, peer.password.clone()?))).collect();
        let socket = SockRef::from(&*self.listener);
        let failed = self.locks.change(&wanted, |peer, secret| socket::set_password(&socket, peer, secret));
        for (peer, error) in &failed {
            tracing::warn!(%peer, %error, "bgp password not set on the listening socket");
        }
        failed
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
        // The task lets go of the socket only when it has its turn, and the next door may want the same port now.
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
    }
}

async fn welcome(listener: Arc<TcpListener>, callers: mpsc::Sender<(TcpStream, SocketAddr)>) {
    loop {
        match listener.accept().await {
            Ok(caller) => {
                if callers.send(caller).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "bgp connection not accepted");
                sleep(AFTER_A_REFUSAL).await;
            }
        }
    }
}

fn addresses(listen: &Listen) -> Vec<SocketAddr> {
    let all = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let chosen = if listen.addresses.is_empty() { &all[..] } else { &listen.addresses };
    chosen.iter().map(|address| SocketAddr::new(*address, listen.port)).collect()
}

/// A machine without IPv6 is fine as long as nobody asked for it by name.
fn may_lack(listen: Option<&Listen>, address: SocketAddr, error: &io::Error) -> bool {
    let unasked = listen.is_some_and(|listen| listen.addresses.is_empty());
    let lacking = matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL));
    unasked && lacking && address.is_ipv6()
}

fn sentence(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "port {} is taken by another program on this node, perhaps another BGP daemon: routers cannot connect to us, \
             and only sessions that we dial come up; stop the other program, or set listenPort to -1",
            address.port()
        ),
        io::ErrorKind::PermissionDenied => format!(
            "not allowed to listen on port {}: the container lacks the capability NET_BIND_SERVICE; only sessions that we \
             dial come up",
            address.port()
        ),
        _ => format!("cannot listen on {address}: {error}; only sessions that we dial come up"),
    }
}

fn unlocked(peer: IpAddr, error: &io::Error) -> String {
    format!(
        "the password of {peer} cannot be set on the listening socket: {error}; connections from it are refused until it \
         can, and only sessions that we dial come up"
    )
}
