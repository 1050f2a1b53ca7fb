//! Pools: the laws against a naive model that scans a set, and the stories of the specification (LP-, SH-, BUG-).

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::addr::{AddrRange, Aggregation, parse_subnet};

fn ranges(pools: &[&str]) -> Ranges {
    let mut ranges = Ranges::default();
    for pool in pools {
        let range = AddrRange::parse(pool).unwrap();
        let (list, subnet) = match range.family() {
            Family::V4 => (&mut ranges.v4, "0.0.0.0/0"),
            Family::V6 => (&mut ranges.v6, "::/0"),
        };
        let subnet = parse_subnet(subnet).unwrap();
        let field = format!("[{}]", list.len());
        list.push(Entry { field, text: (*pool).into(), range, subnet, aggregation: Aggregation::Subnet });
    }
    ranges
}

fn pool(pools: &[&str]) -> Pool {
    Pool::new("default", &ranges(pools))
}

fn claim(service: &str, key: Option<&str>, ports: &[u16]) -> Claim {
    let ports = ports.iter().map(|&number| Port { protocol: Protocol::Tcp, number }).collect();
    Claim { service: service.into(), key: key.map(Into::into), ports }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn drain(pool: &mut Pool, family: Family) -> Vec<String> {
    let mut taken = Vec::new();
    while let Ok(addr) = pool.take_next(family, &claim(&format!("ns/s{}", taken.len()), None, &[80])) {
        taken.push(addr.to_string());
    }
    taken
}

#[test]
fn lp_1_an_empty_pool_refuses_everything_by_name() {
    let mut pool = pool(&[]);
    assert_eq!((pool.size(Family::V4), pool.size(Family::V6)), (0, 0));
    let reason = pool.take_next(Family::V4, &claim("ns/a", None, &[80])).unwrap_err();
    assert_eq!(reason.name(), "FamilyNotServed");
}

#[test]
fn lp_2_ranges_are_used_up_in_the_order_they_were_written() {
    let mut v4 = pool(&["192.168.2.0/31", "192.168.1.3/32", "192.168.1.2/32"]);
    assert_eq!(drain(&mut v4, Family::V4), ["192.168.2.0", "192.168.2.1", "192.168.1.3", "192.168.1.2"]);
    let mut v6 = pool(&["2001:db8::43:0/127", "2001:db8::42:0/127"]);
    let order = ["2001:db8::43:0", "2001:db8::43:1", "2001:db8::42:0", "2001:db8::42:1"];
    assert_eq!(drain(&mut v6, Family::V6), order);
}

#[test]
fn lp_3_an_address_in_use_is_skipped() {
    let mut pool = pool(&["192.168.1.2/31"]);
    pool.adopt(ip("192.168.1.2"), &claim("ns/a", None, &[80])).unwrap();
    assert_eq!(pool.take_next(Family::V4, &claim("ns/b", None, &[80])), Ok(ip("192.168.1.3")));
}

#[test]
fn lp_4_and_5_a_shared_address_counts_once_until_the_last_holder_goes() {
    let mut pool = pool(&["192.168.1.0/30"]);
    pool.take_next(Family::V4, &claim("ns/a", None, &[80])).unwrap();
    let shared = pool.take_next(Family::V4, &claim("ns/b", Some("k"), &[80])).unwrap();
    pool.take_next(Family::V4, &claim("ns/c", Some("k"), &[81])).unwrap();
    assert_eq!(pool.in_use(Family::V4), 2);
    assert_eq!(pool.holders(shared).map(|s| &**s).collect::<Vec<_>>(), ["ns/b", "ns/c"]);
    assert!(pool.release(shared, "ns/b"));
    assert!(!pool.release(shared, "ns/b"), "a second release changes nothing");
    assert_eq!(pool.in_use(Family::V4), 2);
    assert!(pool.release(shared, "ns/c"));
    assert_eq!(pool.in_use(Family::V4), 1);
}

#[test]
fn lp_8_a_pool_knows_the_addresses_of_both_its_families() {
    let both = pool(&["192.168.1.0/31", "2001:db8::10/127"]);
    for (addr, inside) in [
        ("192.168.1.0", true),
        ("192.168.1.1", true),
        ("192.168.1.2", false),
        ("2001:db8::11", true),
        ("2001:db8::12", false),
    ] {
        assert_eq!(both.contains(ip(addr)), inside, "{addr}");
        assert!(!pool(&[]).contains(ip(addr)), "an empty pool contains nothing");
    }
}

#[test]
fn lp_10_an_ipv4_address_written_as_ipv6_counts_as_ipv4() {
    let mut pool = pool(&["192.168.1.0/31", "2001:db8::/127"]);
    pool.take(ip("::ffff:192.168.1.0"), &claim("ns/a", None, &[80])).unwrap();
    pool.take(ip("2001:db8::"), &claim("ns/a", None, &[80])).unwrap();
    assert_eq!((pool.in_use(Family::V4), pool.in_use(Family::V6)), (1, 1));
    assert_eq!(pool.take_next(Family::V4, &claim("ns/b", None, &[80])), Ok(ip("192.168.1.1")));
}

#[rstest::rstest]
#[case::nobody_has_it("1.2.3.1", claim("ns/new", None, &[80]), None)]
#[case::its_own("1.2.3.0", claim("ns/a", Some("k"), &[80]), None)]
#[case::its_own_without_the_key("1.2.3.0", claim("ns/a", None, &[80]), None)]
#[case::its_own_with_another_key("1.2.3.0", claim("ns/a", Some("other"), &[80]), None)]
#[case::no_key("1.2.3.0", claim("ns/new", None, &[81]), Some("AddressInUse"))]
#[case::same_key_same_port("1.2.3.0", claim("ns/new", Some("k"), &[80]), Some("PortInUse"))]
#[case::same_key_other_port("1.2.3.0", claim("ns/new", Some("k"), &[81]), None)]
fn sh_2_who_may_have_an_address(#[case] addr: &str, #[case] asks: Claim, #[case] refusal: Option<&str>) {
    let mut pool = pool(&["1.2.3.0/30"]);
    pool.take(ip("1.2.3.0"), &claim("ns/a", Some("k"), &[80])).unwrap();
    assert_eq!(pool.available(ip(addr), &asks).err().map(|reason| reason.name()), refusal);
}

#[test]
fn sh_9_addresses_in_use_are_counted_not_services() {
    let mut pool = pool(&["1.2.3.0/30"]);
    let mut counts = Vec::new();
    for service in ["ns/a", "ns/b"] {
        pool.take_next(Family::V4, &claim(service, None, &[80])).unwrap();
        counts.push(pool.in_use(Family::V4));
    }
    for (addr, service) in [("1.2.3.0", "ns/a"), ("1.2.3.1", "ns/b")] {
        pool.release(ip(addr), service);
        counts.push(pool.in_use(Family::V4));
    }
    for n in 0..3 {
        pool.take_next(Family::V4, &claim(&format!("ns/s{n}"), Some("k"), &[80 + n])).unwrap();
        counts.push(pool.in_use(Family::V4));
    }
    for n in 0..3 {
        pool.release(ip("1.2.3.0"), &format!("ns/s{n}"));
        counts.push(pool.in_use(Family::V4));
    }
    assert_eq!(counts, [1, 2, 1, 0, 1, 1, 1, 1, 1, 0]);
}

#[test]
fn lp_6_size_counts_both_families() {
    let pool = pool(&["192.168.1.0/31", "2001:db8::1"]);
    assert_eq!((pool.size(Family::V4), pool.size(Family::V6)), (2, 1));
}

#[test]
fn bug_1_overlapping_ranges_give_each_address_once_and_end() {
    let mut merged = pool(&["10.0.0.4/31", "10.0.0.0-10.0.0.7", "10.0.0.2/32"]);
    assert_eq!(merged.size(Family::V4), 8);
    let last_octets: Vec<_> = drain(&mut merged, Family::V4).iter().map(|a| a[7..].to_owned()).collect();
    assert_eq!(last_octets, ["4", "5", "0", "1", "2", "3", "6", "7"]);
}

#[test]
fn sh_3_and_7_each_key_has_an_address_of_its_own() {
    let mut pool = pool(&["1.2.3.0/31"]);
    assert_eq!(pool.take_next(Family::V4, &claim("ns/1", Some("A"), &[80])), Ok(ip("1.2.3.0")));
    assert_eq!(pool.take_next(Family::V4, &claim("ns/2", Some("B"), &[80])), Ok(ip("1.2.3.1")));
    let clash = pool.take_next(Family::V4, &claim("ns/3", Some("B"), &[80])).unwrap_err();
    assert_eq!(clash.name(), "PortInUse");
    assert_eq!(pool.take_next(Family::V4, &claim("ns/3", Some("B"), &[81])), Ok(ip("1.2.3.1")));
}

#[test]
fn sh_4_and_6_a_bound_key_never_spills_to_another_address() {
    let mut pool = pool(&["1.2.3.0/30"]);
    pool.take_next(Family::V4, &claim("ns/a", Some("web"), &[80])).unwrap();
    pool.take_next(Family::V4, &claim("ns/b", Some("web"), &[443])).unwrap();
    let sentence = pool.take_next(Family::V4, &claim("ns/c", Some("web"), &[80])).unwrap_err().to_string();
    assert!(sentence.contains("port TCP/80") && sentence.contains("already in use"), "{sentence}");
    assert_eq!(pool.in_use(Family::V4), 1);
}

#[test]
fn sh_5_the_last_release_frees_the_key() {
    let mut pool = pool(&["1.2.3.0/31"]);
    let first = pool.take_next(Family::V4, &claim("ns/a", Some("k"), &[80])).unwrap();
    pool.release(first, "ns/a");
    pool.take(first, &claim("ns/other", None, &[80])).unwrap();
    assert_eq!(pool.take_next(Family::V4, &claim("ns/b", Some("k"), &[80])), Ok(ip("1.2.3.1")));
}

#[test]
fn a_sole_holder_may_change_its_key_and_others_may_then_join() {
    let mut pool = pool(&["1.2.3.0/30"]);
    let addr = ip("1.2.3.0");
    pool.take(addr, &claim("ns/a", Some("old"), &[80])).unwrap();
    pool.take(addr, &claim("ns/a", Some("new"), &[80])).unwrap();
    assert_eq!(pool.take_next(Family::V4, &claim("ns/b", Some("new"), &[81])), Ok(addr));
    assert_eq!(pool.take_next(Family::V4, &claim("ns/c", Some("old"), &[81])), Ok(ip("1.2.3.1")), "old is unbound");
    let refused = pool.take(addr, &claim("ns/a", Some("third"), &[80])).unwrap_err();
    assert_eq!(refused.name(), "AddressInUse", "not while somebody shares it");
}

#[test]
fn a_key_is_found_where_it_is_after_sharers_were_edited_and_left() {
    let mut pool = pool(&["1.2.3.0/30"]);
    let addr = ip("1.2.3.0");
    pool.take(addr, &claim("ns/a", Some("old"), &[80])).unwrap();
    pool.take(addr, &claim("ns/b", Some("old"), &[81])).unwrap();
    pool.adopt(addr, &claim("ns/a", Some("new"), &[80])).unwrap_err();
    pool.release(addr, "ns/b");
    assert_eq!(pool.next(Family::V4, &claim("ns/c", Some("new"), &[81])), Ok(addr), "a has it under its new key");
    assert_eq!(pool.next(Family::V4, &claim("ns/d", Some("old"), &[81])), Ok(ip("1.2.3.1")), "nobody has the old one");
}

#[test]
fn who_came_earlier_keeps_an_address_and_who_asks_for_more_comes_anew() {
    let mut pool = pool(&["1.2.3.0/30"]);
    let addr = ip("1.2.3.0");
    let (a, b) = (claim("ns/a", Some("k"), &[80, 8080]), claim("ns/b", Some("k"), &[443]));
    pool.take(addr, &a).unwrap();
    pool.take(addr, &b).unwrap();
    let verdict = |pool: &Pool, asks: &Claim| pool.keeps(addr, asks).err().map(|reason| reason.name());
    assert_eq!([verdict(&pool, &a), verdict(&pool, &b)], [None, None]);
    let edited = claim("ns/a", Some("k"), &[443]);
    assert_eq!(verdict(&pool, &edited), Some("PortInUse"), "b has it for longer");
    pool.adopt(addr, &edited).unwrap_err();
    assert_eq!([verdict(&pool, &edited), verdict(&pool, &b)], [Some("PortInUse"), None]);
    pool.adopt(addr, &claim("ns/b", None, &[443])).unwrap_err();
    assert_eq!(verdict(&pool, &edited), None, "b was edited later");
    assert_eq!(verdict(&pool, &claim("ns/b", None, &[443])), Some("AddressInUse"));
}

#[test]
fn nobody_joins_those_who_share_no_longer_or_never_did() {
    let mut pool = pool(&["10.0.0.0/30"]);
    for (service, port) in [("ns/a", 80), ("ns/b", 443)] {
        pool.take(ip("10.0.0.0"), &claim(service, Some("k"), &[port])).unwrap();
    }
    // An edit: a stays where it is, and shares with nobody.
    pool.adopt(ip("10.0.0.0"), &claim("ns/a", None, &[80])).unwrap_err();
    let late = claim("ns/late", Some("k"), &[8080]);
    assert_eq!(pool.available(ip("10.0.0.0"), &late).unwrap_err().name(), "AddressInUse");
    assert_eq!(pool.take_next(Family::V4, &late).unwrap(), ip("10.0.0.1"), "the key goes on elsewhere");
}

#[test]
fn bug_2_a_port_clash_in_a_huge_pool_is_found_at_once() {
    let mut pool = pool(&["2001:db8::/48"]);
    pool.take_next(Family::V6, &claim("ns/a", Some("k"), &[80])).unwrap();
    assert_eq!(pool.take_next(Family::V6, &claim("ns/b", Some("k"), &[80])).unwrap_err().name(), "PortInUse");
}

#[test]
fn bug_16_a_dropped_port_is_free_for_sharers_at_once() {
    let mut pool = pool(&["1.2.3.0/30"]);
    let addr = pool.take_next(Family::V4, &claim("ns/a", Some("k"), &[80, 443])).unwrap();
    pool.take(addr, &claim("ns/a", Some("k"), &[443])).unwrap();
    assert_eq!(pool.take_next(Family::V4, &claim("ns/b", Some("k"), &[80])), Ok(addr));
}

#[test]
fn one_number_in_two_protocols_is_two_ports() {
    let mut pool = pool(&["1.2.3.0/30"]);
    let dns = |service: &str, protocol| Claim {
        service: service.into(),
        key: Some("dns".into()),
        ports: vec![Port { protocol, number: 53 }],
    };
    let addr = pool.take_next(Family::V4, &dns("ns/tcp", Protocol::Tcp)).unwrap();
    assert_eq!(pool.take_next(Family::V4, &dns("ns/udp", Protocol::Udp)), Ok(addr));
}

#[test]
fn two_unrelated_holders_found_at_start_are_both_kept_and_named() {
    let mut pool = pool(&["1.2.3.0/31"]);
    pool.adopt(ip("1.2.3.0"), &claim("ns/a", None, &[80])).unwrap();
    let reason = pool.adopt(ip("1.2.3.0"), &claim("ns/b", None, &[80])).unwrap_err();
    assert_eq!(reason.name(), "AddressInUse");
    assert_eq!(pool.holders(ip("1.2.3.0")).count(), 2);
    pool.release(ip("1.2.3.0"), "ns/a");
    let next = pool.take_next(Family::V4, &claim("ns/c", None, &[80]));
    assert_eq!(next, Ok(ip("1.2.3.1")), "b still has the other one");
}

#[test]
fn balancing_and_one_per_range_ask_each_range_by_itself() {
    let mut pool = pool(&["10.0.0.0/31", "10.0.1.0/31", "10.0.0.0/30"]);
    let c = claim("ns/a", None, &[80]);
    assert_eq!(pool.next_in_range(Family::V4, 2, &c), Ok(ip("10.0.0.2")), "the first range has .0 and .1");
    pool.take(ip("10.0.1.0"), &c).unwrap();
    assert_eq!([0, 1, 2].map(|range| pool.in_use_of_range(Family::V4, range)), [0, 1, 0]);
    assert_eq!(pool.next_in_range(Family::V4, 1, &c), Ok(ip("10.0.1.1")));
}

#[test]
fn the_ends_of_the_address_space_can_be_given_out() {
    let mut v6 = pool(&["::/0"]);
    let top = ip("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    v6.take(top, &claim("ns/a", None, &[80])).unwrap();
    assert!(v6.release(top, "ns/a"));
    assert_eq!(v6.take_next(Family::V6, &claim("ns/b", None, &[80])), Ok(ip("::")));
    let mut v4 = pool(&["255.255.255.254/31"]);
    assert_eq!(drain(&mut v4, Family::V4), ["255.255.255.254", "255.255.255.255"]);
}

// The laws: whatever happens to a pool, it answers like a model that is too simple to be wrong.

/// Addresses in giving-out order and a list of holdings; every question is answered by scanning.
#[derive(Default)]
struct Model {
    order: Vec<IpAddr>,
    held: HashMap<IpAddr, Vec<Claim>>,
}

impl Model {
    fn new(ranges: &Ranges) -> Self {
        let mut model = Model::default();
        for entry in ranges.v4.iter().chain(&ranges.v6) {
            let (first, last) = (bits(entry.range.first()), bits(entry.range.last()));
            for addr in (first..=last).map(|at| addr_of(entry.range.family(), at)) {
                if !model.order.contains(&addr) {
                    model.order.push(addr);
                }
            }
        }
        model
    }

    fn others<'a>(&'a self, addr: IpAddr, asks: &'a Claim) -> impl Iterator<Item = &'a Claim> {
        self.held.get(&addr).into_iter().flatten().filter(|held| held.service != asks.service)
    }

    /// The lowest address that others hold who all have the asker's sharing key.
    fn bound(&self, family: Family, asks: &Claim) -> Option<IpAddr> {
        let key = asks.key.as_ref()?;
        let mine = self.order.iter().filter(|addr| Family::of(**addr) == family);
        let shared = |addr: &&IpAddr| {
            self.others(**addr, asks).next().is_some()
                && self.others(**addr, asks).all(|held| held.key.as_ref() == Some(key))
        };
        mine.filter(shared).min().copied()
    }

    fn may_have(&self, addr: IpAddr, asks: &Claim) -> bool {
        let shares = |held: &Claim| {
            asks.key.is_some() && held.key == asks.key && !held.ports.iter().any(|port| asks.ports.contains(port))
        };
        self.order.contains(&addr)
            && self.bound(Family::of(addr), asks).is_none_or(|bound| bound == addr)
            && self.others(addr, asks).all(shares)
    }

    /// The sharing key's own address if it has one, else the first that nobody holds.
    fn next(&self, family: Family, asks: &Claim) -> Option<IpAddr> {
        match self.bound(family, asks) {
            Some(addr) => self.may_have(addr, asks).then_some(addr),
            None => self.order.iter().find(|a| Family::of(**a) == family && !self.held.contains_key(a)).copied(),
        }
    }

    fn record(&mut self, addr: IpAddr, claim: &Claim) {
        let holders = self.held.entry(addr).or_default();
        let at = holders.iter().position(|held| held.service == claim.service).unwrap_or(holders.len());
        let before: Vec<_> = holders.iter().filter(|held| held.service == claim.service).cloned().collect();
        holders.retain(|held| held.service != claim.service);
        let more =
            |before: &Claim| before.key != claim.key || claim.ports.iter().any(|port| !before.ports.contains(port));
        let at = if before.iter().any(more) { holders.len() } else { at };
        holders.insert(at, claim.clone());
    }

    fn release(&mut self, addr: IpAddr, service: &str) -> bool {
        let Some(holders) = self.held.get_mut(&addr) else { return false };
        let before = holders.len();
        holders.retain(|held| &*held.service != service);
        let released = holders.len() < before;
        if holders.is_empty() {
            self.held.remove(&addr);
        }
        released
    }
}

#[derive(Clone, Debug)]
enum Action {
    TakeNext(Family, Claim),
    Take(IpAddr, Claim),
    /// An edit, or what an older release left: it has the address, whatever stands against it.
    Adopt(IpAddr, Claim),
    Release(IpAddr, String),
}

fn some_ranges() -> impl Strategy<Value = Vec<String>> {
    let v4 = (0_u8..40, 0_u8..12).prop_map(|(from, more)| format!("10.0.0.{from}-10.0.0.{}", from + more));
    let v6 = (0_u8..20, 0_u8..8).prop_map(|(from, more)| format!("2001:db8::{from:x}-2001:db8::{:x}", from + more));
    prop::collection::vec(prop_oneof![3 => v4, 1 => v6], 0..5)
}

fn some_claim() -> impl Strategy<Value = Claim> {
    let key = prop_oneof![2 => Just(None), 1 => Just(Some("k1")), 1 => Just(Some("k2"))];
    (0_u8..12, key, prop::collection::vec(80_u16..84, 1..3))
        .prop_map(|(n, key, ports)| claim(&format!("ns/s{n}"), key, &ports))
}

fn some_addr() -> impl Strategy<Value = IpAddr> {
    let v6 = (0_u8..32).prop_map(|n| ip(&format!("2001:db8::{n:x}")));
    prop_oneof![3 => (0_u8..56).prop_map(|n| ip(&format!("10.0.0.{n}"))), 1 => v6]
}

fn some_action() -> impl Strategy<Value = Action> {
    let family = prop_oneof![3 => Just(Family::V4), 1 => Just(Family::V6)];
    prop_oneof![
        4 => (family, some_claim()).prop_map(|(family, claim)| Action::TakeNext(family, claim)),
        3 => (some_addr(), some_claim()).prop_map(|(addr, claim)| Action::Take(addr, claim)),
        2 => (some_addr(), some_claim()).prop_map(|(addr, claim)| Action::Adopt(addr, claim)),
        3 => (some_addr(), 0_u8..12).prop_map(|(addr, n)| Action::Release(addr, format!("ns/s{n}"))),
    ]
}

/// Does the same to pool and model and compares every answer and all that an outsider can see.
fn run(pool: &mut Pool, model: &mut Model, action: &Action) -> Result<(), TestCaseError> {
    match action {
        Action::TakeNext(family, claim) => {
            let (ours, theirs) = (pool.take_next(*family, claim).ok(), model.next(*family, claim));
            prop_assert_eq!(ours, theirs);
            if let Some(addr) = theirs {
                model.record(addr, claim);
            }
        }
        Action::Take(addr, claim) => {
            let allowed = model.may_have(*addr, claim);
            prop_assert_eq!(pool.take(*addr, claim).is_ok(), allowed);
            if allowed {
                model.record(*addr, claim);
            }
        }
        Action::Adopt(addr, claim) => {
            prop_assert_eq!(pool.adopt(*addr, claim).is_ok(), model.may_have(*addr, claim));
            if model.order.contains(addr) {
                model.record(*addr, claim);
            }
        }
        Action::Release(addr, service) => {
            prop_assert_eq!(pool.release(*addr, service), model.release(*addr, service));
        }
    }
    same_view(pool, model)
}

fn same_view(pool: &Pool, model: &Model) -> Result<(), TestCaseError> {
    for family in [Family::V4, Family::V6] {
        let of_family = |addr: &&IpAddr| Family::of(**addr) == family;
        prop_assert_eq!(pool.in_use(family), model.held.keys().filter(of_family).count());
        prop_assert_eq!(pool.size(family), model.order.iter().filter(of_family).count() as u128);
    }
    for addr in pool.held() {
        let holders: Vec<_> = model.held.get(&addr).into_iter().flatten().map(|claim| &claim.service).collect();
        prop_assert_eq!(pool.holders(addr).collect::<Vec<_>>(), holders);
    }
    Ok(())
}

/// Law 1: several Services on one address have one key and no port in common.
fn no_unrelated_holders(model: &Model) -> Result<(), TestCaseError> {
    for holders in model.held.values().filter(|holders| holders.len() > 1) {
        for (i, a) in holders.iter().enumerate() {
            for b in &holders[i + 1..] {
                prop_assert!(a.key.is_some() && a.key == b.key, "{a:?} and {b:?}");
                prop_assert!(!a.ports.iter().any(|port| b.ports.contains(port)), "{a:?} and {b:?}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_pool_answers_like_a_model_that_scans_a_set(
        pools in some_ranges(),
        actions in prop::collection::vec(some_action(), 0..40),
    ) {
        let ranges = ranges(&pools.iter().map(String::as_str).collect::<Vec<_>>());
        let (mut pool, mut model) = (Pool::new("p", &ranges), Model::new(&ranges));
        for action in actions.iter().filter(|action| !matches!(action, Action::Adopt(..))) {
            run(&mut pool, &mut model, action)?;
        }
        no_unrelated_holders(&model)?;
    }

    #[test]
    fn a_pool_answers_like_the_model_whatever_edits_did_to_those_who_share(
        pools in some_ranges(),
        actions in prop::collection::vec(some_action(), 0..40),
    ) {
        let ranges = ranges(&pools.iter().map(String::as_str).collect::<Vec<_>>());
        let (mut pool, mut model) = (Pool::new("p", &ranges), Model::new(&ranges));
        for action in &actions {
            run(&mut pool, &mut model, action)?;
        }
    }
}
