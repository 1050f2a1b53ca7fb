//! The book: what is held is given back where it belongs, and nowhere else (REL-1, AL-11, B14, NS-12).

use super::*;
use crate::addr::{AddrRange, Aggregation, Family, parse_subnet};
use crate::group::{Entry, Source};

fn group(name: &str, pool: &str, namespaces: &[&str], enforce: bool) -> Group {
    let range = AddrRange::parse(pool).unwrap();
    let subnet = parse_subnet(if range.family() == Family::V4 { "10.0.0.0/8" } else { "2001:db8::/32" }).unwrap();
    let entry = Entry { field: "[0]".into(), text: pool.into(), range, subnet, aggregation: Aggregation::Subnet };
    let mut ranges = Ranges::default();
    match entry.range.family() {
        Family::V4 => ranges.v4.push(entry),
        Family::V6 => ranges.v6.push(entry),
    }
    Group {
        namespace: "purelb-system".into(),
        name: name.into(),
        placement: Placement::Local,
        source: Source::Ranges(ranges),
        skip_ipv6_dad: false,
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        enforce_namespaces: enforce,
        namespace_default: false,
    }
}

fn book(groups: &[Group]) -> Book {
    Book::new(groups.to_vec(), BTreeMap::new(), Surroundings::default())
}

fn two() -> Book {
    book(&[group("four", "10.0.0.8/30", &[], false), group("six", "2001:db8::8/126", &[], false)])
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn holding(service: &str, addrs: &[&str]) -> Holding {
    let claim = Claim { service: service.into(), key: None, ports: Vec::new() };
    Holding { uid: "u".into(), claim, addrs: addrs.iter().map(|addr| ip(addr)).collect() }
}

fn in_use(book: &Book) -> [usize; 2] {
    [("four", Family::V4), ("six", Family::V6)].map(|(name, family)| book.slot(name).unwrap().pool.in_use(family))
}

#[test]
fn al_11_an_address_leads_to_the_group_that_has_it() {
    let book = two();
    assert_eq!(book.slot_of(ip("10.0.0.9")).unwrap().group.name, "four");
    assert_eq!(book.slot_of(ip("2001:db8::9")).unwrap().group.name, "six");
    assert!(book.slot_of(ip("10.0.0.12")).is_none());
    assert!(Book::default().slot_of(ip("10.0.0.9")).is_none());
}

#[test]
fn rel_1_and_b14_each_address_counts_and_is_freed_in_the_pool_that_has_it() {
    let mut book = two();
    book.hold(holding("test/a", &["10.0.0.9", "2001:db8::9", "192.0.2.1"]));
    assert_eq!(in_use(&book), [1, 1], "an address counts in its own pool only");
    let other = Claim { service: "test/b".into(), key: None, ports: Vec::new() };
    assert!(book.check_loose(ip("192.0.2.1"), &other).is_err(), "nor is one outside the pools free for others");
    assert!(book.release("test/unknown", None).is_none(), "who holds nothing gives nothing back");
    assert_eq!(book.release("test/a", None).unwrap().addrs.len(), 3);
    assert_eq!(in_use(&book), [0, 0]);
    assert!(book.check_loose(ip("192.0.2.1"), &other).is_ok());
}

#[test]
fn what_a_service_no_longer_shows_is_free_at_once() {
    let mut book = two();
    book.hold(holding("test/a", &["10.0.0.9", "192.0.2.1"]));
    book.hold(holding("test/a", &["2001:db8::9"]));
    assert_eq!(in_use(&book), [0, 1]);
    let other = Claim { service: "test/b".into(), key: None, ports: Vec::new() };
    assert!(book.check_loose(ip("192.0.2.1"), &other).is_ok());
}

#[rstest::rstest]
#[case::no_list(&[], false, "anybody", true)]
#[case::listed(&["tenant"], true, "tenant", true)]
#[case::unlisted_may_ask_by_name(&["tenant"], false, "other", true)]
#[case::unlisted_and_enforced(&["tenant"], true, "other", false)]
#[case::no_namespace_at_all(&["tenant"], true, "", false)]
fn ns_12_whom_a_group_serves(
    #[case] namespaces: &[&str],
    #[case] enforce: bool,
    #[case] asks: &str,
    #[case] served: bool,
) {
    let group = group("g", "10.0.0.8/30", namespaces, enforce);
    assert_eq!(book(std::slice::from_ref(&group)).bindings().check(asks, &group).is_ok(), served);
}
