//! How a report reads on a terminal.

use std::fmt;

use super::{Counts, Finding, Report, Severity};

/// One line per finding, then one that sums up.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        writeln!(f, "{}", self.counts)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: ", self.file, self.line, self.severity)?;
        let name = [self.namespace.as_str(), self.name.as_str()].into_iter().filter(|part| !part.is_empty());
        let name = name.collect::<Vec<_>>().join("/");
        match (self.kind.as_str(), name.as_str()) {
            ("", "") => {}
            ("", name) => write!(f, "{name}: ")?,
            (kind, "") => write!(f, "{kind}: ")?,
            (kind, name) => write!(f, "{kind} {name}: ")?,
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.sentence)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = counted(self.service_groups, "ServiceGroup");
        let agents = counted(self.node_agents, "LBNodeAgent");
        let files = counted(self.files, "file");
        match self.bgp_configurations {
            0 => write!(f, "{groups} and {agents} in {files}")?,
            bgp => write!(f, "{groups}, {agents} and {} in {files}", counted(bgp, "BGPConfiguration"))?,
        }
        if self.others > 0 {
            write!(f, " ({} of other kinds passed over)", counted(self.others, "object"))?;
        }
        write!(f, ": {}, {}", counted(self.errors, "error"), counted(self.warnings, "warning"))
    }
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
