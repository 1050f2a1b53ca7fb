//! Groups beside each other, by the scenario IDs of the specification (GRP-, PFA-, BUG-3).

use rstest::rstest;

use super::*;
use crate::addr::parse_subnet;

fn entry(index: usize, pool: &str) -> Entry {
    let range = AddrRange::parse(pool).unwrap();
    Entry {
        field: format!("spec.local.{}pools[{index}]", range.family().short()),
        text: pool.to_owned(),
        range,
        subnet: parse_subnet(if range.family() == Family::V4 { "0.0.0.0/0" } else { "::/0" }).unwrap(),
        aggregation: Aggregation::Subnet,
    }
}

fn group(key: &str, pools: &[&str]) -> Group {
    let (namespace, name) = key.split_once('/').unwrap_or(("purelb-system", key));
    let entries = pools.iter().enumerate().map(|(i, pool)| entry(i, pool));
    let (v4, v6) = entries.partition(|entry| entry.range.family() == Family::V4);
    Group {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        placement: Placement::Local,
        source: Source::Ranges(Ranges { v4, v6, multi_pool: false, balance_pools: false }),
        skip_ipv6_dad: false,
        namespaces: Vec::new(),
        enforce_namespaces: false,
        namespace_default: false,
    }
}

/// Refused group, group that stays and reason, as words.
fn refusals(groups: &[Group]) -> Vec<(String, String, &'static str)> {
    let name = |i: usize| groups[i].name.clone();
    clashes(groups).iter().map(|c| (name(c.refused), name(c.kept), c.problem.reason.name())).collect()
}

#[test]
fn grp_1_and_2_disjoint_groups_live_together() {
    assert_eq!(clashes(&[]), []);
    let groups = [
        group("a", &["10.20.0.0/16", "10.50.0.0/24"]),
        group("b", &["30.0.0.0/8"]),
        group("c", &["40.0.0.0/25"]),
        group("d", &["2001:db8::/64"]),
    ];
    assert_eq!(clashes(&groups), []);
}

#[test]
fn grp_4_the_first_of_two_groups_with_one_name_is_kept() {
    let groups = [group("b/web", &["10.0.1.0/24"]), group("a/web", &["10.0.0.0/24"])];
    let clashes = clashes(&groups);
    assert_eq!((clashes[0].refused, clashes[0].kept), (0, 1));
    let sentence = clashes[0].problem.reason.to_string();
    assert!(sentence.starts_with("Duplicate definition of pool web"), "{sentence}");
    assert!(sentence.contains("a/web"), "{sentence}");
}

#[rstest]
#[case::grp_5_identical("10.0.0.0/8", "10.0.0.0/8")]
#[case::grp_5_same_base("10.0.0.0/8", "10.0.0.0/16")]
#[case::bug_3_strictly_inside("10.0.0.0/24", "10.0.0.16/28")]
#[case::bug_3_strictly_around("10.0.0.16/28", "10.0.0.0/24")]
#[case::v6("2001:db8::/64", "2001:db8::8000:0:0:0/65")]
fn overlapping_groups_are_refused_whichever_is_wider(#[case] a: &str, #[case] b: &str) {
    let groups = [group("a", &[a]), group("b", &[b])];
    assert_eq!(refusals(&groups), [("b".into(), "a".into(), "GroupsOverlap")]);
    let sentence = clashes(&groups)[0].problem.reason.to_string();
    assert!(sentence.starts_with("Pool overlaps with already defined pool \"a\""), "{sentence}");
}

#[test]
fn grp_6_one_refusal_names_the_lowest_sorting_partner_in_any_order() {
    let (a, b, c) = (group("aaa", &["10.0.0.0/24"]), group("bbb", &["10.0.1.0/24"]), group("ccc", &["10.0.0.0/16"]));
    for groups in [[a.clone(), b.clone(), c.clone()], [c.clone(), b.clone(), a.clone()], [b, c, a]] {
        assert_eq!(refusals(&groups), [("ccc".into(), "aaa".into(), "GroupsOverlap")]);
    }
}

#[test]
fn a_refused_group_blocks_no_other() {
    let groups = [group("a", &["10.0.0.0/24"]), group("b", &["10.0.0.0/16"]), group("c", &["10.0.1.0/24"])];
    assert_eq!(refusals(&groups), [("b".into(), "a".into(), "GroupsOverlap")]);
}

#[test]
fn an_external_group_overlaps_nothing() {
    let mut external = group("b", &[]);
    external.source = Source::External { provider: "test".into(), socket: "/run/ipam.sock".into() };
    assert_eq!(clashes(&[group("a", &["0.0.0.0/0"]), external]), []);
}

