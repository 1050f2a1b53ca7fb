//! Which of several BGPConfigurations counts.
//!
//! A speaker has one configuration, and so one object counts: in the namespace PureLB runs in, the one named `default`,
//! else the oldest, for an object that was just created should not take the sessions of one that is in use. The others
//! are ignored, and told so.

use crate::reason::Reason;

/// The name that comes before all others.
const FIRST: &str = "default";

/// An object that may count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// Whether somebody has deleted it, and only a finalizer keeps it.
    pub leaving: bool,
}

/// What becomes of the candidates, by their place in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The one that counts.
    pub chosen: Option<usize>,
    /// Those that are ignored, and why. An object that is leaving is neither.
    pub ignored: Vec<(usize, Reason)>,
}

/// Chooses the one that counts. Where nobody knows PureLB's namespace (the empty text), every namespace will do.
pub fn choose(candidates: &[Candidate], install_namespace: &str) -> Choice {
    let staying = || candidates.iter().enumerate().filter(|(_, candidate)| !candidate.leaving);
    let at_home = |candidate: &Candidate| install_namespace.is_empty() || candidate.namespace == install_namespace;
    let chosen = staying()
        .filter(|(_, candidate)| at_home(candidate))
        .min_by_key(|(_, candidate)| {
            (candidate.name != FIRST, candidate.created, &candidate.namespace, &candidate.name)
        })
        .map(|(i, _)| i);
    let why = |candidate: &Candidate| match chosen {
        Some(chosen) if at_home(candidate) => {
            let by = format!("{}/{}", candidates[chosen].namespace, candidates[chosen].name);
            Reason::BgpConfigurationIgnored { by }
        }
        _ => Reason::BgpConfigurationOutOfScope {
            namespace: candidate.namespace.clone(),
            install_namespace: install_namespace.to_owned(),
        },
    };
    let others = staying().filter(|(i, _)| Some(*i) != chosen);
    Choice { chosen, ignored: others.map(|(i, candidate)| (i, why(candidate))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, created: i64) -> Candidate {
        let (namespace, name) = name.split_once('/').unwrap();
        Candidate { namespace: namespace.to_owned(), name: name.to_owned(), created, leaving: false }
    }

    fn chosen(candidates: &[Candidate]) -> (Option<usize>, Vec<(usize, &'static str)>) {
        let choice = choose(candidates, "home");
        (choice.chosen, choice.ignored.iter().map(|(i, reason)| (*i, reason.name())).collect())
    }

    #[test]
    fn the_one_named_default_counts_then_the_oldest() {
        let (young, old) = (candidate("home/a", 20), candidate("home/z", 10));
        assert_eq!(chosen(&[young.clone(), old.clone()]), (Some(1), vec![(0, "BgpConfigurationIgnored")]));
        let named = candidate("home/default", 30);
        let ignored = vec![(0, "BgpConfigurationIgnored"), (1, "BgpConfigurationIgnored")];
        assert_eq!(chosen(&[young, old, named]), (Some(2), ignored));
        assert_eq!(chosen(&[candidate("home/b", 10), candidate("home/a", 10)]).0, Some(1), "born together: by name");
    }

    #[test]
    fn only_the_install_namespace_counts_unless_nobody_knows_it() {
        let elsewhere = [candidate("other/default", 1)];
        assert_eq!(chosen(&elsewhere), (None, vec![(0, "BgpConfigurationOutOfScope")]));
        assert_eq!(choose(&elsewhere, ""), Choice { chosen: Some(0), ignored: vec![] });
    }

    #[test]
    fn an_object_that_is_being_deleted_makes_room() {
        let leaving = Candidate { leaving: true, ..candidate("home/default", 1) };
        assert_eq!(chosen(&[leaving.clone(), candidate("home/next", 2)]), (Some(1), vec![]));
        assert_eq!(chosen(&[leaving]), (None, vec![]));
    }
}
