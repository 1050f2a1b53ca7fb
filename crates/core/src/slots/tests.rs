//! The announcing annotations, as scripts and other releases read them.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// What a Service with these addresses says after a node has taken one of them.
fn claimed(text: &str, addr_text: &str, node: &str, live: &[&str]) -> (Option<String>, Option<String>) {
    let mut slots = Slots::parse(text);
    slots.sweep(|held, _| live.iter().any(|live| addr(live) == held));
    let from = slots.claim(addr(addr_text), node, "eth0");
    (slots.encode(), from)
}

#[rstest]
#[case::empty("", None)]
#[case::one("node-a,eth0,10.0.0.1", Some("node-a,eth0,10.0.0.1"))]
#[case::two("node-a,eth0,10.0.0.1 node-b,eth1,10.0.0.2", Some("node-a,eth0,10.0.0.1 node-b,eth1,10.0.0.2"))]
#[case::interface_with_commas("node-a,a,b,10.0.0.1", Some("node-a,a,b,10.0.0.1"))]
#[case::of_0_13("node1,enp1s0", None)]
#[case::no_entry("kube-lb0", None)]
#[case::one_bad_address("node-a,eth0,10.0.0.300 node-b,eth0,10.0.0.2", Some("node-b,eth0,10.0.0.2"))]
#[case::zone("node-a,eth0,fe80::1%eth0", None)]
#[case::no_node(",eth0,10.0.0.1", None)]
#[case::no_interface("node-a,,10.0.0.1", None)]
#[case::mapped("node-a,eth0,::ffff:10.0.0.1", Some("node-a,eth0,10.0.0.1"))]
#[case::any_blanks(
    "  node-a,eth0,10.0.0.1\t\n node-b,eth0,10.0.0.2 ",
    Some("node-a,eth0,10.0.0.1 node-b,eth0,10.0.0.2")
)]
fn c01_what_cannot_be_read_is_dropped(#[case] text: &str, #[case] means: Option<&str>) {
    assert_eq!(Slots::parse(text).encode().as_deref(), means);
}

#[rstest]
#[case::by_number("b,e,10.0.0.10 a,e,10.0.0.9", "a,e,10.0.0.9 b,e,10.0.0.10")]
#[case::v4_first("a,e,2001:db8::1 b,e,192.0.2.1", "b,e,192.0.2.1 a,e,2001:db8::1")]
#[case::lowest_node_kept("node-b,e,10.0.0.1 node-a,e,10.0.0.1", "node-a,e,10.0.0.1")]
#[case::lowest_interface_kept("node-a,eth1,10.0.0.1 node-a,eth0,10.0.0.1", "node-a,eth0,10.0.0.1")]
fn c02_there_is_one_way_to_write_it(#[case] text: &str, #[case] canonical: &str) {
    assert_eq!(Slots::parse(text).encode().as_deref(), Some(canonical));
}

#[rstest]
#[case::unclaimed("", &["10.0.0.1"], "me,eth0,10.0.0.1", None)]
#[case::taken_over("other,eth9,10.0.0.1", &["10.0.0.1"], "me,eth0,10.0.0.1", Some("other"))]
#[case::other_kept(
    "other,eth9,10.0.0.2", &["10.0.0.1", "10.0.0.2"], "me,eth0,10.0.0.1 other,eth9,10.0.0.2", None
)]
#[case::departed_swept("other,eth9,10.0.0.7", &["10.0.0.1"], "me,eth0,10.0.0.1", None)]
#[case::mine_already("me,eth0,10.0.0.1", &["10.0.0.1"], "me,eth0,10.0.0.1", None)]
#[case::moved_to_another_interface("me,eth7,10.0.0.1", &["10.0.0.1"], "me,eth0,10.0.0.1", None)]
fn a02_c04_the_winner_enters_itself(
    #[case] before: &str,
    #[case] live: &[&str],
    #[case] after: &str,
    #[case] from: Option<&str>,
) {
    let (text, stolen) = claimed(before, "10.0.0.1", "me", live);
    assert_eq!((text.as_deref(), stolen.as_deref()), (Some(after), from));
    assert_eq!(claimed(after, "10.0.0.1", "me", live), (text, None), "a second claim changes nothing");
}

#[rstest]
#[case::among_others("me,eth0,10.0.0.1 other,eth0,10.0.0.2", Some("other,eth0,10.0.0.2"))]
#[case::only_mine("me,eth0,10.0.0.1", None)]
#[case::not_mine("other,eth0,10.0.0.1", Some("other,eth0,10.0.0.1"))]
#[case::nothing("", None)]
fn a03_a_node_removes_its_own_entry_only(#[case] before: &str, #[case] after: Option<&str>) {
    let mut slots = Slots::parse(before);
    slots.clear(addr("10.0.0.1"), "me");
    assert_eq!(slots.encode().as_deref(), after);
}

#[rstest]
#[case("node1,enp1s0", Some("node1,enp1s0,192.0.2.1"))]
#[case::of_0_17("node1,enp1s0,192.0.2.1", None)]
#[case("node1", None)]
#[case(",enp1s0", None)]
#[case("node1,", None)]
#[case("two words,enp1s0", None)]
fn what_0_13_wrote_is_completed_from_the_ingress(#[case] text: &str, #[case] means: Option<&str>) {
    assert_eq!(Slots::parse_old(text, [addr("192.0.2.1")]).encode().as_deref(), means);
}

proptest! {
    #[test]
    fn c03_what_was_written_is_read_back(
        entries in prop::collection::vec((any::<IpAddr>(), "[a-z][a-z0-9.-]{0,12}", "[a-z0-9.@,]{1,15}"), 0..8)
    ) {
        let mut slots = Slots::default();
        for (addr, node, interface) in &entries {
            slots.claim(*addr, node, interface);
        }
        let text = slots.encode().unwrap_or_default();
        prop_assert_eq!(Slots::parse(&text), slots);
    }

    #[test]
    fn no_text_makes_it_stumble(text in "[a-z,:. 0-9%]{0,60}") {
        let canonical = Slots::parse(&text).encode();
        prop_assert_eq!(canonical.as_deref().map(Slots::parse).and_then(|again| again.encode()), canonical);
    }
}
