//! `purelb.io/allocated-from` in the hands of others: only the IPAM that gave an address is ever told that it is free.

use purelb_api::holders::Holders;
use rstest::rstest;

use super::external::{asks, delete, external, holders, keep_record, releases, two_groups, two_ipams};
use super::*;
use crate::allocator::job::{Outcome, Release};

fn annotate(town: &mut Town, name: &str, annotations: Value) {
    town.api.edit(name, json!({"metadata": {"annotations": annotations}}));
    town.tell(name);
    town.settle();
}

fn brand(town: &Town, name: &str) -> (Option<String>, Option<String>) {
    let brand = town.api.record(name).view.brand;
    (brand.from, brand.pool_type)
}

fn from(group: &str) -> (Option<String>, Option<String>) {
    (Some(group.to_owned()), Some("local".to_owned()))
}

#[rstest]
#[case::another_ipams_group(json!("right"))]
#[case::a_local_group(json!("default"))]
#[case::no_group(json!("no such group"))]
#[case::nothing(json!(null))]
fn an_edited_annotation_frees_no_address_and_is_put_right(#[case] edited: Value) {
    let mut town = two_ipams();
    annotate(&mut town, "l", json!({"purelb.io/allocated-from": edited, "purelb.io/pool-type": "remote"}));
    assert!(asks(&mut town).is_empty(), "no IPAM hears of it");
    assert_eq!((town.api.addresses("l"), brand(&town, "l")), (addrs(&["192.0.2.1"]), from("left")));
    delete(&mut town, "l");
    assert_eq!(releases(&asks(&mut town)), [("/left", "test/l")], "the one that gave it, and no other");
}

#[test]
fn an_ipam_that_is_named_for_an_address_of_a_pool_never_hears_of_it() {
    let mut town = two_ipams();
    let given = town.api.addresses("plain");
    annotate(&mut town, "plain", json!({"purelb.io/allocated-from": "right"}));
    assert_eq!((town.api.addresses("plain"), brand(&town, "plain")), (given, from("default")));
    delete(&mut town, "plain");
    assert!(asks(&mut town).is_empty());
}

#[test]
fn an_annotation_that_was_edited_while_no_allocator_ran_frees_nothing_either() {
    let mut town = two_ipams();
    let mut record = Some(Holders::default());
    keep_record(&mut town, &mut record);
    assert_eq!(record.as_ref().unwrap().groups["left"].services["test/l"], addrs(&["192.0.2.1"]));
    town.api.edit("l", json!({"metadata": {"annotations": {"purelb.io/allocated-from": "right"}}}));
    let mut town = town.succeeded(two_groups());
    town.settle();
    assert!(asks(&mut town).is_empty(), "the record is not read yet");
    keep_record(&mut town, &mut record);
    assert!(asks(&mut town).is_empty(), "no IPAM hears of it");
    assert_eq!(brand(&town, "l"), from("left"));
    assert!(!record.unwrap().names("right", "test/l"));
    delete(&mut town, "l");
    assert_eq!(releases(&asks(&mut town)), [("/left", "test/l")]);
}

#[test]
fn who_edits_the_annotation_and_asks_to_move_is_moved_and_only_the_old_address_goes_back() {
    let mut town = two_ipams();
    let annotations = json!({
        "purelb.io/allocated-from": "right",
        "purelb.io/service-group": "right",
        "purelb.io/re-evaluate": "true",
    });
    annotate(&mut town, "l", annotations);
    keep_record(&mut town, &mut Some(Holders::default()));
    let asked = asks(&mut town);
    assert!(matches!(&asked[..], [Job::Ask { request, .. }] if request.group == "right"), "{asked:?}");
    town.done(&asked[0], Outcome::Answer(Ok(addrs(&["192.0.2.3"]))));
    town.settle();
    assert_eq!((town.api.addresses("l"), brand(&town, "l")), (addrs(&["192.0.2.3"]), from("right")));
    assert_eq!(releases(&asks(&mut town)), [("/left", "test/l")]);
}

