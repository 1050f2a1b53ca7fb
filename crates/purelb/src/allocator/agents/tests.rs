//! Who lives, who is gone, and what LBNodeAgents say of themselves.

use serde_json::{Value, json};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn lease(node: &str, renewed: i64, subnets: &str) -> Change<Option<AgentLease>> {
    let subnets = subnets.split(' ').map(|subnet| subnet.parse().unwrap()).collect();
    let renewed = Some((Timestamp::from_second(renewed).unwrap(), 10 * SECOND));
    Change::Here(Some(AgentLease { node: node.to_owned(), subnets, renewed, ..AgentLease::default() }))
}

/// A watch that tells of Leases, and two clocks.
struct Town {
    agents: Agents,
    begun: Instant,
    at: Instant,
}

impl Town {
    fn new(leases: &[(&str, i64, &str)]) -> Self {
        let at = Instant::now();
        let mut town = Self { agents: Agents::new(at), begun: at, at };
        town.hear(Change::Restarted);
        for (node, renewed, subnets) in leases {
            town.hear(lease(node, *renewed, subnets));
        }
        town.hear(Change::Complete);
        town
    }

    fn hear(&mut self, change: Change<Option<AgentLease>>) -> bool {
        let now = 1000 + (self.at - self.begun).as_secs();
        self.agents.hear(change, Timestamp::from_second(now.try_into().unwrap()).unwrap(), self.at)
    }

    /// Time passes and the watch tells of some other Lease.
    fn wait(&mut self, seconds: u32) {
        self.at += SECOND * seconds;
        self.hear(Change::Here(None));
    }

    fn active(&self) -> String {
        self.agents.active_subnets().iter().map(IpNet::to_string).collect::<Vec<_>>().join(" ")
    }

    fn is_deserted(&self, node: &str, addr: &str) -> bool {
        self.agents.is_deserted(node, addr.parse().unwrap(), self.at)
    }
}

#[test]
fn the_subnets_of_all_live_nodes_come_together() {
    let town =
        Town::new(&[("a", 999, "10.1.0.0/24"), ("b", 998, "10.2.0.0/24 10.1.0.0/24"), ("old", 960, "10.3.0.0/24")]);
    assert_eq!(town.active(), "10.1.0.0/24 10.2.0.0/24");
}

#[test]
fn a_renewal_says_nothing_new_and_other_subnets_do() {
    let mut town = Town::new(&[("a", 999, "10.1.0.0/24")]);
    town.wait(5);
    assert!(!town.hear(lease("a", 1005, "10.1.0.0/24")));
    assert!(town.hear(lease("a", 1006, "10.1.0.0/24 10.2.0.0/24")));
}

#[test]
fn a_node_dies_when_its_lease_stands_still_whatever_clocks_say() {
    let mut town = Town::new(&[("a", 999, "10.1.0.0/24"), ("ahead", 5000, "10.2.0.0/24")]);
    town.wait(9);
    assert!(!town.agents.expire());
    town.wait(2);
    assert!(town.agents.expire());
    assert_eq!(town.active(), "", "a clock that is ahead keeps nobody alive");
    assert!(town.hear(lease("a", 990, "10.1.0.0/24")), "one that is behind is alive as soon as its Lease changes");
    assert_eq!(town.active(), "10.1.0.0/24");
}

#[test]
fn a_watch_that_stands_still_kills_nobody() {
    let mut town = Town::new(&[("a", 999, "10.1.0.0/24")]);
    town.at += 3600 * SECOND;
    assert!(!town.agents.expire());
    town.hear(lease("a", 4600, "10.1.0.0/24"));
    assert!(!town.agents.expire(), "what came late was on its way");
}

