//! Addresses asked for by name (AL-2 to AL-7, BUG-4, BUG-5, NS-9).

use super::*;

#[rstest::rstest]
#[case::v4(Family::V4, "1.2.4.", &["1.2.4.0/30", "1.2.5.0/24"], "1.2.5.254")]
#[case::v6(Family::V6, "2001:db8:4::", &["2001:db8:4::/126", "2001:db8:5::/120"], "2001:db8:5::fe")]
fn al_2_a_pinned_address_belongs_to_one_service_at_a_time(
    #[case] family: Family,
    #[case] start: &str,
    #[case] pools: &[&str],
    #[case] other: &str,
) {
    let mut town = Town::new(&[group("test", &pools[..1]), group("test2", &pools[1..])]);
    let [one, two, three] = [1, 2, 3].map(|n| format!("{start}{n}"));
    let pinned = |name: &str, addr: &str| svc(name).families(&[family]).pinned(addr);
    assert_eq!(town.put(pinned("s1", &one)).text(), one);
    assert_eq!(town.look("test/s1").text(), one);
    let denied = town.put(pinned("s2", &one));
    assert_eq!(denied.text(), "AddressInUse");
    assert!(denied.condition.message.contains("already in use by test/s1"), "{}", denied.condition.message);
    assert_eq!(town.put(pinned("s2", &two)).text(), two);
    assert_eq!(town.put(pinned("s3", other)).brand.from.as_deref(), Some("test2"));
    town.delete("test/s1");
    assert_eq!(town.put(pinned("s5", &one)).text(), one);

    assert_eq!(town.put(pinned("s4", &three).shared("sharing")).text(), three);
    assert_eq!(town.edit("test/s4", |svc| svc.asks.sharing_key = Some("share".into())).text(), three);
    assert_eq!(town.put(pinned("s6", &three).shared("share")).text(), "PortInUse");
    assert_eq!(town.put(pinned("s6", &three).shared("other").port(443)).text(), "AddressInUse");
    assert_eq!(town.put(pinned("s6", &three).shared("share").port(443)).text(), three);
    let dns = town.edit("test/s6", |svc| svc.ports = vec![Port { protocol: Protocol::Udp, number: 53 }]);
    assert_eq!((dns.text(), dns.condition.reason.as_str()), (three, "Assigned"));
    town.delete("test/s3");
    let moved = town.edit("test/s4", |svc| (svc.asks.addresses, svc.asks.re_evaluate) = (Some(other.into()), true));
    assert_eq!((moved.text().as_str(), moved.brand.from.as_deref()), (other, Some("test2")), "where s3 was");
}

#[test]
fn al_3_who_shares_an_address_cannot_have_it_with_another_key() {
    let mut town = Town::new(&[group("test", &["2001:db8::/126"])]);
    let six = |name: &str| svc(name).families(&[Family::V6]).pinned("2001:db8::3").shared("share");
    assert_eq!(town.put(six("s4")).text(), "2001:db8::3");
    assert_eq!(town.put(six("s3").port(443)).text(), "2001:db8::3");
    let refused = town.edit("test/s3", |svc| svc.asks.sharing_key = Some("other".into()));
    assert_eq!((refused.text().as_str(), refused.events()), ("AddressInUse", vec!["AddressLost", "AllocationFailed"]));
    town.delete("test/s4");
    assert_eq!(town.look("test/s3").text(), "2001:db8::3", "alone it may");
}

#[test]
fn al_5_without_a_default_group_only_pins_and_named_groups_work() {
    let mut town = Town::new(&[group("test", &["1.2.3.0/31"])]);
    assert_eq!(town.put(svc("a").pinned("1.2.3.0")).text(), "1.2.3.0");
    assert_eq!(town.put(svc("taken").pinned("1.2.3.0")).text(), "AddressInUse");
    assert_eq!(town.put(svc("b").from("test")).text(), "1.2.3.1");
    assert_eq!(town.put(svc("c").from("test")).text(), "Exhausted");
    assert_eq!(town.put(svc("d")).text(), "UnknownPool");
    town.groups.push(group("default", &["1.2.3.4/30"]));
    town.rebuild();
    assert_eq!(town.look("test/d").text(), "1.2.3.4");
}