#[test]
fn ranges_that_repeat_each_other_inside_a_group_are_named() {
    let group = group("a", &["10.0.0.0/30", "10.0.0.8/30", "10.0.0.2/32"]);
    let warnings = group.ranges().unwrap().merged();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].field, "spec.local.v4pools[2].pool");
    assert_eq!(warnings[0].reason.name(), "RangesMerged");
}

#[test]
fn pfa_1_an_address_is_found_in_the_entry_it_came_from() {
    let group = group("a", &["10.0.0.0/30", "10.0.1.0-10.0.1.9", "2001:db8::/64"]);
    let field = |addr: &str| group.entry_of(addr.parse().unwrap()).map(|entry| entry.field.as_str());
    assert_eq!(field("10.0.1.9"), Some("spec.local.v4pools[1]"));
    assert_eq!(field("2001:db8::7"), Some("spec.local.v6pools[2]"));
    assert_eq!(field("10.0.2.0"), None);
}

#[test]
fn the_prefix_on_the_virtual_interface_follows_the_aggregation() {
    let mut entry = entry(0, "172.22.0.10-172.22.0.25");
    entry.subnet = parse_subnet("172.22.0.0/24").unwrap();
    assert_eq!(entry.virtual_prefix(), 24);
    entry.aggregation = Aggregation::Prefix(32);
    assert_eq!(entry.virtual_prefix(), 32);
}

fn forms(now: Group, earlier: Option<Group>) -> Forms {
    Forms { written: Some(now), sound: true, earlier }
}

/// The first range in use of each group, and what is wrong with it.
fn in_use(groups: &[Forms]) -> Vec<(String, &'static str)> {
    let range = |group: &Group| group.ranges().and_then(|ranges| ranges.all().next()).unwrap().text.clone();
    let standings = settle(groups);
    let answer = |standing: &Standing| {
        let problem = standing.clash.as_ref().map_or("", |problem| problem.reason.name());
        (standing.group.map(range).unwrap_or_default(), problem)
    };
    standings.iter().map(answer).collect()
}

#[test]
fn b37_an_edit_that_clashes_leaves_both_groups_as_they_were() {
    let (old, other) = (group("m", &["10.0.1.0/24"]), group("other", &["10.0.2.0/24"]));
    let neighbour = |name: &str| {
        let neighbour = group(name, &["10.0.3.0/24"]);
        forms(neighbour.clone(), Some(neighbour))
    };
    let edited = forms(group("m", &["10.0.3.0/25"]), Some(old.clone()));
    let kept = ("10.0.1.0/24".to_owned(), "GroupsOverlap");
    let left = ("10.0.3.0/24".to_owned(), "");
    assert_eq!(in_use(&[edited.clone(), neighbour("z")]), [kept.clone(), left.clone()], "who sorts after it");
    assert_eq!(in_use(&[edited.clone(), neighbour("a")]), [kept.clone(), left.clone()], "who sorts before it");
    let newcomer = forms(group("a", &["10.0.1.0/28"]), None);
    let refused = (String::new(), "GroupsOverlap");
    assert_eq!(in_use(&[edited, neighbour("z"), newcomer]), [kept, left, refused], "nobody new takes its place");
    let swapped =
        [forms(group("m", &["10.0.2.0/24"]), Some(old)), forms(group("other", &["10.0.1.0/24"]), Some(other))];
    assert_eq!(in_use(&swapped), [("10.0.2.0/24".into(), ""), ("10.0.1.0/24".into(), "")], "two edits at once");
}

#[test]
fn b37_a_second_group_of_the_same_name_takes_nothing_from_the_first() {
    let first = group("b/web", &["10.0.1.0/24"]);
    let groups = [forms(group("a/web", &["10.0.0.0/24"]), None), forms(first.clone(), Some(first))];
    assert_eq!(in_use(&groups), [(String::new(), "GroupDuplicate"), ("10.0.1.0/24".into(), "")]);
}

#[test]
fn what_is_usable_of_a_broken_group_is_in_use_unless_it_was_better_before() {
    let broken = Forms { sound: false, ..forms(group("a", &["10.0.1.0/24"]), None) };
    assert_eq!(in_use(std::slice::from_ref(&broken)), [("10.0.1.0/24".into(), "")]);
    let was_better = Forms { earlier: Some(group("a", &["10.0.0.0/23"])), ..broken };
    assert_eq!(in_use(&[was_better, Forms::default()]), [("10.0.0.0/23".into(), ""), (String::new(), "")]);
}
