//! What a configuration means for one node: which neighbors it talks to, and with which passwords.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use super::{Configuration, Neighbor, Password, PasswordSource, RouterIdSource, router_id};
use crate::reason::{Problem, Reason};

/// A Node, reduced to what BGP needs of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The Node's name.
    pub name: String,
    /// Its labels, by which neighbors are selected.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, in which a router ID may be.
    pub annotations: BTreeMap<String, String>,
    /// Its addresses of type InternalIP.
    pub internal: Vec<IpAddr>,
    /// Its addresses of type ExternalIP.
    pub external: Vec<IpAddr>,
}

/// The entries of Secrets, by the Secret's name and the entry's.
pub type Secrets = BTreeMap<String, BTreeMap<String, Password>>;

/// What a configuration means for one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBgp {
    /// The node's identifier and where it was found, or why there is none. Without one there are no sessions.
    pub router_id: Result<(Ipv4Addr, RouterIdSource), Reason>,
    /// The sessions of this node, each with another address.
    pub sessions: Vec<Session>,
    /// What is wrong on this node, by neighbor: these have no session.
    pub problems: Vec<Problem>,
}

/// One session of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// With whom, and how.
    pub neighbor: Neighbor,
    /// The password; it is usable.
    pub password: Option<Password>,
}

/// The Secrets that a configuration names.
pub fn wanted_secrets(configuration: &Configuration) -> BTreeSet<&str> {
    let sources = configuration.neighbors.iter().map(|neighbor| &neighbor.password);
    sources
        .filter_map(|source| match source {
            PasswordSource::Secret { name, .. } => Some(name.as_str()),
            PasswordSource::None | PasswordSource::Inline(_) => None,
        })
        .collect()
}

/// Finds out what a configuration means for a node, given the Secrets of its namespace as far as they exist, and the names
/// of those that could not be read: whether they exist is not known.
pub fn for_node(
    configuration: &Configuration,
    node: &NodeFacts,
    secrets: &Secrets,
    unread: &BTreeSet<String>,
) -> NodeBgp {
    let selected: Vec<_> =
        configuration.neighbors.iter().filter(|neighbor| neighbor.nodes.matches(&node.labels)).collect();
    let mut problems = Vec::new();
    if selected.is_empty() && !configuration.neighbors.is_empty() {
        problems.push(Problem::new("spec.neighbors", Reason::NoMatchingNeighbors { node: node.name.clone() }));
    }
    let mut sessions: Vec<Session> = Vec::new();
    for neighbor in selected {
        match session(configuration, neighbor, (secrets, unread), &sessions) {
            Ok(session) => sessions.push(session),
            Err(problem) => problems.push(*problem),
        }
    }
    NodeBgp { router_id: router_id(configuration, node), sessions, problems }
}

fn session(
    configuration: &Configuration,
    neighbor: &Neighbor,
    secrets: (&Secrets, &BTreeSet<String>),
    before: &[Session],
) -> Result<Session, Box<Problem>> {
    let field = |name: &str| format!("{}.config.{name}", neighbor.path);
    if let Some(first) = before.iter().find(|session| session.neighbor.address == neighbor.address) {
        let first = first.neighbor.path.clone();
        let reason = Reason::NeighborDuplicate { address: neighbor.address, first };
        return Err(Box::new(Problem::new(field("neighborAddress"), reason)));
    }
    let password = match &neighbor.password {
        PasswordSource::None => Ok(None),
        PasswordSource::Inline(password) => Ok(Some(password.clone())),
        PasswordSource::Secret { name, key, optional } => {
            from_secret(&configuration.namespace, (name, key, *optional), secrets)
        }
    };
    match password {
        Ok(password) => Ok(Session { neighbor: neighbor.clone(), password }),
        Err(reason) => Err(Box::new(Problem::new(field("authPasswordSecretRef"), reason))),
    }
}

