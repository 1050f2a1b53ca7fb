//! nftables, as far as questions to kube-proxy's rules need it: one element of a map, one chain, and whether anything changed.
//!
//! Own messages (linux/netfilter/nfnetlink.h, nf_tables.h): nothing is ever written, and no map is ever read as a whole.

use std::io;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_NETFILTER;
use purelb_core::pool::{Port, Protocol};
use rustix::io::Errno;

use crate::agent::kernel::message::{Message, Request, attribute, attributes};
use crate::agent::kernel::numbers::{AF_INET, AF_INET6};
use crate::agent::kernel::{Asking, list, question};

/// `NFNL_SUBSYS_NFTABLES`, in the upper half of each kind of message.
const NFTABLES: u16 = 10 << 8;
const GET_CHAIN: u16 = NFTABLES | 4;
const GET_RULE: u16 = NFTABLES | 7;
const GET_SET: u16 = NFTABLES | 10;
const GET_ELEMENT: u16 = NFTABLES | 13;
const GET_GENERATION: u16 = NFTABLES | 16;

/// `struct nfgenmsg`, which every message begins with.
const HEADER: usize = 4;

/// The attributes of chains, rules, sets and elements begin with the table, then the name.
const TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const SET_NAME: u16 = 2;
const CHAIN_NAME: u16 = 3;
const RULE_EXPRESSIONS: u16 = 4;
const ELEMENTS: u16 = 3;
const LIST_ITEM: u16 = 1;
const ELEMENT_KEY: u16 = 1;
const DATA_VALUE: u16 = 1;
const GENERATION_ID: u16 = 1;

/// So many questions go to the kernel with one call; the answers fit the buffer many times over.
const AT_ONCE: usize = 256;

/// A family of tables: `ip` or `ip6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Family(u8);

impl Family {
    pub(super) const BOTH: [Family; 2] = [Family(AF_INET), Family(AF_INET6)];

    /// The one of an address.
    pub(super) fn of(addr: IpAddr) -> Self {
        Self(if addr.is_ipv4() { AF_INET } else { AF_INET6 })
    }

    /// The fixed part of a message: family, version 0, no resource.
    fn header(self) -> [u8; HEADER] {
        [self.0, 0, 0, 0]
    }
}

/// A socket to netfilter.
pub(super) struct Netfilter {
    asking: Asking,
}

impl Netfilter {
    /// Opens one in the network namespace of this thread.
    pub(super) fn open() -> io::Result<Self> {
        Asking::open_to(NETLINK_NETFILTER).map(|asking| Self { asking })
    }

    /// A number that is another after each change of any rule: as long as it stays, every answer does.
    ///
    /// Ask this first. Without NET_ADMIN the kernel refuses the first of many questions and says nothing to the others.
    pub(super) fn generation(&mut self) -> io::Result<u32> {
        let mut id = None;
        let request = question(GET_GENERATION, &[0; HEADER]);
        let answers = self.asking.ask(vec![request], |message| id = generation(&message))?;
        answers.into_iter().collect::<Result<Vec<()>, _>>()?;
        id.ok_or_else(|| io::Error::other("a generation without a number"))
    }

    /// Whether each of these is there.
    pub(super) fn are_there(&mut self, things: Vec<Request>) -> io::Result<Vec<bool>> {
        let mut found = Vec::with_capacity(things.len());
        let mut things = things.into_iter().peekable();
        while things.peek().is_some() {
            for answer in self.asking.ask(things.by_ref().take(AT_ONCE).collect(), |_| ())? {
                found.push(match answer {
                    Ok(()) => true,
                    Err(refusal) if refusal.errno == Errno::NOENT => false,
                    Err(refusal) => return Err(refusal.into()),
                });
            }
        }
        Ok(found)
    }

    /// Gives the expressions of each rule of a chain. `Ok(false)`: the rules changed meanwhile, so that some may be missing.
    pub(super) fn rules(
        &mut self,
        family: Family,
        (table, chain): (&str, &str),
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<bool> {
        let request = list(GET_RULE, &family.header());
        let request = request.attribute(TABLE, &text(table)).attribute(RULE_CHAIN, &text(chain));
        self.asking.dump(request, |message| {
            let body = message.body.get(HEADER..).unwrap_or_default();
            attribute(body, RULE_EXPRESSIONS).into_iter().for_each(&mut each);
        })
    }
}

/// Asks for a set or map.
pub(super) fn set(family: Family, (table, name): (&str, &str)) -> Request {
    let request = question(GET_SET, &family.header());
    request.attribute(TABLE, &text(table)).attribute(SET_NAME, &text(name))
}

/// Asks for a chain.
pub(super) fn chain(family: Family, (table, name): (&str, &str)) -> Request {
    let request = question(GET_CHAIN, &family.header());
    request.attribute(TABLE, &text(table)).attribute(CHAIN_NAME, &text(name))
}

/// Asks for the element of a map whose keys are an address, a protocol and a port.
pub(super) fn element(family: Family, (table, map): (&str, &str), key: &[u8]) -> Request {
    let request = question(GET_ELEMENT, &family.header());
    let request = request.attribute(TABLE, &text(table)).attribute(SET_NAME, &text(map));
    request.nested(ELEMENTS, |list| {
        list.nested(LIST_ITEM, |item| item.nested(ELEMENT_KEY, |data| data.attribute(DATA_VALUE, key)))
    })
}

/// Address . protocol . port as a key: each part in network order, at the begin of a register of four bytes or more.
pub(super) fn key(addr: IpAddr, port: Port) -> Vec<u8> {
    let mut key = match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    };
    key.extend([number(port.protocol), 0, 0, 0]);
    key.extend(port.number.to_be_bytes());
    key.extend([0, 0]);
    key
}

/// The number of a protocol in an IP header.
pub(super) const fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        Protocol::Sctp => 132,
    }
}

/// What a list of attributes contains: of expressions, their names and what belongs to them.
pub(super) fn items(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    attributes(list).filter_map(|(kind, item)| (kind == LIST_ITEM).then_some(item))
}

fn generation(message: &Message<'_>) -> Option<u32> {
    let id = attribute(message.body.get(HEADER..)?, GENERATION_ID)?;
    id.try_into().map(u32::from_be_bytes).ok()
}

/// A name as the kernel wants it, with a zero at its end.
fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_key_fills_whole_registers() {
        let port = |protocol, number| Port { protocol, number };
        let v4 = key("192.0.2.1".parse().unwrap(), port(Protocol::Tcp, 80));
        assert_eq!(v4, [192, 0, 2, 1, 6, 0, 0, 0, 0, 80, 0, 0]);
        let v6 = key("2001:db8::1".parse().unwrap(), port(Protocol::Udp, 0x1234));
        assert_eq!(v6[..16], [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(v6[16..], [17, 0, 0, 0, 0x12, 0x34, 0, 0]);
    }
}
