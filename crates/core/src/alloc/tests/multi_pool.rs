//! An address from every range (MP-1 to MP-20).

use super::*;

fn multi(pools: &[&str]) -> Group {
    let mut group = group("default", pools);
    if let Source::Ranges(ranges) = &mut group.source {
        ranges.multi_pool = true;
    }
    group
}

const BOTH: [&str; 2] = ["10.1.0.0/16", "10.2.0.0/16"];

#[test]
fn mp_1_2_and_4_the_annotation_overrides_the_group_both_ways() {
    let pools = ["10.1.0.8/30", "10.2.0.8/30"];
    let mut town = Town::new(&[multi(&pools)]).with_active(&BOTH);
    let wish = town.put(svc("a"));
    assert_eq!((wish.text().as_str(), wish.brand.from.as_deref()), ("10.1.0.8, 10.2.0.8", Some("default")));
    assert_eq!(wish.notices[0].message, "Multi-pool: assigned 2 IPs from pool default");
    assert_eq!(town.put(svc("b").multi(false)).text(), "10.1.0.9");
    let mut town = Town::new(&[group("default", &pools)]).with_active(&BOTH);
    assert_eq!(town.put(svc("a").multi(true)).text(), "10.1.0.8, 10.2.0.8");
    assert_eq!(town.put(svc("b")).text(), "10.1.0.9", "mp-4");
}

#[test]
fn mp_3_and_19_neither_shared_nor_balanced() {
    let mut town = Town::new(&[multi(&["10.1.0.8/30"])]).with_active(&BOTH);
    let wish = town.put(svc("a").shared("k"));
    assert_eq!(wish.text(), "MultiPoolShared");
    assert!(wish.condition.message.contains("sharing"), "{}", wish.condition.message);
    town.ranges("default").balance_pools = true;
    town.rebuild();
    assert!(town.put(svc("b")).condition.message.contains("mutually exclusive"));
}

#[test]
fn mp_5_and_10_a_subnet_that_comes_alive_adds_one_address_and_nothing_else_changes() {
    let pools = ["10.1.0.8/30", "10.2.0.8/30", "10.3.0.8/30"];
    let mut town = Town::new(&[multi(&pools)]).with_active(&BOTH);
    assert_eq!(town.put(svc("a")).text(), "10.1.0.8, 10.2.0.8");
    assert!(town.look("test/a").events().is_empty());
    town.rebuild();
    let again = town.look("test/a");
    assert_eq!((again.text().as_str(), again.events()), ("10.1.0.8, 10.2.0.8", vec![]), "the same groups once more");
    let mut town = town.with_active(&["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"]);
    let grown = town.look("test/a");
    assert_eq!(grown.text(), "10.1.0.8, 10.2.0.8, 10.3.0.8");
    assert_eq!(grown.notices[0].message, "Incremental multi-pool: added 1 IPs (total 3) from pool default");
    let mut town = town.with_active(&["10.1.0.0/16"]);
    assert_eq!(town.look("test/a").addrs.len(), 3, "a subnet without nodes takes nothing away");
}

#[test]
fn mp_7_dual_stack_counts_every_range_of_both_families() {
    let pools = ["10.1.0.8/30", "10.2.0.8/30", "2001:db8::8/126", "fd00::8/126"];
    let mut town = Town::new(&[multi(&pools)]).with_active(&["10.1.0.0/16", "10.2.0.0/16", "2001::/16", "fd00::/16"]);
    assert_eq!(town.put(svc("a").dual()).addrs.len(), 4);
    let mut town = town.with_active(&["10.1.0.0/16", "2001::/16", "fd00::/16"]);
    assert_eq!(town.put(svc("b").dual()).addrs.len(), 3);
    let mut town = town.with_active(&[]);
    let nobody = town.put(svc("c").dual());
    assert_eq!(nobody.text(), "NoActiveSubnet");
    assert!(nobody.condition.message.contains("4 ranges skipped (no active nodes)"), "{}", nobody.condition.message);
}

#[test]
fn mp_8_9_11_and_12_full_ranges_are_passed_over_until_they_have_room() {
    let mut town = Town::new(&[multi(&["10.1.0.8/32", "10.2.0.8/30"])]).with_active(&BOTH);
    assert_eq!(town.put(svc("a")).text(), "10.1.0.8, 10.2.0.8");
    let partial = town.put(svc("b"));
    assert_eq!((partial.text().as_str(), partial.condition.reason.as_str()), ("10.2.0.9", "Exhausted"));
    town.delete("test/a");
    assert_eq!(town.look("test/b").text(), "10.2.0.9, 10.1.0.8", "only what was missing is added");
}

#[test]
fn mp_16_a_remote_group_needs_no_nodes_in_its_subnets() {
    let mut remote = multi(&["10.1.0.8/30", "10.2.0.8/30"]);
    remote.placement = Placement::Remote;
    assert_eq!(Town::new(&[remote]).put(svc("a")).addrs.len(), 2);
}