fn from_secret(
    namespace: &str,
    (name, key, optional): (&str, &str, bool),
    (secrets, unread): (&Secrets, &BTreeSet<String>),
) -> Result<Option<Password>, Reason> {
    let full_name = || format!("{namespace}/{name}");
    let missing = |reason| if optional { Ok(None) } else { Err(reason) };
    // Even an optional password must not be left away by mistake.
    if unread.contains(name) {
        return Err(Reason::SecretUnread { secret: full_name() });
    }
    let Some(entries) = secrets.get(name) else {
        return missing(Reason::SecretMissing { secret: full_name() });
    };
    match entries.get(key) {
        None => missing(Reason::SecretKeyMissing { secret: full_name(), key: key.to_owned() }),
        Some(password) if password.is_usable() => Ok(Some(password.clone())),
        Some(password) => Err(Reason::PasswordUnusable { octets: password.octets() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bgp::samples::{configuration, neighbor, node};
    use crate::bgp::{Operator, Requirement, Selector};

    fn with(neighbors: Vec<Neighbor>) -> Configuration {
        Configuration { neighbors, ..configuration() }
    }

    fn secured(optional: bool) -> Neighbor {
        let (name, key) = ("bgp".to_owned(), "password".to_owned());
        Neighbor { password: PasswordSource::Secret { name, key, optional }, ..neighbor(0, "192.0.2.254") }
    }

    fn secrets(key: &str, password: &str) -> Secrets {
        Secrets::from([("bgp".to_owned(), BTreeMap::from([(key.to_owned(), Password::new(password))]))])
    }

    fn problems(found: &NodeBgp) -> Vec<(&str, &'static str)> {
        found.problems.iter().map(|problem| (problem.field.as_str(), problem.reason.name())).collect()
    }

    #[test]
    fn a_node_talks_to_the_neighbors_that_select_it() {
        let rack = |value: &str| {
            let operator = Operator::In(BTreeSet::from([value.to_owned()]));
            Selector(vec![Requirement { key: "rack".to_owned(), operator }])
        };
        let here = Neighbor { nodes: rack("1"), ..neighbor(0, "192.0.2.254") };
        let there = Neighbor { nodes: rack("2"), ..neighbor(1, "198.51.100.254") };
        let found =
            for_node(&with(vec![here.clone(), there.clone()]), &node("node-1"), &Secrets::new(), &BTreeSet::new());
        assert_eq!(found.sessions, [Session { neighbor: here, password: None }]);
        assert_eq!(problems(&found), []);
        let found = for_node(&with(vec![there]), &node("node-1"), &Secrets::new(), &BTreeSet::new());
        assert_eq!(problems(&found), [("spec.neighbors", "NoMatchingNeighbors")]);
        assert_eq!(problems(&for_node(&with(vec![]), &node("node-1"), &Secrets::new(), &BTreeSet::new())), []);
    }

    #[test]
    fn of_two_neighbors_with_one_address_the_first_counts() {
        let twice = with(vec![neighbor(0, "192.0.2.254"), neighbor(1, "192.0.2.254")]);
        let found = for_node(&twice, &node("node-1"), &Secrets::new(), &BTreeSet::new());
        assert_eq!(found.sessions.len(), 1);
        assert_eq!(problems(&found), [("spec.neighbors[1].config.neighborAddress", "NeighborDuplicate")]);
    }

    #[test]
    fn a_password_comes_from_its_secret_or_there_is_no_session() {
        let field = "spec.neighbors[0].config.authPasswordSecretRef";
        let look = |optional, secrets: &Secrets| {
            let found = for_node(&with(vec![secured(optional)]), &node("node-1"), secrets, &BTreeSet::new());
            let reason = found.problems.first().map(|problem| {
                assert_eq!(problem.field, field);
                problem.reason.name()
            });
            (found.sessions.first().map(|session| session.password.clone()), reason)
        };
        let password = Some(Some(Password::new("opensesame")));
        assert_eq!(look(false, &secrets("password", "opensesame")), (password.clone(), None));
        assert_eq!(look(true, &secrets("password", "opensesame")), (password, None));
        assert_eq!(look(false, &Secrets::new()), (None, Some("SecretMissing")));
        assert_eq!(look(false, &secrets("other", "opensesame")), (None, Some("SecretKeyMissing")));
        assert_eq!(look(true, &Secrets::new()), (Some(None), None), "optional");
        assert_eq!(look(true, &secrets("other", "opensesame")), (Some(None), None), "optional");
        assert_eq!(look(true, &secrets("password", "")), (None, Some("PasswordUnusable")), "there, and of no use");
        assert_eq!(wanted_secrets(&with(vec![secured(true), neighbor(1, "192.0.2.1")])), BTreeSet::from(["bgp"]));
    }

    #[test]
    fn a_secret_that_could_not_be_read_is_not_taken_for_one_that_does_not_exist() {
        let unread = BTreeSet::from(["bgp".to_owned()]);
        for optional in [false, true] {
            let found = for_node(&with(vec![secured(optional)]), &node("node-1"), &Secrets::new(), &unread);
            assert_eq!(found.sessions, [], "no session goes without its password");
            assert_eq!(problems(&found), [("spec.neighbors[0].config.authPasswordSecretRef", "SecretUnread")]);
        }
        let others = for_node(&with(vec![neighbor(1, "192.0.2.1")]), &node("node-1"), &Secrets::new(), &unread);
        assert_eq!(others.sessions.len(), 1, "others do not wait for it");
    }
}
