//! What `kubectl get` and `kubectl describe servicegroup` tell an operator. IDs are those of the behavioural specification.

use std::collections::BTreeMap;

use rstest::rstest;

use super::*;
use crate::addr::{AddrRange, Aggregation, parse_subnet};
use crate::book::{Holding, Surroundings};
use crate::group::Entry;
use crate::pool::Claim;
use crate::reason::Reason;
use crate::service::{Asks, Brand, ServiceView};

/// An entry whose range is `pool`, in `subnet`, with the prefix of the subnet on the virtual interface.
fn entry(pool: &str, subnet: &str) -> Entry {
    Entry {
        field: "spec.remote.v4pools[0]".into(),
        text: pool.into(),
        range: AddrRange::parse(pool).unwrap(),
        subnet: parse_subnet(subnet).unwrap(),
        aggregation: Aggregation::Subnet,
    }
}

fn group(name: &str, placement: Placement, source: Source) -> Group {
    Group {
        namespace: "purelb".into(),
        name: name.into(),
        placement,
        source,
        skip_ipv6_dad: false,
        namespaces: vec!["shop".into(), "shop".into()],
        enforce_namespaces: false,
        namespace_default: false,
    }
}

fn ranged(placement: Placement, entries: &[(&str, &str)]) -> Group {
    let (v4, v6) =
        entries.iter().map(|(pool, subnet)| entry(pool, subnet)).partition(|entry| entry.range.family() == Family::V4);
    group("edge", placement, Source::Ranges(Ranges { v4, v6, multi_pool: false, balance_pools: false }))
}

fn external() -> Group {
    let source = Source::External { provider: "infoblox".into(), socket: "/run/ipam.sock".into() };
    group("edge", Placement::Remote, source)
}

/// A cluster of one group and its Services.
struct Cluster {
    book: Book,
    services: Vec<(ServiceView, bool)>,
}

impl Cluster {
    fn new(group: Group) -> Self {
        Self::around(group, Surroundings::default())
    }

    fn around(group: Group, surroundings: Surroundings) -> Self {
        Self { book: Book::new(vec![group], BTreeMap::new(), surroundings), services: Vec::new() }
    }

    /// A Service that has these addresses and says it has them from `from`.
    fn with(mut self, name: &str, from: &str, addrs: &[&str], local_traffic: bool) -> Self {
        let addrs = addrs.iter().map(|addr| addr.parse().unwrap()).collect();
        let claim = Claim { service: format!("shop/{name}").into(), key: None, ports: vec![] };
        let view = ServiceView {
            key: claim.service.clone(),
            uid: name.into(),
            class: None,
            has_cluster_ip: true,
            is_leaving: false,
            families: vec![],
            prefers_dual_stack: false,
            ports: vec![],
            load_balancer_ip: None,
            asks: Asks::default(),
            brand: Brand { ours: true, from: Some(from.into()), ..Brand::default() },
            ingress: vec![],
            condition: None,
        };
        self.book.hold(Holding { uid: name.into(), claim, addrs });
        self.services.push((view, local_traffic));
        self
    }

    fn census(&self) -> Census {
        Census::take(&self.book, self.services.iter().map(|(view, local)| (view, *local)))
    }

    fn report(&self) -> GroupReport {
        self.report_with(&Verdict::default(), None)
    }

    fn report_with(&self, verdict: &Verdict<'_>, stock: Option<&Stock>) -> GroupReport {
        report(self.book.slot("edge").unwrap(), &self.book, verdict, &self.census(), stock)
    }
}

fn finding(report: &GroupReport, aspect: Aspect) -> &Finding {
    report.findings.iter().find(|finding| finding.aspect == aspect).unwrap()
}

fn level(allocated: i64, available: i64) -> Level {
    Level { allocated, available: Some(available) }
}