#[test]
fn who_moves_to_an_ipam_that_gives_the_very_same_address_has_it_from_there() {
    let mut town = two_ipams();
    annotate(&mut town, "l", json!({"purelb.io/service-group": "right", "purelb.io/re-evaluate": "true"}));
    keep_record(&mut town, &mut Some(Holders::default()));
    let ask = asks(&mut town).remove(0);
    town.done(&ask, Outcome::Answer(Ok(addrs(&["192.0.2.1"]))));
    town.settle();
    assert_eq!((town.api.addresses("l"), brand(&town, "l")), (addrs(&["192.0.2.1"]), from("right")));
    assert_eq!(releases(&asks(&mut town)), [("/left", "test/l")]);
}

#[test]
fn what_an_older_release_gave_is_on_no_record_and_comes_from_where_the_annotation_says() {
    let mut town = two_ipams().succeeded(two_groups());
    town.settle();
    let mut record = None;
    keep_record(&mut town, &mut record);
    let record = record.unwrap();
    assert_eq!(record.groups["left"].services["test/l"], addrs(&["192.0.2.1"]));
    assert_eq!(record.groups["right"].services["test/r"], addrs(&["192.0.2.2"]));
    delete(&mut town, "r");
    assert_eq!(releases(&asks(&mut town)), [("/right", "test/r")]);
}

#[test]
fn who_moved_to_a_pool_with_the_same_address_before_it_was_on_record_stays_there() {
    let groups = || {
        let pool = json!({"local": {"v4pools": [{"pool": "192.0.2.0/28", "subnet": "192.0.2.0/24"}]}});
        vec![group("left", 1, external("/left"), json!(null)), group("default", 1, pool, json!(null))]
    };
    let mut api = Api::default();
    api.create("web", json!({}));
    let mut town = Town::new(groups(), api);
    town.settle();
    let given = town.api.addresses("web");
    assert_eq!(brand(&town, "web"), from("default"));
    let mut record = holders("left", "/left", &["web"]);
    record.groups.get_mut("left").unwrap().services.insert("test/web".to_owned(), given.clone());
    keep_record(&mut town, &mut Some(record));
    assert_eq!((town.api.addresses("web"), brand(&town, "web")), (given, from("default")));
    let told = asks(&mut town);
    let all = Release { socket: "/left".into(), group: "left".into(), service: "test/web".into(), addr: None };
    assert!(matches!(&told[..], [Job::Release(release)] if *release == all), "{told:?}");
}

#[test]
fn a_group_that_is_gone_is_not_forgotten_for_another_that_the_annotation_names() {
    let mut town = two_ipams();
    let mut record = Some(Holders::default());
    keep_record(&mut town, &mut record);
    town.api.edit("l", json!({"metadata": {"annotations": {"purelb.io/allocated-from": "right"}}}));
    let mut town = town.succeeded(two_groups().split_off(1));
    town.settle();
    keep_record(&mut town, &mut record);
    assert!(asks(&mut town).is_empty(), "no IPAM hears of it");
    assert_eq!(town.api.addresses("l"), addrs(&["192.0.2.1"]));
    delete(&mut town, "l");
    assert_eq!(releases(&asks(&mut town)), [("/left", "test/l")]);
}

#[rstest]
#[case::the_same_leader(false)]
#[case::the_next_leader(true)]
fn an_external_address_whose_annotations_were_all_taken_off_is_branded_again(#[case] next: bool) {
    let mut town = two_ipams();
    let mut record = Some(Holders::default());
    keep_record(&mut town, &mut record);
    let mut object = town.api.services["l"].clone();
    object["metadata"]["annotations"] = json!({});
    // Nothing but the record says whose it is.
    object["status"]["conditions"] = json!(null);
    town.api.services.insert("l".to_owned(), object);
    town.api.stamp("l");
    if next {
        town = town.succeeded(two_groups());
        town.settle();
        keep_record(&mut town, &mut record);
    } else {
        town.tell("l");
        town.settle();
    }
    let view = town.api.record("l").view;
    assert_eq!((town.api.addresses("l"), brand(&town, "l")), (addrs(&["192.0.2.1"]), from("left")));
    assert!(view.brand.ours);
    assert!(asks(&mut town).is_empty(), "no IPAM hears of it");
}
