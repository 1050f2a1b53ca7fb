//! What serves while an operator's edit is wrong.

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

fn kept_form_of(spec: Value) -> Value {
    json!({"generation": 4, "spec": spec})
}

/// The ranges in use if there are no other groups, and whether they are those of an earlier form.
fn in_use(read: &GroupObject) -> (Vec<String>, bool, Vec<&'static str>) {
    let GroupReading { forms, problems, .. } = group_forms(read, kept_form(read));
    let best = forms.best();
    let ranges = best.and_then(Group::ranges);
    let texts = ranges.map(|ranges| ranges.v4.iter().map(|entry| entry.text.clone()).collect()).unwrap_or_default();
    let names = problems.iter().map(|problem| problem.reason.name()).collect();
    (texts, best.is_some() && best == forms.earlier.as_ref(), names)
}

#[test]
fn a_valid_group_is_in_force_as_it_is_written() {
    let written = object(local(&["10.1.5.0/24"]), kept_form_of(local(&[GOOD])));
    assert_eq!(in_use(&written), (vec!["10.1.5.0/24".to_owned()], false, vec![]));
}

#[test]
fn b37_an_edit_that_breaks_a_group_leaves_its_last_valid_form_in_force() {
    let broken = object(local(&["10.1.5.0/24", "nonsense"]), kept_form_of(local(&[GOOD])));
    assert_eq!(
        in_use(&broken),
        (vec![GOOD.to_owned()], true, vec!["RangeSyntax"]),
        "the problems are those of the edit"
    );
}

#[rstest]
#[case::none(json!(null))]
#[case::broken_too(kept_form_of(local(&["10.1.9.0/24", "other nonsense"])))]
#[case::of_no_known_shape(kept_form_of(json!({"local": ["?"]})))]
#[case::empty(json!({}))]
fn without_an_earlier_form_the_usable_part_is_in_force(#[case] kept: Value) {
    assert_eq!(in_use(&object(local(&[GOOD, "nonsense"]), kept)), (vec![GOOD.to_owned()], false, vec!["RangeSyntax"]));
}

#[test]
fn the_last_valid_form_survives_a_restart() {
    let before = object(local(&[GOOD]), json!(null));
    let kept = written_form(&before).unwrap();
    assert_eq!(kept.generation, 5);
    let after = object(json!({"remote": {}}), serde_json::to_value(&kept).unwrap());
    assert_eq!(in_use(&after).0, in_use(&before).0);
    assert_eq!(kept_form(&after), Some(&kept));
}