#[test]
fn al_6_a_pin_wins_over_the_group_annotation_and_says_so() {
    let mut town = Town::new(&[group("a", &["1.2.3.0/24"]), group("b", &["4.5.6.0/24"])]);
    assert_eq!(town.put(svc("x").pinned("9.9.9.9").from("a")).text(), "PinOutsideGroups");
    let wish = town.put(svc("y").pinned("4.5.6.7").from("a"));
    assert_eq!((wish.text(), wish.brand.from.as_deref()), ("4.5.6.7".into(), Some("b")));
    assert_eq!(wish.events(), ["ConfigurationWarning", "AddressAssigned"]);
    let told =
        "Both the addresses annotation and the service-group annotation were provided. service-group will be ignored.";
    assert_eq!((wish.notices[0].severity, wish.notices[0].message.as_str()), (Severity::Normal, told));
}

#[test]
fn al_7_the_annotation_comes_before_the_deprecated_field() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24", "2001:db8::/64"])]);
    let mut by_field = svc("a");
    by_field.load_balancer_ip = Some("1.2.3.9".into());
    let wish = town.put(by_field.clone());
    assert_eq!((wish.text(), wish.events()), ("1.2.3.9".into(), vec!["DeprecationWarning", "AddressAssigned"]));
    let told = "Service.Spec.LoadBalancerIP is deprecated, please use the \"purelb.io/addresses\" annotation instead";
    assert_eq!((wish.notices[0].severity, wish.notices[0].message.as_str()), (Severity::Normal, told));
    by_field.key = "test/b".into();
    assert_eq!(town.put(by_field.pinned("1.2.3.8")).text(), "1.2.3.8");
    let both = town.put(svc("c").dual().pinned("2001:db8::5, 1.2.3.5"));
    assert_eq!(both.text(), "2001:db8::5, 1.2.3.5", "the order and the blank are the user's");
    assert_eq!(both.brand.from.as_deref(), Some("default, default"), "one name for each pinned address");
}

#[rstest::rstest]
#[case("")]
#[case("1.2.3.4,")]
#[case("not-an-address")]
fn a_pin_that_is_no_address_is_refused_with_the_text(#[case] pin: &str) {
    let wish = Town::new(&[group("default", &["1.2.3.0/24"])]).put(svc("a").pinned(pin));
    assert_eq!(wish.text(), "PinSyntax");
    assert!(wish.condition.message.starts_with("invalid user-specified address:"), "{}", wish.condition.message);
}

#[test]
fn bug_4_one_pin_on_a_dual_stack_service_is_stable() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24", "2001:db8::/64"])]);
    assert_eq!(town.put(svc("a").dual().pinned("1.2.3.4")).text(), "1.2.3.4");
    let again = town.look("test/a");
    assert_eq!((again.text(), again.events()), ("1.2.3.4".into(), vec![]));
}

#[test]
fn bug_5_two_pins_are_given_together_or_not_at_all() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24", "2001:db8::/64"])]);
    town.put(svc("taker").families(&[Family::V6]).pinned("2001:db8::5"));
    let wish = town.put(svc("a").dual().pinned("1.2.3.4,2001:db8::5"));
    assert_eq!((wish.text(), wish.events()), ("AddressInUse".into(), vec!["AllocationFailed"]));
    assert_eq!(town.put(svc("b").pinned("1.2.3.4")).text(), "1.2.3.4", "the first pin was not kept");
}

#[test]
fn b27_a_changed_pin_waits_for_re_evaluate() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    town.put(svc("a").pinned("1.2.3.4"));
    let waits = town.edit("test/a", |svc| svc.asks.addresses = Some("1.2.3.9".into()));
    assert_eq!((waits.text().as_str(), waits.condition.reason.as_str()), ("1.2.3.4", "MovePending"));
    assert_eq!(town.edit("test/a", |svc| svc.asks.re_evaluate = true).text(), "1.2.3.9");
}

#[test]
fn ns_9_pinning_into_a_fenced_pool_is_denied_and_the_incumbent_keeps_its_address() {
    let mut fenced = group("fenced", &["1.2.3.0/24"]);
    (fenced.namespaces, fenced.enforce_namespaces) = (vec!["tenant".into()], true);
    let mut town = Town::new(&[fenced]);
    assert_eq!(town.put(svc("tenant/web")).text(), "1.2.3.0");
    assert_eq!(town.put(svc("other/web").pinned("1.2.3.0")).text(), "GroupConfined");
    assert_eq!(town.look("tenant/web").text(), "1.2.3.0");
}

#[test]
fn where_an_orphaned_address_came_from_is_not_forgotten_beside_one_that_is_not() {
    let mut town = Town::new(&[group("a", &["1.2.3.0/24"]), group("b", &["2001:db8::/64"])]);
    town.put(svc("x").dual().pinned("1.2.3.4,2001:db8::4"));
    town.groups.retain(|group| group.name == "a");
    town.rebuild();
    assert_eq!(town.look("test/x").brand.from.as_deref(), Some("a, b"));
}
