//! Clients behind a router, and the back-ends that answer them with the name of their node.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use purelb_lab::net::Namespace;

use crate::story::PORT;

/// Only a guard against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// A back-end on one node, for every address the node has.
pub struct Server {
    stop: Arc<AtomicBool>,
    namespace: Namespace,
    port: u16,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(namespace: &Namespace, port: u16) -> Result<Self> {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let listener = namespace.run(|| TcpListener::bind(any)).context("the port of the back-end is taken")?;
        let stop = Arc::new(AtomicBool::new(false));
        let (watched, name) = (Arc::clone(&stop), namespace.name().to_owned());
        let thread = Some(thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                if watched.load(Ordering::Relaxed) {
                    return;
                }
                // A client that has gone shows on the other side.
                let _ = client.write_all(name.as_bytes());
            }
        }));
        Ok(Self { stop, namespace: namespace.clone(), port, thread })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // One more client, so that it looks.
        let _ = self.namespace.run(|| TcpStream::connect((Ipv6Addr::LOCALHOST, self.port)));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Connects so often, one after the other, each time from another port, and counts who answered.
pub fn connect(client: &Namespace, address: IpAddr, times: usize) -> Result<BTreeMap<String, usize>> {
    client.run(|| {
        let mut shares = BTreeMap::new();
        for _ in 0..times {
            let mut stream = TcpStream::connect_timeout(&(address, PORT).into(), PATIENCE)
                .with_context(|| format!("{address} does not answer"))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut name = String::new();
            stream.read_to_string(&mut name)?;
            *shares.entry(name).or_default() += 1;
        }
        Ok(shares)
    })
}
