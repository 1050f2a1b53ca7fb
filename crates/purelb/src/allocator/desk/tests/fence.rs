//! The start of a term: what the last leader has sent may still arrive, and must do no harm.

use rstest::rstest;

use super::*;

/// How long an API server works on a write at most, whether its client is still there or not, and then some for etcd.
pub const LIFE_OF_A_WRITE: Duration = Duration::from_secs(40);

fn pool() -> Vec<GroupObject> {
    vec![group("default", 1, local("10.0.0.8/29"), json!(null))]
}

#[test]
fn nothing_is_decided_before_every_service_that_may_receive_an_address_is_touched() {
    let mut api = Town::served("10.0.0.8/29", &["served"]).api;
    api.create("a", json!({}));
    api.create("b", json!({}));
    let mut town = Town::new(vec![group("default", 1, local("10.0.0.8/29"), json!(null))], api);
    let touches = town.jobs();
    assert_eq!(
        touches.iter().map(given).collect::<Vec<_>>(),
        [None, None],
        "two touches, none for the one that is served"
    );
    town.create("later");
    for touch in &touches {
        assert!(!town.desk.is_deciding() && town.job().is_none(), "one is not touched yet");
        let outcome = town.carry_out(touch);
        town.done(touch, outcome);
    }
    assert!(town.desk.is_deciding());
    town.settle();
    let mut all = ["served", "a", "b", "later"].map(|name| town.api.addresses(name)).concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 4);
}

#[test]
fn a_write_of_the_last_leader_that_arrives_late_meets_the_fence() {
    let mut last = Town::served("10.0.0.8/32", &[]);
    last.create("z");
    let late = last.job().unwrap();
    last.api.create("b", json!({}));
    let mut town = last.succeeded(vec![group("default", 1, local("10.0.0.8/32"), json!(null))]);
    // As far as `b`, before anything is decided about `z`.
    while town.api.addresses("b").is_empty() {
        let job = town.job().unwrap();
        let outcome = town.carry_out(&job);
        town.done(&job, outcome);
    }
    assert!(matches!(town.carry_out(&late), Outcome::Conflict), "10.0.0.8 would have two holders");
}

/// Two ranges, each in the subnet of some nodes.
fn two_ranges(version: u64, multi_pool: bool) -> GroupObject {
    let pools = [
        json!({"pool": "10.0.0.8/32", "subnet": "10.0.0.0/24"}),
        json!({"pool": "10.0.1.8/31", "subnet": "10.0.1.0/24"}),
    ];
    group("default", version, json!({"local": {"v4pools": pools, "multiPool": multi_pool}}), json!(null))
}

fn alive(subnets: &[&str]) -> News {
    let subnets = subnets.iter().map(|subnet| subnet.parse().unwrap()).collect();
    let renewed = Some((Timestamp::UNIX_EPOCH, Duration::from_secs(3600)));
    News::Lease(Change::Here(Some(AgentLease { node: "n1".to_owned(), subnets, renewed, ..AgentLease::default() })))
}

#[rstest]
#[case::switched_off(vec![two_ranges(2, false)])]
#[case::deleted(vec![group("other", 1, local("10.0.1.8/31"), json!(null))])]
fn an_address_of_a_further_range_that_is_under_way_meets_the_fence_whatever_became_of_the_group(
    #[case] groups: Vec<GroupObject>,
) {
    let mut last = Town::new(vec![two_ranges(1, true)], Api::default());
    last.hear(alive(&["10.0.0.0/24"]));
    last.create("a");
    last.settle();
    assert_eq!(last.api.addresses("a"), addrs(&["10.0.0.8"]));
    last.hear(alive(&["10.0.0.0/24", "10.0.1.0/24"]));
    let late = last.job().unwrap();
    assert_eq!(given(&late), Some(vec!["10.0.0.8", "10.0.1.8"]));
    let mut town = last.succeeded(groups);
    town.settle();
    assert!(matches!(town.carry_out(&late), Outcome::Conflict), "somebody else may get 10.0.1.8 now");
}

