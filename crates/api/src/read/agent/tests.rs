//! What operators configured, in the words of either version, and what the agents follow.

use purelb_core::reason::Problem;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn read_spec(spec: Value) -> Reading<AgentConfig> {
    let object = json!({
        "apiVersion": "purelb.io/v2", "kind": "LBNodeAgent",
        "metadata": {"name": "default", "namespace": "purelb"}, "spec": spec,
    });
    agent(&serde_json::from_value(object).unwrap())
}

fn clean(local: Value) -> AgentConfig {
    let reading = read_spec(json!({"local": local}));
    assert_eq!((reading.problems, reading.warnings), (vec![], vec![]));
    reading.value.unwrap()
}

fn said(problems: &[Problem]) -> Vec<(&str, &str)> {
    problems.iter().map(|problem| (problem.field.as_str(), problem.reason.name())).collect()
}

#[test]
fn an_agent_that_says_nothing_follows_the_defaults() {
    let config = clean(json!({}));
    assert_eq!((config.namespace.as_str(), config.name.as_str()), ("purelb", "default"));
    assert_eq!(config.local_interface, LocalInterface::DefaultRoute);
    assert_eq!(config.virtual_interface, "kube-lb0");
    assert_eq!((config.garp, config.interfaces), (None, vec![]));
    assert_eq!((config.on_nic, config.on_virtual), (AddressOptions::default(), AddressOptions::default()));
}

#[test]
fn an_agent_without_local_configures_nothing_and_is_no_problem() {
    let reading = read_spec(json!({"nodeSelector": {"matchLabels": {"zone": "a"}}}));
    assert_eq!(reading, Reading { value: None, problems: vec![], warnings: vec![] });
}

/// An object written through v1 is stored with v2's defaults beside it, and the other way round.
#[rstest]
#[case::v1_beside_defaults(json!({"localint": "eth1", "localInterface": "default"}), "eth1")]
#[case::v2_beside_defaults(json!({"localint": "default", "localInterface": "eth2"}), "eth2")]
#[case::v1_alone(json!({"localint": "eth1"}), "eth1")]
#[case::both_alike(json!({"localint": "eth1", "localInterface": "eth1"}), "eth1")]
#[case::empty_is_default(json!({"localint": "eth1", "localInterface": ""}), "eth1")]
fn a_value_somebody_wrote_wins_over_a_default(#[case] local: Value, #[case] pattern: &str) {
    assert_eq!(clean(local).local_interface, LocalInterface::Matching(pattern.to_owned()));
}

#[test]
fn of_two_values_somebody_wrote_the_newer_name_wins_aloud() {
    let reading = read_spec(json!({"local": {
        "localint": "eth1", "localInterface": "eth2", "extlbint": "lb1", "dummyInterface": "lb2",
        "sendgarp": true, "garpConfig": {"enabled": false},
    }}));
    assert_eq!(reading.problems, []);
    let ignored = ["spec.local.localint", "spec.local.extlbint", "spec.local.sendgarp"];
    assert_eq!(said(&reading.warnings), ignored.map(|field| (field, "OldNameIgnored")));
    let config = reading.value.unwrap();
    assert_eq!(config.local_interface, LocalInterface::Matching("eth2".to_owned()));
    assert_eq!(config.virtual_interface, "lb2");
    assert!(!config.garp.unwrap().enabled);
}

#[rstest]
#[case::stored_default(json!({"sendgarp": false}), None)]
#[case::asked_for(json!({"sendgarp": true}), Some(true))]
#[case::v2(json!({"garpConfig": {}}), Some(true))]
#[case::v2_off(json!({"garpConfig": {"enabled": false}}), Some(false))]
#[case::v2_beside_stored_default(json!({"sendgarp": false, "garpConfig": {"enabled": true}}), Some(true))]
fn the_old_switch_counts_only_when_it_is_on(#[case] local: Value, #[case] enabled: Option<bool>) {
    assert_eq!(clean(local).garp.map(|garp| garp.enabled), enabled);
}

#[test]
fn announcements_follow_the_configured_rhythm() {
    let garp = json!({"initialDelay": "1.5s", "count": 5, "interval": "20ms", "verifyBeforeSend": false});
    let expected = Garp {
        enabled: true,
        initial_delay: Duration::from_millis(1500),
        count: 5,
        interval: Duration::from_millis(20),
        verify_before_send: false,
    };
    assert_eq!(clean(json!({"garpConfig": garp})).garp, Some(expected));
}

