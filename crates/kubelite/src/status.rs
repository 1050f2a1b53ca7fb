//! The API server's way of saying no: every refusal is an answer of kind `Status`.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

/// An object or resource as error messages name it, for example `services "web"`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    /// Empty for the core group.
    pub group: String,
    /// The plural resource, or the kind where the API server prints the kind (validation errors).
    pub kind: String,
    /// Empty where no single object is meant.
    pub name: String,
}

impl Subject {
    pub(crate) fn new(group: &str, kind: &str, name: &str) -> Self {
        Self { group: group.into(), kind: kind.into(), name: name.into() }
    }

    fn details(&self, causes: &[Cause]) -> Value {
        let mut details = serde_json::Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind)] {
            if !text.is_empty() {
                details.insert(key.into(), json!(text));
            }
        }
        if !causes.is_empty() {
            details.insert("causes".into(), json!(causes));
        }
        Value::Object(details)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{} \"{}\"", self.kind, self.group, self.name)
    }
}

/// One broken field of a refused object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Cause {
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

impl Cause {
    /// A value that breaks a rule; `value` is printed as JSON.
    pub(crate) fn invalid(field: impl Into<String>, value: impl Serialize, rule: impl fmt::Display) -> Self {
        let message = format!("Invalid value: {}: {rule}", json!(value));
        Self { reason: "FieldValueInvalid", message, field: field.into() }
    }

    /// A field that must be present; `hint` may be empty.
    pub(crate) fn required(field: impl Into<String>, hint: &str) -> Self {
        let message = if hint.is_empty() { "Required value".into() } else { format!("Required value: {hint}") };
        Self { reason: "FieldValueRequired", message, field: field.into() }
    }

    /// A value outside a closed list.
    pub(crate) fn unsupported(field: impl Into<String>, value: impl Serialize, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|word| format!("\"{word}\"")).collect();
        let message = format!("Unsupported value: {}: supported values: {}", json!(value), known.join(", "));
        Self { reason: "FieldValueNotSupported", message, field: field.into() }
    }

    /// A value that occurs twice where it may occur once.
    pub(crate) fn duplicate(field: impl Into<String>, value: impl Serialize) -> Self {
        let message = format!("Duplicate value: {}", json!(value));
        Self { reason: "FieldValueDuplicate", message, field: field.into() }
    }

    /// A field that may not be set here, or not in this way.
    pub(crate) fn forbidden(field: impl Into<String>, rule: impl fmt::Display) -> Self {
        Self { reason: "FieldValueForbidden", message: format!("Forbidden: {rule}"), field: field.into() }
    }
}

/// Why a request was not served; `Display` is the `message` of the answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0} not found")]
    NotFound(Subject),
    #[error("the server could not find the requested resource")]
    UnknownResource,
    /// A path that belongs to no API; the answer is plain text, as on the real server.
    #[error("404 page not found\n")]
    UnknownPath,
    #[error("{0} already exists")]
    AlreadyExists(Subject),
    #[error("Operation cannot be fulfilled on {0}: {1}")]
    Conflict(Subject, String),
    #[error("{0} is invalid: {causes}", causes = sentence(.1))]
    Invalid(Subject, Vec<Cause>),
    #[error("the server rejected our request due to an error in our request")]
    FailedPatch,
    #[error("{0}")]
    BadRequest(String),
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    #[error("{0}")]
    UnsupportedMediaType(String),
    /// A patch in a format that no kind knows.
    #[error("415: Unsupported Media Type")]
    UnknownPatchType,
    #[error("406: Not Acceptable\n\nAvailable representations: application/json")]
    NotAcceptable,
    /// No token, or another one than that of this server.
    #[error("Unauthorized")]
    Unauthorized,
    #[error("{0} is forbidden: {1}")]
    Forbidden(Subject, String, Vec<Cause>),
    /// History needed for the request was compacted away; a list may go on with the second token.
    #[error("{0}")]
    Expired(String, Option<String>),
    #[error("Timeout: Too large resource version: {wanted}, current: {current}")]
    FutureRevision { wanted: u64, current: u64 },
    #[error("Request entity too large: limit is {0}")]
    BodyTooLarge(usize),
    /// The API server has no better word for some malformed requests than 500 without a reason.
    #[error("{0}")]
    Internal(String),
}

