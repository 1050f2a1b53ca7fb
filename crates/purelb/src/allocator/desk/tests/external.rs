//! External IPAMs on the desk: who is on record, who may call, and that a slow IPAM costs nobody else anything.

use purelb_api::holders::{GroupHolders, Holders};
use purelb_core::reason::Reason;

use super::*;
use crate::allocator::job::{NoAddress, NotReleased, RecordOutcome, Release};

pub(super) fn external(socket: &str) -> Value {
    json!({"external": {"provider": "acme", "socket": socket, "announce": "local"}})
}

/// The record names these Services as holders of addresses of a group.
pub(super) fn holders(group: &str, socket: &str, names: &[&str]) -> Holders {
    let services = names.iter().map(|name| (format!("test/{name}"), Vec::new())).collect();
    Holders { groups: [(group.to_owned(), GroupHolders { socket: socket.to_owned(), services })].into() }
}

/// The IPAM has not answered to a release.
fn silence() -> NotReleased {
    NotReleased { why: "silence".to_owned(), unsure: true }
}

/// The IPAM has said that it did not release.
fn refusal(why: &str) -> NotReleased {
    NotReleased { why: why.to_owned(), unsure: false }
}

pub(super) fn asks(town: &mut Town) -> Vec<Job> {
    std::iter::from_fn(|| town.desk.next_external(town.at)).filter(|job| !matches!(job, Job::Count { .. })).collect()
}

/// The API server with the record in it, which does whatever the desk wants read or written.
pub(super) fn keep_record(town: &mut Town, record: &mut Option<Holders>) {
    while let Some(job) = town.desk.next_record(true, town.at) {
        if let Job::WriteRecord { body, create } = &job {
            let mut object = record.as_ref().map_or_else(|| json!({}), |record| record.object("before"));
            assert_eq!(*create, record.is_none(), "{job:?}");
            json_patch::merge(&mut object, body);
            *record = Some(Holders::read(&serde_json::from_value(object).unwrap()));
        }
        let found = record.clone().map(|record| ("1".to_owned(), record));
        town.desk.done(Done::Record(RecordOutcome::Is(found)), town.now(), town.at);
        town.settle();
    }
}

/// A town whose Services are all settled and on record.
fn recorded(groups: Vec<GroupObject>, api: Api) -> Town {
    let mut town = Town::new(groups, api);
    town.settle();
    keep_record(&mut town, &mut None);
    town
}

fn asking_town() -> Town {
    let mut api = Api::default();
    api.create("a", json!({}));
    recorded(vec![group("default", 1, external("/a"), json!(null))], api)
}

#[test]
fn an_ipam_is_asked_only_when_the_service_is_a_holder_on_record() {
    let mut town = Town::new(vec![group("default", 1, external("/a"), json!(null))], Api::default());
    town.create("a");
    assert!(town.job().is_none() && asks(&mut town).is_empty());
    let mut record = None;
    keep_record(&mut town, &mut record);
    assert!(record.as_ref().is_some_and(|record| record.names("default", "test/a")));
    let asked = asks(&mut town);
    assert!(matches!(&asked[..], [Job::Ask { service, .. }] if &**service == "test/a"), "{asked:?}");
    town.done(&asked[0], Outcome::Answer(Ok(addrs(&["192.0.2.1"]))));
    town.settle();
    assert_eq!(town.api.addresses("a"), addrs(&["192.0.2.1"]));
    keep_record(&mut town, &mut record);
    assert_eq!(record.unwrap().groups["default"].services["test/a"], addrs(&["192.0.2.1"]));
}

