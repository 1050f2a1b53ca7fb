//! Several Services on one address (SH-1, SH-8, AL-4).

use super::*;

#[test]
fn sh_1_dual_stack_sharers_get_the_same_addresses() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/30", "2001:db8::/126"])]);
    let first = town.put(svc("s1").dual().shared("key")).text();
    assert_eq!(town.put(svc("s2").dual().shared("key").port(81)).text(), first);
    town.delete("test/s1");
    assert_eq!(town.put(svc("s3").dual().shared("key").port(81)).text(), "PortInUse", "s2 is still there");
    assert!(town.book.release("test/never", None).is_none(), "who has nothing has nothing to give back");
    town.delete("test/s2");
    assert_eq!(town.look("test/s3").text(), first);
}

#[test]
fn b44_a_sharing_key_means_the_same_in_every_namespace() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    assert_eq!(town.put(svc("red/a").shared("k")).text(), "1.2.3.0");
    assert_eq!(town.put(svc("blue/a").shared("k").port(81)).text(), "1.2.3.0");
    assert_eq!(town.put(svc("blue/b").shared("k")).text(), "PortInUse");
}

#[test]
fn sh_8_keys_are_told_apart() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    assert_eq!(town.put(svc("a").shared("A")).text(), "1.2.3.0");
    assert_eq!(town.put(svc("b").shared("B")).text(), "1.2.3.1");
    assert_eq!(town.put(svc("c").shared("A").port(81)).text(), "1.2.3.0");
}

#[test]
fn adding_a_key_to_a_live_service_moves_nothing_and_lets_others_join() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    town.put(svc("a"));
    assert_eq!(town.edit("test/a", |svc| svc.asks.sharing_key = Some("k".into())).text(), "1.2.3.0");
    assert_eq!(town.put(svc("b").shared("k").port(81)).text(), "1.2.3.0");
}

#[rstest::rstest]
#[case::v4(Family::V4, "1.2.3.0/30", "1.2.3.0")]
#[case::v6(Family::V6, "2001:db8::/126", "2001:db8::")]
fn al_4_a_full_pool_serves_sharers_and_those_who_wait(#[case] family: Family, #[case] pool: &str, #[case] first: &str) {
    let mut town = Town::new(&[group("default", &[pool])]);
    let of = |name: &str| svc(name).families(&[family]);
    for name in ["s1", "s2", "s3", "s4"] {
        assert_eq!(town.put(of(name)).addrs.len(), 1);
    }
    assert_eq!([town.put(of("s5")).text(), town.put(of("s6")).text()], ["Exhausted"; 2]);
    town.delete("test/s1");
    assert_eq!(town.look("test/s5").text(), first);
    assert_eq!(town.look("test/s6").text(), "Exhausted");
    assert_eq!(town.edit("test/s5", |svc| svc.asks.sharing_key = Some("k".into())).text(), first);
    let joins = town.edit("test/s6", |svc| {
        svc.asks.sharing_key = Some("k".into());
        svc.ports[0].number = 81;
    });
    assert_eq!(joins.text(), first);
}

#[test]
fn al_4_who_holds_ipv4_gets_nothing_of_a_full_ipv6_pool() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/30", "2001:db8::/128"])]);
    town.put(svc("taker").families(&[Family::V6]));
    town.put(svc("a"));
    let grown = town.edit("test/a", |svc| svc.families = vec![Family::V4, Family::V6]);
    assert_eq!((grown.text().as_str(), grown.condition.reason.as_str()), ("1.2.3.0", "Exhausted"));
}

#[test]
fn bug_16_a_port_that_was_dropped_is_free_at_once() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    town.put(svc("a").shared("k").port(80));
    town.edit("test/a", |svc| svc.ports[0].number = 443);
    assert_eq!(town.put(svc("b").shared("k").port(80)).text(), "1.2.3.0");
}

/// Two Services on one address.
fn sharers() -> Town {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    town.put(svc("a").shared("k").port(80));
    assert_eq!(town.put(svc("b").shared("k").port(443)).text(), "1.2.3.0");
    town
}

#[test]
fn a_port_that_was_edited_onto_anothers_costs_the_address_and_the_service_says_why() {
    for (edited, port, holder) in [("test/b", 80, "test/a"), ("test/a", 443, "test/b")] {
        let mut town = sharers();
        let lost = town.edit(edited, |svc| svc.ports[0].number = port);
        assert_eq!((lost.text().as_str(), lost.condition.assigned), ("PortInUse", false), "the later one loses");
        assert_eq!(lost.events(), ["AddressLost", "AllocationFailed"]);
        let sentence = &lost.notices[0].message;
        assert!(sentence.contains("1.2.3.0 is taken away") && sentence.contains(holder), "{sentence}");
        let other = town.look(holder);
        assert_eq!((other.text().as_str(), other.events().len()), ("1.2.3.0", 0), "nothing happens to the other");
        assert_eq!(town.edit(edited, |svc| svc.ports[0].number = 8080).text(), "1.2.3.0", "room for both again");
    }
}

#[test]
fn a_key_that_was_edited_while_others_share_means_an_address_of_its_own() {
    for key in [None, Some("other".into())] {
        let mut town = sharers();
        let moved = town.edit("test/a", |svc| svc.asks.sharing_key = key);
        assert_eq!((moved.text().as_str(), moved.condition.reason.as_str()), ("1.2.3.1", "Assigned"));
        assert_eq!(moved.events(), ["AddressLost", "AddressAssigned"]);
        assert_eq!(town.look("test/b").text(), "1.2.3.0");
    }
}

#[test]
fn who_came_earlier_is_remembered_when_groups_change() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    town.put(svc("z").shared("k").port(80));
    town.put(svc("a").shared("k").port(443));
    // The edit is known, and not decided on yet, when the groups change.
    town.services.get_mut("test/a").unwrap().ports[0].number = 80;
    let edited = &town.services["test/a"];
    town.book.hold(Holding { uid: edited.uid.clone(), claim: edited.claim(), addrs: edited.addresses() });
    town.rebuild();
    assert_eq!(town.look("test/z").text(), "1.2.3.0");
    assert_eq!(town.look("test/a").text(), "PortInUse");
}
