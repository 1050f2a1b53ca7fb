//! Who is alive, who may hold and who may take, told as small stories; and a town in which everything goes wrong.

use proptest::prelude::*;

use super::*;

mod town;

use town::{NODES, SUBNETS, Town, Trouble};

const TEN: Duration = Duration::from_secs(10);

fn at(seconds: f64) -> Moment {
    Moment(Duration::from_secs_f64(seconds))
}

fn members() -> Members {
    Members::new("me", Timing { duration: TEN, renew_deadline: Duration::from_secs(7) })
}

fn subnets(texts: &[&str]) -> BTreeSet<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn said(subnets_said: &[&str]) -> Said {
    Said { subnets: subnets(subnets_said), claims: BTreeSet::new() }
}

/// A Lease of one of our agents; its version tells its renewals apart, too.
fn lease(node: &str, version: u64, saw: u64) -> LeaseView {
    LeaseView {
        node: node.to_owned(),
        renewed: Some(version.to_string()),
        duration: Some(TEN),
        subnets: subnets(&["10.0.0.0/24"]),
        version: Some(version),
        saw: Some(saw),
        ..LeaseView::default()
    }
}

fn addr() -> IpAddr {
    "10.0.0.1".parse().unwrap()
}

fn candidates(members: &Members) -> Vec<String> {
    members.candidates(addr()).map(|node| node.to_string()).collect()
}

/// Sends our own renewal and lets the watch show it.
fn renew(members: &mut Members, version: u64, sent: f64, shown: f64) -> Vec<MemberChange> {
    members.renewing(version.to_string(), said(&["10.0.0.0/24"]), at(sent));
    members.hear(lease("me", version, 0), at(shown))
}

#[test]
fn e08_e18_a_lease_lives_until_it_has_not_changed_for_its_duration() {
    let mut members = members();
    members.hear(LeaseView { age: Duration::from_secs(15), ..lease("a", 1, 0) }, at(0.0));
    members.hear(LeaseView { renewed: None, ..lease("no-time", 2, 0) }, at(0.0));
    members.hear(LeaseView { duration: None, ..lease("no-duration", 3, 0) }, at(0.0));
    members.hear(LeaseView { duration: Some(Duration::ZERO), ..lease("b33-no-second", 4, 0) }, at(0.0));
    assert_eq!(candidates(&members), ["a"]);
    assert_eq!(members.next_wake(), Some(at(10.0)));
    assert_eq!(members.look(at(9.9)), []);
    assert_eq!(members.look(at(10.0)), [MemberChange::Left { node: "a".into(), subnets: subnets(&["10.0.0.0/24"]) }]);
    assert!(!members.is_live("a") && candidates(&members).is_empty());
    members.hear(lease("a", 5, 0), at(11.0));
    assert!(members.is_live("a"), "it stirred");
}

#[test]
fn b16_i11_the_wall_clock_of_a_peer_does_not_matter() {
    let mut members = members();
    members.hear(LeaseView { age: Duration::from_secs(3_600), ..lease("a", 1, 0) }, at(0.0));
    assert!(members.is_live("a"), "it may be a newcomer with a slow clock");
    for (version, seconds) in [(2, 5.0), (3, 10.0), (4, 15.0)] {
        members.hear(LeaseView { age: Duration::from_secs(3_600), ..lease("a", version, 0) }, at(seconds));
        assert_eq!(members.look(at(seconds + 4.9)), []);
    }
}

#[test]
fn a_lease_of_the_dead_that_the_agent_before_us_knew_is_dead_at_first_sight() {
    let old = |version| LeaseView { age: Duration::from_secs(31), ..lease("a", version, 0) };
    for (version, live) in [(100, false), (101, true)] {
        let mut members = members();
        members.hear_all(vec![old(version), lease("me", 102, 100)], at(0.0));
        assert_eq!(members.is_live("a"), live, "version {version}");
    }
    let mut members = members();
    members.hear_all(vec![old(100), lease("me", 102, 100)], at(0.0));
    members.hear(lease("a", 103, 0), at(1.0));
    assert!(members.is_live("a"), "it was only asleep");
}

