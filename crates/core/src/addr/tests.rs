//! The range grammar, by the scenario IDs of the specification (IPR-1 to IPR-13).

use rstest::rstest;

use super::*;

fn range(text: &str) -> AddrRange {
    AddrRange::parse(text).unwrap_or_else(|reason| panic!("{text:?}: {reason}"))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[rstest]
#[case::ipr_2_one("1.1.1.1/32", "1.1.1.1", "1.1.1.1")]
#[case::ipr_2_two("1.1.1.0/31", "1.1.1.0", "1.1.1.1")]
#[case::ipr_2_24("1.1.1.0/24", "1.1.1.0", "1.1.1.255")]
#[case::ipr_2_16("1.1.0.0/16", "1.1.0.0", "1.1.255.255")]
#[case::ipr_2_8("1.0.0.0/8", "1.0.0.0", "1.255.255.255")]
#[case::ipr_2_v6("2001:db8::/112", "2001:db8::", "2001:db8::ffff")]
#[case::ipr_3("1.1.1.0-1.1.1.1", "1.1.1.0", "1.1.1.1")]
#[case::ipr_3_blanks(" 1.1.1.1 - 1.1.1.1 ", "1.1.1.1", "1.1.1.1")]
#[case::ipr_3_v6("2001:db8::0 - 2001:db8::ffff", "2001:db8::", "2001:db8::ffff")]
#[case::host_bits_are_a_start_offset("1.1.1.10/24", "1.1.1.10", "1.1.1.255")]
#[case::host_bits_v6("2001:db8::1/112", "2001:db8::1", "2001:db8::ffff")]
#[case::bare_address("1.1.1.1", "1.1.1.1", "1.1.1.1")]
#[case::bare_address_v6("2001:db8::7", "2001:db8::7", "2001:db8::7")]
#[case::blanks_around_a_cidr(" 1.1.1.0/24 ", "1.1.1.0", "1.1.1.255")]
#[case::mapped_cidr("::ffff:1.1.1.0/120", "1.1.1.0", "1.1.1.255")]
#[case::mapped_ends("::ffff:1.1.1.1-::ffff:1.1.1.9", "1.1.1.1", "1.1.1.9")]
#[case::mapped_and_plain("1.1.1.1-::ffff:1.1.1.9", "1.1.1.1", "1.1.1.9")]
#[case::all_of_ipv6("::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")]
#[case::all_of_ipv4("0.0.0.0/0", "0.0.0.0", "255.255.255.255")]
fn reads_every_way_people_write_a_range(#[case] text: &str, #[case] first: &str, #[case] last: &str) {
    let range = range(text);
    assert_eq!((range.first(), range.last()), (ip(first), ip(last)));
}

#[rstest]
#[case::ipr_1("1.1.X.1")]
#[case::ipr_3_start("1.1.1.foo-1.1.1.2")]
#[case::ipr_3_end("1.1.1.1-1.1.1.foo")]
#[case::list("10.0.0.1,10.0.0.9")]
#[case::cidr_as_an_end("1.1.1.0/24-1.1.1.9")]
#[case::leading_zeros("192.168.001.1/24")]
#[case::too_large_an_octet("1.1.1.300/24")]
#[case::too_long_a_prefix("1.2.3.0/33")]
#[case::padded_prefix("1.2.3.0/024")]
#[case::signed_prefix("1.2.3.0/+24")]
#[case::zone("fe80::1%eth0/64")]
#[case::mapped_but_wider_than_ipv4("::ffff:1.1.1.0/64")]
#[case::empty("")]
#[case::dash("-")]
fn refuses_what_is_no_range_and_shows_what_to_write(#[case] text: &str) {
    let reason = AddrRange::parse(text).unwrap_err();
    assert_eq!(reason.name(), "RangeSyntax", "{reason}");
    assert!(reason.to_string().contains("write a range such as"), "{reason}");
    assert!(reason.to_string().contains(&format!("{text:?}")), "{reason}");
}

#[test]
fn the_reference_words_for_syntax_errors_are_kept() {
    let words = |text| AddrRange::parse(text).unwrap_err().to_string();
    assert!(words("1.1.X.1").starts_with("invalid CIDR \"1.1.X.1\""));
    assert!(words("1.1.1.foo-1.1.1.2").starts_with("invalid IP range \"1.1.1.foo-1.1.1.2\": invalid start IP"));
    assert!(words("1.1.1.1-1.1.1.foo").starts_with("invalid IP range \"1.1.1.1-1.1.1.foo\": invalid end IP"));
}

#[rstest]
#[case::the_seeds_slip("172.32.100.225-172.30.100.229", "172.32.100.225-172.32.100.229")]
#[case::swapped_ends("1.1.1.5-1.1.1.1", "1.1.1.1-1.1.1.5")]
#[case::swapped_v6("2001:db8::9-2001:db8::1", "2001:db8::1-2001:db8::9")]
#[case::slip_v6("2001:db8:2::1-2001:db8:1::9", "2001:db8:2::1-2001:db8:2::9")]
#[case::first_octet("10.0.0.9-9.0.0.20", "10.0.0.9-10.0.0.20")]
#[case::several_parts_off("10.9.9.9-9.8.7.6", "9.8.7.6-10.9.9.9")]
fn a_reversed_range_comes_with_the_range_that_was_meant(#[case] text: &str, #[case] meant: &str) {
    let reason = AddrRange::parse(text).unwrap_err();
    assert_eq!(reason.name(), "RangeReversed");
    assert!(reason.to_string().ends_with(&format!("write {meant} instead")), "{reason}");
    range(meant);
}

#[test]
fn ends_of_two_families_are_refused_by_name() {
    let reason = AddrRange::parse("1.1.1.1-2001:db8::1").unwrap_err();
    assert_eq!(reason.name(), "RangeMixedFamilies");
    assert!(reason.to_string().contains("one end is IPv4, the other IPv6"), "{reason}");
}

#[rstest]
#[case::ipr_5_apart("1.1.1.1/32", "1.1.1.2/32", false)]
#[case::ipr_5_inside("1.1.1.0/24", "1.1.1.0/30", true)]
#[case::ipr_5_touching("1.1.1.0-1.1.1.128", "1.1.1.128-1.1.1.255", true)]
#[case::strictly_inside("10.0.0.0/24", "10.0.0.16/28", true)]
#[case::families_never_meet("0.0.0.1-0.0.0.9", "::1-::9", false)]
fn overlap_does_not_depend_on_who_is_asked(#[case] a: &str, #[case] b: &str, #[case] overlap: bool) {
    assert_eq!(range(a).overlaps(&range(b)), overlap);
    assert_eq!(range(b).overlaps(&range(a)), overlap);
}

#[rstest]
#[case("1.1.1.1", Family::V4)]
#[case("::ffff:1.1.1.1", Family::V4)]
#[case("2001:db8::1", Family::V6)]
#[case("::1", Family::V6)]
fn ipr_7_family_of_an_address(#[case] addr: &str, #[case] family: Family) {
    assert_eq!(Family::of(ip(addr)), family);
}

#[test]
fn ipr_8_contains() {
    let range = range("1.1.1.0/31");
    let inside = |addr| range.contains(ip(addr));
    assert_eq!(["1.1.0.0", "1.1.1.0", "1.1.1.1", "1.1.1.2"].map(inside), [false, true, true, false]);
    assert!(inside("::ffff:1.1.1.1"));
    assert!(!inside("::101:100"), "an IPv6 address with the same number is another address");
}

#[rstest]
#[case("1.1.1.2-1.1.1.3", None)]
#[case("1.1.1.1-1.1.1.3", Some("1.1.1.1"))]
#[case("1.1.1.2-1.1.1.4", Some("1.1.1.4"))]
#[case::other_family("2001:db8::1", Some("2001:db8::1"))]
fn ipr_9_within_a_subnet(#[case] text: &str, #[case] outside: Option<&str>) {
    match (range(text).within(parse_subnet("1.1.1.2/31").unwrap()), outside) {
        (Ok(()), None) => {}
        (Err(reason), Some(outside)) => {
            assert_eq!(reason.name(), "RangeOutsideSubnet");
            assert!(reason.to_string().contains(&format!("{outside} is outside")), "{reason}");
            assert!(reason.to_string().contains("not contained by network 1.1.1.2/31"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case("1.1.1.1/32", 1)]
#[case("1.1.1.0/24", 256)]
#[case("1.1.1.0-1.1.1.1", 2)]
#[case("2001:db8::1/112", 65535)]
#[case("2001:db8::68-2001:db8::6c", 5)]
#[case::a_64("2001:db8::/64", 1 << 64)]
#[case::a_48("2001:db8::/48", 1 << 80)]
#[case::everything("::/0", u128::MAX)]
fn ipr_10_sizes_are_exact_and_saturate_on_the_way_out(#[case] text: &str, #[case] size: u128) {
    assert_eq!(range(text).size(), size);
    assert_eq!(u128::try_from(saturate(size)).unwrap(), size.min(i64::MAX as u128));
}

#[test]
fn ipr_12_display() {
    assert_eq!(range("192.168.1.0/24").to_string(), "(192.168.1.0 - 192.168.1.255)");
    assert_eq!(range("2001:db8::/120").to_string(), "(2001:db8:: - 2001:db8::ff)");
}

#[rstest]
#[case("default", Family::V4, Ok(Aggregation::Subnet))]
#[case("/32", Family::V4, Ok(Aggregation::Prefix(32)))]
#[case("/8", Family::V6, Ok(Aggregation::Prefix(8)))]
#[case("/128", Family::V6, Ok(Aggregation::Prefix(128)))]
#[case("/33", Family::V4, Err("AggregationTooLong"))]
#[case("/64", Family::V4, Err("AggregationTooLong"))]
#[case("/129", Family::V6, Err("AggregationTooLong"))]
#[case("/7", Family::V4, Err("AggregationSyntax"))]
#[case("/08", Family::V4, Err("AggregationSyntax"))]
#[case("/999", Family::V6, Err("AggregationSyntax"))]
#[case("32", Family::V4, Err("AggregationSyntax"))]
#[case("128", Family::V6, Err("AggregationSyntax"))]
#[case("/not-a-number", Family::V4, Err("AggregationSyntax"))]
#[case("", Family::V4, Err("AggregationSyntax"))]
#[case("Default", Family::V4, Err("AggregationSyntax"))]
fn a23_aggregation_fits_its_family(
    #[case] text: &str,
    #[case] family: Family,
    #[case] expected: Result<Aggregation, &str>,
) {
    assert_eq!(Aggregation::parse(text, family).map_err(|reason| reason.name()), expected);
}

#[rstest]
#[case("192.0.2.0/24", Some("192.0.2.0/24"))]
#[case::host_bits(" 192.0.2.7/24", Some("192.0.2.0/24"))]
#[case::mapped("::ffff:192.0.2.0/120", Some("192.0.2.0/24"))]
#[case("fc00:370:155::/64", Some("fc00:370:155::/64"))]
#[case::bare("192.0.2.0", None)]
#[case::junk("192.0.2.0/x", None)]
fn subnets(#[case] text: &str, #[case] expected: Option<&str>) {
    assert_eq!(parse_subnet(text).ok().map(|net| net.to_string()).as_deref(), expected);
}
