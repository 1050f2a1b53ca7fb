//! CEL rules of custom resources (`x-kubernetes-validations`): found in the schema once, asked at every write.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::{Value, json};

use crate::status::Cause;

/// The API server's own limit on nesting; deeper expressions could exhaust the parser's stack.
const DEEPEST: usize = 100;
/// Longer expressions are beyond the API server's cost limits in any case.
const LONGEST: usize = 20_000;

/// One rule, ready to be asked.
struct Rule {
    compiled: CompiledSchema,
    /// Mentions `oldSelf`: asked of changes only, and of every change.
    transition: bool,
    source: ValidationRule,
}

/// The rules of one place in a schema, and the places below it that have rules.
#[derive(Default)]
pub(crate) struct Rules {
    here: Vec<Rule>,
    members: BTreeMap<String, Rules>,
    others: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
    /// Keys by which items of a list are recognised in the old list; without them they are all new.
    item_keys: Vec<String>,
}

/// A rule that cannot be understood: its place in the schema and why.
pub(crate) struct BadRule {
    pub field: String,
    pub rule: String,
    pub why: String,
}

impl Rules {
    /// Finds and compiles all rules of a schema; `field` is the path of the schema for error messages.
    pub(crate) fn compile(schema: &JSONSchemaProps, field: &str, bad: &mut Vec<BadRule>) -> Self {
        let mut rules =
            Self { item_keys: schema.x_kubernetes_list_map_keys.clone().unwrap_or_default(), ..Self::default() };
        for (i, source) in schema.x_kubernetes_validations.iter().flatten().enumerate() {
            match compile_one(schema, source) {
                Ok(rule) => rules.here.push(rule),
                Err(why) => bad.push(BadRule {
                    field: format!("{field}.x-kubernetes-validations[{i}].rule"),
                    rule: source.rule.clone(),
                    why,
                }),
            }
        }
        for (name, inner) in schema.properties.iter().flatten() {
            let inner = Self::compile(inner, &format!("{field}.properties[{name}]"), bad);
            if !inner.is_empty() {
                rules.members.insert(name.clone(), inner);
            }
        }
        if let Some(JSONSchemaPropsOrArray::Schema(inner)) = &schema.items {
            rules.items = Self::compile(inner, &format!("{field}.items"), bad).boxed();
        }
        if let Some(JSONSchemaPropsOrBool::Schema(inner)) = &schema.additional_properties {
            rules.others = Self::compile(inner, &format!("{field}.additionalProperties"), bad).boxed();
        }
        rules
    }

    fn is_empty(&self) -> bool {
        self.here.is_empty() && self.members.is_empty() && self.items.is_none() && self.others.is_none()
    }

    fn boxed(self) -> Option<Box<Self>> {
        (!self.is_empty()).then(|| Box::new(self))
    }

    /// Asks all rules about an object; `old` is what it replaces.
    ///
    /// A value that did not change is not held against the writer, except by rules about the change itself.
    pub(crate) fn faults(&self, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        if !self.is_empty() {
            self.ask(&Validator::new(), "", old, new, &mut causes);
        }
        causes
    }

    fn ask(&self, validator: &Validator, path: &str, old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
        let unchanged = old == Some(new);
        for rule in self.here.iter().filter(|rule| rule.transition || !unchanged) {
            causes.extend(rule.fault(validator, path, old, new));
        }
        for (name, member) in new.as_object().into_iter().flatten() {
            let inner = self.members.get(name).or(self.others.as_deref());
            if let Some(inner) = inner {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                inner.ask(validator, &path, old.and_then(|old| old.get(name)), member, causes);
            }
        }
        let items = new.as_array().into_iter().flatten().enumerate();
        for ((i, item), inner) in items.zip(std::iter::repeat(self.items.as_deref())) {
            if let Some(inner) = inner {
                inner.ask(validator, &format!("{path}[{i}]"), self.old_item(old, new, item), item, causes);
            }
        }
    }

    /// The same item in the old list. Items of a list without keys are only recognised if the whole list is the same.
    fn old_item<'a>(&self, old: Option<&'a Value>, new: &Value, item: &Value) -> Option<&'a Value> {
        let list = old?.as_array()?;
        if self.item_keys.is_empty() {
            return list.iter().find(|candidate| old == Some(new) && *candidate == item);
        }
        list.iter().find(|candidate| self.item_keys.iter().all(|key| candidate[key] == item[key]))
    }
}

impl Rule {
    fn fault(&self, validator: &Validator, path: &str, old: Option<&Value>, new: &Value) -> Option<Cause> {
        let asked = AssertUnwindSafe(|| validator.validate_compiled(&self.compiled, new, old));
        let message = match catch_unwind(asked) {
            Ok(Ok(())) => return None,
            Ok(Err(errors)) => errors.first().map(|error| error.message.clone()).unwrap_or_default(),
            Err(_) => format!("rule evaluation error: {}", self.source.rule),
        };
        let reason = match self.source.reason.as_deref() {
            Some("FieldValueForbidden") => ("FieldValueForbidden", "Forbidden"),
            Some("FieldValueRequired") => ("FieldValueRequired", "Required value"),
            Some("FieldValueDuplicate") => ("FieldValueDuplicate", "Duplicate value"),
            _ => ("FieldValueInvalid", "Invalid value"),
        };
        let field = format!("{path}{}", self.source.field_path.as_deref().unwrap_or_default());
        Some(Cause { reason: reason.0, message: format!("{}: {message}", reason.1), field })
    }
}

