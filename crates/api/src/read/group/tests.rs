//! What operators wrote, in every form there ever was, and what PureLB makes of it. IDs are those of the behavioural
//! specification.

use purelb_core::addr::{Aggregation, Family};
use purelb_core::reason::Problem;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn read_spec(spec: Value) -> Reading<Group> {
    let object = json!({
        "apiVersion": "purelb.io/v2", "kind": "ServiceGroup",
        "metadata": {"name": "edge", "namespace": "purelb"}, "spec": spec,
    });
    group(&serde_json::from_value(object).unwrap())
}

/// The group of a spec in which nothing is wrong.
fn clean(spec: Value) -> Group {
    let reading = read_spec(spec);
    assert_eq!((reading.problems, reading.warnings), (vec![], vec![]));
    reading.value.unwrap()
}

fn said(problems: &[Problem]) -> Vec<(&str, &str)> {
    problems.iter().map(|problem| (problem.field.as_str(), problem.reason.name())).collect()
}

fn texts(group: &Group, family: Family) -> Vec<&str> {
    group.ranges().unwrap().of(family).iter().map(|entry| entry.text.as_str()).collect()
}

fn pool(range: &str, subnet: &str) -> Value {
    json!({"pool": range, "subnet": subnet})
}

#[test]
fn the_remotedual_group_of_the_documentation_with_its_range_corrected() {
    let group = clean(json!({"placement": "Auto", "local": {
        "v4pools": [{"aggregation": "/32", "pool": "172.32.100.225-172.32.100.229", "subnet": "172.32.100.0/24"}],
        "v6pools": [{"aggregation": "/128", "pool": "fc00:370:155:0:8000::/126", "subnet": "fc00:370:155::/64"}],
    }}));
    assert_eq!((group.key().as_str(), group.placement), ("purelb/edge", Placement::Auto));
    let ranges = group.ranges().unwrap();
    assert_eq!(ranges.v4[0].aggregation, Aggregation::Prefix(32));
    assert_eq!(ranges.v6[0].range.first().to_string(), "fc00:370:155:0:8000::");
    assert_eq!(ranges.v6[0].virtual_prefix(), 128);
}

#[test]
fn the_flat_group_of_the_oldest_document_is_automatic_and_its_inner_name_is_ignored_aloud() {
    let reading = read_spec(json!({
        "placement": "Auto", "name": "virtaddrange", "subnet": "172.22.0.0/24", "pool": "172.22.0.10-172.22.0.25", "aggregation": "default",
    }));
    assert_eq!(said(&reading.warnings), [("spec.name", "NameIgnored")]);
    assert_eq!(reading.problems, []);
    let group = reading.value.unwrap();
    assert_eq!((group.name.as_str(), group.placement), ("edge", Placement::Auto));
    let entry = &group.ranges().unwrap().v4[0];
    assert_eq!((entry.field.as_str(), entry.virtual_prefix()), ("spec", 24));
}

#[rstest]
#[case::local(json!({"local": {"v4pool": pool("10.0.0.1", "10.0.0.0/24")}}), Placement::Local)]
#[case::remote(json!({"remote": {"v4pool": pool("10.0.0.1", "10.0.0.0/24")}}), Placement::Remote)]
#[case::automatic(json!({"placement": "Auto", "local": {"v4pool": pool("10.0.0.1", "10.0.0.0/24")}}), Placement::Auto)]
#[case::external_local(json!({"external": {"provider": "x", "announce": "local"}}), Placement::Local)]
#[case::external_remote(json!({"external": {"provider": "x", "announce": "remote"}}), Placement::Remote)]
#[case::netbox(json!({"placement": "Auto", "netbox": {"url": "http://netbox"}}), Placement::Auto)]
fn each_source_says_where_its_addresses_are_announced(#[case] spec: Value, #[case] placement: Placement) {
    assert_eq!(clean(spec).placement, placement);
}

#[test]
fn lists_are_used_before_single_pools_in_both_families() {
    let group = clean(json!({"local": {
        "v4pool": pool("10.0.3.1", "10.0.3.0/24"), "v4pools": [pool("10.0.1.1", "10.0.1.0/24"), pool("10.0.2.1", "10.0.2.0/24")],
        "v6pool": pool("fd00:2::1", "fd00:2::/64"), "v6pools": [pool("fd00:1::1", "fd00:1::/64")],
    }}));
    assert_eq!(texts(&group, Family::V4), ["10.0.1.1", "10.0.2.1", "10.0.3.1"]);
    assert_eq!(texts(&group, Family::V6), ["fd00:1::1", "fd00:2::1"]);
}