#[test]
fn a_stalled_watch_kills_nobody() {
    let mut members = members();
    members.hear(lease("a", 1, 0), at(0.0));
    renew(&mut members, 2, 0.0, 0.1);
    for seconds in [5, 10, 15, 20] {
        members.renewing(seconds.to_string(), said(&["10.0.0.0/24"]), at(f64::from(seconds)));
        assert_eq!(members.look(at(f64::from(seconds) + 4.9)), []);
    }
    assert!(members.is_live("a"));
    let changes = members.hear(lease("me", 20, 0), at(24.0));
    assert_eq!(changes.len(), 1, "the watch is back and shows no life: {changes:?}");
    assert!(!members.is_live("a"));
}

#[test]
fn a_member_is_dead_once_a_renewal_sent_after_its_last_hold_has_come_back() {
    let mut members = members();
    renew(&mut members, 1, 0.0, 0.1);
    members.hear(lease("a", 2, 0), at(1.0));
    renew(&mut members, 3, 5.0, 5.1);
    // With a Lease of 10 seconds the longest hold is 8.8: the Lease of 10.9 seconds says 10, too.
    assert_eq!(members.proof_due(), Some(at(9.8)));
    assert_eq!(members.look(at(11.5)), [], "what it wrote at 5.5 may be on its way");
    assert!(renew(&mut members, 4, 9.9, 10.0).is_empty());
    assert_eq!(members.proof_due(), None);
    assert_eq!(members.next_wake(), Some(at(11.0)));
    assert_eq!(members.look(at(11.0)).len(), 1);
}

#[test]
fn e06_b22_i14_without_a_renewal_that_came_back_nothing_is_held() {
    let mut members = members();
    assert_eq!(members.fence(), None);
    members.renewing("1".to_owned(), said(&["10.0.0.0/24"]), at(0.0));
    assert_eq!(members.fence(), None, "sent is not shown");
    members.hear(lease("me", 1, 0), at(3.0));
    assert_eq!(members.fence(), Some(at(7.0)), "counted from the sending");
    members.renewing("2".to_owned(), said(&["10.0.0.0/24"]), at(5.0));
    members.hear(lease("a", 9, 0), at(5.5));
    assert_eq!(members.fence(), Some(at(7.0)));
    members.hear(lease("me", 2, 0), at(6.0));
    assert_eq!(members.fence(), Some(at(12.0)));
    members.gone("me");
    assert_eq!(members.fence(), None, "others may take over at once");
}

#[test]
fn e11_however_many_renewals_fail_the_hold_ends_when_it_was_to_end_and_the_next_that_is_shown_counts() {
    let mut members = members();
    renew(&mut members, 1, 0.0, 0.1);
    for (attempt, sent) in [(2, 1.0), (3, 2.0), (4, 3.0), (5, 4.0)] {
        members.renewing(attempt.to_string(), said(&["10.0.0.0/24"]), at(sent));
        members.look(at(sent + 0.5));
        assert_eq!(members.fence(), Some(at(7.0)), "{attempt} changes nothing");
    }
    renew(&mut members, 6, 5.0, 5.1);
    assert_eq!(members.fence(), Some(at(12.0)));
}

#[test]
fn b22_the_hold_ends_before_peers_may_take_over() {
    for (duration, deadline, hold) in [(10, 7, 7), (10, 30, 8), (5, 7, 4), (2, 7, 1), (1, 7, 0)] {
        let timing = Timing { duration: Duration::from_secs(duration), renew_deadline: Duration::from_secs(deadline) };
        assert_eq!(timing.hold(), Duration::from_secs(hold));
        assert!(timing.hold() <= longest_hold(timing.duration));
    }
    let odd = Timing { duration: Duration::from_millis(5_900), renew_deadline: TEN };
    assert!(odd.hold() <= longest_hold(Duration::from_secs(5)), "a Lease says whole seconds");
}

#[test]
fn a_newcomer_waits_until_all_know_of_it() {
    let mut members = members();
    members.hear(lease("a", 1, 1), at(0.0));
    members.hear(lease("b", 2, 1), at(0.0));
    members.hear(LeaseView { saw: None, ..lease("of-another-release", 3, 0) }, at(0.0));
    renew(&mut members, 10, 1.0, 1.2);
    assert_eq!(members.may_take(addr(), at(1.2)), Err(at(11.2)));
    members.hear(lease("a", 11, 10), at(1.3));
    assert_eq!(members.may_take(addr(), at(1.3)), Err(at(11.2)), "b may hold it");
    members.hear(lease("b", 12, 10), at(1.4));
    assert_eq!(members.may_take(addr(), at(1.4)), Ok(()));
    renew(&mut members, 13, 6.0, 6.1);
    assert_eq!(members.may_take(addr(), at(6.1)), Ok(()), "it has been known since version 10");
}