#[test]
fn whoever_is_found_on_record_asks_only_after_a_write_that_fences_the_last_leader() {
    let mut api = Api::default();
    api.create("a", json!({}));
    let mut town = Town::new(vec![group("default", 1, external("/a"), json!(null))], api);
    town.settle();
    assert!(matches!(town.desk.next_record(true, town.at), Some(Job::ReadRecord)));
    let found = RecordOutcome::Is(Some(("7".to_owned(), holders("default", "/a", &["a"]))));
    town.desk.done(Done::Record(found.clone()), town.now(), town.at);
    town.settle();
    assert!(asks(&mut town).is_empty(), "a late write of the last leader may still take it off the record");
    let Some(Job::WriteRecord { body, create: false }) = town.desk.next_record(false, town.at) else { panic!() };
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    town.desk.done(Done::Record(RecordOutcome::Unsure), town.now(), town.at);
    town.settle();
    assert!(asks(&mut town).is_empty(), "nobody knows what the record says");
    town.wait(Duration::from_secs(1));
    assert!(matches!(town.desk.next_record(false, town.at), Some(Job::ReadRecord)));
    town.desk.done(Done::Record(found.clone()), town.now(), town.at);
    assert!(matches!(town.desk.next_record(false, town.at), Some(Job::WriteRecord { .. })));
    town.desk.done(Done::Record(found), town.now(), town.at);
    town.settle();
    assert_eq!(asks(&mut town).len(), 1);
}

#[test]
fn without_a_record_no_ipam_is_asked_and_the_service_is_told_why() {
    let mut api = Api::default();
    api.create("a", json!({}));
    let mut town = Town::new(vec![group("default", 1, external("/a"), json!(null))], api);
    town.settle();
    let mut calls = 0;
    let end = town.at + Duration::from_secs(600);
    while town.at < end {
        while town.desk.next_record(true, town.at).is_some() {
            calls += 1;
            let refused = RecordOutcome::Refused("configmaps is forbidden".to_owned());
            town.desk.done(Done::Record(refused), town.now(), town.at);
            town.settle();
        }
        assert!(asks(&mut town).is_empty());
        town.at = town.desk.next_wake(town.at).expect("it is tried again");
    }
    assert!((8..40).contains(&calls), "{calls}");
    let told = &town.api.services["a"]["status"]["conditions"][0];
    assert_eq!(told["reason"], "HoldersUnrecorded");
    assert!(told["message"].as_str().unwrap().contains("configmaps is forbidden"), "{told}");
    keep_record(&mut town, &mut None);
    assert_eq!(asks(&mut town).len(), 1, "as soon as it can be kept");
}

#[test]
fn b6_a_silent_ipam_has_few_calls_under_way_and_others_are_served() {
    let groups = vec![
        group("slow", 1, external("/slow"), json!(null)),
        group("quick", 1, external("/quick"), json!(null)),
        group("default", 1, local("10.0.0.8/29"), json!(null)),
    ];
    let mut api = Api::default();
    for n in 0..8 {
        api.create(&format!("s{n}"), json!({"purelb.io/service-group": "slow"}));
    }
    api.create("q", json!({"purelb.io/service-group": "quick"}));
    let mut town = recorded(groups, api);
    let calls: Vec<_> = std::iter::from_fn(|| town.desk.next_external(town.at)).collect();
    let asked = |socket: &str| {
        calls.iter().filter(|job| matches!(job, Job::Ask { request, .. } if request.socket == socket)).count()
    };
    assert!(asked("/slow") <= externals::AT_ONCE, "{calls:?}");
    assert_eq!(asked("/quick"), 1, "another IPAM has a line of its own");
    town.create("plain");
    town.settle();
    assert_eq!(town.api.addresses("plain"), addrs(&["10.0.0.8"]), "bug-6");
}

#[test]
fn an_ipam_that_is_silent_is_asked_with_growing_pauses_and_at_once_when_it_answers_others() {
    let mut town = asking_town();
    let silence = || {
        let reason = Reason::ExternalFailed { group: "default".to_owned(), why: "silence".to_owned() };
        Outcome::Answer(Err(NoAddress { reason, silent: true }))
    };
    let end = town.at + Duration::from_secs(600);
    let mut calls = 0;
    while town.at < end {
        for ask in asks(&mut town) {
            calls += 1;
            town.done(&ask, silence());
        }
        town.settle();
        town.at = town.desk.next_wake(town.at).expect("it is asked again");
        town.settle();
        assert!(calls < 40, "a hot loop");
    }
    assert!(calls > 8, "{calls}");
    for ask in asks(&mut town) {
        town.done(&ask, silence());
    }
    town.settle();
    assert!(asks(&mut town).is_empty(), "it pauses");
    town.desk.done(Done::Counted("/a".to_owned(), "default".to_owned(), Ok(Stock::default())), town.now(), town.at);
    town.settle();
    assert_eq!(asks(&mut town).len(), 1, "it is there again");
}

