//! From a URL path to what it addresses.

use percent_encoding::percent_decode_str;

use crate::status::Refusal;

/// What a URL path addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/healthz`, `/livez`, `/readyz`
    Health,
    /// `/version`
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1` and `/apis/GROUP/VERSION`
    Resources { group: String, version: String },
    /// `/openapi/v3`
    Documents,
    /// `/openapi/v3/api/v1` and `/openapi/v3/apis/GROUP/VERSION`
    Document { group: String, version: String },
    /// A collection, an object or a subresource.
    Resource(ResourcePath),
}

/// The address of a collection (no name), an object or one of its subresources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub plural: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// The old form `/api/v1/watch/...` of a watch.
    pub watch: bool,
}

/// Subresources of a namespace, which look like resources inside it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl Target {
    pub(crate) fn parse(path: &str) -> Result<Self, Refusal> {
        let mut segments = Vec::new();
        for raw in path.trim_matches('/').split('/') {
            let segment = percent_decode_str(raw).decode_utf8().map_err(|_| Refusal::UnknownPath)?;
            if segment.contains('/') {
                return Err(Refusal::UnknownResource);
            }
            segments.push(segment.into_owned());
        }
        let words: Vec<&str> = segments.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["healthz" | "livez" | "readyz", ..] => Ok(Self::Health),
            ["version"] => Ok(Self::Version),
            ["openapi", "v3"] => Ok(Self::Documents),
            ["openapi", "v3", "api", version] => {
                Ok(Self::Document { group: String::new(), version: (*version).into() })
            }
            ["openapi", "v3", "apis", group, version] => {
                Ok(Self::Document { group: (*group).into(), version: (*version).into() })
            }
            ["api"] => Ok(Self::CoreVersions),
            ["apis"] => Ok(Self::Groups),
            ["apis", group] => Ok(Self::Group((*group).into())),
            ["api", version] => Ok(Self::Resources { group: String::new(), version: (*version).into() }),
            ["apis", group, version] => Ok(Self::Resources { group: (*group).into(), version: (*version).into() }),
            ["api", version, rest @ ..] => resource("", version, rest),
            ["apis", group, version, rest @ ..] => resource(group, version, rest),
            _ => Err(Refusal::UnknownPath),
        }
    }
}

fn resource(group: &str, version: &str, words: &[&str]) -> Result<Target, Refusal> {
    let (watch, words) = match words {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        all => (false, all),
    };
    let own = |word: &str| Some(word.to_owned());
    let (namespace, plural, rest) = match words {
        ["namespaces", _, sub] if NAMESPACE_SUBRESOURCES.contains(sub) => (None, "namespaces", &words[1..]),
        // An empty namespace means all of them.
        ["namespaces", "", plural, rest @ ..] => (None, *plural, rest),
        ["namespaces", namespace, plural, rest @ ..] => (own(namespace), *plural, rest),
        [plural, rest @ ..] => (None, *plural, rest),
        [] => return Err(Refusal::UnknownPath),
    };
    let (name, subresource) = match rest {
        [] => (None, None),
        [name] => (own(name), None),
        [name, sub] => (own(name), own(sub)),
        _ => return Err(Refusal::UnknownResource),
    };
    Ok(Target::Resource(ResourcePath {
        group: group.into(),
        version: version.into(),
        namespace,
        plural: plural.into(),
        name,
        subresource,
        watch,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> (String, Option<String>, String, Option<String>, Option<String>) {
        match Target::parse(path).expect("a path of the API") {
            Target::Resource(it) => (it.group, it.namespace, it.plural, it.name, it.subresource),
            other => panic!("{path} addresses {other:?}"),
        }
    }

    fn some(text: &str) -> Option<String> {
        Some(text.into())
    }

    #[test]
    fn collections_objects_and_subresources_are_told_apart() {
        assert_eq!(parts("/api/v1/services"), ("".into(), None, "services".into(), None, None));
        assert_eq!(
            parts("/api/v1/namespaces/a/services/b/status"),
            ("".into(), some("a"), "services".into(), some("b"), some("status"))
        );
        assert_eq!(
            parts("/apis/purelb.io/v2/namespaces/a/servicegroups/"),
            ("purelb.io".into(), some("a"), "servicegroups".into(), None, None)
        );
    }

    #[test]
    fn a_namespace_and_its_status_are_not_a_resource_inside_it() {
        assert_eq!(parts("/api/v1/namespaces/a"), ("".into(), None, "namespaces".into(), some("a"), None));
        assert_eq!(
            parts("/api/v1/namespaces/a/status"),
            ("".into(), None, "namespaces".into(), some("a"), some("status"))
        );
    }

    #[test]
    fn paths_outside_the_api_are_unknown() {
        for path in ["", "/", "/nope", "//", "/%ff"] {
            assert_eq!(Target::parse(path), Err(Refusal::UnknownPath), "{path}");
        }
        assert_eq!(Target::parse("/api/v1/nodes/a%2Fb"), Err(Refusal::UnknownResource));
    }
}