/// What a client sees of an optimistic write that lost its race.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// All causes in one sentence, each once, in brackets when there are several.
fn sentence(causes: &[Cause]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in causes {
        let part = format!("{}: {}", cause.field, cause.message);
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    if parts.len() == 1 { parts.remove(0) } else { format!("[{}]", parts.join(", ")) }
}

impl Refusal {
    /// The HTTP status code.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::NotFound(_) | Self::UnknownResource | Self::UnknownPath => 404,
            Self::AlreadyExists(_) | Self::Conflict(..) => 409,
            Self::Invalid(..) | Self::FailedPatch => 422,
            Self::BadRequest(_) => 400,
            Self::MethodNotAllowed => 405,
            Self::UnsupportedMediaType(_) | Self::UnknownPatchType => 415,
            Self::NotAcceptable => 406,
            Self::Unauthorized => 401,
            Self::Forbidden(..) => 403,
            Self::Expired(..) => 410,
            Self::FutureRevision { .. } => 504,
            Self::BodyTooLarge(_) => 413,
            Self::Internal(_) => 500,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NotFound(_) | Self::UnknownResource | Self::UnknownPath => "NotFound",
            Self::AlreadyExists(_) => "AlreadyExists",
            Self::Conflict(..) => "Conflict",
            Self::Invalid(..) | Self::FailedPatch => "Invalid",
            Self::BadRequest(_) => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::UnsupportedMediaType(_) | Self::UnknownPatchType => "UnsupportedMediaType",
            Self::NotAcceptable => "NotAcceptable",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden(..) => "Forbidden",
            Self::Expired(..) => "Expired",
            Self::FutureRevision { .. } => "Timeout",
            Self::BodyTooLarge(_) => "RequestEntityTooLarge",
            Self::Internal(_) => "",
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::NotFound(subject) | Self::AlreadyExists(subject) | Self::Conflict(subject, _) => {
                Some(subject.details(&[]))
            }
            Self::Invalid(subject, causes) | Self::Forbidden(subject, _, causes) => Some(subject.details(causes)),
            Self::UnknownResource
            | Self::FailedPatch
            | Self::MethodNotAllowed
            | Self::NotAcceptable
            | Self::UnknownPatchType => Some(json!({})),
            Self::FutureRevision { .. } => Some(json!({
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            })),
            _ => None,
        }
    }

    /// The `Status` object that travels to the client.
    pub(crate) fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.to_string(), "code": self.code(),
        });
        if !self.reason().is_empty() {
            status["reason"] = json!(self.reason());
        }
        if let Some(details) = self.details() {
            status["details"] = details;
        }
        if let Self::Expired(_, Some(token)) = self {
            status["metadata"]["continue"] = json!(token);
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_object_is_named_with_its_group() {
        let status = Refusal::NotFound(Subject::new("purelb.io", "servicegroups", "web")).to_status();
        assert_eq!(status["message"], "servicegroups.purelb.io \"web\" not found");
        assert_eq!(status["details"], json!({"name": "web", "group": "purelb.io", "kind": "servicegroups"}));
        assert_eq!((&status["code"], &status["reason"]), (&json!(404), &json!("NotFound")));
    }

    #[test]
    fn several_broken_fields_share_one_message_and_keep_their_causes() {
        let causes = vec![
            Cause::invalid("spec.ports[0].port", 0, "must be between 1 and 65535, inclusive"),
            Cause::required("spec.ports[1].name", ""),
        ];
        let status = Refusal::Invalid(Subject::new("", "Service", "web"), causes).to_status();
        assert_eq!(
            status["message"],
            "Service \"web\" is invalid: [spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, \
             inclusive, spec.ports[1].name: Required value]"
        );
        assert_eq!(status["details"]["causes"][1]["reason"], "FieldValueRequired");
    }
}