/// GRP-3, GRP-7, BUG-9, BUG-10, IPR-1, IPR-3 and B46: each disables its entry, and the good one beside it serves.
#[rstest]
#[case::no_address("v4pools", pool("100.200.300.400/24", "10.0.0.0/24"), "pool", "RangeSyntax")]
#[case::no_prefix("v4pools", pool("1.2.3.0/33", "10.0.0.0/24"), "pool", "RangeSyntax")]
#[case::word_at_the_end("v4pools", pool("1.1.1.1-1.1.1.foo", "10.0.0.0/24"), "pool", "RangeSyntax")]
#[case::list("v4pools", pool("10.0.0.1,10.0.0.9", "10.0.0.0/24"), "pool", "RangeSyntax")]
#[case::outside_v4("v4pools", pool("10.0.1.1-10.0.1.9", "10.0.0.0/24"), "pool", "RangeOutsideSubnet")]
#[case::outside_v6("v6pools", pool("fd00:2::/120", "fd00:1::/64"), "pool", "RangeOutsideSubnet")]
#[case::backwards("v4pools", pool("10.0.0.9-10.0.0.1", "10.0.0.0/24"), "pool", "RangeReversed")]
#[case::mixed("v4pools", pool("10.0.0.1-fd00::1", "10.0.0.0/24"), "pool", "RangeMixedFamilies")]
#[case::v6_in_v4("v4pools", pool("fd00::1", "fd00::/64"), "pool", "RangeWrongFamily")]
#[case::v4_in_v6("v6pools", pool("10.0.0.1", "10.0.0.0/24"), "pool", "RangeWrongFamily")]
#[case::no_subnet("v4pools", pool("10.0.0.1", "10.0.0.0"), "subnet", "SubnetSyntax")]
#[case::missing_subnet("v4pools", json!({"pool": "10.0.0.1"}), "subnet", "FieldMissing")]
#[case::missing_pool("v4pools", json!({"subnet": "10.0.0.0/24"}), "pool", "FieldMissing")]
#[case::aggregation_too_long(
    "v4pools", json!({"pool": "10.0.0.1", "subnet": "10.0.0.0/24", "aggregation": "/64"}), "aggregation", "AggregationTooLong"
)]
#[case::aggregation_word(
    "v6pools", json!({"pool": "fd00::1", "subnet": "fd00::/64", "aggregation": "64"}), "aggregation", "AggregationSyntax"
)]
fn bug_9_bug_10_and_b46_a_bad_entry_is_named_and_disables_only_itself(
    #[case] list: &str,
    #[case] bad: Value,
    #[case] field: &str,
    #[case] reason: &str,
) {
    let good = if list == "v4pools" { pool("10.9.0.1", "10.9.0.0/24") } else { pool("fd09::1", "fd09::/64") };
    for source in ["local", "remote"] {
        let reading = read_spec(json!({source: {list: [bad, good]}}));
        assert_eq!(said(&reading.problems), [(format!("spec.{source}.{list}[0].{field}").as_str(), reason)]);
        assert_eq!(reading.value.unwrap().ranges().unwrap().all().count(), 1);
    }
}

#[test]
fn a_group_with_only_bad_entries_gives_nothing_and_says_so_once_per_fault() {
    let reading = read_spec(json!({"local": {"v4pool": pool("10.0.0.9-10.0.0.1", "10.0.0")}}));
    assert_eq!(reading.value, None);
    assert_eq!(
        said(&reading.problems),
        [("spec.local.v4pool.pool", "RangeReversed"), ("spec.local.v4pool.subnet", "SubnetSyntax")]
    );
}