#[test]
fn b29_a_node_is_deserted_when_it_is_gone_for_good_and_nobody_else_has_the_subnet() {
    let mut town = Town::new(&[("a", 999, "10.1.0.0/24"), ("b", 999, "10.2.0.0/24")]);
    assert!(!town.is_deserted("unknown", "10.3.0.1"), "who has just begun to look knows nobody");
    town.wait(31);
    for node in ["a", "b"] {
        town.hear(lease(node, 1031, if node == "a" { "10.1.0.0/24" } else { "10.2.0.0/24" }));
    }
    assert!(town.agents.take_departures(town.at), "now it is known who is there");
    assert!(!town.agents.take_departures(town.at));
    assert!(town.is_deserted("unknown", "10.3.0.1"));
    assert!(!town.is_deserted("unknown", "10.2.0.1"), "b announces it, and says so itself");
    assert!(!town.is_deserted("a", "10.1.0.1"), "a lives");
    let Change::Here(gone) = lease("a", 1031, "10.1.0.0/24") else { panic!() };
    assert!(town.hear(Change::Gone(gone)));
    assert!(!town.is_deserted("a", "10.1.0.1"), "it may come back in a moment");
    town.wait(31);
    assert!(town.agents.take_departures(town.at));
    assert!(town.is_deserted("a", "10.1.0.1"));
}

fn object(name: &str, spec: Value) -> Change<Box<LBNodeAgent>> {
    let metadata = json!({"name": name, "namespace": "home", "resourceVersion": "1"});
    Change::Here(Box::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()))
}

fn nodes(labels: &[(&str, &str)]) -> Known<String, NodeView> {
    let mut nodes = Known::default();
    for (name, zone) in labels {
        let labels = [("zone".to_owned(), (*zone).to_owned())].into();
        nodes.put((*name).to_owned(), NodeView { name: (*name).to_owned(), addresses: Vec::new(), labels });
    }
    nodes
}

fn told(jobs: &[Job]) -> BTreeMap<&str, (i64, &str)> {
    let told = jobs.iter().map(|job| {
        let Job::PatchAgent { agent, patch } = job else { panic!("{job:?}") };
        let status = &patch["status"];
        let reason = status["conditions"][0]["reason"].as_str().unwrap();
        (agent.name.as_deref().unwrap(), (status["activeLeases"].as_i64().unwrap(), reason))
    });
    told.collect()
}

#[test]
fn every_lbnodeagent_says_whether_it_is_understood_and_how_many_of_its_nodes_live() {
    let mut town = Town::new(&[("a", 999, "10.1.0.0/24"), ("b", 999, "10.1.0.0/24"), ("dead", 900, "10.1.0.0/24")]);
    let nodes = nodes(&[("a", "west"), ("b", "east"), ("dead", "west")]);
    town.agents.take(object("default", json!({"local": {}})));
    town.agents.take(object("never", json!({"local": {}})));
    town.agents.take(object("west", json!({"nodeSelector": {"matchLabels": {"zone": "west"}}, "local": {}})));
    town.agents.take(object("wrong", json!({"nodeSelector": {"matchLabels": {"no key!": "x"}}, "local": {}})));
    let jobs = town.agents.statuses(&nodes, Timestamp::UNIX_EPOCH, town.at);
    let expected = [
        ("default", (2, "Parsed")),
        ("never", (2, "AgentShadowed")),
        ("west", (1, "Parsed")),
        ("wrong", (0, "SelectorInvalid")),
    ];
    assert_eq!(told(&jobs), expected.into());
    assert!(!town.agents.is_stale(town.at), "at rest");
}

#[test]
fn a_status_that_cannot_be_written_is_tried_with_growing_pauses() {
    let mut town = Town::new(&[]);
    town.agents.take(object("default", json!({"local": {}})));
    let end = town.at + 600 * SECOND;
    let mut writes = 0;
    while town.at < end {
        writes += town.agents.statuses(&nodes(&[]), Timestamp::UNIX_EPOCH, town.at).len();
        town.agents.written("home", "default", StatusOutcome::Failed, town.at);
        town.at = town.agents.next_wake(town.at).expect("it is tried again");
    }
    assert!((8..40).contains(&writes), "{writes}");
}
