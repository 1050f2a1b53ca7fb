//! Bytes: what we write is read as meant by others, and nothing we read can upset us.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::IpNet;
use netgauze_bgp_pkt::BgpMessage;
use netgauze_bgp_pkt::path_attribute::{MpReach, PathAttributeValue};
use netgauze_bgp_pkt::wire::deserializer::BgpParsingContext;
use netgauze_parse_utils::reader::SliceReader;
use netgauze_parse_utils::traits::ParseFromWithOneInput;
use proptest::prelude::*;

use super::*;
use crate::message::{Capabilities, Graceful, Heard, Message, Open, Tally, Update};
use crate::path::{NextHop, Path};
use crate::wish::{Families, Family};

#[path = "../../../../fuzz/walk.rs"]
mod walk;
use walk::walk;

/// Reads whole messages off bytes, as a connection does.
fn hear(mut bytes: &[u8]) -> Result<Vec<Heard>, Notification> {
    let mut all = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
        let frame = frame(header)?;
        let Some((body, rest)) = rest.split_at_checked(frame.body) else { break };
        all.push(decode(frame.kind, body)?);
        bytes = rest;
    }
    Ok(all)
}

/// A message with this body.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(HEADER + body.len()).unwrap();
    [&[0xff; 16][..], &length.to_be_bytes(), &[kind], body].concat()
}

fn path(family: Family, next_hop: NextHop) -> Path {
    Path {
        family,
        next_hop,
        as_path: vec![4_200_000_001, 4_200_000_001],
        four_octets: true,
        med: Some(5),
        local_pref: None,
        communities: [0xffff_ff01, 0xfde8_0001].into(),
        large_communities: [[4_200_000_001, 1, 2]].into(),
    }
}

fn nets(list: &[&str]) -> Vec<IpNet> {
    list.iter().map(|net| net.parse().unwrap()).collect()
}

fn written(update: Update) -> Vec<u8> {
    encode(&Message::Update(update)).unwrap()
}

