//! Whether Kubernetes could evaluate a label selector.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use purelb_core::reason::{Problem, Reason};

/// Everything in a selector that keeps it from matching any node; `path` is the selector's own.
pub fn check(path: &str, selector: &LabelSelector) -> Vec<Problem> {
    let labels = selector.match_labels.iter().flatten().flat_map(|(key, value)| {
        let field = format!("{path}.matchLabels");
        [key_problem(key), value_problem(value)].into_iter().flatten().map(move |problem| (field.clone(), problem))
    });
    let expressions = selector.match_expressions.iter().flatten().enumerate().flat_map(|(i, requirement)| {
        let field = format!("{path}.matchExpressions[{i}]");
        requirement_problems(requirement).into_iter().map(move |(name, problem)| (format!("{field}.{name}"), problem))
    });
    labels.chain(expressions).map(|(field, problem)| Problem::new(field, Reason::SelectorInvalid { problem })).collect()
}

fn requirement_problems(requirement: &LabelSelectorRequirement) -> Vec<(&'static str, String)> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let operator = requirement.operator.as_str();
    let mut found: Vec<_> = key_problem(&requirement.key).map(|problem| ("key", problem)).into_iter().collect();
    match operator {
        "In" | "NotIn" if values.is_empty() => {
            found.push(("values", format!("{operator} needs at least one value; list the values")));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            found.push(("values", format!("{operator} takes no values; delete them, or write In or NotIn")));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            found.push(("operator", format!("there is no operator {other:?}; write In, NotIn, Exists or DoesNotExist")))
        }
    }
    found.extend(values.iter().filter_map(|value| value_problem(value)).map(|problem| ("values", problem)));
    found
}

/// A label key is a name, or a domain and a name with a slash between.
fn key_problem(key: &str) -> Option<String> {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let legal = is_label(name) && prefix.is_none_or(crate::names::is_subdomain);
    (!legal).then(|| format!("{key:?} is not a label key; write one such as kubernetes.io/hostname"))
}

fn value_problem(value: &str) -> Option<String> {
    let legal = value.is_empty() || is_label(value);
    (!legal).then(|| {
        format!("{value:?} is not a label value; write at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends")
    })
}

fn is_label(text: &str) -> bool {
    let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && alphanumeric(text.chars().next())
        && alphanumeric(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}
