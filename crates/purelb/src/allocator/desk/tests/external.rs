//! External IPAMs on the desk: who is on record, who may call, and that a slow IPAM costs nobody else anything.

use purelb_core::reason::Reason;

use super::*;
use crate::allocator::job::{GroupOutcome, NoAddress, Release};

fn external(socket: &str) -> Value {
    json!({"external": {"provider": "acme", "socket": socket, "announce": "local"}})
}

fn holders(names: &[&str]) -> Value {
    let holders: Vec<_> = names.iter().map(|name| json!({"service": format!("test/{name}")})).collect();
    json!({"allocatedIPv4": 0, "allocatedIPv6": 0, "holders": holders})
}

fn asks(town: &mut Town) -> Vec<Job> {
    std::iter::from_fn(|| town.desk.next_external(town.at)).filter(|job| !matches!(job, Job::Count { .. })).collect()
}

/// The API server writes the statuses the desk wants written.
fn write_statuses(town: &mut Town, version: u64, spec: &Value) {
    for job in town.desk.statuses(town.now(), town.at) {
        let Job::PatchGroup { group: meta, patch, .. } = job else { panic!() };
        let name = meta.name.unwrap();
        let written = GroupOutcome::Is(Box::new(group(&name, version, spec.clone(), patch["status"].clone())));
        town.desk.done(Done::Group("home".to_owned(), name, written), town.now(), town.at);
    }
}

fn asking_town() -> Town {
    let mut api = Api::default();
    api.create("a", json!({}));
    let mut town = Town::new(vec![group("default", 1, external("/a"), holders(&["a"]))], api);
    town.settle();
    town
}

#[test]
fn an_ipam_is_asked_only_when_the_service_is_a_holder_on_record() {
    let spec = external("/a");
    let mut town = Town::new(vec![group("default", 1, spec.clone(), json!(null))], Api::default());
    town.create("a");
    assert!(town.job().is_none() && asks(&mut town).is_empty());
    assert!(town.desk.has_urgent_status(town.at));
    write_statuses(&mut town, 2, &spec);
    assert!(town.job().is_none());
    let asked = asks(&mut town);
    assert!(matches!(&asked[..], [Job::Ask { service, .. }] if &**service == "test/a"), "{asked:?}");
    town.done(&asked[0], Outcome::Answer(Ok(addrs(&["192.0.2.1"]))));
    town.settle();
    assert_eq!(town.api.addresses("a"), addrs(&["192.0.2.1"]));
}

#[test]
fn b6_a_silent_ipam_has_few_calls_under_way_and_others_are_served() {
    let groups = vec![
        group("slow", 1, external("/slow"), holders(&["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"])),
        group("quick", 1, external("/quick"), holders(&["q"])),
        group("default", 1, local("10.0.0.8/29"), json!(null)),
    ];
    let mut api = Api::default();
    for n in 0..8 {
        api.create(&format!("s{n}"), json!({"purelb.io/service-group": "slow"}));
    }
    api.create("q", json!({"purelb.io/service-group": "quick"}));
    let mut town = Town::new(groups, api);
    town.settle();
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
        town.at = town.desk.next_wake().expect("it is asked again");
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

#[test]
fn b28_whoever_is_on_record_and_gone_is_given_back_by_the_next_leader() {
    let mut town = Town::new(vec![group("default", 1, external("/a"), holders(&["gone"]))], Api::default());
    town.settle();
    let calls = asks(&mut town);
    let expected =
        Release { socket: "/a".to_owned(), group: "default".to_owned(), service: "test/gone".into(), addr: None };
    assert!(matches!(&calls[..], [Job::Release(release)] if *release == expected), "{calls:?}");
    town.desk.done(Done::Released(expected.clone(), Err("silence".to_owned())), town.now(), town.at);
    assert!(asks(&mut town).is_empty());
    town.wait(Duration::from_secs(1));
    assert_eq!(asks(&mut town).len(), 1, "it is told again");
    town.desk.done(Done::Released(expected, Ok(())), town.now(), town.at);
    assert_eq!(town.desk.external_holders().count(), 0);
    let jobs = town.desk.statuses(town.now(), town.at);
    assert!(matches!(&jobs[..], [Job::PatchGroup { patch, .. }] if patch["status"]["holders"].is_null()), "{jobs:?}");
}

#[test]
fn an_address_that_nobody_can_use_is_given_back_without_a_hot_loop() {
    let mut town = asking_town();
    town.hear(News::Node(Change::Here(NodeView { name: "n1".to_owned(), addresses: addrs(&["192.0.2.9"]) })));
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
        town.at = town.desk.next_wake().expect("it is asked again");
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