#[rstest::rstest]
#[case::the_group_is_there(vec![group("default", 1, external("/a"), json!(null))])]
#[case::the_group_was_deleted_meanwhile(Vec::new())]
fn b28_whoever_is_on_record_and_gone_is_given_back_by_the_next_leader(#[case] groups: Vec<GroupObject>) {
    let mut town = Town::new(groups, Api::default());
    town.settle();
    let mut record = Some(holders("default", "/a", &["gone"]));
    keep_record(&mut town, &mut record);
    let calls = asks(&mut town);
    let expected =
        Release { socket: "/a".to_owned(), group: "default".to_owned(), service: "test/gone".into(), addr: None };
    assert!(matches!(&calls[..], [Job::Release(release)] if *release == expected), "{calls:?}");
    town.desk.done(Done::Released(expected.clone(), Err(silence())), town.now(), town.at);
    assert!(asks(&mut town).is_empty());
    town.wait(Duration::from_secs(1));
    assert_eq!(asks(&mut town).len(), 1, "it is told again");
    town.desk.done(Done::Released(expected, Ok(())), town.now(), town.at);
    assert_eq!(town.desk.external_holders().count(), 0);
    keep_record(&mut town, &mut record);
    assert_eq!(record, Some(Holders::default()));
}

#[test]
fn an_address_that_nobody_can_use_is_given_back_without_a_hot_loop() {
    let mut town = asking_town();
    town.hear(News::Node(Change::Here(NodeView {
        name: "n1".to_owned(),
        addresses: addrs(&["192.0.2.9"]),
        labels: BTreeMap::new(),
    })));
    let end = town.at + Duration::from_secs(300);
    let (mut calls, mut released) = (0, 0);
    while town.at < end {
        while let Some(job) = asks(&mut town).pop() {
            calls += 1;
            match job {
                Job::Release(release) => {
                    assert_eq!(release.addr, Some("192.0.2.9".parse().unwrap()));
                    released += 1;
                    town.desk.done(Done::Released(release, Ok(())), town.now(), town.at);
                }
                ask => town.done(&ask, Outcome::Answer(Ok(addrs(&["192.0.2.9"])))),
            }
            town.settle();
        }
        assert!(calls < 60, "a hot loop");
        town.at = town.desk.next_wake(town.at).expect("it is asked again");
        town.settle();
    }
    assert!(released > 3, "{released}");
    assert!(town.api.addresses("a").is_empty());
}

#[test]
fn deleted_while_its_ipam_is_asked_a_service_leaves_nothing_behind() {
    let mut town = asking_town();
    let ask = asks(&mut town).remove(0);
    let last = town.delete("a");
    town.tell_gone(last);
    town.done(&ask, Outcome::Answer(Ok(addrs(&["192.0.2.1"]))));
    town.settle();
    assert!(matches!(&asks(&mut town)[..], [Job::Release(release)] if release.addr.is_none()));
}

#[test]
fn recreated_while_it_is_given_back_a_service_asks_when_that_is_over() {
    let mut town = asking_town();
    let ask = asks(&mut town).remove(0);
    town.done(&ask, Outcome::Answer(Ok(addrs(&["192.0.2.1"]))));
    town.settle();
    let last = town.delete("a");
    town.tell_gone(last);
    town.settle();
    let Some(Job::Release(release)) = asks(&mut town).pop() else { panic!() };
    town.create("a");
    town.settle();
    assert!(asks(&mut town).is_empty(), "the release could come after the question");
    town.desk.done(Done::Released(release, Ok(())), town.now(), town.at);
    town.settle();
    assert!(matches!(&asks(&mut town)[..], [Job::Ask { .. }]));
}

