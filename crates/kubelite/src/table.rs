//! Tables: what `kubectl get` prints, made by the server so that every client shows the same columns.

mod age;
mod apps;
mod cells;
mod core;
mod path;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;
use serde_json::{Value, json};

use crate::query::Query;
use crate::status::Refusal;
use path::Path;

/// How much of an object travels beside its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    /// # Errors
    /// If the parameter `includeObject` says something else.
    pub(crate) fn read(query: &Query) -> Result<Self, Refusal> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "Object" => Ok(Self::Object),
            "None" => Ok(Self::Nothing),
            other => Err(Refusal::BadRequest(format!("unrecognized includeObject value: {other:?}"))),
        }
    }
}

/// How a cell is read from an object at a moment.
type Cell = fn(&Value, Timestamp) -> Value;

#[derive(Debug, Clone)]
enum Source {
    Cell(Cell),
    Path(Path),
}

/// One column of a table.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    /// 0 is always shown, 1 only by `-o wide`.
    priority: i32,
    source: Source,
}

impl Column {
    fn new(name: &str, cell: Cell) -> Self {
        let format = if name == "Name" { "name" } else { "" };
        Self {
            name: name.into(),
            kind: "string".into(),
            format: format.into(),
            description: String::new(),
            priority: 0,
            source: Source::Cell(cell),
        }
    }

    fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    fn integer(self) -> Self {
        Self { kind: "integer".into(), ..self }
    }

    fn custom(column: &CustomResourceColumnDefinition) -> Self {
        let path = &column.json_path;
        let described = format!("Custom resource definition column (in JSONPath format): {path}");
        Self {
            name: column.name.clone(),
            kind: column.type_.clone(),
            format: column.format.clone().unwrap_or_default(),
            description: column.description.clone().unwrap_or(described),
            priority: column.priority.unwrap_or(0),
            source: Source::Path(Path::parse(path)),
        }
    }

    fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": self.description,
            "priority": self.priority,
        })
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        match &self.source {
            Source::Cell(read) => read(object, now),
            Source::Path(path) => path.first(object).map_or(Value::Null, |value| self.custom_cell(value, now)),
        }
    }

    /// A value that does not have the type of its column leaves the cell empty.
    fn custom_cell(&self, value: &Value, now: Timestamp) -> Value {
        match (self.kind.as_str(), value) {
            ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("string", other) => json!(other.to_string()),
            ("integer", Value::Number(number)) => {
                json!(number.as_i64().or_else(|| number.as_f64().map(|it| it as i64)))
            }
            ("number", Value::Number(number)) => json!(number.as_f64()),
            ("date", Value::String(text)) => json!(age::of_text(text, now).unwrap_or_else(|| "<invalid>".into())),
            _ => Value::Null,
        }
    }
}

/// The columns of a built-in kind.
pub(crate) fn columns(kind: &str) -> Vec<Column> {
    let usual = || vec![cells::name(), Column::new("Created At", |it, _| it["metadata"]["creationTimestamp"].clone())];
    core::columns(kind).or_else(|| apps::columns(kind)).unwrap_or_else(usual)
}

/// The columns of a custom kind: the name, and those of its definition or else its age.
pub(crate) fn custom_columns(defined: &[CustomResourceColumnDefinition]) -> Vec<Column> {
    let mut columns = vec![cells::name()];
    columns.extend(defined.iter().map(Column::custom));
    if defined.is_empty() {
        columns.push(Column { kind: "date".into(), ..cells::age() });
    }
    columns
}

/// The line above the rows.
pub(crate) fn header(columns: &[Column]) -> Value {
    columns.iter().map(Column::definition).collect()
}

/// One object as a row.
pub(crate) fn row(columns: &[Column], object: &Value, include: Include, now: Timestamp) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| column.cell(object, now)).collect();
    match include {
        Include::Nothing => json!({"cells": cells, "object": null}),
        Include::Object => json!({"cells": cells, "object": object}),
        Include::Metadata => json!({"cells": cells, "object": {
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
        }}),
    }
}

/// A whole table; `header` is null where the client has it already.
pub(crate) fn table(metadata: &Value, header: &Value, rows: &[Value]) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": header, "rows": rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: &str, path: &str) -> Column {
        Column::custom(&CustomResourceColumnDefinition {
            name: "Some".into(),
            type_: kind.into(),
            json_path: path.into(),
            ..CustomResourceColumnDefinition::default()
        })
    }

    #[test]
    fn a_cell_has_the_type_of_its_column_or_is_empty() {
        let now = "2026-01-01T00:10:00Z".parse().expect("a time");
        let object = json!({"spec": {"n": 5, "list": ["a", "b"], "word": "x", "since": "2026-01-01T00:00:00Z"}});
        for (kind, path, cell) in [
            ("integer", ".spec.n", json!(5)),
            ("string", ".spec.n", json!("5")),
            ("string", ".spec.list", json!("[\"a\",\"b\"]")),
            ("string", ".spec.word", json!("x")),
            ("integer", ".spec.word", Value::Null),
            ("string", ".spec.absent", Value::Null),
            ("date", ".spec.since", json!("10m")),
            ("date", ".spec.word", json!("<invalid>")),
        ] {
            assert_eq!(column(kind, path).cell(&object, now), cell, "{kind} {path}");
        }
    }

    #[test]
    fn a_custom_kind_without_columns_shows_its_age() {
        let names = |columns: &[Column]| columns.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&custom_columns(&[])), ["Name", "Age"]);
        assert_eq!(names(&columns("CustomResourceDefinition")), ["Name", "Created At"]);
    }
}