#[test]
fn a_newcomer_waits_no_longer_than_others_can_hold() {
    let mut members = members();
    members.hear(lease("a", 1, 1), at(0.0));
    renew(&mut members, 10, 1.0, 1.2);
    renew(&mut members, 11, 6.0, 6.2);
    assert_eq!(members.may_take(addr(), at(11.1)), Err(at(11.2)));
    assert_eq!(members.may_take(addr(), at(11.2)), Ok(()));
}

#[test]
fn who_lost_its_fence_joins_anew() {
    let mut members = members();
    members.hear(lease("a", 101, 100), at(0.0));
    renew(&mut members, 10, 1.0, 1.2);
    assert_eq!(members.may_take(addr(), at(1.2)), Ok(()));
    renew(&mut members, 200, 8.5, 8.6);
    assert!(members.may_take(addr(), at(8.6)).is_err(), "others may have buried it meanwhile");
}

#[test]
fn a_subnet_that_went_out_of_a_renewal_has_to_be_listed_anew() {
    let mut members = members();
    members.hear(lease("a", 101, 100), at(0.0));
    renew(&mut members, 10, 1.0, 1.2);
    members.renewing("11".to_owned(), said(&["10.0.0.0/24"]), at(2.0));
    members.renewing("12".to_owned(), said(&[]), at(2.1));
    assert!(members.may_take(addr(), at(2.1)).is_err(), "others may have seen it go");
    members.hear(lease("me", 11, 0), at(2.2));
    assert!(members.may_take(addr(), at(2.2)).is_err(), "what came back is older");
    renew(&mut members, 130, 3.0, 3.1);
    assert_eq!(members.may_take(addr(), at(3.1)), Err(at(13.1)));
    members.hear(lease("a", 131, 130), at(3.2));
    assert_eq!(members.may_take(addr(), at(3.2)), Ok(()));
}

#[test]
fn e17_e19_e20_only_a_difference_is_told() {
    let mut members = members();
    let told = |changes: Vec<MemberChange>| {
        let words = |change: MemberChange| match change {
            MemberChange::Joined { node, subnets } => format!("+{node}{subnets:?}"),
            MemberChange::Left { node, subnets } => format!("-{node}{subnets:?}"),
            MemberChange::Claimed { node, addrs } => format!("+{node}{addrs:?}"),
            MemberChange::Unclaimed { node, addrs } => format!("-{node}{addrs:?}"),
        };
        changes.into_iter().map(words).collect::<Vec<_>>().join(" ")
    };
    let with = |version, texts: &[&str]| LeaseView { subnets: subnets(texts), ..lease("a", version, 0) };
    assert_eq!(told(members.hear(with(1, &["10.0.0.0/24"]), at(0.0))), "+a{10.0.0.0/24}");
    assert_eq!(told(members.hear(with(2, &["10.0.0.0/24"]), at(5.0))), "");
    assert_eq!(told(members.hear(with(3, &["10.0.1.0/24"]), at(6.0))), "-a{10.0.0.0/24} +a{10.0.1.0/24}");
    assert_eq!(told(members.look(at(16.0))), "-a{10.0.1.0/24}");
    assert_eq!(told(members.look(at(17.0))), "");
    assert_eq!(told(members.hear(with(3, &["10.0.1.0/24"]), at(18.0))), "", "the same again is no sign of life");
    assert_eq!(told(members.hear(with(4, &["10.0.1.0/24"]), at(18.0))), "+a{10.0.1.0/24}");
    assert_eq!(told(members.hear_all(vec![], at(19.0))), "-a{10.0.1.0/24}");
    assert_eq!(told(members.gone("a")), "");
}

#[test]
fn claims_count_while_their_node_lives_and_serves_the_address() {
    let mut members = members();
    let with = |version, texts: &[&str]| LeaseView {
        claims: texts.iter().map(|text| text.parse().unwrap()).collect(),
        ..lease("a", version, 0)
    };
    let claimants = |members: &Members| members.claimants(addr()).map(|node| node.to_string()).collect::<Vec<_>>();
    members.hear(with(1, &["10.0.0.1", "192.0.2.1"]), at(0.0));
    assert_eq!(claimants(&members), ["a"]);
    assert_eq!(members.claimants("192.0.2.1".parse().unwrap()).count(), 0, "not of its subnets");
    let changes = members.hear(with(2, &["10.0.0.2"]), at(5.0));
    let one = |text: &str| BTreeSet::from([text.parse().unwrap()]);
    let (lost, won) = (one("10.0.0.1"), one("10.0.0.2"));
    let told = [
        MemberChange::Unclaimed { node: "a".into(), addrs: lost },
        MemberChange::Claimed { node: "a".into(), addrs: won.clone() },
    ];
    assert_eq!(changes, told);
    let dead = members.look(at(15.0));
    assert!(dead.contains(&MemberChange::Unclaimed { node: "a".into(), addrs: won }), "{dead:?}");
}

