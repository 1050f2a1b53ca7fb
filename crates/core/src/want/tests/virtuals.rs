//! Virtual addresses: on every node, with exactly the prefix their group asks for.

use super::*;

#[test]
fn i12_b7_a_virtual_address_needs_no_default_route() {
    let links = Links { default_routes: Vec::new(), ..fresh_links() };
    let mut node = Node::starting(ModelKernel::new(links));
    node.sync(Setup::Config(config()));
    node.serve(svc("web", &["10.9.0.1", "fd09::1"]));
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32", "fd09::1/128"]);
    let held = node.held("kube-lb0", "10.9.0.1");
    assert_eq!((held.valid_until, held.no_prefix_route, held.deprecated), (None, false, false));
}

#[test]
fn i07_b13_a_changed_aggregation_leaves_exactly_one_prefix_and_no_sibling_ever_goes() {
    let mut node = Node::up();
    for name in 1..=3 {
        node.serve(svc(&format!("s{name}"), &[&format!("10.9.0.{name}"), &format!("fd09::{name}")]));
    }
    for (v4, v6, expected) in [("default", "default", (24, 64)), ("/32", "/128", (32, 128)), ("/16", "/48", (16, 48))] {
        node.state.set_groups(vec![far(v4, v6)]);
        node.state.want(node.now);
        let steps = node.state.steps(node.now, 128);
        for step in steps {
            node.apply(vec![step]);
            let v4: BTreeSet<_> = node
                .on("kube-lb0")
                .iter()
                .filter_map(|held| held.split('/').next()?.parse::<std::net::Ipv4Addr>().ok())
                .collect();
            assert_eq!(v4.len(), 3, "an IPv4 address went missing on the way to {expected:?}");
        }
        node.rest();
        let all: Vec<_> = (1..=3)
            .map(|i| format!("10.9.0.{i}/{}", expected.0))
            .chain((1..=3).map(|i| format!("fd09::{i}/{}", expected.1)))
            .collect();
        assert_eq!(node.on("kube-lb0"), all);
    }
}

#[test]
fn b36_i18_where_promotion_is_off_siblings_are_put_back_in_the_same_breath() {
    let mut node = Node::up();
    node.state.set_groups(vec![far("default", "default")]);
    for name in 1..=3 {
        node.serve(svc(&format!("s{name}"), &[&format!("10.9.0.{name}")]));
    }
    let news = node.kernel.set_promotion("kube-lb0", false);
    node.hear(news);
    node.state.drop_service("test/s1");
    node.state.want(node.now);
    let steps = node.state.steps(node.now, 128);
    node.apply(steps);
    assert_eq!(node.on("kube-lb0"), ["10.9.0.2/24", "10.9.0.3/24"], "in one batch");
    assert_eq!(node.kernel.links().named("kube-lb0").unwrap().1.promote_secondaries, Some(true));
}

#[test]
fn i18_a_deleted_service_takes_no_sibling_with_it() {
    let mut node = Node::up();
    node.state.set_groups(vec![far("default", "default")]);
    for name in 1..=3 {
        node.serve(svc(&format!("s{name}"), &[&format!("10.9.0.{name}")]));
    }
    node.history.clear();
    node.state.drop_service("test/s1");
    node.rest();
    assert_eq!(node.on("kube-lb0"), ["10.9.0.2/24", "10.9.0.3/24"]);
    assert_eq!(node.history.len(), 1, "one step and no repair: {:?}", node.history);
}

#[test]
fn i13_with_policy_local_only_nodes_with_a_ready_endpoint_announce() {
    let mut node = Node::up();
    let service = AgentService { policy_local: true, ..svc("web", &["10.9.0.1"]) };
    node.serve(service.clone());
    assert_eq!(node.state.verdict(ip("10.9.0.1")), Some(&Verdict::NoEndpoints));
    assert!(node.on("kube-lb0").is_empty());
    let endpoints = |node: &mut Node, nodes: &[&str]| {
        node.state.set_endpoints(&service.key, nodes.iter().map(|name| (*name).to_owned()).collect());
        node.rest();
        node.on("kube-lb0")
    };
    assert_eq!(endpoints(&mut node, &["node-a", "node-b"]), ["10.9.0.1/32"]);
    assert!(endpoints(&mut node, &["node-b"]).is_empty());
    assert!(node.changes.iter().any(|change| matches!(change, Change::Lost { why: Some(Why::NoEndpoints), .. })));
    node.serve(AgentService { policy_local: false, ..service });
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32"]);
}