#[test]
fn sts_1_a_local_group_with_three_addresses_in_use() {
    // The specification's group is its own subnet; in a wider one no edge of the subnet is withheld.
    let group = ranged(Placement::Local, &[("10.1.2.1-10.1.2.254", "10.1.0.0/16")]);
    let cluster = Cluster::new(group).with("a", "edge", &["10.1.2.1"], false);
    let report = cluster.with("b", "edge", &["10.1.2.2", "10.1.2.3"], false).report();
    assert_eq!((report.announce, report.ipam.as_str()), ("Local", "Cluster"));
    assert_eq!(report.addresses, ["10.1.2.1-10.1.2.254"]);
    assert_eq!((report.v4, report.v6), (level(3, 251), level(0, 0)));
    assert_eq!(report.bound_namespaces, ["shop", "shop"], "as they are written");
    let aspects: Vec<_> = report.findings.iter().map(|f| (f.aspect.name(), f.holds, f.reason)).collect();
    let expected = [
        ("Valid", Some(true), "Parsed"),
        ("Exhausted", Some(false), "AddressesAvailable"),
        ("Orphans", Some(false), "NoOrphans"),
        ("BlackHole", Some(false), "NoBlackHole"),
    ];
    assert_eq!(aspects, expected);
}

#[test]
fn sts_1_and_6_a_remote_group_of_both_families() {
    let entries = [("fd00::/124", "fd00::/64"), ("10.9.0.1-10.9.0.10", "10.9.0.0/16")];
    let cluster = Cluster::new(ranged(Placement::Remote, &entries));
    let idle = cluster.report();
    assert_eq!((idle.announce, idle.v4, idle.v6), ("Remote", level(0, 10), level(0, 16)));
    assert_eq!(idle.addresses, ["10.9.0.1-10.9.0.10", "fd00::/124"], "IPv4 first");
    let cluster = cluster.with("a", "edge", &["10.9.0.1", "fd00::"], false);
    let report = cluster.with("b", "edge", &["10.9.0.2", "fd00::1"], false).report();
    assert_eq!((report.v4, report.v6), (level(2, 8), level(2, 14)));
}

#[rstest]
#[case("fd00::/64")]
#[case("fd00::/65")]
#[case("fd00::/48")]
fn bug_8_a_large_ipv6_group_counts_as_far_as_kubernetes_does(#[case] range: &str) {
    let report = Cluster::new(ranged(Placement::Remote, &[(range, "fd00::/48")])).report();
    assert_eq!(report.v6, level(0, i64::MAX));
}

#[test]
fn sts_1_nobody_knows_how_many_addresses_an_external_ipam_has() {
    let cluster = Cluster::new(external()).with("a", "edge", &["198.51.100.7", "2001:db8::7"], false);
    let report = cluster.report();
    assert_eq!((report.announce, report.ipam.as_str()), ("Remote", "infoblox"));
    let unknown = Level { allocated: 1, available: None };
    assert_eq!((report.v4, report.v6), (unknown, unknown));
    assert_eq!(finding(&report, Aspect::Exhausted).holds, None);
    assert_eq!(finding(&report, Aspect::Orphans).holds, Some(false), "its addresses are in no range by nature");
}

#[test]
fn an_external_ipam_that_knows_is_believed() {
    let stock = Stock { in_use_v4: 250, in_use_v6: 0, size: Some((250, 0)), addresses: vec!["10.20.30.0/24".into()] };
    let report = Cluster::new(external()).report_with(&Verdict::default(), Some(&stock));
    assert_eq!((report.v4, report.v6), (level(250, 0), level(0, 0)));
    assert_eq!(report.addresses, ["10.20.30.0/24"]);
    assert_eq!(finding(&report, Aspect::Exhausted).holds, Some(true));
}

#[test]
fn a_group_is_exhausted_when_one_of_its_families_is() {
    let group = ranged(Placement::Local, &[("10.1.0.0/31", "10.1.0.0/24"), ("fd00::/124", "fd00::/64")]);
    // 10.1.0.0 is the network address: nobody gets it, and it is not free either.
    let report = Cluster::new(group).with("a", "edge", &["10.1.0.1"], false).report();
    assert_eq!(report.v4, level(1, 0));
    let exhausted = finding(&report, Aspect::Exhausted);
    assert_eq!((exhausted.holds, exhausted.reason), (Some(true), "Exhausted"));
    assert_eq!(
        exhausted.sentence,
        "no IPv4 address is free: 1 in use, 1 withheld because Nodes or their subnets need them; add a range to the \
         group, or delete a Service that uses it"
    );
}

