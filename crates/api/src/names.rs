//! The names Kubernetes accepts for objects, and a legal name close to an illegal one.

/// The longest name of an object.
const LONGEST: usize = 253;

/// Whether a text is a lower-case RFC 1123 subdomain, as the names of custom objects must be.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= LONGEST && text.split('.').all(is_label)
}

/// One part of a subdomain; Kubernetes limits the length of the whole name only.
fn is_label(text: &str) -> bool {
    let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    alphanumeric(text.chars().next())
        && alphanumeric(text.chars().last())
        && text.chars().all(|c| alphanumeric(Some(c)) || c == '-')
}

/// The legal name closest to an illegal one; `default` where nothing of it can be kept.
pub fn legal_name(text: &str) -> String {
    let lowered = text.to_ascii_lowercase();
    let replaced: String =
        lowered.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let parts = replaced.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty());
    let mut name = parts.collect::<Vec<_>>().join(".");
    name.truncate(LONGEST);
    let name = name.trim_end_matches(['-', '.']);
    if name.is_empty() { "default".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("VirtualAddressRange", "virtualaddressrange")]
    #[case("my_pool", "my-pool")]
    #[case("-edge-", "edge")]
    #[case("a..b", "a.b")]
    #[case("a.-b", "a.b")]
    #[case("Größe 1", "gr--e-1")]
    #[case("___", "default")]
    fn an_illegal_name_has_a_legal_neighbour(#[case] name: &str, #[case] instead: &str) {
        assert!(!is_subdomain(name));
        assert!(is_subdomain(instead));
        assert_eq!(legal_name(name), instead);
    }

    #[test]
    fn a_name_that_is_too_long_is_cut() {
        let long = "a".repeat(254);
        assert!(!is_subdomain(&long));
        assert_eq!(legal_name(&long), "a".repeat(253));
    }

    #[rstest]
    #[case("default")]
    #[case("a.b-c.1")]
    #[case("0")]
    fn legal_names_pass(#[case] name: &str) {
        assert!(is_subdomain(name));
    }
}
