//! Addresses from an IPAM beside us (EXT-, BUG-17, B28).

use super::*;

fn external() -> Group {
    let mut group = group("ext", &[]);
    group.placement = Placement::Remote;
    group.source = Source::External { provider: "test".into(), socket: "/run/ipam.sock".into() };
    group
}

fn ask(town: &Town, svc: &ServiceView) -> ExternalRequest {
    match decide(&town.scope, &town.book, svc) {
        Decision::AskExternal(request) => request,
        other => panic!("{other:?}"),
    }
}

fn answered(town: &mut Town, name: &str, answer: &[&str]) -> Wish {
    let svc = town.services[name].clone();
    let request = ask(town, &svc);
    let answer = answer.iter().map(|addr| addr.parse().unwrap()).collect();
    match accept(&town.book, &svc, &request, Ok(answer)) {
        Decision::Wish(wish) => town.write(name, wish),
        other => panic!("{other:?}"),
    }
}

fn town_with(svc: ServiceView) -> Town {
    let mut town = Town::new(&[external(), group("local", &["10.0.0.1-10.0.0.9"])]);
    town.services.insert(svc.key.to_string(), svc);
    town
}

#[test]
fn ext_1_the_ipam_is_asked_and_its_answer_becomes_the_address() {
    let mut town = town_with(svc("a").from("ext"));
    let request = ask(&town, &town.services["test/a"]);
    assert_eq!((request.group.as_str(), request.families.as_slice()), ("ext", [Family::V4].as_slice()));
    let wish = answered(&mut town, "test/a", &["192.0.2.7"]);
    assert_eq!((wish.text(), wish.brand.from.as_deref()), ("192.0.2.7".into(), Some("ext")));
    assert_eq!(wish.brand.pool_type.as_deref(), Some("remote"));
    assert_eq!(town.look("test/a").condition.reason, "Assigned", "nobody is asked twice");
}

#[test]
fn bug_17_single_to_dual_gives_exactly_one_address_of_each_family() {
    let mut town = town_with(svc("a").from("ext"));
    answered(&mut town, "test/a", &["192.0.2.7"]);
    town.services.get_mut("test/a").unwrap().families.push(Family::V6);
    assert_eq!(answered(&mut town, "test/a", &["192.0.2.7", "2001:db8::7"]).text(), "192.0.2.7, 2001:db8::7");
}

#[test]
fn what_the_ipam_gives_is_checked_against_the_book_the_families_and_the_nodes() {
    let mut town = town_with(svc("b").from("ext"));
    town.put(svc("a").from("local"));
    assert_eq!(answered(&mut town, "test/b", &["10.0.0.1"]).text(), "AddressInUse", "a has it");
    assert_eq!(answered(&mut town, "test/b", &["2001:db8::7"]).text(), "FamilyNotServed", "not what was asked for");
    town.surroundings.node_addresses.insert("192.0.2.1".parse().unwrap(), "node1".into());
    town.rebuild();
    assert_eq!(answered(&mut town, "test/b", &["192.0.2.1"]).text(), "AddressReserved");
    assert_eq!(answered(&mut town, "test/b", &["10.0.255.255"]).text(), "AddressReserved", "law 9: local's broadcast");
    let mut town = town.with_active(&["192.0.2.128/25"]);
    assert_eq!(answered(&mut town, "test/b", &["192.0.2.128"]).text(), "AddressReserved", "law 9: a node's subnet");
    assert_eq!(answered(&mut town, "test/b", &["192.0.2.2"]).text(), "192.0.2.2");
    town.services.insert("test/c".into(), svc("c").from("ext"));
    assert_eq!(answered(&mut town, "test/c", &["192.0.2.2"]).text(), "AddressInUse", "b has it");
}

#[test]
fn an_address_that_an_ipam_gives_twice_is_shared_by_key_and_port_as_in_a_pool() {
    let mut town = town_with(svc("a").from("ext").shared("k"));
    answered(&mut town, "test/a", &["192.0.2.7"]);
    for (name, asks, expected) in [
        ("test/joins", svc("joins").from("ext").shared("k").port(443), "192.0.2.7"),
        ("test/clashes", svc("clashes").from("ext").shared("k"), "PortInUse"),
        ("test/other", svc("other").from("ext").shared("other").port(444), "AddressInUse"),
        ("test/alone", svc("alone").from("ext").port(445), "AddressInUse"),
    ] {
        town.services.insert(name.into(), asks);
        assert_eq!(answered(&mut town, name, &["192.0.2.7"]).text(), expected, "{name}");
    }
    // An edit: a shares with nobody any more, and loses the address to those who do; the IPAM has no other for it.
    town.services.get_mut("test/a").unwrap().asks.sharing_key = None;
    let Decision::Wish(lost) = decide(&town.scope, &town.book, &town.services["test/a"]) else { panic!() };
    assert_eq!((lost.text().as_str(), lost.events()), ("AddressLost", vec!["AddressLost"]));
    town.write("test/a", lost);
    assert_eq!(answered(&mut town, "test/a", &["192.0.2.7"]).text(), "AddressInUse");
    town.services.insert("test/late".into(), svc("late").from("ext").shared("k").port(446));
    assert_eq!(answered(&mut town, "test/late", &["192.0.2.7"]).text(), "192.0.2.7");
}