#[test]
fn law_9_addresses_that_are_withheld_are_counted_while_there_are_others() {
    let group = ranged(Placement::Local, &[("10.1.0.0/30", "10.1.0.0/24")]);
    let node_addresses = [("10.1.0.1".parse().unwrap(), "n1".to_owned())].into();
    let report = Cluster::around(group, Surroundings { node_addresses, ..Surroundings::default() }).report();
    let available = finding(&report, Aspect::Exhausted);
    assert_eq!((available.holds, available.reason), (Some(false), "AddressesAvailable"));
    let sentence = "every family of the group has free addresses, 2 withheld because Nodes or their subnets need them";
    assert_eq!(available.sentence, sentence);
}

#[test]
fn b38_addresses_that_fell_out_of_an_edited_range_are_named_up_to_ten() {
    let mut cluster = Cluster::new(ranged(Placement::Local, &[("10.1.0.1", "10.1.0.0/24")]));
    cluster = cluster.with("inside", "edge", &["10.1.0.1"], false).with("elsewhere", "other", &["10.9.9.9"], false);
    assert_eq!(finding(&cluster.report(), Aspect::Orphans).holds, Some(false));
    cluster = cluster.with("left", "other, edge", &["10.1.0.77"], false);
    let report = cluster.report();
    let orphans = finding(&report, Aspect::Orphans);
    assert_eq!((orphans.holds, orphans.reason), (Some(true), "Orphaned"));
    assert!(orphans.sentence.contains("are kept: 10.1.0.77 (shop/left); set"), "{}", orphans.sentence);
    assert_eq!(report.v4, level(1, 0), "orphans are not the pool's");
    for i in 0..11 {
        cluster = cluster.with(&format!("s{i}"), "edge", &[&format!("10.2.0.{i}")], false);
    }
    let report = cluster.report();
    let sentence = &finding(&report, Aspect::Orphans).sentence;
    assert!(sentence.contains("10.2.0.8 (shop/s8), and 2 more; set"), "{sentence}");
}

#[rstest]
#[case::remote(Placement::Remote, &[], "10.1.0.7", true)]
#[case::automatic_elsewhere(Placement::Auto, &["10.5.0.0/24"], "10.1.0.7", true)]
#[case::automatic_on_the_nodes_own_subnet(Placement::Auto, &["10.1.0.0/24"], "10.1.0.7", false)]
#[case::local(Placement::Local, &[], "10.1.0.7", false)]
#[case::each_address_for_itself(Placement::Remote, &[], "10.2.0.7", false)]
fn an_aggregate_with_local_traffic_is_a_black_hole(
    #[case] placement: Placement,
    #[case] active: &[&str],
    #[case] addr: &str,
    #[case] warned: bool,
) {
    let mut group = ranged(placement, &[("10.1.0.0/28", "10.1.0.0/24"), ("10.2.0.0/28", "10.2.0.0/24")]);
    if let Source::Ranges(ranges) = &mut group.source {
        ranges.v4[1].aggregation = Aggregation::Prefix(32);
    }
    let active_subnets = active.iter().map(|subnet| parse_subnet(subnet).unwrap()).collect();
    let cluster = Cluster::around(group, Surroundings { active_subnets, ..Surroundings::default() });
    let cluster = cluster.with("everywhere", "edge", &["10.1.0.3"], false).with("web", "edge", &[addr], true);
    let report = cluster.report();
    let hole = finding(&report, Aspect::BlackHole);
    assert_eq!(hole.holds, Some(warned), "{}", hole.sentence);
    if warned {
        assert!(
            hole.sentence.starts_with("10.1.0.0/24 is advertised as a whole, but shop/web has 10.1.0.7 of it with")
        );
        assert!(hole.sentence.contains("write aggregation: /32 in spec.remote.v4pools[0]"), "{}", hole.sentence);
    }
}

#[rstest]
#[case::rest(false, "the rest of the group is in use")]
#[case::last_valid(true, "the last valid form of the group is in use")]
fn b37_a_group_with_a_problem_says_which_and_what_is_in_use_meanwhile(
    #[case] from_last_valid: bool,
    #[case] end: &str,
) {
    let problem = Problem::new("spec.local.v4pools[1].subnet", Reason::SubnetSyntax { text: "10.1".into() });
    let problems = [problem.clone(), problem];
    let cluster = Cluster::new(ranged(Placement::Local, &[("10.1.0.1", "10.1.0.0/24")]));
    let report = cluster.report_with(&Verdict { problems: &problems, from_last_valid, ..Verdict::default() }, None);
    let valid = finding(&report, Aspect::Valid);
    assert_eq!((valid.holds, valid.reason), (Some(false), "SubnetSyntax"));
    assert!(valid.sentence.starts_with("spec.local.v4pools[1].subnet: invalid CIDR address: \"10.1\""));
    assert!(valid.sentence.ends_with(&format!("(and 1 more); {end}")), "{}", valid.sentence);
}