#[test]
fn a08_lifetimes_a_user_wrote_for_the_virtual_interface_are_kept_up() {
    for (valid, preferred, expected) in [(300, Some(150), 300), (10, None, 60), (100, Some(200), 100)] {
        let mut node = Node::up();
        let on_virtual =
            AddressOptions { valid_lifetime: Some(valid), preferred_lifetime: preferred, no_prefix_route: Some(true) };
        node.state.set_setup(Setup::Config(AgentConfig { on_virtual, ..config() })).unwrap();
        node.serve(svc("web", &["10.9.0.1"]));
        let held = node.held("kube-lb0", "10.9.0.1");
        assert_eq!((held.valid_until, held.no_prefix_route), (Some(node.now + seconds(expected)), true));
        node.pass(seconds(3600));
        assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32"], "refreshed without any lease");
        assert!(node.held("kube-lb0", "10.9.0.1").valid_until.unwrap() >= node.now + seconds(expected / 2));
    }
}

#[test]
fn b14_i05_what_a_deleted_service_left_behind_goes_after_the_first_full_sync_and_nothing_else() {
    let mut links = fresh_links();
    let ours = HeldAddr { protocol: crate::links::OUR_PROTOCOL, ..HeldAddr::plain(ip("10.9.0.9"), 32) };
    let of_the_reference = HeldAddr::plain(ip("10.9.0.8"), 32);
    let operators = HeldAddr::plain(ip("172.16.0.1"), 32);
    let addrs = vec![ours, of_the_reference, operators];
    links.by_index.insert(3, Link { addrs, ..link("kube-lb0", LinkKind::Dummy, &[]) });
    let mut node = Node::starting(ModelKernel::new(links));
    node.sync(Setup::Config(config()));
    assert_eq!(node.on("kube-lb0"), ["172.16.0.1/32"]);
}

#[test]
fn an_address_the_reference_left_is_adopted_and_marked_without_a_gap() {
    let mut links = fresh_links();
    links.by_index.insert(3, link("kube-lb0", LinkKind::Dummy, &["10.9.0.1/32"]));
    let mut node = Node::starting(ModelKernel::new(links));
    node.state.set_service(svc("web", &["10.9.0.1"]));
    node.sync(Setup::Config(config()));
    assert_eq!(node.held("kube-lb0", "10.9.0.1").protocol, crate::links::OUR_PROTOCOL);
    assert!(!node.history.iter().any(|step| matches!(step, Step::DropAddr { .. })));
    assert!(node.changes.iter().any(|change| matches!(change, Change::Taken { adopted: true, local: false, .. })));
}

#[test]
fn b14_a_renamed_virtual_interface_is_filled_before_the_old_one_goes() {
    let mut node = Node::up();
    node.serve(svc("web", &["10.9.0.1"]));
    node.history.clear();
    let renamed = AgentConfig { virtual_interface: "lb1".into(), ..config() };
    node.state.set_setup(Setup::Config(renamed)).unwrap();
    node.rest();
    assert_eq!((node.on("lb1"), node.on("kube-lb0")), (vec!["10.9.0.1/32".into()], vec!["no such interface".into()]));
    let put = node.history.iter().position(|step| matches!(step, Step::PutAddr { .. }));
    let drop = node.history.iter().position(|step| matches!(step, Step::DropAddr { .. }));
    assert!(put < drop);
}

#[test]
fn a_virtual_interface_with_an_operators_address_is_not_removed() {
    let mut node = Node::up();
    let news = node.kernel.add_addr("kube-lb0", HeldAddr::plain(ip("172.16.0.1"), 32));
    node.hear(news);
    node.state.set_setup(Setup::None).unwrap();
    node.rest();
    assert_eq!(node.on("kube-lb0"), ["172.16.0.1/32"]);
}

