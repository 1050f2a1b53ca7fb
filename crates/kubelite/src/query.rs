//! Query parameters, read into what each verb needs.

use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::select::{FieldSelector, LabelSelector};
use crate::status::{Cause, Refusal, Subject};

/// All parameters of a request, decoded, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let decode = |raw: &str| percent_decode_str(&raw.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(key), decode(value))
        };
        Self(text.split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.0.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    fn all(&self, key: &str) -> Vec<&str> {
        self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| value.as_str()).collect()
    }

    /// A boolean as Kubernetes reads it: a bare key is true.
    fn flag(&self, key: &str) -> Option<bool> {
        let (_, value) = self.0.iter().find(|(name, _)| name == key)?;
        Some(!matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    fn number(&self, key: &str) -> Result<Option<i64>, Refusal> {
        let text = self.text(key);
        if text.is_empty() {
            return Ok(None);
        }
        let fault = |_| Refusal::BadRequest(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
        text.parse().map(Some).map_err(fault)
    }
}

/// How the resourceVersion of a list is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// The newest state.
    Latest,
    /// Any state, also a cached one: lists ignore `limit` then.
    Any,
    /// At least this revision.
    NotOlderThan(u64),
    /// Exactly this revision.
    Exact(u64),
}

/// Parameters of list, watch and deletecollection.
#[derive(Debug, Clone)]
pub(crate) struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub watch: bool,
    /// As written; a watch and a list read it differently.
    pub resource_version: String,
    pub resource_version_match: String,
    pub limit: usize,
    pub continue_token: String,
    pub bookmarks: bool,
    pub send_initial_events: Option<bool>,
    pub timeout: Option<Duration>,
}

impl ListOptions {
    pub(crate) fn read(query: &Query) -> Result<Self, Refusal> {
        let timeout = query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
        let options = Self {
            labels: LabelSelector::parse(query.text("labelSelector"))?,
            fields: FieldSelector::parse(query.text("fieldSelector"))?,
            watch: query.flag("watch").unwrap_or(false),
            resource_version: query.text("resourceVersion").into(),
            resource_version_match: query.text("resourceVersionMatch").into(),
            limit: query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0),
            continue_token: query.text("continue").into(),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            send_initial_events: query.flag("sendInitialEvents"),
            timeout: timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs),
        };
        let causes = options.faults();
        if causes.is_empty() { Ok(options) } else { Err(invalid_options("ListOptions", causes)) }
    }

    fn faults(&self) -> Vec<Cause> {
        let field = "resourceVersionMatch";
        let matching = self.resource_version_match.as_str();
        let forbidden = |why: &str| vec![Cause::forbidden(field, why)];
        if self.watch {
            return match (matching, self.send_initial_events) {
                _ if !self.continue_token.is_empty() => {
                    forbidden("resourceVersionMatch is forbidden when continue is provided")
                }
                ("NotOlderThan", Some(_)) | ("", None) => Vec::new(),
                (_, Some(_)) => forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
                (_, None) => {
                    forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
                }
            };
        }
        if self.send_initial_events.is_some() {
            return vec![Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")];
        }
        match matching {
            "" => Vec::new(),
            _ if self.resource_version.is_empty() => {
                forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
            }
            _ if !self.continue_token.is_empty() => {
                forbidden("resourceVersionMatch is forbidden when continue is provided")
            }
            "Exact" if self.resource_version == "0" => {
                forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
            }
            "Exact" | "NotOlderThan" => Vec::new(),
            other => vec![Cause::unsupported(field, other, &["Exact", "NotOlderThan", ""])],
        }
    }

    /// How fresh a list must be.
    pub(crate) fn freshness(&self) -> Result<Freshness, Refusal> {
        let revision = parse_revision(&self.resource_version)
            .map_err(|why| Refusal::BadRequest(format!("invalid resource version: {why}")))?;
        Ok(match (revision, self.resource_version_match.as_str()) {
            (None, _) => Freshness::Latest,
            (Some(0), _) => Freshness::Any,
            (Some(revision), "Exact") => Freshness::Exact(revision),
            // An old server's rule that still holds: a limited list at a given revision is that revision.
            (Some(revision), "") if self.limit > 0 => Freshness::Exact(revision),
            (Some(revision), _) => Freshness::NotOlderThan(revision),
        })
    }
}

/// A resourceVersion as a number; none if it is not given.
pub(crate) fn parse_revision(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let fault =
        |_| format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
    text.parse().map(Some).map_err(fault)
}

/// What to do with fields that a kind does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Parameters of create, update, patch and delete.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    pub dry_run: bool,
    pub field_validation: FieldValidation,
}

impl WriteOptions {
    /// `kind` is the options kind that error messages name, for example `CreateOptions`.
    pub(crate) fn read(query: &Query, kind: &str) -> Result<Self, Refusal> {
        let dry_run = query.all("dryRun");
        let mut causes = Vec::new();
        if dry_run.iter().any(|value| *value != "All") {
            causes.push(Cause::unsupported("dryRun", &dry_run, &["All"]));
        }
        let word = query.text("fieldValidation");
        let field_validation = match word {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        };
        if !matches!(word, "" | "Ignore" | "Warn" | "Strict") {
            causes.push(Cause::unsupported("fieldValidation", word, &["", "Ignore", "Strict", "Warn"]));
        }
        if !causes.is_empty() {
            return Err(invalid_options(kind, causes));
        }
        Ok(Self { dry_run: !dry_run.is_empty(), field_validation })
    }
}

/// A refusal of the parameters themselves.
pub(crate) fn invalid_options(kind: &str, causes: Vec<Cause>) -> Refusal {
    Refusal::Invalid(Subject::new("meta.k8s.io", kind, ""), causes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<ListOptions, Refusal> {
        ListOptions::read(&Query::parse(text))
    }

    #[test]
    fn parameters_are_decoded() {
        let options = list("labelSelector=a+in%20(b,c)&watch=1&timeoutSeconds=5&limit=-1").expect("good parameters");
        assert_eq!(options.labels, LabelSelector::parse("a in (b,c)").expect("a good selector"));
        assert!(options.watch);
        assert_eq!((options.timeout, options.limit), (Some(Duration::from_secs(5)), 0));
    }

    #[test]
    fn contradictions_are_refused_with_the_field_that_is_wrong() {
        for (text, code) in [
            ("limit=x", 400),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("resourceVersion=5&resourceVersionMatch=Foo", 422),
            ("sendInitialEvents=true", 422),
            ("watch=true&sendInitialEvents=true", 422),
            ("watch=true&resourceVersion=5&resourceVersionMatch=NotOlderThan", 422),
        ] {
            assert_eq!(list(text).expect_err(text).code(), code, "{text}");
        }
    }

    #[test]
    fn a_resource_version_means_what_its_match_says() {
        let freshness = |text: &str| list(text).and_then(|options| options.freshness());
        assert_eq!(freshness(""), Ok(Freshness::Latest));
        assert_eq!(freshness("resourceVersion=0"), Ok(Freshness::Any));
        assert_eq!(freshness("resourceVersion=7"), Ok(Freshness::NotOlderThan(7)));
        assert_eq!(freshness("resourceVersion=7&limit=1"), Ok(Freshness::Exact(7)));
        assert_eq!(freshness("resourceVersion=7&resourceVersionMatch=Exact"), Ok(Freshness::Exact(7)));
        assert_eq!(freshness("resourceVersion=x").expect_err("not a number").code(), 400);
    }
}
