//! Which ServiceGroups count, by the namespace they are in.

use std::collections::BTreeSet;

/// Namespace and name.
pub type Key = (String, String);

/// Groups in other namespaces than PureLB's own do not count, unless they are automatic; but if that left none at all,
/// somebody is mistaken about the namespace, and all of them count.
///
/// Each group comes with whether it is automatic; the answer is the groups that do not count.
pub fn out_of_scope<'a>(groups: impl IntoIterator<Item = (&'a Key, bool)>, install_namespace: &str) -> BTreeSet<Key> {
    let (mut outside, mut all) = (BTreeSet::new(), 0);
    for (key, automatic) in groups {
        all += 1;
        if !automatic && key.0 != install_namespace {
            outside.insert(key.clone());
        }
    }
    if outside.len() == all || install_namespace.is_empty() { BTreeSet::new() } else { outside }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored(groups: &[(&str, bool)]) -> Vec<String> {
        let keys: Vec<Key> =
            groups.iter().enumerate().map(|(i, (namespace, _))| ((*namespace).to_owned(), i.to_string())).collect();
        let automatic = groups.iter().map(|(_, automatic)| *automatic);
        out_of_scope(keys.iter().zip(automatic), "home").into_iter().map(|key| key.1).collect()
    }

    #[test]
    fn c17_groups_count_in_the_install_namespace_or_if_there_are_none_there_everywhere() {
        assert_eq!(ignored(&[("home", false), ("other", false)]), ["1"]);
        assert_eq!(ignored(&[("other", false), ("third", false)]), [""; 0]);
        assert_eq!(ignored(&[]), [""; 0]);
        let keys = [("home".to_owned(), "a".to_owned()), ("other".to_owned(), "b".to_owned())];
        assert!(out_of_scope(keys.iter().map(|key| (key, false)), "").is_empty(), "k8s-8: nobody knows which it is");
        assert_eq!(ignored(&[("home", false), ("other", true)]), [""; 0], "automatic ones count everywhere");
    }
}
