//! What is noticed while one object is checked, and which of it is worth saying.

use purelb_core::reason::{Problem, Reason};

use super::{Fault, Severity};
use crate::read::Reading;
use crate::schema::{Violation, ViolationKind};

/// What was noticed about one field.
pub struct Note {
    /// How bad it is.
    pub severity: Severity,
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What was noticed about one object.
#[derive(Default)]
pub struct Notes(pub Vec<Note>);

impl Notes {
    /// Notes something that keeps the object, or a part of it, from being used.
    pub fn error(&mut self, field: impl Into<String>, fault: impl Into<Fault>) {
        self.0.push(Note { severity: Severity::Error, field: field.into(), fault: fault.into() });
    }

    /// Notes something that its author may not have meant.
    pub fn warning(&mut self, field: impl Into<String>, fault: impl Into<Fault>) {
        self.0.push(Note { severity: Severity::Warning, field: field.into(), fault: fault.into() });
    }

    /// Notes what reading the object said, and gives what it read.
    pub fn reading<T>(&mut self, reading: Reading<T>) -> Option<T> {
        let note = |severity| move |Problem { field, reason }| Note { severity, field, fault: reason.into() };
        self.0.extend(reading.problems.into_iter().map(note(Severity::Error)));
        self.0.extend(reading.warnings.into_iter().map(note(Severity::Warning)));
        reading.value
    }

    /// Notes what the schema refuses, except where a sentence of our own says what to write instead.
    pub fn violations(&mut self, violations: Vec<Violation>) {
        for violation in violations {
            if violation.kind == ViolationKind::TypeInvalid {
                // For the reader the field was not there, so what it says of it misleads.
                self.0.retain(|note| note.field != violation.field);
            }
            let explained = self.0.iter_mut().find(|note| note.field == violation.field);
            match explained {
                Some(note) => note.severity = Severity::Error,
                None => self.error(violation.field.clone(), refusal(&violation)),
            }
        }
    }

    /// Removes complaints about missing addresses where a slip elsewhere in the object is the cause.
    pub fn without_consequences(mut self) -> Vec<Note> {
        let slip = |note: &Note| matches!(note.fault, Fault::FieldUnknown { .. } | Fault::SchemaViolated { .. });
        if self.0.iter().any(slip) {
            self.0.retain(|note| !matches!(note.fault, Fault::Known(Reason::NoSource | Reason::NoRanges)));
        }
        self.0
    }
}

fn refusal(violation: &Violation) -> Fault {
    let text = violation.kind == ViolationKind::TypeInvalid && violation.sentence.contains("must be of type string");
    let hint = if text { "; put the value in quotes" } else { "" };
    let phrase = violation.kind.phrase();
    let answer =
        if violation.sentence.is_empty() { phrase.to_owned() } else { format!("{phrase}: {}", violation.sentence) };
    Fault::SchemaViolated { answer, hint }
}
