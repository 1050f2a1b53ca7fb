//! Who put an address there, read from the kernel's own bytes: the `ip` of Debian 12 does not show it.

use anyhow::{Result, ensure};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};

use crate::node::Node;

/// `struct nlmsghdr` and an empty `struct ifaddrmsg`: RTM_GETADDR as a dump.
const LIST: [u8; 24] = [24, 0, 0, 0, 22, 0, 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const IFA_PROTO: u16 = 11;
const DONE: u16 = 3;

/// The `IFA_PROTO` of each global address on an interface, 0 where it has none.
pub fn marks(node: &Node, link: &str) -> Result<Vec<u8>> {
    let index = node.index(link)?;
    let mut marks = Vec::new();
    let socket = node.namespace.run(|| Socket::new(NETLINK_ROUTE))?;
    socket.send(&LIST, 0)?;
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let (length, kind) = (word(rest, 0) as usize, half(rest, 4));
            if kind == DONE {
                return Ok(marks);
            }
            ensure!((24..=rest.len()).contains(&length), "a message of {length} bytes");
            if rest[19] == 0 && word(rest, 20) == index {
                marks.push(mark(&rest[24..length]));
            }
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
    }
}

fn mark(mut attributes: &[u8]) -> u8 {
    while attributes.len() > 4 {
        let length = usize::from(half(attributes, 0)).max(4);
        if half(attributes, 2) == IFA_PROTO {
            return attributes[4];
        }
        attributes = &attributes[length.next_multiple_of(4).min(attributes.len())..];
    }
    0
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
