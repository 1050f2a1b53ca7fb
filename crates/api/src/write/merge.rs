//! The merge patch that makes one JSON value out of another (RFC 7396).

use serde_json::{Map, Value};

/// What to merge into `from` to get `to`; an empty object if they are equal.
///
/// A merge patch leaves alone what it does not mention, so everything that has to go is named with null.
pub fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let gone = from.keys().filter(|name| !to.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let new = to.iter().filter(|(name, value)| from.get(*name) != Some(value)).map(|(name, value)| {
        let value = match (from.get(name), value) {
            (Some(Value::Object(from)), Value::Object(to)) => Value::Object(difference(from, to)),
            _ => value.clone(),
        };
        (name.clone(), value)
    });
    gone.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::equal(json!({"a": 1, "b": [1]}), json!({"a": 1, "b": [1]}), json!({}))]
    #[case::changed(json!({"a": 1}), json!({"a": 2, "b": 3}), json!({"a": 2, "b": 3}))]
    #[case::gone(json!({"a": 1, "b": 2}), json!({"b": 2}), json!({"a": null}))]
    #[case::lists_are_replaced(json!({"a": [1, 2]}), json!({"a": [2]}), json!({"a": [2]}))]
    #[case::inside(
        json!({"spec": {"local": {"pool": "x"}, "n": 1}}),
        json!({"spec": {"remote": {"pool": "x"}, "n": 1}}),
        json!({"spec": {"local": null, "remote": {"pool": "x"}}}),
    )]
    #[case::another_type(json!({"a": {"b": 1}}), json!({"a": 1}), json!({"a": 1}))]
    fn only_what_differs_is_named(#[case] from: Value, #[case] to: Value, #[case] expected: Value) {
        let patch = difference(from.as_object().unwrap(), to.as_object().unwrap());
        assert_eq!(Value::Object(patch.clone()), expected);
        let mut merged = from;
        json_patch::merge(&mut merged, &Value::Object(patch));
        assert_eq!(merged, to);
    }
}