/// Three ranges that every node has.
fn three_ranges(version: u64, generation: u64, multi_pool: bool, observed: Value) -> GroupObject {
    let pools = ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"].map(|pool| json!({"pool": pool, "subnet": "10.0.0.0/8"}));
    let spec = json!({"remote": {"v4pools": pools, "multiPool": multi_pool}});
    let valid = json!({
        "type": "Valid", "status": "True", "reason": "Parsed", "message": "", "observedGeneration": observed,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({"allocatedIPv4": 0, "allocatedIPv6": 0, "conditions": [valid]});
    group_of_generation("default", (version, generation), spec, status)
}

#[test]
fn ten_thousand_content_services_of_a_group_of_three_ranges_cost_no_touch() {
    let mut last = Town::new(vec![three_ranges(1, 1, false, json!(1))], Api::default());
    (0..10_000).for_each(|n| last.create(&format!("s{n:04}")));
    last.settle();
    let town = last.succeeded(vec![three_ranges(1, 1, false, json!(1))]);
    assert!(town.desk.is_deciding(), "nothing that is under way can change any of them");
}

/// What the group's status says of its generation, in the last write of it.
fn observed(town: &mut Town) -> Option<Value> {
    let jobs = town.desk.statuses(town.now(), town.at).into_iter();
    let patches = jobs.filter_map(|job| match job {
        Job::PatchGroup { patch, .. } => Some(patch["status"]["conditions"][0]["observedGeneration"].clone()),
        _ => None,
    });
    patches.last()
}

#[test]
fn an_address_of_a_further_range_that_is_under_way_meets_the_fence_in_a_group_that_is_settled() {
    let mut last = Town::new(vec![three_ranges(1, 1, false, json!(1))], Api::default());
    last.create("a");
    last.settle();
    assert_eq!(last.api.addresses("a").len(), 1);
    let on = || three_ranges(2, 2, true, json!(2));
    last.hear(News::Group(Change::Here(Box::new(on()))));
    let late = last.job().unwrap();
    assert_eq!(given(&late).unwrap().len(), 3);
    let mut town = last.succeeded(vec![on()]);
    town.settle();
    assert!(matches!(town.carry_out(&late), Outcome::Conflict), "somebody else may have got 10.2.0.0 meanwhile");
}

#[test]
fn a_group_is_settled_only_when_no_write_of_an_earlier_form_is_under_way() {
    let mut last = Town::new(vec![three_ranges(1, 1, false, json!(1))], Api::default());
    last.create("a");
    last.settle();
    last.hear(News::Group(Change::Here(Box::new(three_ranges(2, 2, true, json!(1))))));
    let late = last.job().unwrap();
    last.done(&late, UNKNOWN());
    last.hear(News::Group(Change::Here(Box::new(three_ranges(3, 3, false, json!(1))))));
    assert_eq!(observed(&mut last), Some(Value::Null), "10.2.0.0 may be on its way to a, by the second form");
    let mut town = last.succeeded(vec![three_ranges(4, 3, false, Value::Null)]);
    town.settle();
    assert!(matches!(town.carry_out(&late), Outcome::Conflict));
    assert_eq!(observed(&mut town), Some(json!(3)), "now nothing of an earlier form is left");
}

#[test]
fn a_pending_service_that_is_touched_is_pending_since_now() {
    let (at, now) = (Instant::now(), "2026-11-18T01:02:03Z".parse().unwrap());
    let mut api = Api::default();
    api.create("a", json!({}));
    let mut desk = desk(1, at);
    opening(pool(), &api).into_iter().for_each(|news| desk.hear(news, now, at));
    let Some(Job::Patch { patch, .. }) = desk.next_job(now, at) else { panic!("a touch") };
    assert_eq!(patch["status"]["conditions"][0]["lastTransitionTime"], "2026-11-18T01:02:03Z");
}

#[test]
fn a_touch_that_conflicts_is_read_and_touched_again() {
    let mut api = Api::default();
    api.create("a", json!({}));
    let mut town = Town::new(vec![group("default", 1, local("10.0.0.8/29"), json!(null))], api);
    let touch = town.job().unwrap();
    town.api.edit("a", json!({"metadata": {"labels": {"x": "y"}}}));
    let outcome = town.carry_out(&touch);
    town.done(&touch, outcome);
    let read = town.job().unwrap();
    assert!(is_read(&read));
    let outcome = town.carry_out(&read);
    town.done(&read, outcome);
    assert!(!town.desk.is_deciding(), "read is not touched");
    assert_eq!(given(&town.job().unwrap()), None, "so it is touched again");
}

/// A leader that has sent an address to `d`, and is then succeeded by another; the write is still under way.
fn succeeded_during_a_write() -> (Town, Job) {
    let mut last = Town::served("10.0.0.8/29", &[]);
    last.create("d");
    let late = last.job().unwrap();
    assert_eq!(given(&late), Some(vec!["10.0.0.8"]));
    (last.succeeded(pool()), late)
}

#[test]
fn a_refused_touch_does_not_let_a_late_write_give_an_address_to_a_second_service() {
    let (mut town, late) = succeeded_during_a_write();
    let touch = town.job().unwrap();
    town.done(&touch, REFUSED());
    town.create("a");
    assert!(town.job().is_none() && !town.desk.is_deciding(), "10.0.0.8 may be on its way to d");
    town.wait(LIFE_OF_A_WRITE);
    assert!(matches!(town.carry_out(&late), Outcome::Is(_)), "what is refused to one leader is not refused to all");
    town.settle();
    assert_eq!((town.api.addresses("d"), town.api.addresses("a")), (addrs(&["10.0.0.8"]), addrs(&["10.0.0.9"])));
    assert!(town.desk.untouched().is_empty());
}

#[rstest]
#[case::refused(REFUSED())]
#[case::unknown(UNKNOWN())]
fn who_can_never_be_touched_keeps_others_waiting_once_and_not_for_good(#[case] trouble: Outcome) {
    let (mut town, _) = succeeded_during_a_write();
    town.create("a");
    let (begun, mut attempts) = (town.at, 0);
    while !town.desk.is_deciding() {
        while let Some(job) = town.job().filter(|_| !town.desk.is_deciding()) {
            let outcome = if is_read(&job) { town.carry_out(&job) } else { trouble.clone() };
            attempts += usize::from(!is_read(&job));
            town.done(&job, outcome);
        }
        assert!(attempts < 20, "a hot loop");
        town.at = town.desk.next_wake(town.at).expect("something is to happen").max(town.at);
    }
    let waited = town.at - begun;
    assert!(waited > LIFE_OF_A_WRITE && waited < LIFE_OF_A_WRITE * 2, "{waited:?}");
    assert!(attempts > 3, "it may be a passing trouble");
    assert_eq!(town.desk.untouched().iter().map(|key| &**key).collect::<Vec<_>>(), ["test/d"]);
    town.create("b");
    town.settle();
    assert_eq!(town.api.addresses("b").len(), 1, "nobody else waits any longer");
}

#[test]
fn ten_thousand_services_at_start_cost_one_touch_and_one_write_for_each_that_waits() {
    const HALF: usize = 5000;
    let names = |prefix: &'static str| (0..HALF).map(move |n| format!("{prefix}{n:04}"));
    let large = || vec![group("default", 1, local("10.0.64.0/18"), json!(null))];
    let mut last = Town::new(large(), Api::default());
    for name in names("served") {
        last.create(&name);
    }
    last.settle();
    let mut api = last.api;
    names("waits").for_each(|name| api.create(&name, json!({})));
    let mut town = Town::new(large(), api);
    let mut writes: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    while let Some(job) = town.job() {
        let Job::Patch { service, .. } = &job else { panic!("{job:?}") };
        writes.entry(name(service).to_owned()).or_default().push(given(&job).is_some());
        let outcome = town.carry_out(&job);
        town.done(&job, outcome);
    }
    assert_eq!(writes.keys().cloned().collect::<Vec<_>>(), names("waits").collect::<Vec<_>>(), "nobody else");
    assert!(writes.values().all(|writes| *writes == [false, true]), "a touch and a write");
    let all = town.api.balancers();
    let addresses: BTreeSet<IpAddr> = all.iter().flat_map(|record| record.view.addresses()).collect();
    assert_eq!((all.len(), addresses.len()), (2 * HALF, 2 * HALF), "no address twice");
}

#[test]
fn nobody_waits_for_the_last_leader_longer_than_it_takes_to_touch() {
    let (mut town, late) = succeeded_during_a_write();
    town.create("a");
    town.settle();
    assert_eq!((town.api.addresses("d").len(), town.api.addresses("a").len()), (1, 1));
    assert!(matches!(town.carry_out(&late), Outcome::Conflict));
}
