//! The two netlink sockets: one that asks, and one that listens.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::io::Errno;
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_timeout,
};
use rustix::net::{RecvFlags, recv};

use super::filter;
use super::message::{Message, Request, aligned, attribute, messages, u32_at};
use super::numbers::{
    NLM_F_ACK, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSGERR_ATTR_MSG,
    RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE, RTNLGRP_LINK, RTNLGRP_NEXTHOP,
};

/// The kernel never gives more than 32 KiB at a time in a dump, and notifications are far smaller.
const DATAGRAM: usize = 64 * 1024;

/// The kernel answers while it takes the request, so this only guards against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// Room for what the kernel tells while we are busy: some thousand notifications.
pub(super) const ROOM: usize = 4 * 1024 * 1024;

/// A "no" of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent) struct Refusal {
    /// Which one.
    pub(in crate::agent) errno: Errno,
    /// The kernel's own words, where it has some.
    pub(in crate::agent) words: Option<String>,
}

impl Refusal {
    fn of(errno: i32) -> Self {
        Self { errno: Errno::from_raw_os_error(errno), words: None }
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        refusal.errno.into()
    }
}

/// A socket that asks and waits for the answers.
pub(in crate::agent) struct Asking {
    socket: Socket,
    number: u32,
    buffer: Vec<u8>,
}

impl Asking {
    /// Opens one for links, addresses and routes, in the network namespace of this thread.
    pub(in crate::agent) fn open() -> io::Result<Self> {
        Self::open_to(NETLINK_ROUTE)
    }

