//! What serves while an operator's edit is wrong.

use purelb_core::reason::Problem;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const GOOD: &str = "10.1.0.0/24";

fn local(pools: &[&str]) -> Value {
    let pools: Vec<_> = pools.iter().map(|pool| json!({"pool": pool, "subnet": "10.1.0.0/16"})).collect();
    json!({"local": {"v4pools": pools}})
}

fn object(spec: Value, last_valid: Value) -> GroupObject {
    let mut object = json!({
        "apiVersion": "purelb.io/v2", "kind": "ServiceGroup",
        "metadata": {"name": "edge", "namespace": "purelb", "generation": 5}, "spec": spec,
    });
    if !last_valid.is_null() {
        object["status"] = json!({"allocatedIPv4": 0, "allocatedIPv6": 0, "lastValid": last_valid});
    }
    serde_json::from_value(object).unwrap()
}

fn kept_form(spec: Value) -> Value {
    json!({"generation": 4, "spec": spec})
}

fn texts(reading: &Reading<Group>) -> Vec<&str> {
    let ranges = reading.value.as_ref().and_then(Group::ranges);
    ranges.map(|ranges| ranges.v4.iter().map(|entry| entry.text.as_str()).collect()).unwrap_or_default()
}

fn names(problems: &[Problem]) -> Vec<&str> {
    problems.iter().map(|problem| problem.reason.name()).collect()
}

#[test]
fn a_valid_group_is_in_force_as_it_is_written() {
    let (reading, earlier) = group_in_force(&object(local(&["10.1.5.0/24"]), kept_form(local(&[GOOD]))));
    assert_eq!((texts(&reading), earlier, names(&reading.problems)), (vec!["10.1.5.0/24"], false, vec![]));
}

#[test]
fn b37_an_edit_that_breaks_a_group_leaves_its_last_valid_form_in_force() {
    let broken = object(local(&["10.1.5.0/24", "nonsense"]), kept_form(local(&[GOOD])));
    let (reading, earlier) = group_in_force(&broken);
    assert_eq!((texts(&reading), earlier), (vec![GOOD], true));
    assert_eq!(names(&reading.problems), ["RangeSyntax"], "the problems are those of the edit");
    assert_eq!(last_valid(&broken).unwrap().generation, 4, "and the form stays");
}

#[rstest]
#[case::none(json!(null))]
#[case::broken_too(kept_form(local(&["10.1.9.0/24", "other nonsense"])))]
#[case::of_no_known_shape(kept_form(json!({"local": ["?"]})))]
#[case::empty(json!({}))]
fn without_an_earlier_form_the_usable_part_is_in_force(#[case] kept: Value) {
    let (reading, earlier) = group_in_force(&object(local(&[GOOD, "nonsense"]), kept));
    assert_eq!((texts(&reading), earlier), (vec![GOOD], false));
    assert_eq!(names(&reading.problems), ["RangeSyntax"]);
}

#[test]
fn the_last_valid_form_survives_a_restart() {
    let before = object(local(&[GOOD]), json!(null));
    let kept = last_valid(&before).unwrap();
    assert_eq!(kept.generation, 5);
    let after = object(json!({"remote": {}}), serde_json::to_value(&kept).unwrap());
    let (reading, earlier) = group_in_force(&after);
    assert_eq!(reading.value, group_in_force(&before).0.value);
    assert!(earlier);
    assert_eq!(last_valid(&after), Some(kept));
}

#[test]
fn a_group_that_was_never_valid_has_nothing_to_keep() {
    assert_eq!(last_valid(&object(json!({"remote": {}}), json!(null))), None);
}