#[test]
fn told_to_stop_for_good_everything_goes_and_for_a_successor_the_virtual_ones_stay_a_while() {
    let mut node = Node::up();
    node.serve(svc("web", &["10.9.0.1", "192.168.1.100"]));
    node.state.leave(Leaving::Stay(seconds(60)));
    node.rest();
    assert_eq!((node.on("kube-lb0"), node.on("eth0")), (vec!["10.9.0.1/32".to_owned()], nic_and(&[])));
    assert_eq!(node.held("kube-lb0", "10.9.0.1").valid_until, Some(node.now + seconds(60)));
    assert!(!node.state.lease_wish().publish);

    // The successor makes it permanent before it asks anybody.
    let mut kernel = node.kernel.clone();
    let adopted = crate::plan::adopt(kernel.links());
    assert_eq!(adopted.len(), 1);
    adopted.iter().for_each(|step| assert!(kernel.apply(step, node.now).0.is_ok()));
    assert_eq!(kernel.next_expiry(), None);

    node.state.leave(Leaving::Go);
    node.rest();
    assert_eq!(node.on("kube-lb0"), ["no such interface"]);
}

#[test]
fn whoever_leaves_for_good_drops_the_interface_with_all_that_is_on_it() {
    let leave = |operators: bool, refuse: fn(&Step) -> bool| {
        let mut node = Node::up();
        node.serve(svc("web", &["10.9.0.1", "10.9.0.2", "fd09::1", "192.168.1.100"]));
        if operators {
            let news = node.kernel.add_addr("kube-lb0", HeldAddr::plain(ip("172.16.0.1"), 32));
            node.hear(news);
        }
        node.rest();
        node.refuse = refuse;
        node.history.clear();
        node.state.leave(Leaving::Go);
        assert!(!node.state.has_let_go());
        node.rest();
        assert!(node.state.has_let_go());
        assert_eq!(node.on("eth0"), nic_and(&[]));
        let steps = std::mem::take(&mut node.history);
        let drops = steps.iter().filter(|step| matches!(step, Step::DropAddr { .. })).count();
        (node.on("kube-lb0"), drops)
    };
    assert_eq!(leave(false, |_| false), (vec!["no such interface".to_owned()], 1), "only the NIC's by itself");
    assert_eq!(leave(true, |_| false), (vec!["172.16.0.1/32".to_owned()], 4), "an operator's stays");
    let refused = leave(false, |step| matches!(step, Step::DropLink { .. }));
    assert_eq!(refused, (vec![], 4), "where the interface cannot go, addresses go one by one");
}

#[test]
fn whoever_leaves_takes_its_addresses_off_the_nics_first() {
    let mut node = Node::up();
    node.serve(svc("far", &["10.9.0.1", "10.9.0.2"]));
    node.serve(svc("near", &["192.168.1.100"]));
    let news = node.kernel.add_addr("kube-lb0", HeldAddr::plain(ip("172.16.0.1"), 32));
    node.hear(news);
    node.rest();
    node.state.leave(Leaving::Go);
    node.state.want(node.now);
    let steps = node.state.steps(node.now, 1);
    assert!(matches!(steps[..], [Step::DropAddr { addr, .. }] if addr == ip("192.168.1.100")), "{steps:?}");
}

/// A node before 5.18 with a virtual address.
fn on_an_old_kernel(config: AgentConfig) -> Node {
    let mut links = fresh_links();
    links.by_index.values_mut().flat_map(|link| &mut link.addrs).for_each(|held| held.protocol = 0);
    links.by_index.insert(7, link("dummy7", LinkKind::Dummy, &[]));
    let mut kernel = ModelKernel::new(links);
    kernel.keeps_protocol = false;
    let mut node = Node::starting(kernel);
    node.sync(Setup::Config(config));
    node.serve(svc("web", &["10.9.0.1", "fd09::1"]));
    node
}

