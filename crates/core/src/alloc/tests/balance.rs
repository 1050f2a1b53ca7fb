//! The range with the fewest addresses in use comes first (BP-1 to BP-5).

use super::*;

fn balanced(pools: &[&str]) -> Group {
    let mut group = group("default", pools);
    if let Source::Ranges(ranges) = &mut group.source {
        ranges.balance_pools = true;
    }
    group
}

fn fill(town: &mut Town, count: usize) -> Vec<String> {
    (0..count).map(|n| town.put(svc(&format!("s{n}"))).text()).collect()
}

#[test]
fn bp_1_ranges_fill_evenly() {
    let mut town = Town::new(&[balanced(&["10.1.0.1-10.1.0.3", "10.2.0.1-10.2.0.3"])]);
    assert_eq!(fill(&mut town, 4), ["10.1.0.1", "10.2.0.1", "10.1.0.2", "10.2.0.2"]);
}

#[test]
fn bp_1_and_so_do_those_of_the_other_family_and_of_both() {
    let v6 = ["2001:db8:1::1-2001:db8:1::3", "2001:db8:2::1-2001:db8:2::3"];
    let mut town = Town::new(&[balanced(&v6)]);
    let six = |n: usize| svc(&format!("s{n}")).families(&[Family::V6]);
    let got: Vec<_> = (0..4).map(|n| town.put(six(n)).text()).collect();
    assert_eq!(got, ["2001:db8:1::1", "2001:db8:2::1", "2001:db8:1::2", "2001:db8:2::2"]);
    let mut town = Town::new(&[balanced(&["10.1.0.1-10.1.0.3", "10.2.0.1-10.2.0.3", v6[0], v6[1]])]);
    assert_eq!(town.put(svc("a").dual()).text(), "10.1.0.1, 2001:db8:1::1");
    assert_eq!(town.put(svc("b").dual()).text(), "10.2.0.1, 2001:db8:2::1");
}

#[test]
fn bp_2_a_full_range_is_passed_over() {
    let mut town = Town::new(&[balanced(&["10.1.0.1/32", "10.2.0.1-10.2.0.5"])]);
    let got = fill(&mut town, 7);
    assert_eq!(got.iter().filter(|text| text.starts_with("10.")).count(), 6);
    assert_eq!(got[6], "Exhausted");
}

#[test]
fn bp_3_without_balancing_the_first_range_is_used_up_first() {
    let mut town = Town::new(&[group("default", &["10.1.0.1-10.1.0.3", "10.2.0.1-10.2.0.3"])]);
    assert_eq!(fill(&mut town, 4), ["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.2.0.1"]);
}

#[test]
fn bp_4_what_is_given_back_counts() {
    let mut town = Town::new(&[balanced(&["10.1.0.1-10.1.0.3", "10.2.0.1-10.2.0.3"])]);
    fill(&mut town, 4);
    town.delete("test/s0");
    town.delete("test/s2");
    assert_eq!(town.put(svc("next")).text(), "10.1.0.1");
}

#[test]
fn bp_5_sharers_stay_together() {
    let mut town = Town::new(&[balanced(&["10.1.0.1-10.1.0.3", "10.2.0.1-10.2.0.3"])]);
    assert_eq!(town.put(svc("a").shared("k")).text(), "10.1.0.1");
    assert_eq!(town.put(svc("b").shared("k").port(81)).text(), "10.1.0.1");
}
