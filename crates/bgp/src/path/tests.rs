//! Attributes and next hops, family by family and session by session.

use super::*;
use crate::wish::Families;

fn session(local: &str, beside: &[&str], extended_next_hop: bool) -> Session {
    let beside = beside.iter().map(|address| address.parse().unwrap()).collect();
    Session {
        ends: Ends { local: local.parse().unwrap(), beside },
        peer_id: Ipv4Addr::new(10, 0, 0, 9),
        families: Families::BOTH,
        four_octets: true,
        extended_next_hop,
        hold: None,
        restart_time: 0,
    }
}

fn global() -> Global {
    let fleeting = ["10.0.0.200".parse().unwrap(), "2001:db8::200".parse().unwrap()].into();
    Global { fleeting, ..Global::new(65001, Ipv4Addr::new(10, 0, 0, 1)) }
}

fn external() -> Peer {
    Peer { families: Families::BOTH, ..Peer::new("10.0.0.9".parse().unwrap(), 65002) }
}

fn hop(family: Family, session: &Session, peer: &Peer) -> Option<NextHop> {
    Path::choose(family, session, &global(), peer).map(|path| path.next_hop).ok()
}

/// The matrix of next hops: the family of the session against that of the routes.
#[test]
fn every_session_has_a_next_hop_for_every_family_or_says_that_it_has_none() {
    let v4 = |text: &str| Some(NextHop::V4(text.parse().unwrap()));
    let v6 = |text: &str, local: Option<&str>| {
        Some(NextHop::V6(text.parse().unwrap(), local.map(|local| local.parse().unwrap())))
    };
    let beside = ["10.0.0.200", "10.0.0.1", "fe80::1", "2001:db8::200", "2001:db8::1"];
    let cases = [
        ("10.0.0.1", &beside[..], false, v4("10.0.0.1"), v6("2001:db8::1", None)),
        ("10.0.0.1", &["fe80::1"], false, v4("10.0.0.1"), None),
        ("10.0.0.1", &["2001:db8::200"], false, v4("10.0.0.1"), None),
        ("2001:db8::1", &beside, false, v4("10.0.0.1"), v6("2001:db8::1", None)),
        ("2001:db8::1", &beside, true, v6("2001:db8::1", None), v6("2001:db8::1", None)),
        ("2001:db8::1", &[], false, None, v6("2001:db8::1", None)),
        ("fe80::1", &beside, true, v6("fe80::1", None), v6("2001:db8::1", Some("fe80::1"))),
        ("fe80::1", &[], false, None, v6("fe80::1", Some("fe80::1"))),
    ];
    for (local, beside, extended, first, second) in cases {
        let session = session(local, beside, extended);
        assert_eq!(hop(Family::V4, &session, &external()), first, "IPv4 over {local}");
        assert_eq!(hop(Family::V6, &session, &external()), second, "IPv6 over {local}");
    }
}

#[test]
fn a_next_hop_that_was_asked_for_wins() {
    let peer = Peer {
        next_hop_v4: Some(Ipv4Addr::new(10, 9, 9, 9)),
        next_hop_v6: Some("2001:db8::9".parse().unwrap()),
        ..external()
    };
    let session = session("2001:db8::1", &[], true);
    assert_eq!(hop(Family::V4, &session, &peer), Some(NextHop::V4(Ipv4Addr::new(10, 9, 9, 9))));
    assert_eq!(hop(Family::V6, &session, &peer), Some(NextHop::V6("2001:db8::9".parse().unwrap(), None)));
}

#[test]
fn our_as_stands_in_the_path_to_external_peers_only_and_the_preference_goes_to_internal_ones_only() {
    let session = session("10.0.0.1", &[], false);
    let mut outside = external();
    outside.advertise.prepend = 2;
    outside.advertise.local_pref = Some(300);
    let path = Path::choose(Family::V4, &session, &global(), &outside).unwrap();
    assert_eq!((path.as_path, path.local_pref), (vec![65001; 3], None));
    let inside = Peer { asn: 65001, ..outside };
    let path = Path::choose(Family::V4, &session, &global(), &inside).unwrap();
    assert_eq!((path.as_path, path.local_pref), (vec![], Some(300)));
    let plain = Peer { asn: 65001, ..external() };
    assert_eq!(Path::choose(Family::V4, &session, &global(), &plain).unwrap().local_pref, Some(100));
    let disguised = Peer { local_asn: Some(64900), ..external() };
    assert_eq!(Path::choose(Family::V4, &session, &global(), &disguised).unwrap().as_path, [64900]);
}

#[test]
fn a_next_hop_changes_only_when_its_address_is_gone() {
    let ends = |beside: &[&str]| Ends {
        local: [10, 0, 0, 5].into(),
        beside: beside.iter().map(|address| address.parse().unwrap()).collect(),
    };
    let before = ends(&["2001:db8::5", "2001:db8::6"]);
    let seen = ends(&["2001:db8::7", "2001:db8::6", "2001:db8::5"]);
    assert_eq!(before.refreshed(&seen), ends(&["2001:db8::5", "2001:db8::6", "2001:db8::7"]));
    let seen = ends(&["2001:db8::7", "2001:db8::6"]);
    assert_eq!(before.without_gone(&seen), ends(&["2001:db8::6"]));
    assert_eq!(before.refreshed(&seen), ends(&["2001:db8::6", "2001:db8::7"]));
}