#[test]
fn a_claimed_address_is_taken_when_all_who_could_hold_it_know_of_the_claim() {
    let mut members = members();
    members.hear(lease("a", 1, 0), at(0.0));
    renew(&mut members, 10, 1.0, 1.1);
    members.hear(lease("a", 11, 10), at(1.2));
    assert_eq!(members.may_take(addr(), at(1.2)), Ok(()));
    assert!(members.may_take_claimed(addr(), at(1.2)).is_err(), "it claims nothing yet");
    let claims = BTreeSet::from([addr()]);
    members.renewing("12".to_owned(), Said { claims: claims.clone(), ..said(&["10.0.0.0/24"]) }, at(2.0));
    members.hear(LeaseView { claims, ..lease("me", 12, 0) }, at(2.1));
    assert_eq!(members.may_take_claimed(addr(), at(2.1)), Err(at(12.1)), "a may hold it");
    members.hear(lease("a", 13, 12), at(2.2));
    assert_eq!(members.may_take_claimed(addr(), at(2.2)), Ok(()));
    members.renewing("14".to_owned(), said(&["10.0.0.0/24"]), at(3.0));
    assert!(members.may_take_claimed(addr(), at(3.0)).is_err(), "others may have seen the claim go");
}

/// A history takes a while, so there are fewer of them than of other cases; `PROPTEST_CASES` still asks for more.
fn histories() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: config.cases.div_ceil(4), ..config }
}

fn seconds(most: u64) -> impl Strategy<Value = Duration> {
    (0..most * 10).prop_map(|tenths| Duration::from_millis(tenths * 100))
}

fn troubles() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        3 => seconds(25).prop_map(Trouble::Pause),
        3 => seconds(25).prop_map(Trouble::StallWatch),
        2 => seconds(8).prop_map(Trouble::DelayWatch),
        2 => seconds(8).prop_map(Trouble::DelayWrites),
        2 => seconds(15).prop_map(Trouble::LoseWrites),
        1 => seconds(15).prop_map(Trouble::LoseAnswers),
        2 => Just(Trouble::Crash),
        1 => Just(Trouble::PowerLoss),
        5 => Just(Trouble::Start),
        1 => Just(Trouble::Leave),
        1 => (0..SUBNETS.len()).prop_map(Trouble::Unplug),
        2 => (0..SUBNETS.len()).prop_map(Trouble::Plug),
        1 => Just(Trouble::WatchAnew),
        1 => Just(Trouble::DeleteLease),
        1 => Just(Trouble::StartTwin),
        1 => seconds(5).prop_map(Trouble::Restore),
    ]
}

proptest! {
    #![proptest_config(histories())]

    #[test]
    fn never_two_holders_and_once_calm_the_elected_one(
        clocks in prop::array::uniform4(prop::sample::select(&[-3_600_i64, 0, 0, 3_600][..])),
        apart in prop::array::uniform4(seconds(12)),
        history in prop::collection::vec((seconds(6), 0..NODES, troubles()), 0..40),
    ) {
        let mut town = Town::new(clocks);
        for (which, time) in apart.iter().enumerate() {
            town.befall(which, &Trouble::Start);
            town.pass(*time);
        }
        for (time, which, trouble) in &history {
            town.befall(*which, trouble);
            town.pass(*time);
        }
        town.calm();
        town.pass(3 * town::DURATION);
        town.check_elected();
    }
}

#[test]
fn who_begins_takes_nothing_before_nodes_must_have_let_go_whose_leases_it_never_saw() {
    let mut members = members();
    members.begin(at(100.0));
    renew(&mut members, 1, 100.0, 100.0);
    let free = at(100.0) + longest_hold(TEN);
    assert_eq!(members.may_take(addr(), at(100.0)), Err(free));
    assert_eq!(members.may_take(addr(), free), Ok(()));
}
