//! One Service at a time: what becomes of it when something goes wrong.

use rstest::rstest;

use super::*;
use crate::allocator::job::GroupOutcome;

#[test]
fn a_write_whose_fate_is_unknown_keeps_its_claim_and_is_sent_again_as_it_is() {
    let mut town = Town::served("10.0.0.8/32", &[]);
    town.create("a");
    let write = town.job().unwrap();
    assert_eq!(given(&write), Some(vec!["10.0.0.8"]));
    town.done(&write, UNKNOWN());
    town.create("b");
    let other = town.job().unwrap();
    assert_eq!(given(&other), Some(vec![]), "law 1: the address may be on its way to a");
    let outcome = town.carry_out(&other);
    town.done(&other, outcome);
    assert!(town.job().is_none());
    town.wait(Duration::from_secs(1));
    let again = town.job().unwrap();
    assert_eq!(format!("{again:?}"), format!("{write:?}"), "the very same");
    // It had arrived.
    town.carry_out(&write);
    let outcome = town.carry_out(&again);
    town.done(&again, outcome);
    town.settle();
    assert_eq!((town.api.addresses("a"), town.api.addresses("b")), (addrs(&["10.0.0.8"]), vec![]));
}

#[test]
fn a_refusal_does_not_tell_the_fate_of_the_first_attempt() {
    let mut town = Town::served("10.0.0.8/32", &[]);
    town.create("a");
    let write = town.job().unwrap();
    town.done(&write, UNKNOWN());
    town.wait(Duration::from_secs(1));
    let again = town.job().unwrap();
    town.done(&again, REFUSED());
    town.create("b");
    assert_eq!(given(&town.job().unwrap()), Some(vec![]), "the first attempt may still arrive");
}

#[test]
fn a_refused_write_takes_its_claim_back() {
    let mut town = Town::served("10.0.0.8/32", &[]);
    town.create("a");
    let write = town.job().unwrap();
    town.create("b");
    let told = town.job().unwrap();
    assert_eq!(given(&told), Some(vec![]));
    let outcome = town.carry_out(&told);
    town.done(&told, outcome);
    town.done(&write, REFUSED());
    let next = town.job().unwrap();
    assert_eq!(given(&next), Some(vec!["10.0.0.8"]), "b waited for it");
    assert!(matches!(&next, Job::Patch { service, .. } if &**service == "test/b"));
}

#[test]
fn who_may_not_be_written_to_is_told_once_why() {
    let mut town = Town::served("10.0.0.8/29", &[]);
    town.create("a");
    for _ in 0..3 {
        let write = town.job().unwrap();
        town.done(&write, REFUSED());
        town.wait(Duration::from_secs(2));
        let read = town.job().unwrap();
        let truth = town.carry_out(&read);
        town.done(&read, truth);
        town.wait(Duration::from_secs(2));
    }
    let [(service, notice)] = &town.told[..] else { panic!("{:?}", town.told) };
    assert_eq!((&**service, notice.reason), ("test/a", "WriteRefused"));
    assert!(notice.message.contains("not allowed"), "{}", notice.message);
    let counted = town.desk.take_tallies();
    assert!(matches!(&counted[..], [Tally::Refused(None, Reason::WriteRefused { .. })]), "{counted:?}");
}