#[test]
fn an_unreadable_rhythm_falls_back_aloud() {
    let reading = read_spec(json!({"local": {"garpConfig": {"initialDelay": "soon", "count": 99, "interval": "5"}}}));
    assert_eq!(
        said(&reading.warnings),
        [
            ("spec.local.garpConfig.initialDelay", "DurationSyntax"),
            ("spec.local.garpConfig.count", "NumberOutOfRange"),
            ("spec.local.garpConfig.interval", "DurationSyntax"),
        ]
    );
    let garp = reading.value.unwrap().garp.unwrap();
    assert_eq!(
        (garp.initial_delay, garp.count, garp.interval),
        (Duration::from_millis(100), 10, Duration::from_millis(500))
    );
}

#[rstest]
#[case::pattern(json!({"localInterface": "eth[0"}), "spec.local.localInterface", "InterfacePattern")]
#[case::v1_pattern(json!({"localint": "*eth"}), "spec.local.localint", "InterfacePattern")]
#[case::too_long(json!({"dummyInterface": "a-name-of-sixteen"}), "spec.local.dummyInterface", "InterfaceName")]
#[case::slash(json!({"extlbint": "lb/0"}), "spec.local.extlbint", "InterfaceName")]
fn an_interface_that_cannot_exist_leaves_no_configuration(
    #[case] local: Value,
    #[case] field: &str,
    #[case] reason: &str,
) {
    let reading = read_spec(json!({"local": local}));
    assert_eq!((reading.value.as_ref(), said(&reading.problems)), (None, vec![(field, reason)]));
}

#[test]
fn one_bad_name_in_a_list_disables_only_itself() {
    let reading = read_spec(json!({"local": {"interfaces": ["eth1", "", "eth2"]}}));
    assert_eq!(said(&reading.problems), [("spec.local.interfaces[1]", "InterfaceName")]);
    assert_eq!(reading.value.unwrap().interfaces, ["eth1", "eth2"]);
}

#[test]
fn lifetimes_are_taken_as_written_and_checked_against_each_other() {
    let reading = read_spec(json!({"local": {"addressConfig": {
        "localInterface": {"validLifetime": 300, "preferredLifetime": 600, "noPrefixRoute": false},
        "dummyInterface": {"validLifetime": 0, "preferredLifetime": 600},
    }}}));
    assert_eq!(reading.problems, []);
    assert_eq!(
        said(&reading.warnings),
        [("spec.local.addressConfig.localInterface.preferredLifetime", "LifetimesReversed")]
    );
    let config = reading.value.unwrap();
    let on_nic =
        AddressOptions { valid_lifetime: Some(300), preferred_lifetime: Some(300), no_prefix_route: Some(false) };
    assert_eq!(config.on_nic, on_nic);
    assert_eq!((config.on_virtual.valid_lifetime, config.on_virtual.preferred_lifetime), (Some(0), Some(600)));
}

#[rstest]
#[case(-1)]
#[case(4_294_967_295)]
fn a_lifetime_the_kernel_cannot_hold_is_left_out_aloud(#[case] seconds: i64) {
    let options = json!({"localInterface": {"validLifetime": seconds}});
    let reading = read_spec(json!({"local": {"addressConfig": options}}));
    let field = "spec.local.addressConfig.localInterface.validLifetime";
    assert_eq!(said(&reading.problems), [(field, "NumberOutOfRange")]);
    assert_eq!(reading.value.unwrap().on_nic, AddressOptions::default());
}

#[rstest]
#[case::labels(json!({"matchLabels": {"kubernetes.io/hostname": "node-1", "gpu": ""}}), &[])]
#[case::in_list(json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}), &[])]
#[case::exists(json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}), &[])]
#[case::operator(
    json!({"matchExpressions": [{"key": "zone", "operator": "in", "values": ["a"]}]}),
    &["spec.nodeSelector.matchExpressions[0].operator"]
)]
#[case::no_values(
    json!({"matchExpressions": [{"key": "zone", "operator": "NotIn"}]}), &["spec.nodeSelector.matchExpressions[0].values"]
)]
#[case::too_many_values(
    json!({"matchExpressions": [{"key": "zone", "operator": "Exists", "values": ["a"]}]}),
    &["spec.nodeSelector.matchExpressions[0].values"]
)]
#[case::key_and_value(
    json!({"matchLabels": {"a b": "c/d"}}), &["spec.nodeSelector.matchLabels", "spec.nodeSelector.matchLabels"]
)]
#[case::domain(json!({"matchLabels": {"Example.com/zone": "a"}}), &["spec.nodeSelector.matchLabels"])]
fn a_selector_that_matches_no_node_configures_none(#[case] selector: Value, #[case] fields: &[&str]) {
    let reading = read_spec(json!({"nodeSelector": selector, "local": {}}));
    let expected: Vec<_> = fields.iter().map(|field| (*field, "SelectorInvalid")).collect();
    assert_eq!(said(&reading.problems), expected);
    assert_eq!(reading.value.is_some(), fields.is_empty());
}
