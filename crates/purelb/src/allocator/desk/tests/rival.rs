//! A leader whose machine was paused together with its clock: another has led meanwhile.

use super::*;
use crate::cluster::leader::Answer;

fn pool() -> Vec<GroupObject> {
    vec![group("default", 1, local("10.0.0.8/32"), json!(null))]
}

/// The last leader has sent the only address to `z` and was paused; the next one has touched `b` and `z` and given the address
/// to `b`. The last one wakes up, and is answered.
fn woken() -> Town {
    let mut last = Town::served("10.0.0.8/32", &[]);
    last.create("z");
    let late = last.job().unwrap();
    assert_eq!(given(&late), Some(vec!["10.0.0.8"]));
    let (asleep, at) = (last.desk, last.at);
    last.api.create("b", json!({}));
    let mut next = Town { api: last.api, desk: desk(2, at), at, told: Vec::new() };
    next.open(pool());
    next.settle();
    assert_eq!(next.api.addresses("b"), addrs(&["10.0.0.8"]));
    let mut town = Town { api: next.api, desk: asleep, at, told: Vec::new() };
    let outcome = town.carry_out(&late);
    assert!(matches!(outcome, Outcome::Conflict));
    town.done(&late, outcome);
    let read = town.job().unwrap();
    assert!(is_read(&read));
    let outcome = town.carry_out(&read);
    town.done(&read, outcome);
    town
}

#[test]
fn who_wakes_up_after_another_has_led_writes_nothing_out_of_its_old_book() {
    let mut town = woken();
    assert!(matches!(town.job(), Some(Job::Confirm)), "z names a later term");
    assert!(town.job().is_none() && town.desk.has_rival(), "and nothing is done before the lease has answered");
    town.desk.done(Done::Confirmed(Answer::Over), town.now(), town.at);
    town.wait(Duration::from_secs(60));
    assert!(town.job().is_none());
}

#[test]
fn the_lease_is_asked_until_it_answers() {
    let mut town = woken();
    town.job().unwrap();
    town.desk.done(Done::Confirmed(Answer::Unknown), town.now(), town.at);
    assert!(town.job().is_none(), "after a pause");
    town.at = town.desk.next_wake(town.at).expect("it is asked again");
    assert!(matches!(town.job(), Some(Job::Confirm)));
}

#[test]
fn a_later_term_that_nobody_leads_in_stops_nobody_for_good() {
    let mut town = Town::served("10.0.0.8/29", &[]);
    town.create("a");
    town.settle();
    let forged = json!({
        "type": "purelb.io/AddressAssigned", "status": "False", "reason": "Exhausted", "message": "no (allocator term 99)",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    town.api.create("b", json!({}));
    town.api.edit("b", json!({"status": {"conditions": [forged]}}));
    assert_eq!(town.api.record("b").term, Some(99), "as terms are written");
    town.tell("b");
    assert!(matches!(town.job(), Some(Job::Confirm)));
    town.desk.done(Done::Confirmed(Answer::Leads), town.now(), town.at);
    town.settle();
    assert_eq!(town.api.addresses("b").len(), 1);
}