#[test]
fn an_address_that_somebody_else_writes_while_a_service_pauses_is_given_to_nobody() {
    let mut town = Town::served("10.0.0.8/29", &[]);
    town.create("a");
    let write = town.job().unwrap();
    town.done(&write, REFUSED());
    town.api.edit("a", json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.8"}]}}}));
    town.tell("a");
    town.create("b");
    town.settle();
    assert_eq!(town.api.addresses("b"), addrs(&["10.0.0.9"]));
    town.wait(Duration::from_secs(1));
    town.settle();
    assert_eq!(town.desk.book().holding("test/a").unwrap().addrs, addrs(&["10.0.0.8"]));
}

#[test]
fn after_a_conflict_the_truth_is_read_and_decided_anew() {
    let mut town = Town::served("10.0.0.8/29", &[]);
    town.create("a");
    let write = town.job().unwrap();
    town.api.edit("a", json!({"metadata": {"annotations": {"purelb.io/addresses": "10.0.0.12"}}}));
    let outcome = town.carry_out(&write);
    assert!(matches!(outcome, Outcome::Conflict));
    town.done(&write, outcome);
    assert!(is_read(&town.job().unwrap()));
    let truth = town.api.read("a");
    town.done(&write, truth);
    town.settle();
    assert_eq!(town.api.addresses("a"), addrs(&["10.0.0.12"]));
    assert_eq!(town.desk.book().holdings().count(), 1);
    assert_eq!(town.desk.book().holding("test/a").unwrap().addrs, addrs(&["10.0.0.12"]), "10.0.0.8 is free again");
}

#[test]
fn deleted_during_a_write_the_address_is_free_once_that_is_certain_and_not_before() {
    let mut town = Town::served("10.0.0.8/32", &[]);
    town.create("a");
    let write = town.job().unwrap();
    let answer = town.carry_out(&write);
    let last = town.delete("a");
    town.tell_gone(last);
    town.create("b");
    assert_eq!(given(&town.job().unwrap()), Some(vec![]), "a's write is under way");
    town.done(&write, answer);
    let read = town.job().unwrap();
    assert!(is_read(&read), "the answer is older than the news: what is true?");
    let gone = town.carry_out(&read);
    town.done(&read, gone);
    assert!(town.desk.book().holding("test/a").is_none());
    assert!(town.desk.services.at("test/a").is_none(), "no ghost");
}

#[test]
fn bug_13_deleted_and_recreated_during_a_write_the_namesake_is_served_for_itself() {
    let mut town = Town::served("10.0.0.8/29", &[]);
    town.create("a");
    let write = town.job().unwrap();
    let answer = town.carry_out(&write);
    let last = town.delete("a");
    town.tell_gone(last);
    town.create("a");
    town.done(&write, answer);
    assert!(town.desk.book().holding("test/a").is_none(), "the namesake has nothing yet");
    town.settle();
    assert_eq!(town.api.addresses("a"), addrs(&["10.0.0.8"]));
    // The same, but the write comes too late for the first one.
    town.create("b");
    let write = town.job().unwrap();
    let last = town.delete("b");
    town.tell_gone(last);
    town.create("b");
    let outcome = town.carry_out(&write);
    assert!(matches!(outcome, Outcome::Conflict), "another object");
    town.done(&write, outcome);
    town.settle();
    assert_eq!(town.api.addresses("b"), addrs(&["10.0.0.9"]));
}

#[test]
fn bug_7_retyped_during_a_write_the_address_is_free_and_our_marks_are_taken_off() {
    let mut town = Town::served("10.0.0.8/32", &[]);
    town.create("a");
    let write = town.job().unwrap();
    let answer = town.carry_out(&write);
    town.api.edit("a", json!({"spec": {"type": "ClusterIP"}}));
    town.tell_gone(town.api.record("a"));
    town.done(&write, answer);
    town.settle();
    assert!(town.desk.book().holding("test/a").is_none());
    let shown = town.api.record("a");
    assert_eq!((shown.view.brand.ours, shown.view.condition), (false, None));
    town.create("b");
    town.settle();
    assert_eq!(town.api.addresses("b"), addrs(&["10.0.0.8"]));
}

#[test]
fn an_address_is_free_when_the_write_that_drops_it_is_confirmed() {
    let groups = vec![
        group("default", 1, local("10.0.0.8/32"), json!(null)),
        group("other", 1, local("10.0.1.8/32"), json!(null)),
    ];
    let mut town = Town::new(groups, Api::default());
    town.create("a");
    town.settle();
    town.create("b");
    town.settle();
    let asked = json!({"purelb.io/service-group": "other", "purelb.io/re-evaluate": "true"});
    town.api.edit("a", json!({"metadata": {"annotations": asked}}));
    town.tell("a");
    let moving = town.job().unwrap();
    assert_eq!(given(&moving), Some(vec!["10.0.1.8"]));
    town.tell("b");
    assert!(town.job().is_none(), "b still waits: a may keep 10.0.0.8");
    let outcome = town.carry_out(&moving);
    // The watch may be faster than the answer.
    town.tell("a");
    assert!(town.job().is_none());
    town.done(&moving, outcome);
    town.settle();
    assert_eq!((town.api.addresses("a"), town.api.addresses("b")), (addrs(&["10.0.1.8"]), addrs(&["10.0.0.8"])));
}

#[rstest]
#[case::conflict(Outcome::Conflict)]
#[case::refused(REFUSED())]
#[case::unknown(UNKNOWN())]
#[case::not_sent(Outcome::NotSent)]
fn trouble_that_stays_is_met_with_growing_pauses(#[case] trouble: Outcome) {
    let mut town = Town::served("10.0.0.8/29", &[]);
    town.create("a");
    let end = town.at + Duration::from_secs(600);
    let mut patches = 0;
    while town.at < end {
        while let Some(job) = town.job() {
            let outcome = if is_read(&job) { town.carry_out(&job) } else { trouble.clone() };
            patches += usize::from(!is_read(&job));
            town.done(&job, outcome);
            assert!(patches < 40, "a hot loop");
        }
        town.at = town.desk.next_wake(town.at).expect("it is tried again");
    }
    assert!(patches >= 8, "and again, {patches}");
}

#[test]
fn a_read_that_fails_is_tried_again() {
    let mut town = Town::served("10.0.0.8/32", &["a"]);
    let last = town.delete("a");
    town.tell_gone(last);
    let read = town.job().unwrap();
    town.done(&read, UNKNOWN());
    assert!(town.job().is_none());
    town.wait(Duration::from_secs(1));
    assert!(is_read(&town.job().unwrap()));
}

#[test]
fn who_undoes_what_we_write_is_not_fought_in_a_hot_loop() {
    let mut town = Town::served("10.0.0.8/29", &["a"]);
    let start = town.at;
    let mut writes = 0;
    while town.at < start + Duration::from_secs(60) {
        town.api.edit("a", json!({"status": {"loadBalancer": {"ingress": null}}}));
        town.tell("a");
        while let Some(job) = town.job() {
            let outcome = town.carry_out(&job);
            town.done(&job, outcome);
            writes += 1;
            assert!(writes < 100, "a hot loop");
        }
        town.wait(Duration::from_millis(100));
    }
    assert!(writes > 8, "but not given up either");
}

#[test]
fn a_new_list_after_410_takes_those_along_that_it_does_not_name() {
    let mut town = Town::served("10.0.0.8/31", &["a", "b"]);
    town.create("waits");
    town.settle();
    town.delete("a");
    town.hear(News::Service(Change::Restarted));
    for name in ["b", "waits"] {
        town.tell(name);
    }
    assert!(town.job().is_none(), "the list is not complete");
    town.hear(News::Service(Change::Complete));
    town.settle();
    assert_eq!(town.api.addresses("waits"), addrs(&["10.0.0.8"]));
    assert_eq!(town.api.addresses("b"), addrs(&["10.0.0.9"]));
}

#[test]
fn a_list_is_not_outdone_by_an_older_answer() {
    let mut town = Town::served("10.0.0.8/32", &[]);
    town.create("a");
    let write = town.job().unwrap();
    let answer = town.carry_out(&write);
    town.delete("a");
    town.hear(News::Service(Change::Restarted));
    town.done(&write, answer);
    town.hear(News::Service(Change::Complete));
    town.settle();
    assert!(town.desk.services.at("test/a").is_none(), "no ghost");
    assert!(town.desk.book().holding("test/a").is_none());
}

#[test]
fn a_watch_that_is_behind_takes_nothing_away() {
    let mut town = Town::served("10.0.0.8/32", &[]);
    town.create("a");
    let old = town.api.record("a");
    town.settle();
    town.create("b");
    town.hear(News::Service(Change::Here(old.clone())));
    town.settle();
    assert!(town.api.addresses("b").is_empty(), "law 1: a has it");
    town.hear(News::Service(Change::Gone(old)));
    town.settle();
    assert!(town.api.addresses("b").is_empty(), "an earlier a was deleted, not this one");
}

#[test]
fn a_list_that_does_not_name_a_service_is_not_believed_before_the_api_server_is_asked() {
    let mut town = Town::served("10.0.0.8/32", &["a", "b"]);
    town.hear(News::Service(Change::Restarted));
    town.tell("b");
    town.hear(News::Service(Change::Complete));
    town.settle();
    assert!(town.api.addresses("b").is_empty(), "a came back after the list was made");
    assert_eq!(town.api.addresses("a"), addrs(&["10.0.0.8"]));
}

#[test]
fn b32_a_refusal_counts_once_however_often_it_is_looked_at() {
    let mut town = Town::served("10.0.0.8/32", &["a", "b"]);
    let counted = town.desk.take_tallies();
    let [Tally::Refused(Some(pool), Reason::Exhausted { .. })] = &counted[..] else { panic!("{counted:?}") };
    assert_eq!(pool, "default", "the pool that has none, though nobody named it");
    for _ in 0..3 {
        town.tell("b");
        town.settle();
    }
    assert_eq!(town.desk.take_tallies(), []);
}

#[test]
fn b32_only_a_missing_address_is_a_refusal() {
    let mut town = Town::served("10.0.0.8/31", &["a"]);
    town.hear(News::Group(Change::Here(Box::new(group("other", 2, local("10.0.1.8/31"), json!(null))))));
    town.api.edit("a", json!({"metadata": {"annotations": {"purelb.io/service-group": "other"}}}));
    town.tell("a");
    town.settle();
    assert_eq!(town.api.record("a").view.condition.unwrap().reason, "MovePending");
    assert_eq!(town.desk.take_tallies(), [], "it has all that it asked for");
    town.api.create("b", json!({"purelb.io/service-group": "none"}));
    town.tell("b");
    town.settle();
    let counted = town.desk.take_tallies();
    assert!(matches!(&counted[..], [Tally::Refused(Some(pool), _)] if pool == "none"), "{counted:?}");
}

#[test]
fn multi_pool_and_balanced_allocations_are_counted() {
    let pools = |flag: &str| {
        let pools = [
            json!({"pool": "10.0.0.8/32", "subnet": "10.0.0.0/24"}),
            json!({"pool": "10.0.1.8/31", "subnet": "10.0.1.0/24"}),
        ];
        json!({"remote": {"v4pools": pools, flag: true}})
    };
    let mut town = Town::new(vec![group("default", 1, pools("multiPool"), json!(null))], Api::default());
    town.create("a");
    town.create("b");
    town.settle();
    let multi = |partial| Tally::MultiPool { group: "default".to_owned(), partial };
    let counted: Vec<_> = town.desk.take_tallies();
    assert!(counted.contains(&multi(false)) && counted.contains(&multi(true)), "{counted:?}");
    let mut town = Town::new(vec![group("default", 1, pools("balancePools"), json!(null))], Api::default());
    town.create("a");
    town.settle();
    assert_eq!(town.desk.take_tallies(), [Tally::Balanced("default".to_owned())]);
}

#[test]
fn bug_12_an_edit_of_the_group_during_a_write_gives_nobody_the_address_under_way() {
    let mut town = Town::served("10.0.0.8/31", &[]);
    town.create("a");
    let write = town.job().unwrap();
    assert_eq!(given(&write), Some(vec!["10.0.0.8"]));
    let edited = group("default", 2, local("10.0.0.8-10.0.0.10"), json!(null));
    town.hear(News::Group(Change::Here(Box::new(edited))));
    town.create("b");
    let second = town.job().unwrap();
    assert_eq!(given(&second), Some(vec!["10.0.0.9"]), "the claim outlives the edit");
    for job in [second, write] {
        let outcome = town.carry_out(&job);
        town.done(&job, outcome);
    }
    town.settle();
    assert_eq!((town.api.addresses("a"), town.api.addresses("b")), (addrs(&["10.0.0.8"]), addrs(&["10.0.0.9"])));
}

#[test]
fn k8s_1_what_agents_write_costs_no_write_and_what_users_write_is_looked_at() {
    let mut town = Town::served("10.0.0.8/31", &["a"]);
    for text in ["n1,eth0,10.0.0.8", "n2,eth0,10.0.0.8"] {
        town.api.edit("a", json!({"metadata": {"annotations": {"purelb.io/announcing-IPv4": text}}}));
        town.tell("a");
        assert!(town.job().is_none(), "{text}");
    }
    town.tell("a");
    assert!(town.job().is_none(), "the same once more");
    town.api.edit("a", json!({"metadata": {"annotations": {"purelb.io/service-group": "none"}}}));
    town.tell("a");
    assert!(town.job().is_some(), "another group is pending");
}

#[test]
fn b29_the_last_announcer_of_an_address_is_taken_off_when_it_is_gone_for_good() {
    let mut town = Town::served("10.0.0.8/31", &["a", "b"]);
    for (name, text) in [("a", "gone,eth0,10.0.0.8 gone,eth0,10.9.0.1"), ("b", "gone,eth0")] {
        town.api.edit(name, json!({"metadata": {"annotations": {"purelb.io/announcing-IPv4": text}}}));
        town.tell(name);
    }
    let other = AgentLease {
        node: "lives".to_owned(),
        subnets: ["10.9.0.0/24".parse().unwrap()].into(),
        renewed: Some((Timestamp::UNIX_EPOCH, Duration::from_secs(3600))),
        ..AgentLease::default()
    };
    town.hear(News::Lease(Change::Here(Some(other))));
    town.desk.tick(town.at);
    town.settle();
    let shown = |town: &Town, name: &str| {
        town.api.services[name]["metadata"]["annotations"]["purelb.io/announcing-IPv4"].clone()
    };
    assert_eq!(shown(&town, "a"), "gone,eth0,10.0.0.8 gone,eth0,10.9.0.1", "it may only be restarting");
    town.wait(Duration::from_secs(31));
    town.desk.tick(town.at);
    town.settle();
    assert_eq!(shown(&town, "a"), "gone,eth0,10.9.0.1", "that one somebody else announces, and will say so");
    assert_eq!(shown(&town, "b"), "gone,eth0", "what 0.13 wrote names no address");
    town.wait(Duration::from_secs(31));
    town.desk.tick(town.at);
    assert!(town.job().is_none(), "at rest");
}

#[test]
fn sts_8_a_group_whose_status_is_refused_keeps_no_other_from_being_written() {
    let groups = ["10.0.0.8/31", "10.0.1.8/31"];
    let groups = groups.iter().enumerate().map(|(n, pool)| group(&format!("g{n}"), 1, local(pool), json!(null)));
    let mut town = Town::new(groups.collect(), Api::default());
    town.settle();
    let names = |jobs: &[Job]| -> Vec<String> {
        let name = |job: &Job| match job {
            Job::PatchGroup { group, .. } => group.name.clone().unwrap(),
            other => panic!("{other:?}"),
        };
        jobs.iter().map(name).collect()
    };
    let jobs = town.desk.statuses(town.now(), town.at);
    assert_eq!(names(&jobs), ["g0", "g1"], "sts-5: idle groups, too");
    let Job::PatchGroup { patch, .. } = &jobs[1] else { panic!() };
    let written = group("g1", 2, local("10.0.1.8/31"), patch["status"].clone());
    let outcomes = [GroupOutcome::Refused("forbidden".to_owned()), GroupOutcome::Is(Box::new(written))];
    for (name, outcome) in ["g0", "g1"].into_iter().zip(outcomes) {
        town.desk.done(Done::Group("home".to_owned(), name.to_owned(), outcome), town.now(), town.at);
    }
    assert!(town.desk.statuses(town.now(), town.at).is_empty(), "sts-4: not at once, and not what was written");
    town.wait(Duration::from_secs(1));
    assert_eq!(names(&town.desk.statuses(town.now(), town.at)), ["g0"], "only what was refused is tried again");
}

#[test]
fn a_thousand_renewals_of_leases_cost_no_look_at_any_service() {
    let mut town = Town::served("10.0.0.8/29", &["a", "b"]);
    let lease = |second| AgentLease {
        node: "n1".to_owned(),
        subnets: ["10.0.0.0/16".parse().unwrap()].into(),
        renewed: Some((Timestamp::from_second(second).unwrap(), Duration::from_secs(10))),
        ..AgentLease::default()
    };
    town.hear(News::Lease(Change::Here(Some(lease(0)))));
    town.settle();
    town.desk.take_unshown();
    for second in 1..1000 {
        town.hear(News::Lease(Change::Here(Some(lease(second)))));
        assert!(town.desk.queue.is_empty() && !town.desk.is_unshown());
    }
}

#[test]
fn b31_a_group_is_told_of_when_its_verdict_changes_and_not_by_every_new_leader() {
    let mut town = Town::new(vec![group("default", 1, local("10.0.0.8/31"), json!(null))], Api::default());
    let jobs = town.desk.statuses(town.now(), town.at);
    let [Job::PatchGroup { patch, notices, .. }] = &jobs[..] else { panic!("{jobs:?}") };
    let told: Vec<_> = notices.iter().map(|notice| (notice.reason, notice.message.as_str())).collect();
    assert_eq!(told, [("Parsed", "ServiceGroup parsed successfully")]);
    let shown = patch["status"].clone();
    let mut next = Town::new(vec![group("default", 2, local("10.0.0.8/31"), shown.clone())], Api::default());
    let jobs = next.desk.statuses(next.now(), next.at);
    assert!(jobs.iter().all(|job| matches!(job, Job::PatchGroup { notices, .. } if notices.is_empty())), "{jobs:?}");
    let broken = group("default", 3, local("10.0.0.9-10.0.0.8"), shown);
    next.hear(News::Group(Change::Here(Box::new(broken))));
    let jobs = next.desk.statuses(next.now(), next.at);
    let [Job::PatchGroup { notices, .. }] = &jobs[..] else { panic!("{jobs:?}") };
    assert!(notices[0].reason == "ParseFailed" && notices[0].message.starts_with("Failed to parse: "), "{notices:?}");
}

#[test]
fn bug_16_a_sharer_that_waits_for_a_port_gets_it_when_it_is_dropped() {
    let mut town = Town::served("10.0.0.8/31", &[]);
    for name in ["a", "b"] {
        town.api.create(name, json!({"purelb.io/allow-shared-ip": "k"}));
        town.tell(name);
        town.settle();
    }
    assert!(town.api.addresses("b").is_empty(), "a has port 80");
    town.api.edit("a", json!({"spec": {"ports": [{"port": 443}]}}));
    town.tell("a");
    town.settle();
    assert_eq!(town.api.addresses("b"), addrs(&["10.0.0.8"]));
}

#[test]
fn a_service_that_is_gone_before_the_watch_tells_is_not_written_to_again_and_again() {
    let mut town = Town::served("10.0.0.8/32", &[]);
    town.create("a");
    let last = town.delete("a");
    let (mut writes, mut reads, end) = (0, 0, town.at + Duration::from_secs(60));
    while town.at < end {
        while let Some(job) = town.job() {
            if is_read(&job) {
                reads += 1
            } else {
                writes += 1
            }
            assert!(writes + reads < 20, "a hot loop");
            let outcome = town.carry_out(&job);
            assert!(matches!(outcome, Outcome::Gone));
            town.done(&job, outcome);
        }
        town.at = town.desk.next_wake(town.at).expect("the watch may be behind for long");
    }
    assert_eq!(writes, 1);
    town.tell_gone(last);
    town.settle();
    assert!(town.desk.book().holding("test/a").is_none());
    town.create("b");
    town.settle();
    assert_eq!(town.api.addresses("b"), addrs(&["10.0.0.8"]));
}

#[test]
fn bug_13_a_namesake_that_the_watch_shows_is_served_though_its_forerunner_is_gone() {
    let mut town = Town::served("10.0.0.8/29", &[]);
    town.create("a");
    let write = town.job().unwrap();
    let last = town.delete("a");
    let gone = town.carry_out(&write);
    town.tell_gone(last);
    town.create("a");
    town.done(&write, gone);
    town.settle();
    assert_eq!(town.api.addresses("a"), addrs(&["10.0.0.8"]));
}

#[test]
fn without_room_for_jobs_a_pause_that_is_over_costs_no_spin() {
    let mut town = Town::served("10.0.0.8/29", &[]);
    town.create("a");
    let write = town.job().unwrap();
    town.done(&write, UNKNOWN());
    town.at = town.desk.next_wake(town.at).expect("it is sent again");
    assert_eq!(town.desk.next_wake(town.at), None, "when there is room, and not at a time");
    assert!(town.job().is_some());
}

/// Two Services on 10.0.0.8, by one key and different ports.
fn sharers() -> Town {
    let mut town = Town::served("10.0.0.8/30", &[]);
    for (name, port) in [("a", 80), ("b", 443)] {
        town.api.create(name, json!({"purelb.io/allow-shared-ip": "k"}));
        town.api.edit(name, json!({"spec": {"ports": [{"port": port}]}}));
        town.tell(name);
        town.settle();
    }
    assert_eq!([town.api.addresses("a"), town.api.addresses("b")], [addrs(&["10.0.0.8"]), addrs(&["10.0.0.8"])]);
    town
}

#[rstest]
#[case::a_port_the_other_has(json!({"spec": {"ports": [{"port": 443}]}}), vec![])]
#[case::no_key_any_more(json!({"metadata": {"annotations": {"purelb.io/allow-shared-ip": null}}}), addrs(&["10.0.0.9"]))]
fn an_edit_that_ends_sharing_costs_the_one_that_was_edited_its_address(#[case] edit: Value, #[case] then: Vec<IpAddr>) {
    let mut town = sharers();
    town.api.edit("a", edit);
    town.tell("a");
    let lost = town.job().unwrap();
    assert_eq!(given(&lost), Some(vec![]), "nothing new comes with the same write");
    let outcome = town.carry_out(&lost);
    town.done(&lost, outcome);
    town.settle();
    assert_eq!([town.api.addresses("a"), town.api.addresses("b")], [then, addrs(&["10.0.0.8"])]);
}

#[test]
fn services_that_were_edited_into_conflict_while_nobody_led_do_not_both_keep_or_lose_the_address() {
    let mut town = sharers();
    town.api.edit("a", json!({"spec": {"ports": [{"port": 443}]}}));
    let mut town = town.succeeded(vec![group("default", 2, local("10.0.0.8/30"), json!(null))]);
    town.settle();
    assert_eq!([town.api.addresses("a"), town.api.addresses("b")], [addrs(&["10.0.0.8"]), vec![]]);
    let told = &town.api.services["b"]["status"]["conditions"][0];
    assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("PortInUse")));
}

