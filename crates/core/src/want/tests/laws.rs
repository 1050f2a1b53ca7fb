//! What holds after any history, checked on random ones.

use proptest::prelude::*;

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
            node.state.set_service(AgentService { policy_local: *policy_local, ..svc(&format!("s{name}"), &addrs) });
            vec![]
        }
        Act::Delete(name) => {
            node.state.drop_service(&key(name));
            vec![]
        }
        Act::Endpoints { name, here } => {
            let nodes = here.then(|| "node-a".to_owned()).into_iter().collect();
            node.state.set_endpoints(&key(name).into(), nodes);
            vec![]
        }
        Act::Groups(which) => {
            node.state.set_groups(groups(*which));
            vec![]
        }
        Act::Setup(which) => {
            node.state.set_setup(setup(*which)).unwrap();
            vec![]
        }
        Act::Synced(synced) => {
            node.state.set_synced(*synced);
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
                node.state.lease_gone("node-b", node.now);
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

/// Everything in the kernel that is not ours.
fn theirs(node: &Node) -> BTreeSet<(String, IpAddr, u8)> {
    let links = node.kernel.links().by_index.iter();
    let all = links.flat_map(|(index, link)| link.addrs.iter().map(move |held| (*index, &link.name, held)));
    let kernels = |held: &HeldAddr| held.addr.to_string().starts_with("fe80");
    let theirs = all.filter(|(index, _, held)| !kernels(held) && !node.state.is_ours(*index, held));
    theirs.map(|(_, name, held)| (name.clone(), held.addr, held.prefix)).collect()
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
        _ => false,
    }
}

fn check(node: &mut Node) {
    let theirs_before = theirs(node);
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
    let after = theirs(node);
    assert!(theirs_before.is_subset(&after), "gone: {:?}", theirs_before.difference(&after).collect::<Vec<_>>());
    if !node.state.is_ready() {
        return;
    }
    // Nothing is left to do.
    let left: Vec<_> = node.plan_from_scratch().into_iter().filter(|step| !is_paused(node, step)).collect();
    assert!(left.is_empty(), "{left:?}");
    // Looking at everything again changes no wish.
    let desired = node.state.desired().clone();
    node.state.touch_all();
    node.state.want(node.now);
    assert_eq!(&desired, node.state.desired());
}

/// The virtual addresses that the kernel shows as ours.
fn virtuals(node: &Node) -> BTreeSet<IpAddr> {
    let on = |name| node.kernel.links().named(name).map(|(index, link)| (index, link.addrs.clone()));
    let all =
        [on("kube-lb0"), on("lb1")].into_iter().flatten().flat_map(|(i, addrs)| addrs.into_iter().map(move |h| (i, h)));
    all.filter(|(index, held)| node.state.is_ours(*index, held)).map(|(_, held)| held.addr).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn after_any_history_the_kernel_shows_the_wish_and_nothing_of_others_was_touched(
        old_kernel in any::<bool>(),
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
        node.sync(Setup::Config(config()));
        for act in &acts {
            perform(&mut node, act);
            check(&mut node);
        }
    }

    #[test]
    fn no_error_and_no_doubt_withdraws_a_virtual_address(acts in prop::collection::vec(act(), 1..30)) {
        let mut node = Node::up();
        node.serve(svc("kept", &["10.9.0.1", "10.9.0.2", "fd09::1"]));
        node.state.set_synced(false);
        let before = virtuals(&node);
        prop_assert_eq!(before.len(), 3);
        // Whatever is told while not everything is known, and whatever the kernel refuses, nothing goes.
        node.refuse = |step| matches!(step, Step::DropAddr { .. });
        let harmless = |act: &&Act| {
            !matches!(act, Act::SomebodyDeletes(_) | Act::SomebodyDeletesTheLink | Act::Promotion(_) | Act::Synced(_))
        };
        for act in acts.iter().filter(harmless) {
            perform(&mut node, act);
            node.rest();
            prop_assert!(before.is_subset(&virtuals(&node)), "after {:?}", act);
        }
    }
}
