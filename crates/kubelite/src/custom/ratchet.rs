//! Which faults of a changed object were there before, and are therefore not held against the writer.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use purelb_api::schema::{Violation, ViolationKind};
use serde_json::Value;

/// Whether a violation lies in a part of the object that the update did not touch.
pub(super) fn is_excused(schema: &JSONSchemaProps, violation: &Violation, old: &Value, new: &Value) -> bool {
    let mut place = Place { schema: Some(schema), old, new, rest: &violation.field };
    let required = violation.kind == ViolationKind::Required;
    loop {
        if place.old == place.new {
            return true;
        }
        // A missing field is a fault of the object that lacks it.
        if place.rest.is_empty() || (required && place.is_last()) {
            return false;
        }
        match place.descend() {
            Some(next) => place = next,
            None => return false,
        }
    }
}

/// A value, its predecessor and its schema, and the path that is still to go.
struct Place<'a> {
    schema: Option<&'a JSONSchemaProps>,
    old: &'a Value,
    new: &'a Value,
    rest: &'a str,
}

impl<'a> Place<'a> {
    fn is_last(&self) -> bool {
        let rest = self.rest.trim_start_matches('.');
        !self.has_member(rest) && self.member(rest).is_none() && !rest.starts_with('[')
    }

    fn has_member(&self, name: &str) -> bool {
        self.new.get(name).is_some()
    }

    /// The member that the path names next; keys may contain dots, so the longest that exists wins.
    fn member(&self, rest: &str) -> Option<&'a String> {
        let fits = |key: &&String| {
            rest.strip_prefix(key.as_str()).is_some_and(|tail| tail.is_empty() || tail.starts_with(['.', '[']))
        };
        self.new.as_object()?.keys().filter(fits).max_by_key(|key| key.len())
    }

    fn descend(&self) -> Option<Place<'a>> {
        let rest = self.rest.strip_prefix('.').unwrap_or(self.rest);
        if let Some(index) = rest.strip_prefix('[') {
            let (index, rest) = index.split_once(']')?;
            return self.item(index.parse().ok()?, rest);
        }
        let name = self.member(rest)?;
        let schema = self.schema.and_then(|schema| member_schema(schema, name));
        Some(Place { schema, old: self.old.get(name)?, new: self.new.get(name)?, rest: &rest[name.len()..] })
    }

    /// Items are recognised by their keys; in lists without keys every item counts as new.
    fn item(&self, index: usize, rest: &'a str) -> Option<Place<'a>> {
        let keys = self.schema?.x_kubernetes_list_map_keys.as_ref()?;
        let new = self.new.get(index)?;
        let old = self.old.as_array()?.iter().find(|old| keys.iter().all(|key| old[key] == new[key]))?;
        let schema = match self.schema?.items.as_ref()? {
            JSONSchemaPropsOrArray::Schema(items) => Some(&**items),
            JSONSchemaPropsOrArray::Schemas(_) => None,
        };
        Some(Place { schema, old, new, rest })
    }
}

fn member_schema<'a>(schema: &'a JSONSchemaProps, name: &str) -> Option<&'a JSONSchemaProps> {
    let own = schema.properties.as_ref().and_then(|properties| properties.get(name));
    let other = match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(inner)) => Some(&**inner),
        _ => None,
    };
    own.or(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn excused(field: &str, kind: ViolationKind, old: Value, new: Value) -> bool {
        let schema: JSONSchemaProps = serde_json::from_value(json!({"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "object"}},
            "map": {"type": "array", "x-kubernetes-list-map-keys": ["id"], "items": {"type": "object"}},
        }}))
        .expect("a schema");
        let violation = Violation { field: field.into(), kind, sentence: String::new() };
        is_excused(&schema, &violation, &old, &new)
    }

    #[test]
    fn an_untouched_field_is_excused_and_a_changed_one_is_not() {
        let old = json!({"spec": {"a": "x", "b": 1}});
        assert!(excused("spec.a", ViolationKind::Invalid, old.clone(), json!({"spec": {"a": "x", "b": 2}})));
        assert!(!excused("spec.a", ViolationKind::Invalid, old, json!({"spec": {"a": "y", "b": 1}})));
    }

    #[test]
    fn a_missing_field_is_excused_only_while_its_object_stays_the_same() {
        let old = json!({"spec": {"b": 1}, "c": 1});
        assert!(excused("spec.a", ViolationKind::Required, old.clone(), json!({"spec": {"b": 1}, "c": 2})));
        assert!(!excused("spec.a", ViolationKind::Required, old, json!({"spec": {"b": 2}, "c": 1})));
    }

    #[test]
    fn items_are_recognised_by_key_or_not_at_all() {
        let old = json!({"map": [{"id": 1, "v": "bad"}], "list": [{"v": "bad"}]});
        let new = json!({"map": [{"id": 2}, {"id": 1, "v": "bad"}], "list": [{"v": "bad"}, {}]});
        assert!(excused("map[1].v", ViolationKind::Invalid, old.clone(), new.clone()));
        assert!(!excused("list[0].v", ViolationKind::Invalid, old, new));
    }

    #[test]
    fn keys_with_dots_are_found() {
        let old = json!({"labels": {"a.b/c": "bad"}, "x": 1});
        assert!(excused(
            "labels.a.b/c",
            ViolationKind::Invalid,
            old.clone(),
            json!({"labels": {"a.b/c": "bad", "d": ""}})
        ));
    }
}
