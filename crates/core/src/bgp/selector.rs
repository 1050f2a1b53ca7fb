//! Nodes by their labels.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Which nodes: those whose labels meet every requirement. Without any, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector(pub Vec<Requirement>);

/// One thing that is required of a node's labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// The label.
    pub key: String,
    /// What is required of it.
    pub operator: Operator,
}

/// What is required of a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    /// It is there, with one of these values.
    In(BTreeSet<String>),
    /// It is not there, or has none of these values.
    NotIn(BTreeSet<String>),
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

impl Selector {
    /// Whether a node with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.holds(labels))
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_selected_when_its_labels_meet_every_requirement() {
        let labels = BTreeMap::from([("rack".to_owned(), "1".to_owned())]);
        let one = || BTreeSet::from(["1".to_owned()]);
        let cases = [
            ("rack", Operator::In(one()), true),
            ("zone", Operator::In(one()), false),
            ("rack", Operator::NotIn(one()), false),
            ("zone", Operator::NotIn(one()), true),
            ("rack", Operator::Exists, true),
            ("zone", Operator::Exists, false),
            ("rack", Operator::DoesNotExist, false),
            ("zone", Operator::DoesNotExist, true),
        ];
        for (key, operator, selected) in cases {
            let requirement = Requirement { key: key.to_owned(), operator };
            let both = vec![Requirement { key: "rack".to_owned(), operator: Operator::Exists }, requirement.clone()];
            assert_eq!(Selector(vec![requirement.clone()]).matches(&labels), selected, "{requirement:?}");
            assert_eq!(Selector(both).matches(&labels), selected, "{requirement:?} and one that holds");
        }
        assert!(Selector::default().matches(&labels));
    }
}