    /// Opens one to this part of the kernel, in the network namespace of this thread.
    pub(in crate::agent) fn open_to(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        roomy(&socket, ROOM)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        // Niceties of newer kernels: short answers, words with a refusal, and dumps of one interface or table only. We
        // can do without.
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, number: 0, buffer: vec![0; DATAGRAM] })
    }

    /// Sends many requests at once and returns the kernel's answer to each, in their order. Every answer that is not an
    /// acknowledgement is given to `each`; a question that asks for none is answered by it.
    pub(in crate::agent) fn ask(
        &mut self,
        requests: Vec<Request>,
        mut each: impl FnMut(Message<'_>),
    ) -> io::Result<Vec<Result<(), Refusal>>> {
        let first = self.number.wrapping_add(1);
        let mut answers: Vec<Option<Result<(), Refusal>>> = vec![None; requests.len()];
        let questions: Vec<bool> = requests.iter().map(|request| !request.is_acknowledged()).collect();
        let mut bytes = Vec::with_capacity(requests.len() * 96);
        for request in requests {
            self.number = self.number.wrapping_add(1);
            bytes.extend(request.numbered(self.number));
        }
        self.socket.send(&bytes, 0)?;
        let mut missing = answers.len();
        while missing > 0 {
            let length = receive(&self.socket, &mut self.buffer, RecvFlags::empty())?;
            for message in messages(&self.buffer[..length]) {
                let place = message.number.wrapping_sub(first) as usize;
                // What has no place is the rest of an answer that somebody before us gave up waiting for.
                let Some(slot) = answers.get_mut(place) else { continue };
                let answer = if message.kind == NLMSG_ERROR { verdict(&message) } else { Ok(()) };
                if message.kind == NLMSG_ERROR || questions[place] {
                    missing -= usize::from(slot.is_none());
                    *slot = Some(answer);
                }
                if message.kind != NLMSG_ERROR {
                    each(message);
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Reads a complete list. `Ok(false)`: the list changed while it was read, so that what was given is worth nothing.
    pub(in crate::agent) fn dump(&mut self, request: Request, mut each: impl FnMut(Message<'_>)) -> io::Result<bool> {
        self.number = self.number.wrapping_add(1);
        self.socket.send(&request.numbered(self.number), 0)?;
        let mut whole = true;
        loop {
            let length = receive(&self.socket, &mut self.buffer, RecvFlags::empty())?;
            for message in messages(&self.buffer[..length]).filter(|message| message.number == self.number) {
                whole &= message.flags & NLM_F_DUMP_INTR == 0;
                match message.kind {
                    NLMSG_DONE | NLMSG_ERROR => return verdict(&message).map(|()| whole).map_err(io::Error::from),
                    _ => each(message),
                }
            }
        }
    }
}

/// A request for a complete list.
pub(in crate::agent) fn list(kind: u16, fixed: &[u8]) -> Request {
    Request::new(kind, NLM_F_REQUEST | NLM_F_DUMP, fixed)
}

/// A request for one thing, which comes or is refused.
pub(in crate::agent) fn question(kind: u16, fixed: &[u8]) -> Request {
    Request::new(kind, NLM_F_REQUEST, fixed)
}

/// A request to do something, to be acknowledged.
pub(super) fn order(kind: u16, flags: u16, fixed: &[u8]) -> Request {
    Request::new(kind, NLM_F_REQUEST | NLM_F_ACK | flags, fixed)
}

/// What an NLMSG_ERROR or NLMSG_DONE says: a negative error number or 0, and perhaps words.
fn verdict(message: &Message<'_>) -> Result<(), Refusal> {
    let code = u32_at(message.body, 0).unwrap_or_default().cast_signed();
    if code >= 0 {
        return Ok(());
    }
    let mut refusal = Refusal::of(-code);
    if message.kind == NLMSG_ERROR {
        // The request comes back: its header only if the answer is capped, else all of it.
        let returned = if message.flags & NLM_F_CAPPED != 0 { 16 } else { u32_at(message.body, 4).unwrap_or(16) };
        let rest = message.body.get(aligned(4 + returned as usize)..).unwrap_or_default();
        let words = attribute(rest, NLMSGERR_ATTR_MSG).map(|text| String::from_utf8_lossy(text));
        refusal.words = words.map(|text| text.trim_end_matches('\0').to_owned());
    }
    Err(refusal)
}

/// What the listening socket has.
pub(super) enum Heard {
    /// This many bytes of messages.
    Bytes(usize),
    /// Nothing more for now.
    Silence,
    /// The kernel told more than there was room for; some of it is lost.
    Overrun,
}

/// A socket that hears of every change of links, addresses and routes.
pub(super) struct Listening {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Listening {
    /// Opens one in the network namespace of this thread, with room for so many bytes.
    pub(super) fn open(room: usize) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        roomy(&socket, room)?;
        // Without it more is heard than needed, and thrown away.
        let _ = filter::only_default_routes(&socket);
        let groups = [RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE];
        for group in groups {
            socket.add_membership(group)?;
        }
        // Kernels before 5.3 have no next-hop objects.
        let _ = socket.add_membership(RTNLGRP_NEXTHOP);
        Ok(Self { socket, buffer: vec![0; DATAGRAM] })
    }

    /// The next datagram, without waiting.
    pub(super) fn hear(&mut self) -> io::Result<Heard> {
        match receive(&self.socket, &mut self.buffer, RecvFlags::TRUNC) {
            Ok(length) if length > self.buffer.len() => Ok(Heard::Overrun),
            Ok(length) => Ok(Heard::Bytes(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Heard::Silence),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOBUFS) => Ok(Heard::Overrun),
            Err(error) => Err(error),
        }
    }

    /// The messages of the datagram heard last.
    pub(super) fn messages(&self, length: usize) -> impl Iterator<Item = Message<'_>> {
        messages(&self.buffer[..length])
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn receive(socket: &Socket, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    loop {
        match recv(socket, &mut *buffer, flags) {
            Err(Errno::INTR) => {}
            other => return Ok(other?.1),
        }
    }
}

/// The agent has NET_ADMIN, with which the machine's limit for buffers does not apply; else as much as it allows.
fn roomy(socket: &Socket, room: usize) -> io::Result<()> {
    match set_socket_recv_buffer_size_force(socket, room) {
        Err(Errno::PERM) => Ok(set_socket_recv_buffer_size(socket, room)?),
        other => Ok(other?),
    }
}
