//! The simple JSONPath of printer columns: fields, list items and conditions picked by a field.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// Negative numbers count from the end.
    Item(i64),
    Every,
    /// Items of a list whose field has this value.
    Where(Path, Value),
}

/// A parsed path; one that makes no sense leads nowhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Path(Vec<Step>);

impl Path {
    pub(super) fn parse(text: &str) -> Self {
        // A field that no object has keeps a broken path from showing the whole object.
        parse(text).unwrap_or_else(|| Self(vec![Step::Field(String::new())]))
    }

    /// The first value the path leads to.
    pub(super) fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        let mut found = vec![object];
        for step in &self.0 {
            found = found.into_iter().flat_map(|value| step.follow(value)).collect();
        }
        found.first().copied()
    }
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Self::Field(name), value) => value.get(name.as_str()).into_iter().collect(),
            (Self::Item(number), Value::Array(items)) => {
                let from_end = usize::try_from(-number).ok().and_then(|back| items.len().checked_sub(back));
                let index = if *number < 0 { from_end } else { usize::try_from(*number).ok() };
                index.and_then(|index| items.get(index)).into_iter().collect()
            }
            (Self::Every, Value::Array(items)) => items.iter().collect(),
            (Self::Every, Value::Object(members)) => members.values().collect(),
            (Self::Where(path, wanted), Value::Array(items)) => {
                items.iter().filter(|item| path.first(item) == Some(wanted)).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn parse(text: &str) -> Option<Path> {
    let mut steps = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let (step, after) = bracket(after)?;
            steps.push(step);
            rest = after;
        } else {
            let (name, after) = field(rest.strip_prefix('.')?);
            steps.push(if name == "*" { Step::Every } else { Step::Field(name) });
            rest = after;
        }
    }
    Some(Path(steps))
}

/// A field name up to the next dot or bracket; a backslash takes the next letter as it is.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '.' | '[' => return (name, &text[at..]),
            '\\' => name.extend(letters.next().map(|(_, letter)| letter)),
            _ => name.push(letter),
        }
    }
    (name, "")
}

fn bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(condition) = text.strip_prefix("?(@") {
        let (condition, rest) = condition.split_once(")]")?;
        let (path, wanted) = condition.split_once("==")?;
        let wanted = wanted.trim().replace('\'', "\"");
        return Some((Step::Where(parse(path.trim())?, serde_json::from_str(&wanted).ok()?), rest));
    }
    let (inner, rest) = text.split_once(']')?;
    let quoted = inner.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\''));
    let step = match quoted {
        Some(name) => Step::Field(name.into()),
        None if inner == "*" => Step::Every,
        None => Step::Item(inner.parse().ok()?),
    };
    Some((step, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_through_fields_items_and_conditions() {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "dotted"}},
            "status": {
                "addresses": ["one", "two"],
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "Valid", "status": "False"}],
            },
        });
        for (path, value) in [
            (".status.addresses[1]", Some(json!("two"))),
            (".status.addresses[-1]", Some(json!("two"))),
            (".status.addresses[*]", Some(json!("one"))),
            (".status.addresses[7]", None),
            (r#".status.conditions[?(@.type=="Valid")].status"#, Some(json!("False"))),
            (".status.conditions[?(@.type=='Ready')].status", Some(json!("True"))),
            (r".metadata.labels.a\.b/c", Some(json!("dotted"))),
            (".metadata.labels['a.b/c']", Some(json!("dotted"))),
            (".status.absent.deeper", None),
            ("no dot", None),
            (".status[", None),
        ] {
            assert_eq!(Path::parse(path).first(&object), value.as_ref(), "{path}");
        }
    }
}