#[test]
fn where_the_kernel_keeps_no_marks_what_a_killed_agent_left_goes_once_nothing_explains_it() {
    for name in ["kube-lb0", "lb"] {
        let config = AgentConfig { virtual_interface: name.into(), ..config() };
        let mut node = on_an_old_kernel(config.clone());
        node.kernel.add_addr(name, HeldAddr::plain(ip("172.16.0.1"), 32));
        node.pass(seconds(7 * 24 * 3600));
        assert_eq!(node.on(name), ["10.9.0.1/32", "172.16.0.1/32", "fd09::1/128"], "for ever, as far as anybody waits");
        let mut successor = Node::starting(node.kernel.clone());
        successor.apply(crate::plan::adopt(node.kernel.links()));
        successor.tell(Fact::Setup(Setup::Config(config)));
        successor.tell(Fact::Leases(Vec::new()));
        successor.tell(Fact::Synced(true));
        successor.rest();
        assert_eq!(successor.on(name), ["172.16.0.1/32"], "Service and group were deleted meanwhile");
    }
}

#[test]
fn what_an_earlier_release_left_on_an_old_kernel_gets_the_lifetime_that_is_our_mark() {
    let mut node = on_an_old_kernel(config());
    for addr in ["10.9.0.1", "fd09::1"] {
        let held = node.held("kube-lb0", addr);
        assert!(held.has_our_lifetime() && !held.deprecated, "{held:?}");
        node.kernel.add_addr("kube-lb0", HeldAddr { valid_until: None, ..held });
    }
    node.tell(Fact::Kernel(node.kernel.links().clone()));
    node.rest();
    assert!(node.held("kube-lb0", "10.9.0.1").is_marked() && node.held("kube-lb0", "fd09::1").is_marked());
    let steps = node.history.len();
    node.pass(seconds(3600));
    assert_eq!(node.history.len(), steps, "once");
}

/// A node before 5.18, on which an agent has just stopped: its virtual address waits for a successor, beside an operator's
/// on the same interface and one with a lifetime on another.
fn left_on_an_old_kernel() -> Node {
    let mut node = on_an_old_kernel(config());
    node.state.leave(Leaving::Stay(seconds(60)));
    node.rest();
    node.kernel.add_addr("kube-lb0", HeldAddr::plain(ip("172.16.0.1"), 32));
    let until = Some(node.now + seconds(60));
    node.kernel.add_addr("dummy7", HeldAddr { valid_until: until, ..HeldAddr::plain(ip("172.16.0.2"), 32) });
    assert_eq!(node.held("kube-lb0", "10.9.0.1").valid_until, until);
    let mut successor = Node::starting(node.kernel.clone());
    successor.apply(crate::plan::adopt(node.kernel.links()));
    successor
}

#[test]
fn where_the_kernel_keeps_no_marks_a_successor_that_finds_no_api_server_keeps_what_waits_for_it() {
    let mut node = left_on_an_old_kernel();
    node.pass(seconds(600));
    assert_eq!(
        (node.on("kube-lb0"), node.on("dummy7")),
        (vec!["10.9.0.1/32".into(), "172.16.0.1/32".into(), "fd09::1/128".into()], vec![])
    );
    // Stopped before anybody answered, it takes back what it did.
    node.state.leave(Leaving::Stay(seconds(60)));
    node.rest();
    assert_eq!(node.held("kube-lb0", "10.9.0.1").valid_until, Some(node.now + seconds(60)));
    assert_eq!(node.held("kube-lb0", "172.16.0.1").valid_until, None);
}

#[test]
fn where_the_kernel_keeps_no_marks_what_waited_goes_once_nothing_explains_it() {
    let mut node = left_on_an_old_kernel();
    node.state.set_setup(Setup::Config(config())).unwrap();
    node.state.hear_leases(Vec::new(), node.now);
    node.state.set_synced(true);
    node.rest();
    assert_eq!(node.on("kube-lb0"), ["172.16.0.1/32"], "Service and group were deleted meanwhile");
}

#[test]
fn an_aggregate_over_the_subnets_of_nodes_is_refused_as_soon_as_a_lease_tells_of_them() {
    let mut node = Node::up();
    node.state.set_groups(vec![far("default", "default")]);
    node.serve(svc("web", &["10.9.0.1"]));
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/24"]);
    node.peer("node-b", &["10.9.0.128/25"], Some(0));
    node.rest();
    assert!(node.on("kube-lb0").is_empty());
    assert!(matches!(node.state.verdict(ip("10.9.0.1")), Some(Verdict::Nowhere(Reason::AggregateCaptures { .. }))));
}

