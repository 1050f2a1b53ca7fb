//! From the text of a file to its documents, each a JSON value that knows on which line its fields are.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

use crate::schema::field;

/// One document of a file.
pub struct Document {
    /// The name of the file.
    pub file: String,
    /// What is written in it.
    pub value: Value,
    lines: BTreeMap<String, u64>,
}

impl Document {
    /// The line of a field, or of the innermost object around it that is written.
    pub fn line(&self, field: &str) -> u64 {
        let mut path = field;
        loop {
            if let Some(line) = self.lines.get(path) {
                return *line;
            }
            path = path.rfind(['.', '[']).map_or("", |end| &path[..end]);
        }
    }
}

/// The objects of a document with their paths: itself, or the items of a List and of Lists in it.
pub fn objects(document: &Document) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    collect(String::new(), &document.value, &mut found);
    found
}

fn collect<'a>(path: String, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match value["items"].as_array().filter(|_| is_list) {
        Some(items) => {
            for (i, item) in items.iter().enumerate() {
                collect(field(&path, &format!("items[{i}]")), item, found);
            }
        }
        None if value.is_null() => {}
        None => found.push((path, value)),
    }
}

/// A document that is not YAML.
pub struct Unreadable {
    /// The line where the parser gave up.
    pub line: u64,
    /// What the parser says.
    pub problem: String,
}

/// The documents of a file, in order. One that is not YAML spoils no other.
pub fn read(file: &str, text: &str) -> Vec<Result<Document, Unreadable>> {
    split(text).into_iter().map(|(line, part)| parse(file, line, part)).collect()
}

/// The parts between lines that begin with `---`, which is how kubectl splits files, each with the number of lines
/// before it.
fn split(text: &str) -> Vec<(u64, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut before, mut end) = (0, 0, 0);
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        if line.starts_with("---") {
            parts.push((before, &text[start..end]));
            // What follows the dashes on their own line belongs to the next document.
            (start, before) = (end + 3, number - 1);
        }
        end += line.len();
    }
    parts.push((before, &text[start..]));
    parts
}

fn parse(file: &str, lines_before: u64, part: &str) -> Result<Document, Unreadable> {
    let root: Spanned<Node> = serde_saphyr::from_str(part).map_err(|error| Unreadable {
        line: lines_before + error.location().map_or(1, |location| location.line()),
        problem: gist(&error),
    })?;
    let mut lines = BTreeMap::from([(String::new(), lines_before + root.referenced.line())]);
    let value = root.value.settle(String::new(), lines_before, &mut lines);
    Ok(Document { file: file.to_owned(), value, lines })
}

/// The parser's message without its position, which counts from the document's start, and without advice for
/// programmers.
fn gist(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    text.split_once(", set DuplicateKeyPolicy").map_or(text, |(text, _)| text).to_owned()
}

/// A YAML value whose parts know their place.
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl Node {
    /// The plain value; the lines go into `lines` by the path of each field.
    fn settle(self, path: String, lines_before: u64, lines: &mut BTreeMap<String, u64>) -> Value {
        match self {
            Node::Scalar(value) => value,
            Node::List(items) => {
                let settle = |(i, item): (usize, Spanned<Node>)| {
                    let path = format!("{path}[{i}]");
                    lines.insert(path.clone(), lines_before + item.referenced.line());
                    item.value.settle(path, lines_before, lines)
                };
                Value::Array(items.into_iter().enumerate().map(settle).collect())
            }
            Node::Map(members) => {
                let mut map = Map::new();
                for (name, member) in members {
                    let path = field(&path, &name.value);
                    lines.insert(path.clone(), lines_before + name.referenced.line());
                    map.insert(name.value, member.value.settle(path, lines_before, lines));
                }
                Value::Object(map)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        // JSON has no infinities; a text is refused wherever a number is wanted, which is what an infinity deserves.
        Ok(Node::Scalar(Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = access.next_entry()? {
            members.push(member);
        }
        Ok(Node::Map(members))
    }
}