/// PFA-1 to PFA-6: the entry that an address belongs to, with lists before single pools and bad entries passed over.
#[rstest]
#[case::second_of_the_list("10.0.2.5", Some("spec.remote.v4pools[2]"))]
#[case::v6_in_the_list("fd00:1::5", Some("spec.remote.v6pools[0]"))]
#[case::single_v4("10.0.3.5", Some("spec.remote.v4pool"))]
#[case::single_v6("fd00:2::5", Some("spec.remote.v6pool"))]
#[case::from_to("10.0.1.9", Some("spec.remote.v4pools[1]"))]
#[case::in_list_and_single("10.0.3.200", Some("spec.remote.v4pools[3]"))]
#[case::nowhere("10.0.1.10", None)]
fn every_address_leads_back_to_its_entry(#[case] addr: &str, #[case] field: Option<&str>) {
    let reading = read_spec(json!({"remote": {
        "v4pools": [
            pool("10.0.2.0/33", "10.0.2.0/24"), pool("10.0.1.1-10.0.1.9", "10.0.1.0/24"), pool("10.0.2.0/24", "10.0.2.0/24"),
            pool("10.0.3.192/26", "10.0.3.0/24"),
        ],
        "v4pool": pool("10.0.3.0/24", "10.0.3.0/24"),
        "v6pools": [pool("fd00:1::/120", "fd00:1::/64")], "v6pool": pool("fd00:2::/120", "fd00:2::/64"),
    }}));
    assert_eq!(said(&reading.problems), [("spec.remote.v4pools[0].pool", "RangeSyntax")]);
    assert_eq!(said(&reading.warnings), [("spec.remote.v4pool.pool", "RangesMerged")]);
    let group = reading.value.unwrap();
    assert_eq!(group.entry_of(addr.parse().unwrap()).map(|entry| entry.field.as_str()), field);
}

/// PFA-V1 and GRP-V1a: each range of a v1 group keeps its own subnet; beside a pool of its family the single range is
/// refused.
#[test]
fn the_single_range_of_v1_serves_beside_pools_of_the_other_family_only() {
    let single = |pools: Value| {
        let mut local = json!({"pool": "10.0.0.1-10.0.0.9", "subnet": "10.0.0.0/24"});
        local.as_object_mut().unwrap().extend(pools.as_object().unwrap().clone());
        read_spec(json!({"placement": "Auto", "local": local}))
    };
    let beside_v6 = single(json!({"v6pool": pool("fd00::1", "fd00::/64")}));
    assert_eq!(beside_v6.problems, []);
    let group = beside_v6.value.unwrap();
    assert_eq!(group.entry_of("10.0.0.5".parse().unwrap()).unwrap().subnet, "10.0.0.0/24".parse().unwrap());
    assert_eq!(group.entry_of("fd00::1".parse().unwrap()).unwrap().subnet, "fd00::/64".parse().unwrap());
    assert_eq!(group.entry_of("10.0.0.10".parse().unwrap()), None);

    let beside_v4 = single(json!({"v4pools": [pool("10.0.1.1", "10.0.1.0/24")]}));
    assert_eq!(said(&beside_v4.problems), [("spec.local.pool", "LegacyRangeBesidePool")]);
    assert_eq!(texts(&beside_v4.value.unwrap(), Family::V4), ["10.0.1.1"]);
}

/// GRP-7 for v1's single range.
#[rstest]
#[case::outside(json!({"pool": "10.0.1.1", "subnet": "10.0.0.0/24"}), "spec.local.pool", "RangeOutsideSubnet")]
#[case::no_pool(json!({"subnet": "10.0.0.0/24"}), "spec.local.pool", "FieldMissing")]
#[case::no_subnet(json!({"pool": "10.0.0.1"}), "spec.local.subnet", "FieldMissing")]
#[case::nothing(json!({"pool": "", "aggregation": "default"}), "spec.local", "NoRanges")]
fn a_bad_single_range_is_named(#[case] local: Value, #[case] field: &str, #[case] reason: &str) {
    let reading = read_spec(json!({"placement": "Auto", "local": local}));
    assert_eq!(said(&reading.problems), [(field, reason)]);
    assert_eq!(reading.value, None);
}

#[test]
fn an_aggregation_left_over_beside_pools_disturbs_nothing() {
    let local = json!({"pool": "", "aggregation": "default", "v4pool": pool("10.0.0.1", "10.0.0.0/24")});
    clean(json!({"placement": "Auto", "local": local}));
}

#[rstest]
#[case::empty("", 24, &[])]
#[case::word("default", 24, &[])]
#[case::slash("/32", 32, &[])]
#[case::no_slash("32", 32, &[("spec.local.v4pool.aggregation", "AggregationWithoutSlash")])]
fn a23_automatic_groups_read_the_aggregations_that_0_13_stored(
    #[case] text: &str,
    #[case] prefix: u8,
    #[case] warnings: &[(&str, &str)],
) {
    let pool = json!({"pool": "10.0.0.1", "subnet": "10.0.0.0/24", "aggregation": text});
    let reading = read_spec(json!({"placement": "Auto", "local": {"v4pool": pool}}));
    assert_eq!((reading.problems.as_slice(), said(&reading.warnings).as_slice()), (&[][..], warnings));
    assert_eq!(reading.value.unwrap().ranges().unwrap().v4[0].virtual_prefix(), prefix);
}

