//! What PureLB writes to an LBNodeAgent: its status, and only when it has changed.

use jiff::Timestamp;
use purelb_core::agent::AgentConfig;
use purelb_core::reason::{Problem, Reason};
use serde_json::Value;

use super::{Past, condition, status_patch, word};
use crate::node_agent::{LBNodeAgent, LBNodeAgentStatus};
use crate::read::Reading;

/// The type of the one condition.
const VALID: &str = "Valid";

/// The status of an LBNodeAgent: whether it is understood, and how many of the nodes it selects are alive.
///
/// `shadow` is another object that comes before it on every node. A condition whose status is as it was keeps its time,
/// so that an equal status is not written; conditions of others are kept.
pub fn agent_status(
    object: &LBNodeAgent,
    reading: &Reading<AgentConfig>,
    shadow: Option<String>,
    active_leases: usize,
    now: Timestamp,
) -> LBNodeAgentStatus {
    let previous = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let (holds, reason, message) = verdict(reading, shadow);
    let past = Past { previous, generation: object.metadata.generation, now };
    let own = condition(VALID, word(holds), reason, &message, past);
    let others = previous.iter().filter(|condition| condition.type_ != VALID).cloned();
    LBNodeAgentStatus {
        active_leases: i64::try_from(active_leases).ok(),
        conditions: std::iter::once(own).chain(others).collect(),
    }
}

/// The patch of the status subresource that gives an LBNodeAgent this status; `None` if it has it already.
pub fn agent_patch(object: &LBNodeAgent, wanted: &LBNodeAgentStatus) -> Option<Value> {
    status_patch(&object.metadata, object.status.as_ref(), wanted)
}

/// Whether all of the object is in use, in one word and one sentence.
fn verdict(reading: &Reading<AgentConfig>, shadow: Option<String>) -> (bool, &'static str, String) {
    let said = |problem: &Problem| format!("{}: {}", problem.field, problem.reason);
    if let Some((first, more)) = reading.problems.split_first() {
        let more = if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) };
        let rest = if reading.value.is_some() { "the rest is in use" } else { "no node follows this object" };
        return (false, first.reason.name(), format!("{}{more}; {rest}", said(first)));
    }
    if let Some(by) = shadow {
        let reason = Reason::AgentShadowed { by };
        return (false, reason.name(), reason.to_string());
    }
    match (&reading.value, reading.warnings.first()) {
        (_, Some(warning)) => (true, "Parsed", format!("LBNodeAgent parsed with a warning: {}", said(warning))),
        (None, None) => (true, "Empty", "spec.local is absent, so that no node follows this object".to_owned()),
        (Some(_), None) => (true, "Parsed", "LBNodeAgent parsed successfully".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::read;

    fn object(spec: Value) -> LBNodeAgent {
        let metadata =
            json!({"name": "default", "namespace": "purelb-system", "generation": 3, "resourceVersion": "7"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn status(object: &LBNodeAgent, shadow: Option<&str>, leases: usize, second: i64) -> LBNodeAgentStatus {
        let now = Timestamp::from_second(second).unwrap();
        agent_status(object, &read::agent(object), shadow.map(str::to_owned), leases, now)
    }

    fn told(status: &LBNodeAgentStatus) -> (&str, &str, &str) {
        let condition = &status.conditions[0];
        (condition.status.as_str(), condition.reason.as_str(), condition.message.as_str())
    }

    #[test]
    fn an_object_that_is_understood_says_so_once() {
        let mut object = object(json!({"local": {}}));
        let first = status(&object, None, 2, 100);
        assert_eq!(told(&first), ("True", "Parsed", "LBNodeAgent parsed successfully"));
        let patch = agent_patch(&object, &first).unwrap();
        assert_eq!((&patch["status"]["activeLeases"], &patch["metadata"]["resourceVersion"]), (&json!(2), &json!("7")));
        object.status = Some(first);
        assert_eq!(agent_patch(&object, &status(&object, None, 2, 200)), None, "nothing has changed but the time");
        let fewer = agent_patch(&object, &status(&object, None, 1, 200)).unwrap();
        assert_eq!(fewer["status"], json!({"activeLeases": 1}));
    }

    #[test]
    fn a_problem_is_named_with_its_field_and_what_becomes_of_the_rest() {
        let wrong = object(json!({"nodeSelector": {"matchLabels": {"no key!": "x"}}, "local": {}}));
        let wrong = status(&wrong, None, 0, 1);
        let (holds, reason, sentence) = told(&wrong);
        assert_eq!((holds, reason), ("False", "SelectorInvalid"));
        assert!(sentence.starts_with("spec.nodeSelector.matchLabels: "), "{sentence}");
        assert!(sentence.ends_with("no node follows this object"), "{sentence}");
        let partly = status(&object(json!({"local": {"interfaces": ["eth 0"]}})), None, 0, 1);
        assert!(told(&partly).2.ends_with("the rest is in use"), "{partly:?}");
    }

    #[test]
    fn an_object_that_no_node_can_follow_names_the_one_before_it() {
        let status = status(&object(json!({"local": {}})), Some("a/first"), 0, 1);
        let (holds, reason, sentence) = told(&status);
        assert_eq!((holds, reason), ("False", "AgentShadowed"));
        assert!(sentence.contains("a/first"), "{sentence}");
    }
}
