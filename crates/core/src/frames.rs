//! The bytes by which neighbours learn that an address has moved: gratuitous ARP and unsolicited neighbour
//! advertisement, as whole Ethernet frames.

use std::net::{Ipv4Addr, Ipv6Addr};

/// An Ethernet address.
pub type Mac = [u8; 6];

const BROADCAST: Mac = [0xff; 6];
/// Where Ethernet takes packets for `ff02::1`, all nodes (RFC 2464, section 7).
const ALL_NODES_MAC: Mac = [0x33, 0x33, 0, 0, 0, 1];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Ethernet and IPv4, with the lengths of their addresses (RFC 826).
const ARP_KIND: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];
const ICMPV6: u8 = 58;
/// Type 136, code 0, no checksum yet, the Override flag alone (RFC 4861, section 4.4).
const ADVERTISEMENT: [u8; 8] = [136, 0, 0, 0, 0x20, 0, 0, 0];
/// Target Link-Layer Address, one unit of eight bytes (RFC 4861, section 4.6.1).
const TARGET_MAC: [u8; 2] = [2, 1];
/// The length of an advertisement with its option.
const ADVERTISEMENT_LENGTH: u8 = 32;

/// The two forms of gratuitous ARP; some neighbours heed only the one, some only the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arp {
    /// A question for the own address.
    Request,
    /// An answer that nobody asked for.
    Reply,
}

/// A gratuitous ARP: `addr` is at `mac` (RFC 5227, section 3).
pub fn gratuitous_arp(form: Arp, mac: Mac, addr: Ipv4Addr) -> [u8; 42] {
    let operation = match form {
        Arp::Request => [0, 1],
        Arp::Reply => [0, 2],
    };
    let ip = addr.octets();
    joined([&BROADCAST, &mac, &ETHERTYPE_ARP, &ARP_KIND, &operation, &mac, &ip, &BROADCAST, &ip])
}

/// An unsolicited neighbour advertisement: `addr` is at `mac`, whatever was known before (RFC 4861, section 7.2.6).
///
/// It is sent from a link-local address of the interface, and to all nodes of the link.
pub fn unsolicited_advertisement(mac: Mac, link_local: Ipv6Addr, addr: Ipv6Addr) -> [u8; 86] {
    let (source, target, all) = (link_local.octets(), addr.octets(), ALL_NODES.octets());
    let mut message: [u8; ADVERTISEMENT_LENGTH as usize] = joined([&ADVERTISEMENT, &target, &TARGET_MAC, &mac]);
    let pseudo: [u8; 40] = joined([&source, &all, &[0, 0, 0, ADVERTISEMENT_LENGTH], &[0, 0, 0, ICMPV6]]);
    let sum = checksum(pseudo.iter().chain(&message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    // A hop limit of 255 proves that no router forwarded it.
    let header: [u8; 8] = [0x60, 0, 0, 0, 0, ADVERTISEMENT_LENGTH, ICMPV6, 255];
    joined([&ALL_NODES_MAC, &mac, &ETHERTYPE_IPV6, &header, &source, &all, &message])
}

/// All parts in a row, which together are as long as the whole.
fn joined<const N: usize, const M: usize>(parts: [&[u8]; M]) -> [u8; N] {
    let mut whole = [0; N];
    let bytes = parts.into_iter().flatten();
    whole.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    whole
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum<'a>(bytes: impl Iterator<Item = &'a u8>) -> u16 {
    let sum = bytes.enumerate().fold(0_u32, |sum, (i, byte)| sum + (u32::from(*byte) << (8 * (1 - i % 2))));
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use etherparse::{ArpOperation, EtherType, Icmpv6Type, LinkSlice, NetSlice, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_forms_of_gratuitous_arp_say_the_same() {
        let (mac, addr) = ([0x02, 0, 0, 0, 0, 0x2a], Ipv4Addr::new(192, 0, 2, 1));
        for (form, operation) in [(Arp::Request, ArpOperation::REQUEST), (Arp::Reply, ArpOperation::REPLY)] {
            let frame = gratuitous_arp(form, mac, addr);
            let packet = SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(LinkSlice::Ethernet2(ethernet)) = packet.link else { panic!("no Ethernet frame") };
            assert_eq!((ethernet.destination(), ethernet.source()), ([0xff; 6], mac));
            assert_eq!(ethernet.ether_type(), EtherType::ARP);
            let Some(NetSlice::Arp(arp)) = packet.net else { panic!("no ARP") };
            assert_eq!(arp.operation(), operation);
            assert_eq!((arp.sender_hw_addr(), arp.sender_protocol_addr()), (&mac[..], &addr.octets()[..]));
            assert_eq!((arp.target_hw_addr(), arp.target_protocol_addr()), (&[0xff; 6][..], &addr.octets()[..]));
            assert_eq!(arp.slice().len(), 28, "nothing behind the packet");
        }
    }

    proptest! {
        #[test]
        fn a21_an_unsolicited_advertisement_overrides_what_neighbours_know(mac: Mac, source: Ipv6Addr, addr: Ipv6Addr) {
            let frame = unsolicited_advertisement(mac, source, addr);
            let packet = SlicedPacket::from_ethernet(&frame).unwrap();
            let Some(LinkSlice::Ethernet2(ethernet)) = packet.link else { panic!("no Ethernet frame") };
            prop_assert_eq!((ethernet.destination(), ethernet.source()), ([0x33, 0x33, 0, 0, 0, 1], mac));
            let Some(NetSlice::Ipv6(ip)) = packet.net else { panic!("no IPv6") };
            let header = ip.header();
            prop_assert_eq!(header.source_addr(), source);
            prop_assert_eq!(header.destination_addr(), "ff02::1".parse::<Ipv6Addr>().unwrap());
            prop_assert_eq!(header.hop_limit(), 255);
            let Some(TransportSlice::Icmpv6(icmp)) = packet.transport else { panic!("no ICMPv6") };
            let all_nodes = header.destination_addr().octets();
            prop_assert!(icmp.is_checksum_valid(source.octets(), all_nodes));
            let Icmpv6Type::NeighborAdvertisement(flags) = icmp.icmp_type() else { panic!("no advertisement") };
            prop_assert!(flags.r#override && !flags.solicited && !flags.router);
            prop_assert_eq!(icmp.type_u8(), 136);
            let (target, option) = icmp.payload().split_at(16);
            prop_assert_eq!(target, &addr.octets()[..]);
            prop_assert_eq!(option, &[&[2, 1], &mac[..]].concat()[..]);
        }
    }
}
