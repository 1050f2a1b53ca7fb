//! Elections as operators and agents of other releases see them: who wins, and what a change moves.

use std::net::Ipv4Addr;
use std::time::Duration;

use proptest::prelude::*;
use rstest::rstest;
use sha2::{Digest, Sha256};

use super::*;
use crate::members::{LeaseView, Timing};
use crate::moment::Moment;

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn names(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

/// The candidates from the first choice to the last.
fn order(key: &str, candidates: &[&str]) -> Vec<String> {
    let mut ranked: Vec<_> = candidates.iter().map(|node| (rank(node, addr(key)), *node)).collect();
    ranked.sort();
    ranked.into_iter().map(|(_, node)| node.to_owned()).collect()
}

fn winner(key: &str, candidates: &[&str], prefer: Option<&[&str]>) -> Option<(String, bool)> {
    let prefer = prefer.map(|prefer| prefer.iter().map(|node| (*node).to_owned()).collect::<BTreeSet<_>>());
    let candidates = names(candidates);
    elect(addr(key), &candidates, prefer.as_ref()).map(|elected| (elected.node.to_string(), elected.fell_back))
}

fn lease(node: &str, subnets: &[&str], version: u64) -> LeaseView {
    LeaseView {
        node: node.to_owned(),
        renewed: Some(version.to_string()),
        duration: Some(Duration::from_secs(10)),
        subnets: subnets.iter().map(|subnet| subnet.parse().unwrap()).collect(),
        version: Some(version),
        ..LeaseView::default()
    }
}

fn members(leases: &[(&str, &[&str])]) -> Members {
    let timing = Timing { duration: Duration::from_secs(10), renew_deadline: Duration::from_secs(7) };
    let mut members = Members::new("me", timing);
    let all = leases.iter().enumerate().map(|(i, (node, subnets))| lease(node, subnets, i as u64 + 1));
    members.hear_all(all.collect(), Moment::default());
    members
}

const ABC: [&str; 3] = ["node-a", "node-b", "node-c"];

#[rstest]
#[case("192.168.1.100", &ABC, "node-c node-b node-a")]
#[case("192.0.2.11", &ABC, "node-a node-c node-b")]
#[case("2001:db8::1", &ABC, "node-b node-a node-c")]
#[case("192.0.2.10", &ABC, "node-c node-b node-a")]
#[case("10.0.1.50", &ABC, "node-c node-b node-a")]
#[case("172.32.100.225", &ABC, "node-c node-a node-b")]
#[case("fd53:9ef0:8683::3", &ABC, "node-c node-b node-a")]
#[case("fc00:370:155:0:8000::", &ABC, "node-c node-b node-a")]
#[case::mapped("::ffff:192.0.2.11", &ABC, "node-a node-c node-b")]
#[case::other_names("192.168.1.100", &["node1", "node2", "node3"], "node1 node3 node2")]
fn e01_every_release_elects_the_same_node(#[case] key: &str, #[case] candidates: &[&str], #[case] expected: &str) {
    assert_eq!(order(key, candidates).join(" "), expected);
    assert_eq!(winner(key, candidates, None), expected.split(' ').next().map(|first| (first.to_owned(), false)));
}

#[rstest]
#[case("node-a", "192.168.1.100", "d1c22f51a19cc01b94f2306ca895a9b170ce7b42f4d0c5b241e639fe19bbb745")]
#[case("node-c", "192.0.2.11", "cceb0431dbc90507732cf0f95ab41c9389ec4324914677bcde3dfb97685b1bae")]
#[case("node-b", "2001:db8::1", "1aee61dde2bd8a0c8b0177a52ced9e0a52e8108284e6e3f14220d9f9d98cbc2e")]
fn e01_the_rank_is_sha_256_of_node_and_address(#[case] node: &str, #[case] key: &str, #[case] hex: &str) {
    assert_eq!(rank(node, addr(key)).iter().map(|byte| format!("{byte:02x}")).collect::<String>(), hex);
}

#[test]
fn e01_the_addresses_of_a_subnet_spread_over_three_nodes_as_they_always_did() {
    let mut wins = BTreeMap::new();
    for last in 1..=254 {
        let (node, _) = winner(&format!("192.168.1.{last}"), &ABC, None).unwrap();
        *wins.entry(node).or_insert(0) += 1;
    }
    assert_eq!(wins.into_values().collect::<Vec<_>>(), [83, 81, 90]);
}

#[test]
fn e02_the_order_of_candidates_does_not_matter() {
    for key in ["192.0.2.10", "2001:db8::1"] {
        let expected = winner(key, &ABC, None);
        for candidates in [["node-b", "node-a", "node-c"], ["node-c", "node-b", "node-a"]] {
            assert_eq!(winner(key, &candidates, None), expected);
        }
    }
}

#[test]
fn e03_every_node_gets_its_share() {
    for node in ABC {
        let wins = (0..100).filter(|i| winner(&format!("10.0.0.{i}"), &ABC, None).unwrap().0 == node).count();
        assert!(wins > 10, "{node} wins {wins} of 100");
    }
}

#[test]
fn e07_without_live_nodes_nobody_wins() {
    let mut elections = Elections::new();
    assert!(!elections.watch(addr("192.0.2.1"), None, &members(&[])));
    assert_eq!(elections.winner(addr("192.0.2.1")), None);
    assert_eq!(winner("192.0.2.1", &[], Some(&["node-a"])), None);
}

#[test]
fn e12_e13_only_nodes_in_the_subnet_can_win() {
    let members =
        members(&[("a", &["192.168.1.0/24"]), ("b", &["192.168.1.0/24", "10.0.0.0/8"]), ("c", &["10.0.0.0/8"])]);
    let mut elections = Elections::new();
    for key in ["192.168.1.100", "10.5.5.5", "172.16.0.1"] {
        elections.watch(addr(key), None, &members);
    }
    assert_eq!(elections.winner(addr("192.168.1.100")), Some(order("192.168.1.100", &["a", "b"])[0].as_str()));
    assert_eq!(elections.winner(addr("10.5.5.5")), Some(order("10.5.5.5", &["b", "c"])[0].as_str()));
    assert_eq!(elections.winner(addr("172.16.0.1")), None);
}

#[test]
fn e14_e15_overlapping_subnets_all_count_and_each_node_once() {
    let members = members(&[("b", &["10.0.1.0/24", "10.0.0.0/16"]), ("a", &["10.0.0.0/8"])]);
    let candidates = |key: &str| members.candidates(addr(key)).map(|node| node.to_string()).collect::<Vec<_>>();
    assert_eq!(candidates("10.0.1.50"), ["a", "b"]);
    assert_eq!(candidates("10.9.0.1"), ["a"]);
    assert!(candidates("192.0.2.1").is_empty());
}

#[rstest]
#[case::e21_none(None, "node-c", false)]
#[case::e21_empty(Some(&[][..]), "node-c", false)]
#[case::e22_two(Some(&["node-a", "node-b"][..]), "node-b", false)]
#[case::e22_single(Some(&["node-a"][..]), "node-a", false)]
#[case::e22_with_an_unknown_one(Some(&["node-z", "node-a"][..]), "node-a", false)]
#[case::e23_none_can_serve(Some(&["node-z"][..]), "node-c", true)]
fn preferred_nodes_win_if_they_can(#[case] prefer: Option<&[&str]>, #[case] node: &str, #[case] fell_back: bool) {
    assert_eq!(winner("192.168.1.100", &ABC, prefer), Some((node.to_owned(), fell_back)));
    let mut elections = Elections::new();
    let subnets: &[&str] = &["192.168.1.0/24"];
    let members = members(&ABC.map(|node| (node, subnets)));
    let prefer = prefer.map(|prefer| prefer.iter().map(|node| (*node).to_owned()).collect());
    elections.watch(addr("192.168.1.100"), prefer, &members);
    assert_eq!(elections.winner(addr("192.168.1.100")), Some(node));
    assert_eq!(elections.fell_back(addr("192.168.1.100")), fell_back);
}

#[rstest]
#[case(Some(&["node-a", "node-c"][..]), "node-a", false)]
#[case(Some(&["node-z"][..]), "node-b", true)]
fn e24_ipv6_is_no_different(#[case] prefer: Option<&[&str]>, #[case] node: &str, #[case] fell_back: bool) {
    assert_eq!(winner("2001:db8::1", &ABC, prefer), Some((node.to_owned(), fell_back)));
}

#[test]
fn only_what_a_node_won_or_wins_moves() {
    let subnets: &[&str] = &["10.0.0.0/24"];
    let mut members = members(&ABC.map(|node| (node, subnets)));
    let mut elections = Elections::new();
    let addrs: Vec<_> = (0..=255).map(|last| addr(&format!("10.0.0.{last}"))).collect();
    for addr in &addrs {
        elections.watch(*addr, None, &members);
    }
    let held: Vec<_> = elections.won_by("node-b").collect();
    let left = members.gone("node-b");
    let moved: Vec<_> = left.iter().flat_map(|change| elections.changed(change, &members)).collect();
    assert_eq!(moved, held);
    assert_eq!(elections.won_by("node-b").count(), 0);
    let joined = members.hear(lease("node-b", subnets, 99), Moment::default());
    let back: Vec<_> = joined.iter().flat_map(|change| elections.changed(change, &members)).collect();
    assert_eq!(back, held);
}

/// One thing that happens to the members or to the addresses of interest.
#[derive(Clone, Debug)]
enum Act {
    Hear { node: usize, subnets: Vec<usize>, renews: bool },
    Gone { node: usize },
    Relist { nodes: Vec<usize> },
    Look { seconds: u64 },
    Watch { addr: usize, prefer: Option<BTreeSet<String>> },
    Forget { addr: usize },
}

const NODES: [&str; 5] = ["me", "a", "b", "c", "d"];
const SUBNETS: [&str; 4] = ["10.0.0.0/8", "10.0.1.0/24", "192.0.2.0/24", "2001:db8::/64"];
const ADDRS: [&str; 6] = ["10.0.1.5", "10.9.0.1", "192.0.2.7", "2001:db8::7", "203.0.113.1", "10.0.1.255"];

fn acts() -> impl Strategy<Value = Act> {
    let node = 0..NODES.len();
    let prefer = prop::option::of(prop::collection::btree_set(prop::sample::select(&NODES[..]), 0..3));
    prop_oneof![
        4 => (node.clone(), prop::collection::vec(0..SUBNETS.len(), 0..3), any::<bool>())
            .prop_map(|(node, subnets, renews)| Act::Hear { node, subnets, renews }),
        1 => node.clone().prop_map(|node| Act::Gone { node }),
        1 => prop::collection::vec(node, 0..4).prop_map(|nodes| Act::Relist { nodes }),
        2 => (0..15_u64).prop_map(|seconds| Act::Look { seconds }),
        3 => (0..ADDRS.len(), prefer).prop_map(|(addr, prefer)| Act::Watch {
            addr,
            prefer: prefer.map(|prefer| prefer.into_iter().map(str::to_owned).collect()),
        }),
        1 => (0..ADDRS.len()).prop_map(|addr| Act::Forget { addr }),
    ]
}

/// Members and elections, and beside them what the elections should amount to.
struct World {
    members: Members,
    elections: Elections,
    watched: BTreeMap<IpAddr, Option<BTreeSet<String>>>,
    now: Moment,
    version: u64,
}

impl World {
    fn lease(&mut self, node: usize, subnets: &[usize], renews: bool) -> LeaseView {
        self.version += 1;
        let known = self.members.lease(NODES[node]).and_then(|lease| lease.renewed.clone());
        let fresh = lease(NODES[node], &subnets.iter().map(|i| SUBNETS[*i]).collect::<Vec<_>>(), self.version);
        if renews { fresh } else { LeaseView { renewed: known.or(fresh.renewed.clone()), ..fresh } }
    }

    fn act(&mut self, act: &Act) {
        let changes = match act {
            Act::Hear { node, subnets, renews } => {
                let lease = self.lease(*node, subnets, *renews);
                self.members.hear(lease, self.now)
            }
            Act::Gone { node } => self.members.gone(NODES[*node]),
            Act::Relist { nodes } => {
                let leases = nodes.iter().map(|node| self.lease(*node, &[0, 2], true)).collect();
                self.members.hear_all(leases, self.now)
            }
            Act::Look { seconds } => {
                self.now = self.now + Duration::from_secs(*seconds);
                self.members.look(self.now)
            }
            Act::Watch { addr: i, prefer } => {
                self.watched.insert(addr(ADDRS[*i]), prefer.clone());
                self.elections.watch(addr(ADDRS[*i]), prefer.clone(), &self.members);
                Vec::new()
            }
            Act::Forget { addr: i } => {
                self.watched.remove(&addr(ADDRS[*i]));
                self.elections.forget(addr(ADDRS[*i]));
                Vec::new()
            }
        };
        let before: BTreeMap<_, _> = self.winners();
        let told: BTreeSet<_> =
            changes.iter().flat_map(|change| self.elections.changed(change, &self.members)).collect();
        for (addr, winner) in self.winners() {
            assert!(told.contains(&addr) || before[&addr] == winner, "{addr} moved and nobody was told");
        }
    }

    fn winners(&self) -> BTreeMap<IpAddr, Option<String>> {
        let winner = |addr: &IpAddr| self.elections.winner(*addr).map(str::to_owned);
        self.watched.keys().map(|addr| (*addr, winner(addr))).collect()
    }
}

proptest! {
    #[test]
    fn change_by_change_gives_what_an_election_from_scratch_gives(history in prop::collection::vec(acts(), 1..60)) {
        let mut world = World {
            members: members(&[]),
            elections: Elections::new(),
            watched: BTreeMap::new(),
            now: Moment::default(),
            version: 0,
        };
        for act in &history {
            world.act(act);
            let live: Vec<(Arc<str>, BTreeSet<IpNet>)> =
                world.members.live().map(|(node, subnets)| (node.into(), subnets.clone())).collect();
            for (addr, prefer) in &world.watched {
                let serves = |subnets: &BTreeSet<IpNet>| subnets.iter().any(|subnet| subnet.contains(addr));
                let candidates = live.iter().filter(|(_, subnets)| serves(subnets)).map(|(node, _)| node);
                let scratch = elect(*addr, candidates, prefer.as_ref());
                prop_assert_eq!(world.elections.winner(*addr), scratch.map(|elected| &**elected.node));
                prop_assert_eq!(world.elections.fell_back(*addr), scratch.is_some_and(|elected| elected.fell_back));
            }
            for node in NODES {
                let won: Vec<_> = world.elections.won_by(node).collect();
                let expected = world.winners().into_iter().filter(|(_, winner)| winner.as_deref() == Some(node));
                prop_assert_eq!(won, expected.map(|(addr, _)| addr).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn an_address_is_hashed_as_its_canonical_text(node in "[a-z0-9.-]{1,70}", addr: IpAddr, v4: Ipv4Addr) {
        let text = format!("{node}#{}", addr.to_canonical());
        prop_assert_eq!(rank(&node, addr), <[u8; 32]>::from(Sha256::digest(text)));
        let text = format!("{node}#{v4}");
        prop_assert_eq!(rank(&node, v4.into()), <[u8; 32]>::from(Sha256::digest(text)));
    }
}
