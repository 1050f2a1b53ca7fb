//! Which LBNodeAgent counts on a node.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use purelb_core::reason::Reason;

use super::{selector, selects};
use crate::node_agent::LBNodeAgent;

/// What the LBNodeAgents of a cluster mean for one node.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentChoice<'a> {
    /// The one that counts, or why there is none.
    pub chosen: Chosen<'a>,
    /// The objects that do not count although their authors may think so, each with the reason for its Event.
    pub passed_over: Vec<(&'a LBNodeAgent, Reason)>,
}

/// The LBNodeAgent of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Chosen<'a> {
    /// This one counts.
    Object(&'a LBNodeAgent),
    /// There is none at all, or those for this node do not say how to announce.
    Nothing,
    /// There are some, but none for this node.
    Deselected,
}

/// Chooses the LBNodeAgent of a node with these labels.
///
/// Objects that select the node come before those for every node, then namespace and name decide. The first that has
/// `local` counts; one without it stands in nobody's way.
pub fn choose_agent<'a>(
    objects: impl IntoIterator<Item = &'a LBNodeAgent>,
    node: &str,
    labels: &BTreeMap<String, String>,
) -> AgentChoice<'a> {
    let mut objects: Vec<&LBNodeAgent> = objects.into_iter().collect();
    objects.sort_by_cached_key(|object| (for_every_node(object), object.namespace(), object.name_any()));
    let (usable, invalid): (Vec<&LBNodeAgent>, Vec<_>) =
        objects.iter().copied().partition(|object| problem(object).is_none());
    let matching: Vec<&LBNodeAgent> = usable.into_iter().filter(|object| selects(object, labels)).collect();
    let effective = matching.iter().copied().find(|object| object.spec.local.is_some());
    let chosen = match effective {
        Some(effective) => Chosen::Object(effective),
        None if objects.is_empty() || !matching.is_empty() => Chosen::Nothing,
        None => Chosen::Deselected,
    };
    let unusable = invalid
        .into_iter()
        .filter_map(|object| Some((object, Reason::InvalidNodeSelector { problem: problem(object)? })));
    let ignored = effective.into_iter().flat_map(|effective| {
        let others = matching.iter().copied().filter(move |object| !std::ptr::eq(*object, effective));
        others.map(move |object| (object, Reason::ConfigIgnored { by: full_name(effective), node: node.to_owned() }))
    });
    AgentChoice { chosen, passed_over: unusable.chain(ignored).collect() }
}

/// A selector that says nothing selects every node, as if it were not there.
fn for_every_node(object: &LBNodeAgent) -> bool {
    let says_nothing = |selector: &LabelSelector| {
        selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
    };
    object.spec.node_selector.as_ref().is_none_or(says_nothing)
}

/// Why an LBNodeAgent selects no node at all, if it is for that.
pub fn invalid_selector(object: &LBNodeAgent) -> Option<Reason> {
    problem(object).map(|problem| Reason::InvalidNodeSelector { problem })
}

/// Why Kubernetes could not evaluate the selector.
fn problem(object: &LBNodeAgent) -> Option<String> {
    let selector = object.spec.node_selector.as_ref()?;
    let first = selector::check("nodeSelector", selector).into_iter().next()?;
    match first.reason {
        Reason::SelectorInvalid { problem } => Some(format!("{}: {problem}", first.field)),
        other => Some(other.to_string()),
    }
}