/// The Lease of a node that says who its gateway is, renewed for long.
fn gated(node: &str, gateway: &str) -> AgentLease {
    AgentLease {
        node: node.to_owned(),
        subnets: ["10.0.0.0/16".parse().unwrap()].into(),
        guarded: [(gateway.parse().unwrap(), purelb_core::reserved::Guard::Gateway)].into(),
        renewed: Some((Timestamp::UNIX_EPOCH, Duration::from_secs(3600))),
    }
}

#[test]
fn law_9_a_pool_that_is_a_whole_subnet_gives_out_no_gateway_that_an_agent_names() {
    let mut town = Town::served("10.0.0.0/16", &[]);
    let node = NodeView { name: "n1".to_owned(), addresses: addrs(&["10.0.0.2"]), labels: BTreeMap::new() };
    town.hear(News::Node(Change::Here(node.clone())));
    town.hear(News::Lease(Change::Here(Some(gated("n1", "10.0.0.1")))));
    town.create("a");
    town.settle();
    assert_eq!(town.api.addresses("a"), addrs(&["10.0.0.3"]), "after the network, the gateway and the Node");
    // The agent restarts: its Lease goes, the gateway does not.
    town.hear(News::Lease(Change::Gone(Some(gated("n1", "10.0.0.1")))));
    town.api.create("b", json!({"purelb.io/addresses": "10.0.0.1"}));
    town.tell("b");
    town.settle();
    assert!(town.api.addresses("b").is_empty());
    town.hear(News::Node(Change::Gone(node)));
    town.settle();
    assert_eq!(town.api.addresses("b"), addrs(&["10.0.0.1"]), "the node is gone for good");
}
