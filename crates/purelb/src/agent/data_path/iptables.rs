//! kube-proxy's rules in iptables mode, where iptables writes them through nftables: which address and port each one is for.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use purelb_core::data_path::Question;
use purelb_core::pool::{Port, Protocol};

use super::netfilter::{Family, Netfilter, chain, items, number};
use crate::agent::kernel::message::attribute;

/// One rule for each address and port that has endpoints.
const SERVICES: (&str, &str) = ("nat", "KUBE-SERVICES");
/// One rule for each address and port whose traffic from outside is rejected or dropped.
const WITHOUT_ENDPOINTS: (&str, &str) = ("filter", "KUBE-EXTERNAL-SERVICES");

const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;

/// Whether kube-proxy has written rules here.
pub(super) fn is_there(netfilter: &mut Netfilter) -> io::Result<bool> {
    let chains = Family::BOTH.map(|family| chain(family, SERVICES));
    Ok(netfilter.are_there(chains.into())?.contains(&true))
}

/// The addresses and ports that have rules.
#[derive(Debug, Default)]
pub(super) struct Rules {
    services: BTreeSet<(IpAddr, Port)>,
    without_endpoints: BTreeSet<(IpAddr, Port)>,
}

impl Rules {
    /// Reads them. The chains are read as a whole, for rules have no names: only after a change, see [`Netfilter::generation`].
    pub(super) fn read(netfilter: &mut Netfilter) -> io::Result<Self> {
        let mut rules = Self::default();
        for family in Family::BOTH {
            fill(netfilter, family, SERVICES, &mut rules.services)?;
            fill(netfilter, family, WITHOUT_ENDPOINTS, &mut rules.without_endpoints)?;
        }
        Ok(rules)
    }

    /// Whether they do what a Service needs.
    pub(super) fn answer(&self, question: &Question) -> bool {
        question.ports.iter().all(|port| {
            let key = (question.addr, *port);
            let refused = self.without_endpoints.contains(&key);
            if question.endpoints { self.services.contains(&key) && !refused } else { refused }
        })
    }
}

/// A list that changed while it was read may lack some: then they are missing, and are found after the change.
fn fill(
    netfilter: &mut Netfilter,
    family: Family,
    of: (&str, &str),
    into: &mut BTreeSet<(IpAddr, Port)>,
) -> io::Result<()> {
    match netfilter.rules(family, of, |expressions| into.extend(destination(expressions))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map(drop),
    }
}

/// What an expression has put into a register.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loaded {
    Address,
    Protocol,
    Port,
}

/// The one address and port that a rule is for. The rule compares what it loads from a packet, in any order.
fn destination(expressions: &[u8]) -> Option<(IpAddr, Port)> {
    let (mut loaded, mut addr, mut protocol, mut port) = (None, None, None, None);
    for expression in items(expressions) {
        let data = attribute(expression, EXPRESSION_DATA).unwrap_or_default();
        match attribute(expression, EXPRESSION_NAME)? {
            b"payload\0" => loaded = payload(data),
            b"meta\0" => loaded = (be32(data, META_KEY) == Some(L4_PROTOCOL)).then_some(Loaded::Protocol),
            b"cmp\0" => {
                let (operator, value) = compared(data)?;
                match loaded.filter(|_| operator == EQUAL) {
                    Some(Loaded::Address) => addr = address(value),
                    Some(Loaded::Protocol) => protocol = value.first().copied(),
                    Some(Loaded::Port) => port = value.try_into().map(u16::from_be_bytes).ok(),
                    None => {}
                }
            }
            b"match\0" => port = matched(data).or(port),
            _ => {}
        }
    }
    let protocol =
        [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter().find(|it| Some(number(*it)) == protocol)?;
    Some((addr?, Port { protocol, number: port? }))
}

const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LENGTH: u16 = 4;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const META_KEY: u16 = 2;
const L4_PROTOCOL: u32 = 16;
const COMPARE_OPERATOR: u16 = 2;
const COMPARE_DATA: u16 = 3;
const EQUAL: u32 = 0;
const MATCH_NAME: u16 = 1;
const MATCH_INFO: u16 = 3;

fn payload(data: &[u8]) -> Option<Loaded> {
    match (be32(data, PAYLOAD_BASE)?, be32(data, PAYLOAD_OFFSET)?, be32(data, PAYLOAD_LENGTH)?) {
        (NETWORK_HEADER, 16, 4) | (NETWORK_HEADER, 24, 16) => Some(Loaded::Address),
        (NETWORK_HEADER, 9 | 6, 1) => Some(Loaded::Protocol),
        (TRANSPORT_HEADER, 2, 2) => Some(Loaded::Port),
        _ => None,
    }
}

fn compared(data: &[u8]) -> Option<(u32, &[u8])> {
    Some((be32(data, COMPARE_OPERATOR)?, attribute(attribute(data, COMPARE_DATA)?, DATA_VALUE)?))
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(value).map(IpAddr::from)).ok()
}

/// The destination port of a match in the old form, where it is one and not a range: two ranges of ports of the machine's byte
/// order, for TCP and UDP those of the source first (linux/netfilter/xt_tcpudp.h, xt_sctp.h).
fn matched(data: &[u8]) -> Option<u16> {
    let at = match attribute(data, MATCH_NAME)? {
        b"tcp\0" | b"udp\0" => 4,
        b"sctp\0" => 0,
        _ => return None,
    };
    let info = attribute(data, MATCH_INFO)?;
    let port = |at: usize| info.get(at..at + 2)?.try_into().map(u16::from_ne_bytes).ok();
    port(at).filter(|first| port(at + 2) == Some(*first))
}

fn be32(data: &[u8], kind: u16) -> Option<u32> {
    attribute(data, kind)?.try_into().map(u32::from_be_bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rules_of_any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = destination(&bytes);
        }
    }
}