fn full_name(object: &LBNodeAgent) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn agent(name: &str, selector: Value, local: bool) -> LBNodeAgent {
        let (namespace, name) = name.split_once('/').unwrap();
        let spec = if local { json!({"local": {}}) } else { json!({}) };
        let mut object = json!({
            "apiVersion": "purelb.io/v2", "kind": "LBNodeAgent",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        });
        object["spec"]["nodeSelector"] = selector;
        serde_json::from_value(object).unwrap()
    }

    /// The choice on a node in rack 1, and the events on the others.
    fn choose(objects: &[LBNodeAgent]) -> (String, Vec<(String, &'static str)>) {
        let labels = BTreeMap::from([("rack".to_owned(), "1".to_owned()), ("ssd".to_owned(), String::new())]);
        let choice = choose_agent(objects, "node-1", &labels);
        let chosen = match choice.chosen {
            Chosen::Object(object) => full_name(object),
            Chosen::Nothing => "nothing".to_owned(),
            Chosen::Deselected => "deselected".to_owned(),
        };
        let events = choice.passed_over.iter().map(|(object, reason)| (full_name(object), reason.name())).collect();
        (chosen, events)
    }

    fn rack(number: &str) -> Value {
        json!({"matchLabels": {"rack": number}})
    }

    fn expression(key: &str, operator: &str, values: Value) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[rstest]
    #[case::no_selector(json!(null), true)]
    #[case::empty_selector(json!({}), true)]
    #[case::empty_parts(json!({"matchLabels": {}, "matchExpressions": []}), true)]
    #[case::label(rack("1"), true)]
    #[case::other_label(rack("2"), false)]
    #[case::is_in(expression("rack", "In", json!(["1", "2"])), true)]
    #[case::is_not_in(expression("rack", "NotIn", json!(["1"])), false)]
    #[case::absent_is_not_in(expression("zone", "NotIn", json!(["1"])), true)]
    #[case::exists(expression("ssd", "Exists", json!(null)), true)]
    #[case::does_not_exist(expression("zone", "DoesNotExist", json!(null)), true)]
    #[case::both_must_hold(json!({"matchLabels": {"rack": "1"}, "matchExpressions": [{"key": "zone", "operator": "Exists"}]}), false)]
    fn c05_a_selector_is_evaluated_as_kubernetes_does(#[case] selector: Value, #[case] ours: bool) {
        let expected = if ours { "purelb/one" } else { "deselected" };
        assert_eq!(choose(&[agent("purelb/one", selector, true)]), (expected.to_owned(), vec![]));
    }

    #[test]
    fn c05_a_specific_object_comes_before_one_for_all_then_the_name_decides() {
        let everyone = agent("a/a", json!({}), true);
        let later = agent("purelb/y", rack("1"), true);
        let first = agent("purelb/x", rack("1"), true);
        let (chosen, events) = choose(&[everyone, later, first]);
        let ignored = |name: &str| (name.to_owned(), "ConfigIgnored");
        assert_eq!((chosen.as_str(), events), ("purelb/x", vec![ignored("purelb/y"), ignored("a/a")]));
    }

    #[test]
    fn c08_a_selector_nobody_can_evaluate_selects_nothing_and_says_so() {
        let broken = agent("purelb/a", expression("rack", "Near", json!(["1"])), true);
        let (chosen, events) = choose(&[broken.clone(), agent("purelb/b", json!(null), true)]);
        assert_eq!((chosen.as_str(), events), ("purelb/b", vec![("purelb/a".to_owned(), "InvalidNodeSelector")]));
        assert_eq!(choose(&[broken]).0, "deselected");
    }

    #[test]
    fn c09_s10_an_object_without_local_does_not_stand_in_the_way() {
        let (chosen, events) = choose(&[agent("purelb/a", rack("1"), false), agent("purelb/b", rack("1"), true)]);
        assert_eq!((chosen.as_str(), events), ("purelb/b", vec![("purelb/a".to_owned(), "ConfigIgnored")]));
        let silent = |name| agent(name, json!(null), false);
        let speaking = |name| agent(name, json!(null), true);
        assert_eq!(choose(&[speaking("purelb/c"), silent("purelb/a"), speaking("purelb/b")]).0, "purelb/b");
    }

    #[test]
    fn c10_objects_for_other_nodes_say_nothing_to_this_one() {
        let (chosen, events) = choose(&[agent("purelb/a", rack("2"), true), agent("purelb/b", json!(null), true)]);
        assert_eq!((chosen.as_str(), events), ("purelb/b", vec![]));
    }

    #[test]
    fn without_any_local_there_is_nothing_to_follow() {
        assert_eq!(choose(&[]), ("nothing".to_owned(), vec![]));
        let silent = [agent("purelb/a", rack("1"), false), agent("purelb/b", json!(null), false)];
        assert_eq!(choose(&silent), ("nothing".to_owned(), vec![]));
    }

    #[test]
    fn the_events_say_what_they_always_said() {
        let objects = [agent("purelb/a", json!(null), true), agent("purelb/b", json!(null), true)];
        let choice = choose_agent(&objects, "node-1", &BTreeMap::new());
        let sentences: Vec<_> = choice.passed_over.iter().map(|(_, reason)| reason.to_string()).collect();
        assert_eq!(sentences, ["LBNodeAgent purelb/a takes precedence on node node-1"]);
    }
}
