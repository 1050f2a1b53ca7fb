//! Checks manifests offline, with the very functions the daemons read objects with; the engine of `purelb validate`.
//!
//! ```text
//! texts ─ document ─▶ values with lines ─ object ─▶ findings of one object ─┐
//!                                          └──────▶ groups ─── together ────┴─▶ Report
//! ```
//!
//! Nothing here reads files or decides about exit codes: the callers do.

mod document;
mod fault;
mod notes;
mod object;
mod render;
mod rules;
mod suggest;
mod together;

use std::collections::HashMap;

use serde::Serialize;

use document::Unreadable;
pub use fault::Fault;

/// Everything that was found in a set of manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What is wrong or doubtful, by file and line.
    pub findings: Vec<Finding>,
    /// How much was looked at, and how much of it is wrong.
    pub counts: Counts,
}

impl Report {
    /// Whether a cluster would accept and use everything as it is written; warnings do not count.
    pub fn is_clean(&self) -> bool {
        self.counts.errors == 0
    }
}

/// How much was looked at, and how much of it is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Texts that were read.
    pub files: usize,
    /// ServiceGroups that were checked.
    pub service_groups: usize,
    /// LBNodeAgents that were checked.
    pub node_agents: usize,
    /// BGPConfigurations that were checked.
    pub bgp_configurations: usize,
    /// Objects of other kinds, which were passed over.
    pub others: usize,
    /// Findings that keep something from being used.
    pub errors: usize,
    /// Findings that deserve a look.
    pub warnings: usize,
}

/// One thing that is wrong or doubtful.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The text it is in, by the name the caller gave it.
    pub file: String,
    /// The line it is on, or the nearest one above.
    pub line: u64,
    /// The object's kind; empty where the text could not be read that far.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's namespace; empty where none is written.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The object's name; empty where none is written.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The field, such as `spec.local.v4pools[0].pool`; empty where it is about the whole text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// The word for it, such as `RangeReversed`.
    pub reason: String,
    /// What is wrong and what to write instead.
    pub sentence: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The API server refuses it, or PureLB does not use it.
    Error,
    /// It works, but likely not as its author thinks.
    Warning,
}

/// Checks texts, each given with a name such as its file's; all of them together are one configuration.
pub fn validate<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Report {
    let mut report = Report::default();
    let mut checker = object::Checker::default();
    let mut files = Vec::new();
    for (file, text) in texts {
        files.push(file);
        for document in document::read(file, text) {
            match document {
                Ok(document) => checker.document(document, &mut report),
                Err(unreadable) => report.findings.push(not_yaml(file, unreadable)),
            }
        }
    }
    report.findings.extend(together::check(checker.found()));
    let order: HashMap<_, _> = files.iter().copied().zip(0_usize..).collect();
    report.findings.sort_by_key(|finding| (order.get(finding.file.as_str()), finding.line));
    report.counts.files = files.len();
    report.counts.errors = report.findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    report.counts.warnings = report.findings.len() - report.counts.errors;
    report
}

fn not_yaml(file: &str, Unreadable { line, problem }: Unreadable) -> Finding {
    let fault = Fault::YamlSyntax { problem };
    Finding {
        severity: Severity::Error,
        file: file.to_owned(),
        line,
        kind: String::new(),
        namespace: String::new(),
        name: String::new(),
        field: String::new(),
        reason: fault.name().to_owned(),
        sentence: fault.to_string(),
    }
}

#[cfg(test)]
mod tests;
