//! One family, two, and the way between them (FAM-1 to FAM-7, AL-9, AL-10, GRP-10, B11).

use super::*;

fn dual_group() -> Group {
    group("default", &["1.2.3.0/24", "2001:db8::/64"])
}

#[test]
fn fam_4_single_to_dual_adds_and_fam_3_dual_to_single_releases() {
    let mut town = Town::new(&[dual_group()]);
    town.put(svc("a"));
    let dual = town.edit("test/a", |svc| svc.families = vec![Family::V4, Family::V6]);
    assert_eq!((dual.text().as_str(), dual.events()), ("1.2.3.0, 2001:db8::", vec!["AddressAssigned"]));
    let single = town.edit("test/a", |svc| svc.families = vec![Family::V6]);
    assert_eq!((single.text().as_str(), single.events()), ("2001:db8::", vec!["AddressReleased"]));
    let told = "Released addresses no longer needed after IP family transition: [1.2.3.0]";
    assert_eq!(single.notices[0].message, told);
    assert_eq!(town.put(svc("b")).text(), "1.2.3.0", "the released address is free");
}

#[test]
fn lp_7_the_order_of_the_addresses_is_that_of_the_families() {
    let mut town = Town::new(&[dual_group()]);
    let wish = town.put(svc("a").families(&[Family::V6, Family::V4]));
    assert_eq!(wish.text(), "2001:db8::, 1.2.3.0");
    town.put(svc("b"));
    assert_eq!(town.edit("test/b", |svc| svc.families = vec![Family::V6, Family::V4]).text(), "2001:db8::1, 1.2.3.1");
}

#[test]
fn fam_2_a_service_that_has_what_it_wants_keeps_it() {
    let mut town = Town::new(&[dual_group()]);
    for (name, family) in [("four", Family::V4), ("six", Family::V6)] {
        let first = town.put(svc(name).families(&[family]));
        let again = town.look(&format!("test/{name}"));
        assert_eq!((again.addrs.clone(), again.events()), (first.addrs, vec![]));
    }
}

#[test]
fn fam_6_a_family_named_twice_counts_once() {
    let mut town = Town::new(&[dual_group()]);
    assert_eq!(town.put(svc("a").families(&[Family::V4, Family::V4])).text(), "1.2.3.0");
    assert!(town.look("test/a").events().is_empty());
}

#[test]
fn fam_5_an_entry_that_cannot_be_read_is_replaced_beside_a_good_one_that_is_kept() {
    let mut town = Town::new(&[dual_group()]);
    town.put(svc("a"));
    let wish = town.edit("test/a", |svc| {
        svc.families.push(Family::V6);
        svc.ingress.push(Ingress { addr: None, plain: false });
    });
    assert_eq!(wish.text(), "1.2.3.0, 2001:db8::");
}

#[test]
fn fam_7_addresses_of_an_unwanted_family_all_go() {
    let mut town = Town::new(&[dual_group()]);
    town.put(svc("a").families(&[Family::V6]).pinned("2001:db8::1,2001:db8::2"));
    let wish = town.edit("test/a", |svc| (svc.asks.addresses, svc.families) = (None, vec![Family::V4]));
    assert_eq!(wish.text(), "1.2.3.0");
}

#[test]
fn grp_10_and_fam_1_a_service_without_families_gets_one_address_ipv6_first_and_keeps_it() {
    let mut town = Town::new(&[dual_group(), group("v4", &["4.5.6.0/24"])]);
    assert_eq!(town.put(svc("a").families(&[])).text(), "2001:db8::");
    assert_eq!(town.look("test/a").text(), "2001:db8::", "no flapping between the families");
    assert_eq!(town.put(svc("b").families(&[]).from("v4")).text(), "4.5.6.0");
}

#[test]
fn al_9_require_dual_stack_is_strict_and_holds_nothing_on_failure() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    let wish = town.put(svc("a").dual());
    assert_eq!((wish.text(), wish.brand.ours), ("FamilyNotServed".into(), false));
    assert_eq!(town.book.slot("default").unwrap().pool.in_use(Family::V4), 0);
}

#[test]
fn al_10_what_a_service_has_survives_a_failed_growth() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    town.put(svc("a"));
    let wish = town.edit("test/a", |svc| svc.families.push(Family::V6));
    assert_eq!((wish.text().as_str(), wish.condition.reason.as_str()), ("1.2.3.0", "FamilyNotServed"));
    assert_eq!(town.put(svc("b")).text(), "1.2.3.1", "and stays reserved");
}

#[test]
fn b11_prefer_dual_stack_takes_what_there_is_in_either_order() {
    for families in [[Family::V4, Family::V6], [Family::V6, Family::V4]] {
        let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
        let mut prefers = svc("a").families(&families);
        prefers.prefers_dual_stack = true;
        let wish = town.put(prefers);
        assert_eq!((wish.text().as_str(), wish.condition.assigned), ("1.2.3.0", true));
        assert_eq!(wish.condition.reason, "FamilyNotServed", "and says what is missing");
        *town.ranges("default") = dual_group().ranges().unwrap().clone();
        town.rebuild();
        assert_eq!(town.look("test/a").addrs.len(), 2, "the second family comes with the range");
    }
}