#[test]
fn deleting_a_group_or_editing_its_range_withdraws_nothing() {
    let mut node = Node::up();
    node.state.set_groups(vec![far("default", "default")]);
    node.serve(svc("web", &["10.9.0.1", "fd09::1"]));
    node.state.set_groups(Vec::new());
    node.rest();
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/24", "fd09::1/64"]);
}

/// A node whose kernel does not say whether it promotes secondary addresses, and does not.
fn unpromoting() -> Node {
    let mut links = fresh_links();
    links.by_index.insert(3, link("kube-lb0", LinkKind::Dummy, &[]));
    let mut node = Node::starting(ModelKernel::new(links));
    node.sync(Setup::Config(config()));
    node.state.set_groups(vec![far("default", "default")]);
    for name in 1..=3 {
        node.serve(svc(&format!("s{name}"), &[&format!("10.9.0.{name}")]));
    }
    node
}

#[test]
fn b36_siblings_that_the_kernel_takes_along_are_back_in_the_same_batch() {
    let mut node = unpromoting();
    node.state.drop_service("test/s1");
    node.state.want(node.now);
    let steps = node.state.steps(node.now, 128);
    node.apply(steps);
    assert_eq!(node.on("kube-lb0"), ["10.9.0.2/24", "10.9.0.3/24"]);
}

#[test]
fn b36_a_new_prefix_in_small_batches_loses_no_sibling_for_a_moment() {
    let mut node = unpromoting();
    node.state.set_groups(vec![far("/32", "/128")]);
    node.state.want(node.now);
    loop {
        let steps = node.state.steps(node.now, 1);
        if steps.is_empty() {
            break;
        }
        for step in steps {
            node.apply(vec![step]);
            let addrs: BTreeSet<_> =
                node.on("kube-lb0").iter().map(|held| held.split('/').next().map(str::to_owned)).collect();
            assert_eq!(addrs.len(), 3, "{:?}", node.on("kube-lb0"));
        }
    }
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32", "10.9.0.2/32", "10.9.0.3/32"]);
}

/// A node whose predecessor left an address on each interface, and that has made the virtual one permanent.
fn adopting() -> Node {
    let mut links = fresh_links();
    let ours = |addr, prefix| HeldAddr { protocol: crate::links::OUR_PROTOCOL, ..HeldAddr::plain(ip(addr), prefix) };
    let operators = HeldAddr::plain(ip("172.16.0.1"), 32);
    links.by_index.insert(3, Link { addrs: vec![ours("10.9.0.1", 32)], ..link("kube-lb0", LinkKind::Dummy, &[]) });
    let addrs = vec![ours("10.9.0.2", 32), operators];
    links.by_index.insert(4, Link { addrs, ..link("old-lb0", LinkKind::Dummy, &[]) });
    links.by_index.get_mut(&2).unwrap().addrs.push(ours("192.168.1.100", 24));
    Node::starting(ModelKernel::new(links))
}

#[test]
fn b10_told_to_stop_before_the_first_full_sync_virtual_addresses_stay_a_while_and_not_for_ever() {
    let mut node = adopting();
    node.rest();
    assert!(node.history.is_empty());
    node.state.leave(Leaving::Stay(seconds(60)));
    node.rest();
    assert_eq!(node.held("kube-lb0", "10.9.0.1").valid_until, Some(node.now + seconds(60)));
    assert_eq!(node.held("old-lb0", "172.16.0.1").valid_until, None, "an operator's");
    assert_eq!(node.on("eth0"), nic_and(&[]), "local addresses go");
    node.pass(seconds(61));
    assert_eq!((node.on("kube-lb0").len(), node.on("old-lb0")), (0, vec!["172.16.0.1/32".to_owned()]));
}

#[test]
fn told_to_stop_for_good_before_the_first_full_sync_everything_of_ours_goes() {
    let mut node = adopting();
    node.state.leave(Leaving::Go);
    node.rest();
    assert_eq!((node.on("kube-lb0"), node.on("eth0")), (vec!["no such interface".to_owned()], nic_and(&[])));
    assert_eq!(node.on("old-lb0"), ["172.16.0.1/32"]);
}
