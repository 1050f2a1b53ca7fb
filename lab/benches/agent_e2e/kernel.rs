//! Bare netlink: when the kernel told of an address, and how long one message to add one takes.

use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use purelb_lab::net::Namespace;

/// Longer than anything here takes, so that a defect ends the run.
const PATIENCE: Duration = Duration::from_secs(60);
/// RTMGRP_IPV4_IFADDR.
const IPV4_ADDRESSES: u32 = 0x10;
const RTM_NEWADDR: u16 = 20;
/// NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE.
const FLAGS: u16 = 0x1 | 0x4 | 0x400;

/// Hears of every address that a namespace gets.
pub struct Ear {
    heard: Receiver<(Vec<u8>, Instant)>,
}

impl Ear {
    pub fn new(namespace: &Namespace) -> Result<Self> {
        let socket = namespace.run(|| -> Result<Socket> {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.set_rx_buf_sz(8 << 20)?;
            socket.bind(&SocketAddr::new(0, IPV4_ADDRESSES))?;
            Ok(socket)
        })?;
        let (tell, heard) = channel();
        // It ends when nobody listens any more, with the next message; it is one thread of a bench.
        thread::spawn(move || listen(&socket, &tell));
        Ok(Self { heard })
    }

    /// When the kernel told that this address is there.
    pub fn when(&self, address: Ipv4Addr) -> Result<Instant> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (message, at) = self.heard.recv_timeout(left).with_context(|| format!("{address} did not come"))?;
            let kind = message.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
            if kind == Some(RTM_NEWADDR) && message.windows(4).any(|part| part == address.octets()) {
                return Ok(at);
            }
        }
    }
}

fn listen(socket: &Socket, tell: &Sender<(Vec<u8>, Instant)>) {
    while let Ok((message, _)) = socket.recv_from_full() {
        if tell.send((message, Instant::now())).is_err() {
            return;
        }
    }
}

/// Puts addresses on one interface with as little as possible around the message.
pub struct Hand {
    socket: Socket,
    index: u32,
}

impl Hand {
    pub fn new(namespace: &Namespace, interface: &str) -> Result<Self> {
        let link = namespace.ip(&["-j", "link", "show", "dev", interface])?;
        let index = link[0]["ifindex"].as_u64().context("an interface has an index")?;
        let mut socket = namespace.run(|| Socket::new(NETLINK_ROUTE))?;
        socket.bind_auto()?;
        Ok(Self { socket, index: u32::try_from(index)? })
    }

    /// Adds one and waits for the kernel's word.
    pub fn add(&self, address: Ipv4Addr) -> Result<Duration> {
        let message = message(self.index, address);
        let begun = Instant::now();
        self.socket.send(&message, 0)?;
        let (answer, _) = self.socket.recv_from_full()?;
        let took = begun.elapsed();
        // NLMSG_ERROR with the code 0 is "done".
        if answer.get(16..20) != Some(&[0; 4]) {
            bail!("the kernel refused {address}: {answer:?}");
        }
        Ok(took)
    }
}

/// RTM_NEWADDR with IFA_LOCAL and IFA_ADDRESS, as rtnetlink(7) has it.
fn message(index: u32, address: Ipv4Addr) -> Vec<u8> {
    let mut body = vec![2, 32, 0, 0];
    body.extend(index.to_ne_bytes());
    for attribute in [2u16, 1] {
        body.extend(8u16.to_ne_bytes());
        body.extend(attribute.to_ne_bytes());
        body.extend(address.octets());
    }
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(RTM_NEWADDR.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}