#[test]
fn bug_6_an_ipam_that_is_away_delays_only_its_own_group() {
    let mut town = town_with(svc("a").from("ext"));
    let svc_a = town.services["test/a"].clone();
    let request = ask(&town, &svc_a);
    let away = Reason::NoActiveSubnet { service: "stands for any failure".into(), skipped: 0 };
    match accept(&town.book, &svc_a, &request, Err(away)) {
        Decision::Wish(wish) => assert!(!wish.condition.assigned),
        other => panic!("{other:?}"),
    }
    assert_eq!(town.put(svc("b").from("local")).text(), "10.0.0.1");
}

#[test]
fn netbox_says_that_it_comes_later_and_harms_nothing() {
    let mut netbox = group("nb", &[]);
    netbox.source = Source::Netbox { url: "http://nb/".into(), tenant: "t".into(), aggregation: "default".into() };
    let mut town = Town::new(&[netbox, group("default", &["10.0.0.1-10.0.0.9"])]);
    assert_eq!(town.put(svc("a").from("nb")).text(), "NetboxUnsupported");
    assert_eq!(town.put(svc("b")).text(), "10.0.0.1");
}

/// Two IPAMs and a local group, with a Service that has its address from one of them.
fn town_of_three(from: &str) -> Town {
    let mut other = external();
    other.name = "ext2".into();
    let mut town = Town::new(&[external(), other, group("local", &["10.0.0.1-10.0.0.9", "fd00::1-fd00::9"])]);
    town.services.insert("test/a".into(), svc("a").from(from));
    match from {
        "local" => town.look("test/a"),
        _ => answered(&mut town, "test/a", &["192.0.2.7"]),
    };
    town
}

#[rstest::rstest]
#[case::local_to_ipam("local", "ext", "10.0.0.1")]
#[case::ipam_to_ipam("ext", "ext2", "192.0.2.7")]
#[case::ipam_to_local("ext", "local", "192.0.2.7")]
fn b27_a_move_from_or_to_an_ipam_is_pending_until_it_is_asked_for(
    #[case] from: &str,
    #[case] to: &str,
    #[case] has: &str,
) {
    let mut town = town_of_three(from);
    let pending = town.edit("test/a", |svc| svc.asks.group = Some(to.into()));
    assert_eq!((pending.text().as_str(), pending.condition.reason.as_str()), (has, "MovePending"));
    assert_eq!(pending.brand.from.as_deref(), Some(from), "it says where the address came from, not where it is to go");
    assert!(town.look("test/a").events().is_empty());
    let grown = town.edit("test/a", |svc| svc.families.push(Family::V6));
    assert_eq!((grown.text().as_str(), grown.condition.reason.as_str()), (has, "MovePending"), "nor is it split");
    let spread = town.edit("test/a", |svc| svc.asks.multi_pool = Some(true));
    assert_eq!((spread.text().as_str(), spread.brand.from.as_deref()), (has, Some(from)));
}

#[test]
fn b27_re_evaluate_moves_a_service_to_an_ipam_to_another_and_back() {
    let mut town = town_of_three("local");
    for (to, gives) in [("ext", "192.0.2.7"), ("ext2", "192.0.2.8")] {
        let svc = town.services.get_mut("test/a").unwrap();
        (svc.asks.group, svc.asks.re_evaluate) = (Some(to.into()), true);
        let moved = answered(&mut town, "test/a", &[gives]);
        assert_eq!((moved.text().as_str(), moved.brand.from.as_deref()), (gives, Some(to)));
        assert_eq!(moved.events(), ["AddressReleased", "AddressAssigned"]);
        let again = town.edit("test/a", |svc| svc.asks.re_evaluate = true);
        assert_eq!(
            (again.text().as_str(), again.condition.reason.as_str()),
            (gives, "Assigned"),
            "it is there already"
        );
    }
    let back = town.edit("test/a", |svc| (svc.asks.group, svc.asks.re_evaluate) = (Some("local".into()), true));
    assert_eq!((back.text().as_str(), back.brand.from.as_deref()), ("10.0.0.1", Some("local")));
}

#[test]
fn b27_a_move_to_an_ipam_that_fails_leaves_the_service_where_it_is() {
    let mut town = town_of_three("local");
    for answer in [&[][..], &["10.0.255.255"]] {
        let svc = town.services.get_mut("test/a").unwrap();
        (svc.asks.group, svc.asks.re_evaluate) = (Some("ext".into()), true);
        let stuck = answered(&mut town, "test/a", answer);
        assert_eq!((stuck.text().as_str(), stuck.brand.from.as_deref()), ("10.0.0.1", Some("local")), "{answer:?}");
        assert_eq!(town.look("test/a").condition.reason, "MovePending");
    }
}

#[test]
fn b26_an_orphan_of_a_deleted_group_is_not_taken_for_an_address_of_an_ipam() {
    let mut town = town_of_three("local");
    town.groups.retain(|group| group.name != "local");
    town.rebuild();
    let orphan = town.edit("test/a", |svc| svc.asks.group = Some("ext".into()));
    assert_eq!((orphan.text().as_str(), orphan.condition.reason.as_str()), ("10.0.0.1", "Orphaned"));
    assert_eq!(orphan.brand.from.as_deref(), Some("local"));
}

#[test]
fn an_address_of_an_ipam_that_lies_in_a_pool_is_still_the_ipams() {
    let mut town = town_with(svc("a").from("ext"));
    answered(&mut town, "test/a", &["10.0.0.5"]);
    let kept = town.look("test/a");
    assert_eq!((kept.condition.reason.as_str(), kept.brand.from.as_deref()), ("Assigned", Some("ext")));
    let pending = town.edit("test/a", |svc| svc.asks.group = Some("local".into()));
    assert_eq!((pending.condition.reason.as_str(), pending.brand.from.as_deref()), ("MovePending", Some("ext")));
}
