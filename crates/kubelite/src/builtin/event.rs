//! Events, which two API groups show in two vocabularies.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::events::v1::Event as RegardingEvent;
use serde_json::{Value, json};

use super::typed;
use crate::kinds::Served;
use crate::object::{map_of, namespace};
use crate::openapi::Schemas;
use crate::rules::{Ground, Rules};
use crate::status::Cause;

/// Events are kept as the core group writes them.
pub(crate) struct EventRules;

/// The same field in the core group and in `events.k8s.io`.
const WORDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(event: &mut Value, words: impl Iterator<Item = (&'static str, &'static str)>, api_version: &str) {
    let members = map_of(event);
    for (from, to) in words {
        if let Some(value) = members.remove(from) {
            members.insert(to.into(), value);
        }
    }
    members.insert("apiVersion".into(), json!(api_version));
}

/// Events show fields that they do not have.
fn show_absence(mut event: Value) -> Value {
    let members = map_of(&mut event);
    for (field, absent) in [
        ("eventTime", Value::Null),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
        ("involvedObject", json!({})),
        ("source", json!({})),
    ] {
        members.entry(field).or_insert(absent);
    }
    event
}

impl Rules for EventRules {
    fn decode(&self, served: &Served, body: Value) -> Result<Value, String> {
        if served.group.is_empty() {
            return typed::<Event>(body).map(show_absence);
        }
        let mut event = typed::<RegardingEvent>(body)?;
        rename(&mut event, WORDS.iter().map(|(core, newer)| (*newer, *core)), "v1");
        typed::<Event>(event).map(show_absence)
    }

    fn describe(&self, served: &Served, schemas: &mut Schemas) -> String {
        if served.group.is_empty() { schemas.typed::<Event>() } else { schemas.typed::<RegardingEvent>() }
    }

    fn show<'a>(&self, served: &Served, stored: &'a Value) -> Cow<'a, Value> {
        if served.group.is_empty() {
            return Cow::Borrowed(stored);
        }
        let mut event = stored.clone();
        rename(&mut event, WORDS.into_iter(), &served.api_version());
        // The newer group leaves empty words out.
        map_of(&mut event).retain(|_, value| value != "");
        Cow::Owned(event)
    }

    fn create(&self, _ground: &Ground<'_>, served: &Served, new: &mut Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        let involved = new["involvedObject"]["namespace"].as_str().unwrap_or_default();
        // Events about cluster-scoped objects live in the default namespace.
        let expected = if involved.is_empty() { "default" } else { involved };
        if expected != namespace(new) {
            causes.push(Cause::invalid("involvedObject.namespace", involved, "does not match event.namespace"));
        }
        if !served.group.is_empty() {
            causes.extend(new_style_faults(new));
            let kind = new["type"].as_str().unwrap_or_default();
            if !matches!(kind, "Normal" | "Warning") {
                causes.push(Cause::invalid("type", kind, format!("has invalid value: {kind}")));
            }
        }
        causes
    }
}

/// What the newer group requires; without a time an event counts as one of the old style.
fn new_style_faults(event: &Value) -> Vec<Cause> {
    let missing = |field: &&(&str, &str)| event[field.0].as_str().unwrap_or_default().is_empty();
    if missing(&&("eventTime", "")) {
        return vec![Cause::required("eventTime", "")];
    }
    let fields = [
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ];
    fields.iter().filter(missing).map(|(_, name)| Cause::required(*name, "")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reads_the_same_through_both_groups() {
        let newer = Served { group: "events.k8s.io".into(), version: "v1".into(), ..Served::default() };
        let sent = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
            "regarding": {"kind": "Service", "name": "web", "namespace": "default"}, "note": "hello",
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "purelb.io/allocator",
        });
        let stored = EventRules.decode(&newer, sent).expect("a good event");
        assert_eq!(stored["apiVersion"], "v1");
        assert_eq!(stored["message"], "hello");
        assert_eq!(stored["involvedObject"]["name"], "web");
        let shown = EventRules.show(&newer, &stored);
        assert_eq!(shown["note"], "hello");
        assert_eq!(shown["reportingController"], "purelb.io/allocator");
        assert!(shown.get("message").is_none());
    }
}
