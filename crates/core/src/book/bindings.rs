//! Which groups serve which namespaces, and which namespaces may use no other.

use std::collections::{BTreeMap, BTreeSet};

use crate::group::Group;
use crate::reason::Reason;

/// The group used where neither an annotation nor a namespace names one.
pub const DEFAULT_GROUP: &str = "default";

/// The namespace lists of all groups, turned around.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    namespaces: BTreeMap<String, Binding>,
    /// Groups that serve at least one enforcing namespace: nobody else may use them.
    confined: BTreeSet<String>,
}

/// What the groups say about one namespace.
#[derive(Clone, Debug, Default)]
struct Binding {
    eligible: BTreeSet<String>,
    marked: BTreeSet<String>,
    enforcing: bool,
}

/// The group a namespace uses when a Service names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceDefault {
    /// No group lists the namespace.
    Unbound,
    /// This one.
    Group(String),
    /// Several list it, and not exactly one is marked.
    Ambiguous {
        /// Why, in words.
        why: String,
        /// Whether the namespace is confined to its groups, so that `default` is no way out.
        enforcing: bool,
    },
}

impl Bindings {
    /// Reads the namespace lists of all usable groups.
    pub fn new<'a>(groups: impl Iterator<Item = &'a Group>) -> Self {
        let mut bindings = Self::default();
        for group in groups {
            for namespace in &group.namespaces {
                let binding = bindings.namespaces.entry(namespace.clone()).or_default();
                binding.eligible.insert(group.name.clone());
                binding.enforcing |= group.enforce_namespaces;
                if group.namespace_default {
                    binding.marked.insert(group.name.clone());
                }
            }
        }
        let enforcing = bindings.namespaces.values().filter(|binding| binding.enforcing);
        bindings.confined = enforcing.flat_map(|binding| binding.eligible.iter().cloned()).collect();
        bindings
    }

    /// The group for a namespace's Services that name none.
    pub fn default_of(&self, namespace: &str) -> NamespaceDefault {
        let Some(binding) = self.namespaces.get(namespace) else { return NamespaceDefault::Unbound };
        let only = |names: &BTreeSet<String>| (names.len() == 1).then(|| names.first().cloned()).flatten();
        match only(&binding.eligible).or_else(|| only(&binding.marked)) {
            Some(group) => NamespaceDefault::Group(group),
            None => NamespaceDefault::Ambiguous { why: binding.ambiguity(namespace), enforcing: binding.enforcing },
        }
    }

    /// Refuses a group that a namespace may not use.
    pub fn check(&self, namespace: &str, group: &Group) -> Result<(), Reason> {
        let listed = group.namespaces.iter().any(|listed| listed == namespace);
        if self.confined.contains(&group.name) && !listed {
            return Err(Reason::GroupConfined { group: group.name.clone(), namespace: namespace.to_owned() });
        }
        match self.namespaces.get(namespace) {
            Some(binding) if binding.enforcing && !listed => Err(Reason::NamespaceConfined {
                namespace: namespace.to_owned(),
                allowed: bracketed(&binding.eligible),
                group: group.name.clone(),
            }),
            _ => Ok(()),
        }
    }
}

impl Binding {
    fn ambiguity(&self, namespace: &str) -> String {
        if self.marked.is_empty() {
            let names = bracketed(&self.eligible);
            return format!(
                "namespace \"{namespace}\" is served by {names} and none sets namespaceDefault; exactly one must"
            );
        }
        let names = bracketed(&self.marked);
        format!("namespace \"{namespace}\": {names} all set namespaceDefault; exactly one must")
    }
}

fn bracketed(names: &BTreeSet<String>) -> String {
    format!("[{}]", names.iter().map(String::as_str).collect::<Vec<_>>().join(" "))
}