/// Two groups of two IPAMs, and a local one.
pub(super) fn two_groups() -> Vec<GroupObject> {
    vec![
        group("left", 1, external("/left"), json!(null)),
        group("right", 1, external("/right"), json!(null)),
        group("default", 1, local("10.0.0.8/29"), json!(null)),
    ]
}

/// A town with these groups, and one Service with an address of each.
pub(super) fn two_ipams() -> Town {
    let mut api = Api::default();
    api.create("l", json!({"purelb.io/service-group": "left"}));
    api.create("r", json!({"purelb.io/service-group": "right"}));
    api.create("plain", json!({}));
    let mut town = recorded(two_groups(), api);
    for ask in asks(&mut town) {
        let Job::Ask { service, .. } = &ask else { panic!("{ask:?}") };
        let given = if &**service == "test/l" { "192.0.2.1" } else { "192.0.2.2" };
        town.done(&ask, Outcome::Answer(Ok(addrs(&[given]))));
    }
    town.settle();
    town
}

pub(super) fn delete(town: &mut Town, name: &str) {
    let last = town.delete(name);
    town.tell_gone(last);
    town.settle();
}

pub(super) fn releases(calls: &[Job]) -> Vec<(&str, &str)> {
    let release = |job: &Job| matches!(job, Job::Release(_));
    assert!(calls.iter().all(release), "{calls:?}");
    let parts = calls.iter().filter_map(|job| match job {
        Job::Release(release) => Some((release.socket.as_str(), &*release.service)),
        _ => None,
    });
    parts.collect()
}

#[test]
fn rel_2_and_4_only_the_ipam_that_gave_is_told() {
    let mut town = two_ipams();
    delete(&mut town, "plain");
    assert!(asks(&mut town).is_empty(), "who had a local address costs no call");
    town.create("plain");
    town.settle();
    assert!(asks(&mut town).is_empty(), "b6: nor does who is new");
    town.api.edit("l", json!({"metadata": {"annotations": {"purelb.io/allocated-from": "no such group"}}}));
    town.tell("l");
    town.settle();
    assert!(asks(&mut town).is_empty(), "l still has its address");
    delete(&mut town, "l");
    assert_eq!(
        releases(&asks(&mut town)),
        [("/left", "test/l")],
        "an annotation that was tampered with changes nothing"
    );
}

#[test]
fn rel_3_an_ipam_that_cannot_be_told_keeps_no_other_from_being_told() {
    let mut town = two_ipams();
    delete(&mut town, "l");
    delete(&mut town, "r");
    let calls = asks(&mut town);
    assert_eq!(releases(&calls), [("/left", "test/l"), ("/right", "test/r")]);
    for (job, result) in calls.into_iter().zip([Err(silence()), Ok(())]) {
        let Job::Release(release) = job else { panic!() };
        town.desk.done(Done::Released(release, result), town.now(), town.at);
    }
    let left: Vec<_> = town.desk.external_holders().map(|(service, _)| service.to_string()).collect();
    assert_eq!(left, ["test/l"], "what is owed is not forgotten");
}

#[test]
fn a_service_that_lives_on_is_told_once_that_its_old_address_could_not_be_given_back() {
    let mut town = two_ipams();
    let spec = json!({"spec": {"ipFamilies": ["IPv4", "IPv6"]}});
    town.api.edit("l", spec);
    town.tell("l");
    town.settle();
    let ask = asks(&mut town).remove(0);
    town.done(&ask, Outcome::Answer(Ok(addrs(&["192.0.2.1", "2001:db8::1"]))));
    town.settle();
    assert_eq!(town.api.addresses("l").len(), 2);
    town.api.edit("l", json!({"spec": {"ipFamilies": ["IPv6"]}}));
    town.tell("l");
    town.settle();
    for round in 0..3 {
        let Some(Job::Release(release)) = asks(&mut town).pop() else { panic!("round {round}") };
        assert_eq!(release.addr, Some("192.0.2.1".parse().unwrap()));
        town.desk.done(Done::Released(release, Err(refusal("no such socket"))), town.now(), town.at);
        assert!(town.job().is_none());
        let [(_, notice)] = &town.told[..] else { panic!("round {round}: {:?}", town.told) };
        let message = "Failed to release addresses after IP family transition: no such socket";
        assert_eq!((notice.reason, notice.message.as_str()), ("ReleaseFailed", message));
        town.wait(Duration::from_secs(60));
    }
}

