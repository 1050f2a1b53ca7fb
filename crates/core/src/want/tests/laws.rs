//! What holds after any history, checked on random ones.

use proptest::prelude::*;

use super::facts::{compare, retold};
use super::*;

#[derive(Clone, Debug)]
pub(super) enum Act {
    Serve { name: u8, addrs: Vec<u8>, policy_local: bool },
    Delete(u8),
    Endpoints { name: u8, here: bool },
    Groups(u8),
    Setup(u8),
    Synced(bool),
    SomebodyDeletes(prop::sample::Index),
    SomebodyAdds(u8),
    SomebodyDeletesTheLink,
    Carrier(bool),
    Promotion(bool),
    Dump,
    Renew,
    Peer(bool),
    Pass(u16),
}

pub(super) fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..5_u8, prop::collection::vec(0..8_u8, 0..3), any::<bool>())
            .prop_map(|(name, addrs, policy_local)| Act::Serve { name, addrs, policy_local }),
        2 => (0..5_u8).prop_map(Act::Delete),
        2 => (0..5_u8, any::<bool>()).prop_map(|(name, here)| Act::Endpoints { name, here }),
        2 => (0..4_u8).prop_map(Act::Groups),
        1 => (0..5_u8).prop_map(Act::Setup),
        1 => any::<bool>().prop_map(Act::Synced),
        2 => any::<prop::sample::Index>().prop_map(Act::SomebodyDeletes),
        2 => (0..5_u8).prop_map(Act::SomebodyAdds),
        1 => Just(Act::SomebodyDeletesTheLink),
        1 => any::<bool>().prop_map(Act::Carrier),
        1 => any::<bool>().prop_map(Act::Promotion),
        1 => Just(Act::Dump),
        3 => Just(Act::Renew),
        2 => any::<bool>().prop_map(Act::Peer),
        2 => (1..20_000_u16).prop_map(Act::Pass),
    ]
}

/// Virtual and local addresses of both families.
const ADDRS: [&str; 8] =
    ["10.9.0.1", "10.9.0.2", "10.9.0.3", "fd09::1", "fd09::2", "192.168.1.100", "192.168.1.101", "fd00:1::100"];

/// What an operator may put somewhere: beside ours, in the subnet of ours, and the very same address with a mark.
fn operators(which: u8) -> (&'static str, HeldAddr) {
    let marked = |addr, prefix| HeldAddr { protocol: 4, ..HeldAddr::plain(ip(addr), prefix) };
    match which {
        0 => ("kube-lb0", HeldAddr::plain(ip("172.16.0.1"), 32)),
        1 => ("kube-lb0", marked("10.9.0.200", 24)),
        2 => ("eth0", HeldAddr::plain(ip("192.168.1.20"), 24)),
        3 => ("kube-ipvs0", HeldAddr::plain(ip("10.9.0.1"), 32)),
        _ => ("kube-lb0", marked("10.9.0.2", 32)),
    }
}

fn setup(which: u8) -> Setup {
    let with_lifetime = AddressOptions { valid_lifetime: Some(300), ..AddressOptions::default() };
    match which {
        0 => Setup::None,
        1 => Setup::Config(AgentConfig { virtual_interface: "lb1".into(), ..config() }),
        2 => Setup::Config(AgentConfig { on_nic: with_lifetime.clone(), on_virtual: with_lifetime, ..config() }),
        3 => Setup::Config(AgentConfig { local_interface: LocalInterface::Matching("^eth".into()), ..config() }),
        _ => Setup::Config(config()),
    }
}

fn groups(which: u8) -> Vec<Group> {
    match which {
        0 => vec![far("/32", "/128")],
        1 => vec![far("default", "default")],
        2 => vec![far("/28", "/112")],
        _ => Vec::new(),
    }
}