#[test]
fn mp_17_the_addresses_say_where_they_are_from_not_the_annotation() {
    let mut town = Town::new(&[multi(&["10.1.0.8/30"]), group("victim", &["10.2.0.8/30"])]).with_active(&BOTH);
    town.put(svc("a"));
    let wish = town.edit("test/a", |svc| svc.brand.from = Some("victim".into()));
    assert_eq!((wish.text().as_str(), wish.brand.from.as_deref()), ("10.1.0.8", Some("default")));
    assert_eq!(town.book.slot("victim").unwrap().pool.in_use(Family::V4), 0);
}

#[test]
fn mp_18_addresses_of_two_groups_do_not_grow() {
    let mut town =
        Town::new(&[multi(&["10.1.0.8/30", "10.2.0.8/30"]), group("other", &["10.3.0.8/30"])]).with_active(&BOTH);
    town.put(svc("a").pinned("10.1.0.8, 10.3.0.8"));
    let spans = town.edit("test/a", |svc| svc.asks.addresses = None);
    assert_eq!((spans.text().as_str(), spans.condition.reason.as_str()), ("10.1.0.8, 10.3.0.8", "MultiPoolSpans"));
    let told = "Incremental multi-pool allocation refused for \"test/a\": ";
    assert_eq!(spans.events(), ["AllocationFailed"]);
    assert!(spans.notices[0].message.starts_with(told), "{}", spans.notices[0].message);
    assert!(spans.notices[0].message.contains("other") && spans.notices[0].message.contains("default"));
}

#[test]
fn b27_a_service_of_another_group_that_is_to_grow_here_is_told_that_its_move_is_pending() {
    let mut town =
        Town::new(&[multi(&["10.1.0.8/30", "10.2.0.8/30"]), group("other", &["10.3.0.8/30"])]).with_active(&BOTH);
    town.put(svc("a").from("other"));
    let pending = town.edit("test/a", |svc| svc.asks.group = None);
    assert_eq!((pending.text().as_str(), pending.condition.reason.as_str()), ("10.3.0.8", "MovePending"));
    assert_eq!(pending.events(), ["MovePending"]);
    assert_eq!(town.edit("test/a", |svc| svc.asks.re_evaluate = true).text(), "10.1.0.8, 10.2.0.8");
}

#[test]
fn b11_a_family_that_is_missing_is_told_and_who_requires_both_gets_both_or_none() {
    let mut town = Town::new(&[multi(&["10.1.0.8/30", "10.2.0.8/30"])]).with_active(&BOTH);
    assert_eq!(town.put(svc("strict").dual()).text(), "FamilyNotServed");
    assert_eq!(town.put(svc("six").families(&[Family::V6])).text(), "FamilyNotServed", "no node is missing");
    let mut prefers = svc("prefers").dual();
    prefers.prefers_dual_stack = true;
    let wish = town.put(prefers);
    assert_eq!((wish.text().as_str(), wish.condition.reason.as_str()), ("10.1.0.8, 10.2.0.8", "FamilyNotServed"));
    let single = town.put(svc("single"));
    assert_eq!((single.text().as_str(), single.condition.reason.as_str()), ("10.1.0.9, 10.2.0.9", "Assigned"));
    let kept = town.edit("test/single", |svc| svc.families = vec![Family::V4, Family::V6]);
    assert_eq!((kept.text().as_str(), kept.condition.reason.as_str()), ("10.1.0.9, 10.2.0.9", "FamilyNotServed"));

    let mut town = Town::new(&[multi(&["10.1.0.8/30", "fd00::8/126"])]).with_active(&["10.1.0.0/16"]);
    let strict = town.put(svc("strict").dual());
    assert_eq!(strict.text(), "NoActiveSubnet", "no node has the IPv6 subnet");
    assert!(strict.condition.message.contains("start the node agent"), "{}", strict.condition.message);
}

#[test]
fn b25_growth_obeys_the_namespace_rules_of_today() {
    let pools = ["10.1.0.8/30", "10.2.0.8/30"];
    let mut town = Town::new(&[multi(&pools)]).with_active(&["10.1.0.0/16"]);
    town.put(svc("a"));
    let fenced = town.group("default");
    (fenced.namespaces, fenced.enforce_namespaces) = (vec!["tenant".into()], true);
    let mut town = town.with_active(&BOTH);
    let wish = town.look("test/a");
    assert_eq!((wish.text().as_str(), wish.condition.reason.as_str()), ("10.1.0.8", "GroupConfined"));
}

#[test]
fn mp_20_re_evaluate_is_acknowledged() {
    let mut town = Town::new(&[multi(&["10.1.0.8/30"])]).with_active(&BOTH);
    let mut asks = svc("a");
    asks.asks.re_evaluate = true;
    assert_eq!(town.put(asks).text(), "10.1.0.8");
}
