//! A slow wire between one allocator and the API server: what was sent can be held and arrives later.
//!
//! This is what a leader cannot rule out when it loses its lease: a write that left in time and is still on its way.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long the far end does not hear that a sender is gone, as when a machine loses its power.
const UNHEARD: Duration = Duration::from_secs(3);

/// One wire. It is cut when this value is dropped.
pub struct Wire {
    pub port: u16,
    held: watch::Sender<bool>,
    /// How many links that were in use before have something on them that does not arrive.
    waiting: watch::Receiver<usize>,
    _task: JoinSet<()>,
}

impl Wire {
    /// A wire to `server`, as `host:port`.
    pub async fn to(server: String) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let ((held, news), (counter, waiting)) = (watch::channel(false), watch::channel(0));
        let counter = Arc::new(counter);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                links.spawn(link(near, server.clone(), news.clone(), counter.clone()));
            }
        });
        Ok(Self { port, held, waiting, _task: task })
    }

    /// From now on, what is sent to the server stays on the wire.
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// Everything on the wire arrives.
    pub fn let_go(&self) {
        self.held.send_replace(false);
    }

    pub fn is_held(&self) -> bool {
        *self.held.borrow()
    }

    /// Waits until so many requests are on the wire and do not arrive.
    pub async fn holds(&self, requests: usize) {
        // The counter lives as long as the wire.
        drop(self.waiting.clone().wait_for(|waiting| *waiting >= requests).await);
    }
}

/// A request that is held, for as long as it is.
struct Held<'a>(&'a watch::Sender<usize>);

impl<'a> Held<'a> {
    fn count(counter: &'a watch::Sender<usize>) -> Self {
        counter.send_modify(|waiting| *waiting += 1);
        Self(counter)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

async fn link(near: TcpStream, server: String, held: watch::Receiver<bool>, counter: Arc<watch::Sender<usize>>) {
    let Ok(far) = TcpStream::connect(server).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = to_server(near_in, far_out, held, &counter) => {}
        () = from_server(far_in, near_out) => {}
    }
}

async fn to_server(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut held: watch::Receiver<bool>,
    counter: &watch::Sender<usize>,
) {
    let mut buffer = vec![0; 64 * 1024];
    let mut greeted = false;
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        // What is held on a new link is a greeting, and no request follows it before it is answered.
        let _held = (*held.borrow() && greeted).then(|| Held::count(counter));
        greeted = true;
        if held.wait_for(|held| !held).await.is_err() || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
    tokio::time::sleep(UNHEARD).await;
}

/// Ends with the server only: a receiver that is gone does not keep its last words from arriving.
async fn from_server(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut buffer = vec![0; 64 * 1024];
    let mut listening = true;
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        listening = listening && to.write_all(&buffer[..length]).await.is_ok();
    }
}