#[test]
fn a_warning_leaves_the_group_valid_and_is_not_lost() {
    let warnings = [Problem::new("spec.name", Reason::NameIgnored { written: "Edge".into(), name: "edge".into() })];
    let cluster = Cluster::new(ranged(Placement::Local, &[("10.1.0.1", "10.1.0.0/24")]));
    let report = cluster.report_with(&Verdict { warnings: &warnings, ..Verdict::default() }, None);
    let valid = finding(&report, Aspect::Valid);
    assert_eq!(valid.holds, Some(true));
    assert!(valid.sentence.contains("spec.name \"Edge\" is ignored"), "{}", valid.sentence);
}

#[test]
fn a_netbox_group_says_that_nobody_asks_netbox_yet() {
    let source =
        Source::Netbox { url: "https://netbox.example".into(), tenant: "t".into(), aggregation: String::new() };
    let report = Cluster::new(group("edge", Placement::Auto, source)).report();
    assert_eq!((report.announce, report.ipam.as_str()), ("Auto", "NetBox"));
    let valid = finding(&report, Aspect::Valid);
    assert_eq!((valid.holds, valid.reason), (Some(false), "NetboxUnsupported"));
}

#[test]
fn b41_a_refused_group_has_no_blank_row_and_says_why() {
    let refused = ranged(Placement::Local, &[("10.1.0.1-10.1.0.9", "10.1.0.0/24")]);
    let problem = Problem::new("metadata.name", Reason::GroupDuplicate { name: "edge".into(), first: "a/edge".into() });
    let mut other = ranged(Placement::Remote, &[("10.8.0.0/24", "10.8.0.0/16")]);
    other.name = "other".into();
    let cluster = Cluster::new(other).with("web", "edge", &["10.1.0.4"], false);
    let report = report_refused("edge", Some(&refused), &cluster.book, &problem, &cluster.census());
    assert_eq!((report.announce, report.ipam.as_str(), report.v4), ("Local", "Cluster", level(0, 0)));
    assert_eq!(report.addresses, ["10.1.0.1-10.1.0.9"]);
    let valid = finding(&report, Aspect::Valid);
    assert_eq!((valid.holds, valid.reason), (Some(false), "GroupDuplicate"));
    assert!(valid.sentence.ends_with("; the group is not in use"));
    assert!(finding(&report, Aspect::Orphans).sentence.contains("10.1.0.4 (shop/web)"));

    let unreadable = report_refused("edge", None, &cluster.book, &problem, &cluster.census());
    assert_eq!((unreadable.announce, unreadable.ipam.as_str()), ("None", "None"));
    assert_eq!(unreadable.findings.len(), 4);
}

#[test]
fn a_refused_namesake_does_not_speak_for_the_group_in_use() {
    let used = ranged(Placement::Local, &[("10.1.0.1", "10.1.0.0/24")]);
    let cluster = Cluster::new(used.clone()).with("web", "edge", &["10.7.7.7"], false);
    let twin = Group { namespace: "zoo".into(), ..used };
    let problem = Problem::new("metadata.name", Reason::GroupDuplicate { name: "edge".into(), first: twin.key() });
    let report = report_refused("edge", Some(&twin), &cluster.book, &problem, &cluster.census());
    assert_eq!(finding(&report, Aspect::Orphans).holds, Some(false));
    assert_eq!(finding(&cluster.report(), Aspect::Orphans).holds, Some(true));
}

#[test]
fn every_condition_and_its_words_are_explained_to_operators() {
    use strum::VariantNames;
    let page = include_str!("../../../../docs/reference/service-group.md");
    let conditions = page.split_once("\n## Conditions\n").expect("the page has such a section").1;
    let rows = Aspect::VARIANTS.iter().map(|name| format!("\n| `{name}` | "));
    let words = findings::Word::VARIANTS.iter().map(|name| format!("`{name}`"));
    let missing: Vec<_> = rows.chain(words).filter(|text| !conditions.contains(text.as_str())).collect();
    assert!(missing.is_empty(), "docs/reference/service-group.md does not explain {missing:?}");
}