/// Compiles a rule against the shape of its place, without the rules below it.
fn compile_one(schema: &JSONSchemaProps, source: &ValidationRule) -> Result<Rule, String> {
    let text = source.rule.as_str();
    if text.trim().is_empty() {
        return Err("rule is not specified".into());
    }
    if text.len() > LONGEST || nesting(text) > DEEPEST {
        return Err("the expression is too long or nested too deeply".into());
    }
    let mut shape = json!(schema);
    strip(&mut shape);
    shape["x-kubernetes-validations"] = json!([source]);
    let compiled = catch_unwind(|| compile_schema(&shape)).map_err(|_| "compilation failed".to_owned())?;
    if let Some(error) = compiled.compilation_errors().first() {
        return Err(format!("compilation failed: {error}"));
    }
    let transition = compiled.validations.iter().flatten().any(|rule| rule.is_transition_rule);
    Ok(Rule { compiled, transition, source: source.clone() })
}

/// Removes all rules and defaults from a schema: the object is complete already.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.remove("x-kubernetes-validations");
            members.remove("default");
            for field in ["items", "additionalProperties"] {
                members.get_mut(field).into_iter().for_each(strip);
            }
            let properties = members.get_mut("properties").and_then(Value::as_object_mut);
            properties.into_iter().flat_map(|it| it.values_mut()).for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// How deep brackets, and signs that bind like brackets, are nested at most.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest, mut signs) = (0_usize, 0_usize, 0_usize);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '!' | '-' | '?' => signs += 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest.max(signs / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(schema: Value) -> Rules {
        let schema: JSONSchemaProps = serde_json::from_value(schema).expect("a schema");
        let mut bad = Vec::new();
        let rules = Rules::compile(&schema, "", &mut bad);
        assert!(bad.is_empty(), "{}", bad[0].why);
        rules
    }

    fn group() -> Rules {
        rules(json!({"type": "object", "properties": {"spec": {
            "type": "object",
            "properties": {"local": {"type": "object"}, "remote": {"type": "object"}, "placement": {"type": "string"}},
            "x-kubernetes-validations": [
                {"rule": "(has(self.local) ? 1 : 0) + (has(self.remote) ? 1 : 0) == 1", "message": "exactly one"},
                {"rule": "has(oldSelf.placement) || !has(self.placement)", "message": "edit it as v2"},
            ],
        }}}))
    }

    #[test]
    fn a_rule_speaks_for_the_field_it_stands_at() {
        let causes = group().faults(None, &json!({"spec": {"local": {}, "remote": {}}}));
        assert_eq!(causes.len(), 1);
        assert_eq!((causes[0].field.as_str(), causes[0].message.as_str()), ("spec", "Invalid value: exactly one"));
        assert!(group().faults(None, &json!({"spec": {"local": {}, "placement": "Auto"}})).is_empty());
    }

    #[test]
    fn a_rule_about_the_change_is_asked_of_changes_only() {
        let old = json!({"spec": {"local": {}}});
        let causes = group().faults(Some(&old), &json!({"spec": {"local": {}, "placement": "Auto"}}));
        assert_eq!(causes.len(), 1, "{causes:?}");
        assert!(causes[0].message.contains("edit it as v2"));
    }

    #[test]
    fn what_did_not_change_is_not_held_against_the_writer() {
        let old = json!({"metadata": {}, "spec": {}});
        let new = json!({"metadata": {"labels": {"a": "b"}}, "spec": {}});
        assert_eq!(group().faults(None, &new).len(), 1);
        assert!(group().faults(Some(&old), &new).is_empty());
    }

    #[test]
    fn items_of_lists_are_asked_one_by_one() {
        let rules = rules(json!({"type": "object", "properties": {"ports": {"type": "array", "items": {
            "type": "integer", "x-kubernetes-validations": [{"rule": "self > 0", "message": "positive"}]}}}}));
        let causes = rules.faults(None, &json!({"ports": [1, 0]}));
        assert_eq!(causes.len(), 1);
        assert_eq!(causes[0].field, "ports[1]");
    }

    #[test]
    fn rules_that_make_no_sense_are_reported_with_their_place() {
        let deep = format!("{}true{}", "(".repeat(5000), ")".repeat(5000));
        for rule in ["self.", "", "1 +", deep.as_str(), "\"", "self.all(x"] {
            let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
            let schema: JSONSchemaProps = serde_json::from_value(schema).expect("a schema");
            let mut bad = Vec::new();
            Rules::compile(&schema, "schema", &mut bad);
            assert_eq!(bad.len(), 1, "{rule:.20} was accepted");
            assert_eq!(bad[0].field, "schema.x-kubernetes-validations[0].rule");
        }
    }
}