#[test]
fn of_several_sources_the_first_counts_and_the_others_are_named() {
    let reading = read_spec(json!({
        "placement": "Auto", "local": {"v4pool": pool("10.0.0.1", "10.0.0.0/24")}, "remote": {}, "pool": "10.1.0.1",
        "netbox": {"url": "http://netbox"}, "external": {"provider": "x", "announce": "local"},
    }));
    let ignored = ["spec.remote", "spec.external", "spec.netbox", "spec.pool"].map(|field| (field, "SourceIgnored"));
    assert_eq!(said(&reading.warnings), ignored);
    assert_eq!(texts(&reading.value.unwrap(), Family::V4), ["10.0.0.1"]);
}

#[rstest]
#[case::no_source(json!({}), "spec", "NoSource")]
#[case::no_ranges(json!({"remote": {}}), "spec.remote", "NoRanges")]
#[case::netbox_without_url(json!({"netbox": {}}), "spec.netbox.url", "FieldMissing")]
fn a_group_without_addresses_gives_nothing(#[case] spec: Value, #[case] field: &str, #[case] reason: &str) {
    let reading = read_spec(spec);
    assert_eq!((reading.value.as_ref(), said(&reading.problems)), (None, vec![(field, reason)]));
}

/// GRP-8: the words are lower case, and there are two.
#[rstest]
#[case("")]
#[case("Local")]
#[case("REMOTE")]
#[case("bgp")]
#[case("dummy")]
fn an_external_group_must_say_local_or_remote(#[case] announce: &str) {
    let reading = read_spec(json!({"external": {"provider": "x", "announce": announce}}));
    assert_eq!(said(&reading.problems), [("spec.external.announce", "ExternalAnnounce")]);
    assert_eq!(reading.value, None);
}

/// GRP-9: reading asks no sidecar, and a group without a socket uses the usual one.
#[rstest]
#[case(json!({}), "/var/run/purelb/ipam.sock")]
#[case(json!({"socket": ""}), "/var/run/purelb/ipam.sock")]
#[case(json!({"socket": "/run/other.sock"}), "/run/other.sock")]
fn an_external_group_has_a_socket(#[case] socket: Value, #[case] path: &str) {
    let mut external = json!({"provider": "x", "announce": "local"});
    external.as_object_mut().unwrap().extend(socket.as_object().unwrap().clone());
    let source = clean(json!({"external": external})).source;
    assert_eq!(source, Source::External { provider: "x".to_owned(), socket: path.to_owned() });
}

#[rstest]
#[case::auto_remote(
    json!({"placement": "Auto", "remote": {"v4pool": pool("10.0.0.1", "10.0.0.0/24")}}), "spec.placement", "PlacementContradicted"
)]
#[case::auto_external(
    json!({"placement": "Auto", "external": {"provider": "x", "announce": "local"}}), "spec.placement", "PlacementContradicted"
)]
#[case::two_ways(
    json!({"local": {"v4pool": pool("10.0.0.1", "10.0.0.0/24"), "multiPool": true, "balancePools": true}}),
    "spec.local",
    "MultiPoolAndBalancePools"
)]
#[case::enforce(
    json!({"local": {"v4pool": pool("10.0.0.1", "10.0.0.0/24")}, "enforceNamespaces": true}),
    "spec.enforceNamespaces",
    "NamespacesMissing"
)]
#[case::default(
    json!({"local": {"v4pool": pool("10.0.0.1", "10.0.0.0/24")}, "namespaceDefault": true}),
    "spec.namespaceDefault",
    "NamespacesMissing"
)]
fn contradictions_that_an_older_crd_let_in_are_named_and_the_addresses_stay(
    #[case] spec: Value,
    #[case] field: &str,
    #[case] reason: &str,
) {
    let reading = read_spec(spec);
    assert_eq!(said(&reading.problems), [(field, reason)]);
    assert!(reading.value.is_some());
}

#[test]
fn lp_9_only_local_groups_skip_duplicate_address_detection() {
    let pools = json!({"v6pool": pool("fd00::1", "fd00::/64"), "skipIPv6DAD": true});
    assert!(clean(json!({"local": pools})).skip_ipv6_dad);
    assert!(!clean(json!({"remote": pools})).skip_ipv6_dad);
}
