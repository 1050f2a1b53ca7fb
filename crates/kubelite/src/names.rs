//! What may be a name, a label, an annotation key or a finalizer, in the API server's words.

/// How the names of a kind are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Lower case RFC 1123 subdomain, up to 253 characters.
    Subdomain,
    /// Lower case RFC 1123 label, up to 63 characters.
    Label,
}

impl NameRule {
    /// What is wrong with a name; nothing if it is fine.
    pub(crate) fn faults(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => subdomain_faults(name),
            Self::Label => label_name_faults(name),
        }
    }

    /// The same for the fixed part of a generated name, which may end in a dash.
    pub(crate) fn prefix_faults(self, prefix: &str) -> Vec<String> {
        match prefix.strip_suffix('-') {
            Some(rest) if !rest.is_empty() => self.faults(&format!("{rest}a")),
            _ => self.faults(prefix),
        }
    }
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn too_long(text: &str, limit: usize) -> Option<String> {
    (text.len() > limit).then(|| format!("must be no more than {limit} characters"))
}

fn is_label(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_qualified_part(text: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    let edge = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|c| inner(*c))
}

pub(crate) fn subdomain_faults(name: &str) -> Vec<String> {
    let shape = (!name.split('.').all(is_label)).then(|| SUBDOMAIN.to_owned());
    too_long(name, 253).into_iter().chain(shape).collect()
}

pub(crate) fn label_name_faults(name: &str) -> Vec<String> {
    let shape = (!is_label(name)).then(|| LABEL.to_owned());
    too_long(name, 63).into_iter().chain(shape).collect()
}

/// A label key, an annotation key, a load balancer class: `[prefix/]name`.
pub(crate) fn qualified_name_faults(key: &str) -> Vec<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let mut faults = Vec::new();
    if name.contains('/') {
        return vec!["a qualified name must consist of a DNS subdomain prefix, '/' and a name".into()];
    }
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".into()),
        Some(prefix) => faults.extend(subdomain_faults(prefix).into_iter().map(|fault| format!("prefix part {fault}"))),
        None => {}
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".into());
    }
    faults.extend(too_long(name, 63).map(|fault| format!("name part {fault}")));
    if !is_qualified_part(name) {
        faults.push(format!("name part {QUALIFIED}"));
    }
    faults
}

pub(crate) fn label_value_faults(value: &str) -> Vec<String> {
    let shape = (!value.is_empty() && !is_qualified_part(value)).then(|| VALUE.to_owned());
    too_long(value, 63).into_iter().chain(shape).collect()
}

/// The finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

pub(crate) fn finalizer_faults(finalizer: &str) -> Vec<String> {
    let mut faults = qualified_name_faults(finalizer);
    if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
        faults.push("name is neither a standard finalizer name nor is it fully qualified".into());
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_kubernetes_refuses_are_refused() {
        for name in ["", "A", "a_b", "-a", "a-", "a..b", "VirtualAddressRange"] {
            assert!(!NameRule::Subdomain.faults(name).is_empty(), "{name:?} passed");
        }
        assert!(!NameRule::Label.faults("a.b").is_empty());
        assert!(!NameRule::Label.faults(&"a".repeat(64)).is_empty());
    }

    #[test]
    fn usual_names_pass() {
        for name in ["a", "1a", "a-b", "a.b", "0"] {
            assert_eq!(NameRule::Subdomain.faults(name), Vec::<String>::new());
        }
        assert_eq!(NameRule::Label.prefix_faults("web-"), Vec::<String>::new());
        assert_eq!(qualified_name_faults("purelb.io/allocated-by"), Vec::<String>::new());
        assert_eq!(label_value_faults(""), Vec::<String>::new());
        assert_eq!(finalizer_faults("foregroundDeletion"), Vec::<String>::new());
    }

    #[test]
    fn keys_are_checked_in_both_parts() {
        for key in ["/a", "a/", "a/b/c", "A_b/c", "a b", ""] {
            assert!(!qualified_name_faults(key).is_empty(), "{key:?} passed");
        }
    }
}