pub(super) fn perform(node: &mut Node, act: &Act) {
    let key = |name: &u8| format!("test/s{name}");
    let news = match act {
        Act::Serve { name, addrs, policy_local } => {
            let mut addrs: Vec<_> = addrs.iter().map(|which| ADDRS[usize::from(*which)]).collect();
            addrs.sort_unstable();
            addrs.dedup();
            let service = AgentService { policy_local: *policy_local, ..svc(&format!("s{name}"), &addrs) };
            node.tell(Fact::Service(service));
            vec![]
        }
        Act::Delete(name) => {
            node.tell(Fact::NoService(key(name).into()));
            vec![]
        }
        Act::Endpoints { name, here } => {
            let nodes = here.then(|| "node-a".to_owned()).into_iter().collect();
            node.tell(Fact::Endpoints(key(name).into(), nodes));
            vec![]
        }
        Act::Groups(which) => {
            node.tell(Fact::Groups(groups(*which)));
            vec![]
        }
        Act::Setup(which) => {
            node.tell(Fact::Setup(setup(*which)));
            vec![]
        }
        Act::Synced(synced) => {
            node.tell(Fact::Synced(*synced));
            vec![]
        }
        Act::SomebodyDeletes(index) => somebody_deletes(node, index),
        Act::SomebodyAdds(which) => {
            let (link, held) = operators(*which);
            // Who adds a second holder of an address that is there only changes it; leave those alone.
            let there =
                node.kernel.links().named(link).is_some_and(|(_, link)| link.addrs.iter().any(|h| h.addr == held.addr));
            if there { vec![] } else { node.kernel.add_addr(link, held) }
        }
        Act::SomebodyDeletesTheLink => node.kernel.delete_link("kube-lb0"),
        Act::Carrier(carrier) => node.kernel.set_carrier("eth0", *carrier),
        Act::Promotion(promote) => node.kernel.set_promotion("kube-lb0", *promote),
        Act::Dump => vec![LinkNews::Everything(node.kernel.links().clone())],
        Act::Renew => {
            node.renew();
            vec![]
        }
        Act::Peer(there) => {
            if *there {
                node.peer("node-b", &["192.168.1.0/24"], Some(u64::MAX));
            } else {
                node.tell(Fact::LeaseGone("node-b".to_owned()));
            }
            vec![]
        }
        Act::Pass(millis) => {
            node.pass(Duration::from_millis(u64::from(*millis)));
            vec![]
        }
    };
    node.hear(news);
}

fn somebody_deletes(node: &mut Node, index: &prop::sample::Index) -> Vec<LinkNews> {
    let Some((_, link)) = node.kernel.links().named("kube-lb0") else { return vec![] };
    if link.addrs.is_empty() {
        return vec![];
    }
    let held = *index.get(&link.addrs);
    node.kernel.delete_addr("kube-lb0", held.addr, held.prefix)
}

/// Addresses by interface, address and prefix length.
type Held = BTreeSet<(String, IpAddr, u8)>;

/// Everything in the kernel.
fn shown(node: &Node) -> Held {
    let links = node.kernel.links().by_index.values();
    links.flat_map(|link| link.addrs.iter().map(|held| (link.name.clone(), held.addr, held.prefix))).collect()
}

/// Keeps account of what the operator put there: whatever came or went by the operator's hand.
fn account(theirs: &mut Held, act: &Act, before: &Held, node: &Node) {
    let after = shown(node);
    match act {
        // Without marks nothing tells an address in the range of a group on our interface from one of ours.
        Act::SomebodyAdds(1 | 4) if !node.kernel.keeps_protocol => {}
        Act::SomebodyAdds(_) => theirs.extend(after.difference(before).cloned()),
        Act::SomebodyDeletes(_) | Act::SomebodyDeletesTheLink => theirs.retain(|held| after.contains(held)),
        _ => {}
    }
}

fn sorted(steps: &[Step]) -> Vec<String> {
    let mut all: Vec<_> = steps.iter().map(|step| format!("{step:?}")).collect();
    all.sort();
    all
}

/// Whether a step is one that only a pause keeps from being taken.
fn is_paused(node: &Node, step: &Step) -> bool {
    match step {
        Step::PutAddr { addr, .. } | Step::DropAddr { addr, .. } => {
            node.state.repairs.paused(*addr, || true, node.now).is_some()
        }
        Step::MakeLink { .. } | Step::SetUp { .. } | Step::DropLink { .. } => node.state.repairs.links_paused(node.now),
    }
}

fn check(node: &mut Node, theirs: &Held, dice: u64) {
    node.state.want(node.now);
    // One address after the other is the same as all at once.
    if node.state.is_ready() {
        let mut all = node.plan_from_scratch();
        let steps = node.state.steps(node.now, usize::MAX);
        let paused = all.iter().any(|step| is_paused(node, step));
        all.retain(|step| !is_paused(node, step));
        if !paused {
            assert_eq!(sorted(&steps), sorted(&all));
        }
        node.apply(steps);
    }
    node.rest();
    // What is not ours is never touched.
    let after = shown(node);
    assert!(theirs.is_subset(&after), "gone: {:?}", theirs.difference(&after).collect::<Vec<_>>());
    if !node.state.is_ready() {
        return;
    }
    // Nothing is left to do.
    let left: Vec<_> = node.plan_from_scratch().into_iter().filter(|step| !is_paused(node, step)).collect();
    assert!(left.is_empty(), "{left:?}");
    // An agent that starts now and is told the same in another order wishes the same.
    if !node.state.repairs.links_paused(node.now) {
        compare(node, &retold(node, dice));
    }
}