#[test]
fn sts_7_an_ipam_is_asked_how_full_it_is_once_and_then_only_after_a_change() {
    let counts = |town: &mut Town| -> usize {
        let calls: Vec<_> = std::iter::from_fn(|| town.desk.next_external(town.at)).collect();
        let mut counts = 0;
        for call in calls {
            if let Job::Count { socket, group } = call {
                counts += 1;
                town.desk.done(Done::Counted(socket, group, Ok(Stock::default())), town.now(), town.at);
            }
        }
        counts
    };
    let mut town = Town::new(vec![group("default", 1, external("/a"), json!(null))], Api::default());
    town.settle();
    assert_eq!(counts(&mut town), 1, "cold");
    for _ in 0..3 {
        town.wait(Duration::from_secs(60));
        town.desk.tick(town.at);
        drop(town.desk.statuses(town.now(), town.at));
        assert_eq!(counts(&mut town), 0, "warm");
    }
}

#[test]
fn a_release_that_was_refused_is_not_waited_for_once_it_is_no_longer_due() {
    let mut town = asking_town();
    let ask = asks(&mut town).remove(0);
    town.done(&ask, Outcome::Answer(Ok(addrs(&["192.0.2.1"]))));
    town.settle();
    delete(&mut town, "a");
    let Some(Job::Release(release)) = asks(&mut town).pop() else { panic!() };
    town.desk.done(Done::Released(release, Err(refusal("no"))), town.now(), town.at);
    assert!(town.desk.next_wake(town.at).is_some(), "it is told again");
    // The namesake wants what was to be given back.
    town.create("a");
    town.settle();
    let asked = asks(&mut town);
    assert!(matches!(&asked[..], [Job::Ask { .. }]), "{asked:?}");
    assert_eq!(town.desk.next_wake(town.at), None, "there is nothing to wait for but the answer");
    delete(&mut town, "a");
    town.done(&asked[0], Outcome::Answer(Ok(addrs(&["192.0.2.1"]))));
    town.settle();
    let Some(Job::Release(release)) = asks(&mut town).pop() else { panic!() };
    town.desk.done(Done::Released(release, Ok(())), town.now(), town.at);
    assert!(town.desk.externals.release_pauses.is_empty(), "nothing is remembered of who holds nothing");
}

