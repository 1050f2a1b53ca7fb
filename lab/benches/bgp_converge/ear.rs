//! When a router's kernel got a route, and when it lost it, by its own notifications.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use purelb_lab::net::Namespace;

/// Longer than anything here takes, so that a defect ends the run.
const PATIENCE: Duration = Duration::from_secs(60);
/// RTMGRP_IPV4_ROUTE.
const IPV4_ROUTES: u32 = 0x40;
/// A netlink message has this much in front of its attributes: its own header, and that of a route.
const HEAD: usize = 16 + 12;
/// RTA_DST.
const DESTINATION: u16 = 1;

/// What happened to a route: the kind of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Come = 24,
    Gone = 25,
}

/// Hears of every IPv4 route that a namespace gets or loses.
pub struct Ear {
    heard: Receiver<(Vec<u8>, Instant)>,
}

impl Ear {
    pub fn new(namespace: &Namespace) -> Result<Self> {
        let socket = namespace.run(|| -> Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.set_rx_buf_sz(8 << 20)?;
            socket.bind(&SocketAddr::new(0, IPV4_ROUTES))?;
            Ok(socket)
        })?;
        let (tell, heard) = channel();
        // It ends when nobody listens any more, with the next message; it is one thread of a bench.
        thread::spawn(move || listen(&socket, &tell));
        Ok(Self { heard })
    }

    /// When the last of these host routes had come, or gone.
    pub fn when(&self, change: Change, routes: impl IntoIterator<Item = Ipv4Addr>) -> Result<Instant> {
        let mut missing: BTreeSet<Ipv4Addr> = routes.into_iter().collect();
        let (deadline, mut last) = (Instant::now() + PATIENCE, Instant::now());
        while !missing.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let (message, at) =
                self.heard.recv_timeout(left).with_context(|| format!("{} routes did not change", missing.len()))?;
            if kind(&message) == Some(change as u16)
                && destination(&message).is_some_and(|route| missing.remove(&route))
            {
                last = at;
            }
        }
        Ok(last)
    }
}

fn listen(socket: &Socket, tell: &Sender<(Vec<u8>, Instant)>) {
    while let Ok((message, _)) = socket.recv_from_full() {
        if tell.send((message, Instant::now())).is_err() {
            return;
        }
    }
}

fn kind(message: &[u8]) -> Option<u16> {
    message.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]))
}

fn destination(message: &[u8]) -> Option<Ipv4Addr> {
    let mut attributes = message.get(HEAD..)?;
    while let [a, b, c, d, ..] = *attributes {
        let (length, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let value = attributes.get(4..length)?;
        if kind == DESTINATION {
            return <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}