/// Something that goes wrong or says little, and everyday life beside it.
#[derive(Clone, Debug)]
enum Doubt {
    /// A configuration that cannot be followed.
    BadSetup,
    /// Nobody knows which configuration counts.
    NoSetup,
    /// The kernel refuses nothing, everything, addresses that come, or addresses that go.
    Refuse(u8),
    /// The group is deleted, or is back.
    Group(bool),
    Life(Act),
}

fn doubt() -> impl Strategy<Value = Doubt> {
    let is_life = |act: &Act| {
        use Act::{Carrier, Delete, Dump, Endpoints, Pass, Peer, Renew, Serve, SomebodyAdds};
        matches!(act, Serve { .. } | Delete(_) | Endpoints { .. } | SomebodyAdds(0..4))
            || matches!(act, Carrier(_) | Dump | Renew | Peer(_) | Pass(_))
    };
    prop_oneof![
        2 => Just(Doubt::BadSetup),
        1 => Just(Doubt::NoSetup),
        3 => (0..4_u8).prop_map(Doubt::Refuse),
        1 => any::<bool>().prop_map(Doubt::Group),
        3 => Just(Doubt::Life(Act::Dump)),
        6 => act().prop_filter("everyday life", is_life).prop_map(Doubt::Life),
    ]
}

fn raise(node: &mut Node, doubt: &Doubt) {
    match doubt {
        Doubt::BadSetup => {
            let bad = AgentConfig { local_interface: LocalInterface::Matching("(".into()), ..config() };
            assert!(node.state.set_setup(Setup::Config(bad)).is_err());
        }
        Doubt::NoSetup => node.state.set_setup(Setup::Unknown).unwrap(),
        Doubt::Refuse(0) => node.refuse = |_| false,
        Doubt::Refuse(1) => node.refuse = |_| true,
        Doubt::Refuse(2) => node.refuse = |step| matches!(step, Step::PutAddr { .. }),
        Doubt::Refuse(_) => node.refuse = |step| matches!(step, Step::DropAddr { .. }),
        Doubt::Group(there) => node.state.set_groups(groups(if *there { 0 } else { 3 })),
        Doubt::Life(act) => perform(node, act),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn after_any_history_the_kernel_shows_the_wish_and_nothing_of_others_was_touched(
        old_kernel in any::<bool>(),
        dice in any::<u64>(),
        acts in prop::collection::vec(act(), 1..40),
    ) {
        let mut links = fresh_links();
        links.by_index.insert(7, link("kube-ipvs0", LinkKind::Dummy, &["10.96.0.1/32"]));
        if old_kernel {
            links.by_index.get_mut(&1).unwrap().addrs.iter_mut().for_each(|held| held.protocol = 0);
        }
        let mut kernel = ModelKernel::new(links);
        kernel.keeps_protocol = !old_kernel;
        let mut node = Node::starting(kernel);
        let mut theirs = shown(&node);
        node.sync(Setup::Config(config()));
        for act in &acts {
            let before = shown(&node);
            perform(&mut node, act);
            account(&mut theirs, act, &before, &node);
            check(&mut node, &theirs, dice);
        }
    }

    #[test]
    fn no_error_and_no_doubt_withdraws_a_virtual_address(doubts in prop::collection::vec(doubt(), 1..30)) {
        let mut node = Node::up();
        node.serve(svc("kept", &["10.9.0.1", "10.9.0.2", "fd09::1"]));
        let kept: BTreeSet<_> = ["10.9.0.1/32", "10.9.0.2/32", "fd09::1/128"].map(str::to_owned).into();
        for doubt in &doubts {
            raise(&mut node, doubt);
            node.rest();
            prop_assert!(node.state.is_ready());
            let there = node.on("kube-lb0").into_iter().collect();
            prop_assert!(kept.is_subset(&there), "after {:?}: {:?}", doubt, there);
        }
    }
}