/// The codec's own reading: a second pair of eyes on what we write.
fn read_back(bytes: &[u8], four_octets: bool) -> netgauze_bgp_pkt::update::BgpUpdateMessage {
    let mut context = BgpParsingContext::default();
    context.set_asn4(four_octets);
    match BgpMessage::parse(&mut SliceReader::new(bytes), &mut context).unwrap() {
        BgpMessage::Update(update) => update,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_open_is_read_as_it_was_written() {
    let graceful = Some(Graceful { restarting: true, time: 120, families: Families::BOTH, preserved: false });
    let can = Capabilities {
        families: Some(Families::BOTH),
        refresh: true,
        four_octets: true,
        extended_next_hop: true,
        graceful,
        name: "node-a".into(),
    };
    let open = Open { asn: 4_200_000_001, hold: 90, id: Ipv4Addr::new(10, 0, 0, 1), can };
    let bytes = encode(&Message::Open(open.clone())).unwrap();
    assert_eq!(bytes[20..22], 23456u16.to_be_bytes(), "AS_TRANS stands for four octets");
    assert_eq!(hear(&bytes), Ok(vec![Heard::Open(open)]));
}

#[test]
fn classic_ipv4_routes_are_written_octet_for_octet() {
    let plain = Path {
        as_path: vec![65001],
        med: None,
        communities: [].into(),
        large_communities: [].into(),
        ..path(Family::V4, NextHop::V4(Ipv4Addr::new(10, 0, 0, 1)))
    };
    let bytes = written(Update::Announce(Arc::new(plain), nets(&["192.0.2.1/32", "198.51.100.0/24"])));
    let expected = [
        &[0, 0, 0, 21][..],
        &[0x40, 1, 1, 0],                         // ORIGIN IGP
        &[0x50, 2, 0, 6, 2, 1, 0, 0, 0xfd, 0xe9], // AS_PATH 65001
        &[0x40, 3, 4, 10, 0, 0, 1],               // NEXT_HOP
        &[32, 192, 0, 2, 1, 24, 198, 51, 100],
    ];
    assert_eq!(bytes, message(kind::UPDATE, &expected.concat()));
}

#[test]
fn attributes_stand_in_the_order_of_their_types_but_mp_reach_comes_first() {
    for (family, next_hop, list) in [
        (Family::V4, NextHop::V4(Ipv4Addr::new(10, 0, 0, 1)), ["192.0.2.1/32"]),
        (Family::V6, NextHop::V6("2001:db8::5".parse().unwrap(), None), ["2001:db8:1::/64"]),
    ] {
        let two_octets = Path { four_octets: false, local_pref: Some(100), ..path(family, next_hop) };
        let update = read_back(&written(Update::Announce(Arc::new(two_octets), nets(&list))), false);
        let types: Vec<u8> =
            update.path_attributes().iter().map(|one| u8::from(one.path_attribute_type().unwrap())).collect();
        let expected = if family == Family::V4 { [1, 2, 3, 4, 5, 8, 17, 32] } else { [14, 1, 2, 4, 5, 8, 17, 32] };
        assert_eq!(types, expected, "AS4_PATH says what AS_TRANS stands for");
    }
}

/// RFC 7606 §5.1: after header, withdrawn routes and lengths comes the type of the first attribute, after its flags.
#[test]
fn mp_reach_is_the_first_attribute() {
    let hop = NextHop::V6("2001:db8::1".parse().unwrap(), None);
    for (family, net) in [(Family::V6, "2001:db8:9::/64"), (Family::V4, "10.9.0.0/24")] {
        let bytes = written(Update::Announce(Arc::new(path(family, hop)), nets(&[net])));
        assert_eq!(bytes[HEADER + 5], 14, "{bytes:02x?}");
    }
    let classic = path(Family::V4, NextHop::V4(Ipv4Addr::new(192, 0, 2, 1)));
    assert_eq!(written(Update::Announce(Arc::new(classic), nets(&["10.9.0.0/24"])))[HEADER + 5], 1, "ORIGIN");
}

#[test]
fn ipv6_routes_and_ipv4_through_ipv6_travel_in_mp_reach() {
    let hop = "2001:db8::5".parse().unwrap();
    let local = Some("fe80::5".parse().unwrap());
    let update = |family, local, list| {
        let path = Arc::new(path(family, NextHop::V6(hop, local)));
        let update = read_back(&written(Update::Announce(path, nets(list))), true);
        assert!(update.nlri().is_empty());
        update.path_attributes().iter().find_map(|one| match one.value() {
            PathAttributeValue::MpReach(reach) => Some(reach.clone()),
            _ => None,
        })
    };
    match update(Family::V6, local, &["2001:db8:1::/64"]) {
        Some(MpReach::Ipv6Unicast { next_hop_global, next_hop_local, nlri }) => {
            assert_eq!((next_hop_global, next_hop_local, nlri.len()), (hop, local, 1));
        }
        other => panic!("{other:?}"),
    }
    match update(Family::V4, None, &["192.0.2.1/32"]) {
        Some(MpReach::Ipv4Unicast { next_hop, nlri, .. }) => assert_eq!((next_hop, nlri.len()), (hop.into(), 1)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn withdrawals_and_ends_are_heard_as_such() {
    let tally = |update| match hear(&written(update)).unwrap().remove(0) {
        Heard::Update(tally) => tally,
        other => panic!("{other:?}"),
    };
    let two = Tally { withdrawn: 2, ..Tally::default() };
    assert_eq!(tally(Update::Withdraw(nets(&["192.0.2.1/32", "192.0.2.0/24"]), false)), two);
    assert_eq!(tally(Update::Withdraw(nets(&["192.0.2.1/32", "192.0.2.0/24"]), true)), two);
    assert_eq!(tally(Update::Withdraw(nets(&["2001:db8::1/128", "2001:db8::/32"]), false)), two);
    for family in Family::ALL {
        assert_eq!(tally(Update::EndOfRib(family)), Tally { end_of_rib: Some(family), ..Tally::default() });
    }
    assert_eq!(written(Update::EndOfRib(Family::V4)).len(), 23);
}

#[test]
fn every_length_that_is_wrong_is_answered_by_the_notification_for_it() {
    let cases: &[(&[u8], (u8, u8))] = &[
        (&[0; 19], (1, 1)),
        (&[&[0xff; 16][..], &[0, 18, 4]].concat(), (1, 2)),
        (&[&[0xff; 16][..], &[0, 20, 4]].concat(), (1, 2)),
        (&[&[0xff; 16][..], &[0x10, 1, 2]].concat(), (1, 2)),
        (&[&[0xff; 16][..], &[0, 28, 1]].concat(), (1, 2)),
        (&[&[0xff; 16][..], &[0, 22, 5]].concat(), (1, 2)),
        (&[&[0xff; 16][..], &[0, 19, 9]].concat(), (1, 3)),
        (&message(kind::UPDATE, &[0, 5, 0, 0]), (3, 1)),
        (&message(kind::UPDATE, &[0, 0, 0, 5]), (3, 1)),
        (&message(kind::UPDATE, &[0, 0, 0, 0, 33, 1, 2, 3, 4, 5]), (3, 10)),
        (&message(kind::UPDATE, &[0, 0, 0, 0, 32, 1, 2]), (3, 10)),
        (&message(kind::OPEN, &[3, 0, 1, 0, 90, 1, 1, 1, 1, 0]), (2, 1)),
        (&message(kind::OPEN, &[4, 0, 1, 0, 2, 1, 1, 1, 1, 0]), (2, 6)),
        (&message(kind::OPEN, &[4, 0, 1, 0, 90, 0, 0, 0, 0, 0]), (2, 3)),
        (&message(kind::OPEN, &[4, 0, 1, 0, 90, 1, 1, 1, 1, 9]), (2, 0)),
        (&message(kind::OPEN, &[4, 0, 1, 0, 90, 1, 1, 1, 1, 2, 1, 0]), (2, 4)),
        (&message(kind::OPEN, &[4, 0, 1, 0, 90, 1, 1, 1, 1, 4, 2, 2, 1, 9]), (2, 0)),
    ];
    for (bytes, (code, subcode)) in cases {
        let answer = hear(bytes).unwrap_err();
        assert_eq!((answer.code, answer.subcode), (*code, *subcode), "{bytes:?}");
    }
}

#[test]
fn a_capability_that_cannot_be_read_does_not_spoil_the_next() {
    let capabilities = [
        &[1, 4, 0x40, 0x99, 0, 77][..],                      // an address family that nobody knows
        &[2, 1, 0],                                          // route refresh of a wrong length
        &[8, 3, 1, 2, 3],                                    // multiple labels, malformed
        &[200, 2, 1, 2],                                     // unknown
        &[65, 4, 0, 1, 0, 1],                                // AS 65537
        &[1, 4, 0, 2, 0, 1],                                 // IPv6
        &[5, 12, 0x40, 0x99, 0, 77, 0, 2, 0, 1, 0, 1, 0, 2], // next hops, of an unknown family and then of IPv4
        &[64, 14, 0x80, 120, 0x40, 0x99, 77, 0x80, 0, 2, 1, 0x80, 0x40, 4, 71, 0], // restart, between unknown families
    ]
    .concat();
    let length = u8::try_from(capabilities.len()).unwrap();
    let short = [&[4, 0x5b, 0xa0, 0, 90, 1, 1, 1, 1, length + 2, 2, length][..], &capabilities].concat();
    // RFC 9072: the same with lengths of two octets.
    let long = [&[4, 0x5b, 0xa0, 0, 90, 1, 1, 1, 1, 255, 255, 0, length + 3, 2, 0, length][..], &capabilities].concat();
    for body in [short, long] {
        let Heard::Open(open) = hear(&message(kind::OPEN, &body)).unwrap().remove(0) else { panic!("an OPEN") };
        assert_eq!(open.asn, 65537);
        assert_eq!(open.can.spoken(), Families::only(Family::V6));
        assert!(!open.can.refresh && open.can.extended_next_hop);
        let families = Families::only(Family::V6);
        let graceful = Graceful { restarting: true, time: 120, families, preserved: true };
        assert_eq!(open.can.graceful, Some(graceful));
    }
}

/// RFC 7606: what an attribute says wrongly never resets a session.
#[test]
fn an_update_with_a_broken_attribute_counts_as_nothing() {
    let broken: [&[u8]; 5] = [
        &[0x40, 1, 9, 0],                  // ORIGIN longer than all attributes
        &[0x80, 14, 3, 0, 1, 1],           // MP_REACH without a next hop
        &[0x80, 14, 6, 0, 1, 1, 0, 0, 33], // MP_REACH with a prefix of 33 bits
        &[0x80, 15, 4, 0, 2, 1, 129],      // MP_UNREACH with a prefix of 129 bits
        &[0x40],                           // half a header
    ];
    for attribute in broken {
        let length = u16::try_from(attribute.len()).unwrap().to_be_bytes();
        let body = [&[0, 0][..], &length, attribute, &[24, 192, 0, 2]].concat();
        let malformed = Heard::Update(Tally { malformed: true, ..Tally::default() });
        assert_eq!(hear(&message(kind::UPDATE, &body)), Ok(vec![malformed]), "{attribute:?}");
    }
    let odd: &[u8] = &[0xc0, 99, 2, 1, 2, 0x80, 14, 7, 0x40, 4, 71, 0, 0, 1, 2];
    let body = [&[0, 0][..], &[0, 15], odd, &[24, 192, 0, 2]].concat();
    let one = Heard::Update(Tally { announced: 1, ..Tally::default() });
    assert_eq!(hear(&message(kind::UPDATE, &body)), Ok(vec![one]), "what we do not know is not an error");
}

#[test]
fn a_notification_with_a_code_from_the_future_is_read() {
    let bytes = message(kind::NOTIFICATION, &[99, 7, 1, 2, 3]);
    let Heard::Notification(heard) = hear(&bytes).unwrap().remove(0) else { panic!("a NOTIFICATION") };
    assert_eq!(heard, Notification::new(99, 7).with([1, 2, 3]));
    assert_eq!(encode(&Message::Notification(heard)), Ok(bytes));
}

/// What routers have really sent, and messages of ours: seeds for mutation, and the fuzzer's first corpus.
fn corpus() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/decode");
    let files = std::fs::read_dir(folder).expect("the corpus is part of the repository");
    let mut all: Vec<_> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(all.len() >= 5, "the corpus is not empty");
    all.sort();
    all
}

/// Recorded from BIRD 2.0.12 and FRR 8.4.4, each with routes of both families and as many capabilities as it has.
#[test]
fn what_real_routers_say_is_understood() {
    for (name, hold, routes, ends) in [("bird", 240, 3, 2), ("frr", 180, 4, 0)] {
        let file = format!("{}/../../fuzz/corpus/decode/session-{name}", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(file).unwrap();
        let heard = hear(&bytes).unwrap();
        let Heard::Open(open) = &heard[0] else { panic!("{heard:?}") };
        assert_eq!((open.asn, open.hold, open.id), (65100, hold, Ipv4Addr::new(10, 9, 0, 254)));
        assert_eq!(open.can.families, Some(Families::BOTH));
        assert_eq!(open.can.graceful.as_ref().map(|graceful| graceful.time), Some(120));
        assert!(open.can.refresh && open.can.four_octets);
        let tallies = || heard.iter().filter_map(|one| if let Heard::Update(tally) = one { Some(tally) } else { None });
        assert_eq!(tallies().map(|tally| tally.announced).sum::<u64>(), routes, "{name}");
        assert_eq!(tallies().filter(|tally| tally.end_of_rib.is_some()).count(), ends, "{name}");
        assert!(tallies().all(|tally| !tally.malformed), "{name}");
        let report = walk(&bytes).report();
        assert_eq!((report.counts.ups, report.counts.routes_heard), (1, routes), "{name}");
    }
}

#[test]
fn the_corpus_is_read_without_a_panic_and_its_sessions_come_up() {
    let mut ups = 0;
    for bytes in corpus() {
        let _ = hear(&bytes);
        ups += walk(&bytes).report().counts.ups;
    }
    assert_eq!(ups, 3, "what a fuzzer begins with leads beyond OPEN");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
        let _ = hear(&bytes);
    }

    /// Bytes behind a good header reach deeper.
    #[test]
    fn any_body_is_read_without_a_panic(kind in 1u8..=5, body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(kind, &body);
    }

    #[test]
    fn any_mutation_of_the_corpus_is_read_without_a_panic(
        seed: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut bytes = seed.get(&corpus()).clone();
        for (place, value) in changes {
            let at = place.index(bytes.len());
            // Headers are left alone, or nothing behind them would be looked at.
            if at >= HEADER {
                bytes[at] = value;
            }
        }
        let _ = (hear(&bytes), walk(&bytes));
    }

    #[test]
    fn what_we_announce_is_counted_by_the_other_side(hosts in prop::collection::btree_set(any::<u32>(), 1..700)) {
        let list: Vec<IpNet> = hosts.iter().map(|host| IpNet::new(Ipv4Addr::from(host & 0x00ff_ffff | 0x0a00_0000).into(), 32).unwrap()).collect();
        let path = path(Family::V4, NextHop::V4(Ipv4Addr::new(10, 0, 0, 1)));
        let bytes = written(Update::Announce(Arc::new(path), list.clone()));
        let tally = Tally { announced: list.len() as u64, ..Tally::default() };
        prop_assert_eq!(hear(&bytes), Ok(vec![Heard::Update(tally)]));
    }
}