#[test]
fn what_finds_no_room_at_a_socket_is_waited_for_without_a_spin() {
    let names: Vec<_> = (0..=externals::AT_ONCE).map(|n| format!("gone{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut town = Town::new(vec![group("default", 1, external("/a"), json!(null))], Api::default());
    town.settle();
    keep_record(&mut town, &mut Some(holders("default", "/a", &names)));
    let Some(Job::Release(first)) = town.desk.next_external(town.at) else { panic!() };
    town.desk.done(Done::Released(first, Err(silence())), town.now(), town.at);
    let hanging: Vec<_> = std::iter::from_fn(|| town.desk.next_external(town.at)).collect();
    assert_eq!(hanging.len(), externals::AT_ONCE);
    town.at = town.desk.next_wake(town.at).expect("the first is told again");
    assert!(town.desk.next_external(town.at).is_none(), "there is no room");
    assert_eq!(town.desk.next_wake(town.at), None, "room comes when a call ends, and not with time");
    let Job::Release(hung) = &hanging[0] else { panic!() };
    town.desk.done(Done::Released(hung.clone(), Ok(())), town.now(), town.at);
    assert!(matches!(town.desk.next_external(town.at), Some(Job::Release(_))), "now there is");
}

#[test]
fn a_release_of_which_nobody_knows_whether_it_was_done_is_confirmed_before_anything_is_asked() {
    let mut town = asking_town();
    let ask = asks(&mut town).remove(0);
    town.done(&ask, Outcome::Answer(Ok(addrs(&["192.0.2.1"]))));
    town.settle();
    delete(&mut town, "a");
    let Some(Job::Release(release)) = asks(&mut town).pop() else { panic!() };
    town.desk.done(Done::Released(release.clone(), Err(silence())), town.now(), town.at);
    town.create("a");
    town.settle();
    assert!(asks(&mut town).is_empty(), "what is given now, the late release would free");
    let told = &town.api.services["a"]["status"]["conditions"][0]["message"];
    assert!(told.as_str().unwrap().contains("has not confirmed"), "{told}");
    for outcome in [Err(refusal("busy")), Ok(())] {
        town.wait(Duration::from_secs(60));
        let calls = asks(&mut town);
        assert!(matches!(&calls[..], [Job::Release(again)] if *again == release), "{calls:?}");
        town.desk.done(Done::Released(release.clone(), outcome), town.now(), town.at);
        town.settle();
    }
    assert!(matches!(&asks(&mut town)[..], [Job::Ask { .. }]));
}

#[test]
fn an_address_that_was_dropped_by_a_write_whose_answer_was_lost_is_given_back() {
    let mut town = two_ipams();
    town.api.edit("l", json!({"spec": {"ipFamilies": ["IPv4", "IPv6"]}}));
    town.tell("l");
    town.settle();
    let ask = asks(&mut town).remove(0);
    town.done(&ask, Outcome::Answer(Ok(addrs(&["192.0.2.1", "2001:db8::1"]))));
    town.settle();
    town.api.edit("l", json!({"spec": {"ipFamilies": ["IPv4"]}}));
    town.tell("l");
    let shrink = town.job().unwrap();
    assert_eq!(given(&shrink), Some(vec!["192.0.2.1"]));
    town.carry_out(&shrink);
    town.done(&shrink, UNKNOWN());
    for _ in 0..2 {
        town.wait(Duration::from_secs(1));
        town.settle();
    }
    assert_eq!(town.api.addresses("l"), addrs(&["192.0.2.1"]));
    let calls = asks(&mut town);
    let dropped = Some("2001:db8::1".parse().unwrap());
    assert!(matches!(&calls[..], [Job::Release(release)] if release.addr == dropped), "{calls:?}");
}

#[test]
fn what_is_given_back_makes_a_few_ask_again_and_each_who_gets_something_one_more() {
    let mut api = Api::default();
    (0..50).for_each(|n| api.create(&format!("s{n:02}"), json!({})));
    let mut town = recorded(vec![group("default", 1, external("/a"), json!(null))], api);
    let full = || {
        let reason = Reason::ExternalFailed { group: "default".to_owned(), why: "full".to_owned() };
        Outcome::Answer(Err(NoAddress { reason, silent: false }))
    };
    let mut free = vec!["192.0.2.1"];
    let answer_all = |town: &mut Town, free: &mut Vec<&str>| {
        let mut asked = Vec::new();
        loop {
            let calls = asks(town);
            if calls.is_empty() {
                return asked;
            }
            for ask in calls {
                let Job::Ask { service, .. } = &ask else { panic!("{ask:?}") };
                asked.push(service.clone());
                let answer = free.pop().map_or_else(full, |addr| Outcome::Answer(Ok(addrs(&[addr]))));
                town.done(&ask, answer);
                town.settle();
            }
        }
    };
    assert!(answer_all(&mut town, &mut free).len() >= 50, "each asks for itself at first");
    let holder = town.api.services.keys().find(|name| !town.api.addresses(name).is_empty()).unwrap().clone();
    delete(&mut town, &holder);
    let Some(Job::Release(release)) = asks(&mut town).pop() else { panic!() };
    town.desk.done(Done::Released(release, Ok(())), town.now(), town.at);
    town.settle();
    let mut free = vec!["192.0.2.1"];
    let asked = answer_all(&mut town, &mut free);
    assert!(free.is_empty() && asked.len() <= externals::AT_ONCE + 1, "{asked:?}");
}
