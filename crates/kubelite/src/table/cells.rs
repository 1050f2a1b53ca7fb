//! Cells that many kinds share.

use serde_json::{Value, json};

use super::{Column, age};

/// The name of the object.
pub(super) fn name() -> Column {
    Column::new("Name", |it, _| it["metadata"]["name"].as_str().unwrap_or_default().into())
}

/// How long the object has existed.
pub(super) fn age() -> Column {
    Column::new("Age", |it, now| json!(since(it["metadata"]["creationTimestamp"].as_str().unwrap_or_default(), now)))
}

/// How long ago a time was.
pub(super) fn since(time: &str, now: jiff::Timestamp) -> String {
    age::of_text(time, now).unwrap_or_else(|| "<unknown>".into())
}

/// The text at a pointer, or the empty string.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The number at a pointer, or zero.
pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// The items of a list at a pointer.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> impl DoubleEndedIterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// How many members the map at a pointer has.
pub(super) fn size(object: &Value, pointer: &str) -> usize {
    object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// The text, or this word where there is none.
pub(super) fn or(text: &str, word: &str) -> Value {
    json!(if text.is_empty() { word } else { text })
}

/// The labels at a pointer as a selector.
pub(super) fn labels(object: &Value, pointer: &str) -> String {
    let members = object.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> =
        members.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",") }
}

/// The first three texts, and how many more there are.
pub(super) fn few(texts: &[String]) -> Value {
    const SHOWN: usize = 3;
    match texts.len() {
        0 => json!("<unset>"),
        count if count > SHOWN => json!(format!("{} + {} more...", texts[..SHOWN].join(","), count - SHOWN)),
        _ => json!(texts.join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_counted() {
        let texts: Vec<String> = (1..=5).map(|it| it.to_string()).collect();
        assert_eq!(few(&texts[..3]), "1,2,3");
        assert_eq!(few(&texts), "1,2,3 + 2 more...");
        assert_eq!(few(&[]), "<unset>");
    }
}
