//! Somebody or something in the way: deletions behind our back, refusals of the kernel.

use super::*;

impl Node {
    fn somebody_deletes(&mut self, link: &str, addr: &str, prefix: u8) {
        let news = self.kernel.delete_addr(link, ip(addr), prefix);
        assert!(!news.is_empty());
        self.hear(news);
        self.rest();
    }

    fn meddled(&self) -> usize {
        self.changes.iter().filter(|change| matches!(change, Change::Meddled { .. })).count()
    }
}

#[test]
fn i06_b27_an_address_deleted_by_hand_is_back_at_once_and_then_with_growing_pauses() {
    let mut node = Node::up();
    node.serve(svc("web", &["10.9.0.1"]));
    node.somebody_deletes("kube-lb0", "10.9.0.1", 32);
    assert_eq!((node.on("kube-lb0").len(), node.meddled()), (1, 0), "the first time it may have been a slip");
    let mut pause = Duration::from_millis(100);
    for _ in 0..12 {
        node.somebody_deletes("kube-lb0", "10.9.0.1", 32);
        assert!(node.on("kube-lb0").is_empty());
        node.pass(pause - Duration::from_millis(1));
        assert!(node.on("kube-lb0").is_empty(), "not before {pause:?}");
        node.pass(Duration::from_millis(1));
        assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32"]);
        pause = (pause * 2).min(seconds(30));
    }
    assert_eq!(node.meddled(), 1, "told once");
    node.pass(seconds(61));
    node.somebody_deletes("kube-lb0", "10.9.0.1", 32);
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32"], "after a calm minute it begins anew");
}

#[test]
fn b27_an_address_of_a_deleted_group_keeps_its_prefix_even_if_somebody_keeps_deleting_it() {
    let mut node = Node::up();
    node.state.set_groups(vec![far("default", "default")]);
    node.serve(svc("web", &["10.9.0.1"]));
    node.state.set_groups(Vec::new());
    node.rest();
    node.somebody_deletes("kube-lb0", "10.9.0.1", 24);
    node.somebody_deletes("kube-lb0", "10.9.0.1", 24);
    assert!(node.on("kube-lb0").is_empty(), "the second time there is a pause");
    node.pass(Duration::from_millis(100));
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/24"]);
}

#[test]
fn b28_the_virtual_interface_deleted_by_hand_is_made_and_filled_again() {
    let mut node = Node::up();
    node.serve(svc("web", &["10.9.0.1", "fd09::1"]));
    let news = node.kernel.delete_link("kube-lb0");
    node.hear(news);
    node.rest();
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32", "fd09::1/128"]);
    assert!(node.kernel.links().named("kube-lb0").unwrap().1.up);
}

#[test]
fn b28_an_address_put_back_on_an_interface_that_is_just_going_costs_no_pause() {
    let mut node = Node::up();
    node.serve(svc("web", &["10.9.0.1"]));
    let (index, _) = node.kernel.links().named("kube-lb0").unwrap();
    let gone = node.kernel.delete_link("kube-lb0");
    // The kernel tells of the addresses first.
    node.hear(vec![LinkNews::AddrGone(index, ip("10.9.0.1"), 32)]);
    node.state.want(node.now);
    let steps = node.state.steps(node.now, 128);
    assert!(matches!(steps[..], [Step::PutAddr { link, .. }] if link == index), "{steps:?}");
    node.hear(gone);
    node.state.applied(&steps[0], Err("No such device (os error 19)".to_owned()), node.now);
    node.rest();
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32"]);
}

#[test]
fn what_our_own_deletion_takes_along_is_no_meddling() {
    let mut node = Node::up();
    node.state.set_groups(vec![far("default", "default")]);
    for name in 1..=3 {
        node.serve(svc(&format!("s{name}"), &[&format!("10.9.0.{name}")]));
    }
    for name in 1..=2 {
        let news = node.kernel.set_promotion("kube-lb0", false);
        node.hear(news);
        node.state.drop_service(&format!("test/s{name}"));
        node.rest();
    }
    assert_eq!((node.on("kube-lb0"), node.meddled()), (vec!["10.9.0.3/24".to_owned()], 0));
}

#[test]
fn one_address_the_kernel_refuses_stops_no_other_and_is_tried_again() {
    let mut node = Node::up();
    node.refuse = |step| matches!(step, Step::PutAddr { addr, .. } if *addr == ip("10.9.0.1"));
    node.serve(svc("a", &["10.9.0.1"]));
    node.serve(svc("b", &["10.9.0.2"]));
    assert_eq!(node.on("kube-lb0"), ["10.9.0.2/32"]);
    node.pass(seconds(10));
    let failed = node.changes.iter().filter(|change| matches!(change, Change::Failed { .. })).count();
    assert_eq!(failed, 1, "told once");
    assert!(node.state.problem(ip("10.9.0.1")).is_some());
    let tries =
        node.history.iter().filter(|step| matches!(step, Step::PutAddr { addr, .. } if *addr == ip("10.9.0.1")));
    assert!((5..10).contains(&tries.count()), "with growing pauses");
    node.refuse = |_| false;
    node.pass(seconds(30));
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32", "10.9.0.2/32"]);
    assert_eq!(node.state.problem(ip("10.9.0.1")), None);
}

#[test]
fn an_interface_the_kernel_refuses_to_make_is_tried_again() {
    let mut node = Node::starting(ModelKernel::new(fresh_links()));
    node.refuse = |step| matches!(step, Step::MakeLink { .. });
    node.sync(Setup::Config(config()));
    node.serve(svc("web", &["10.9.0.1", "192.168.1.100"]));
    assert_eq!(node.on("eth0"), nic_and(&["192.168.1.100/24"]), "local addresses need no virtual interface");
    assert!(node.changes.iter().any(|change| matches!(change, Change::LinkFailed { .. })));
    node.refuse = |_| false;
    node.renew();
    node.pass(seconds(5));
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32"]);
}

#[test]
fn b35_a_new_dump_that_shows_the_same_changes_nothing() {
    let mut node = Node::up();
    node.serve(svc("web", &["10.9.0.1", "192.168.1.100"]));
    node.history.clear();
    node.changes.clear();
    node.state.hear_links(LinkNews::Everything(node.kernel.links().clone()), node.now);
    node.rest();
    assert_eq!((node.history.len(), node.changes.len()), (0, 0), "{:?}", node.changes);
}

#[test]
fn an_ipv6_address_that_another_host_has_is_reported_and_tried_again() {
    let mut node = Node::up();
    node.serve(svc("web", &["fd00:1::100"]));
    let held = HeldAddr { dad_failed: true, ..node.held("eth0", "fd00:1::100") };
    let news = node.kernel.add_addr("eth0", held);
    node.hear(news);
    node.rest();
    assert!(
        node.changes
            .iter()
            .any(|change| { matches!(change, Change::Meddled { reason: Reason::AddressDuplicate { .. }, .. }) })
    );
    node.pass(Duration::from_millis(100));
    assert!(!node.held("eth0", "fd00:1::100").dad_failed, "taken off and put again");
}

#[test]
fn what_must_go_goes_before_what_comes() {
    let mut node = Node::up();
    node.serve(svc("old", &["192.168.1.150"]));
    for i in 0..200 {
        node.state.set_service(svc(&format!("s{i}"), &[&format!("10.9.0.{}", i + 1)]));
    }
    node.state.drop_service("test/old");
    node.state.want(node.now);
    let steps = node.state.steps(node.now, 10);
    assert!(matches!(steps[0], Step::DropAddr { .. }) && steps.len() <= 11, "{steps:?}");
}

#[test]
fn an_interface_that_is_refused_and_then_no_longer_wanted_keeps_nobody_awake() {
    let mut node = Node::starting(ModelKernel::new(fresh_links()));
    node.refuse = |step| matches!(step, Step::MakeLink { .. });
    node.sync(Setup::Config(config()));
    assert!(node.state.link_problem().is_some());
    assert!(node.state.next_wake().is_some_and(|wake| wake > node.now), "it is tried again");
    node.state.set_setup(Setup::None).unwrap();
    node.pass(seconds(1));
    assert_eq!(node.state.link_problem(), None);
    assert!(node.changes.contains(&Change::LinkRestored));
    assert!(node.state.next_wake().is_none_or(|wake| wake > node.now), "{:?}", node.state.next_wake());
}

#[test]
fn b28_a_virtual_interface_that_somebody_keeps_deleting_comes_back_with_growing_pauses() {
    let mut node = Node::up();
    let delete = |node: &mut Node| {
        let news = node.kernel.delete_link("kube-lb0");
        assert!(!news.is_empty());
        node.hear(news);
        node.rest();
    };
    let told = |node: &Node| node.changes.iter().filter(|c| matches!(c, Change::LinkMeddled { .. })).count();
    delete(&mut node);
    assert!(node.on("kube-lb0").is_empty() && told(&node) == 0, "the first time it may have been a slip");
    let mut pause = Duration::from_millis(100);
    for _ in 0..5 {
        delete(&mut node);
        node.pass(pause - Duration::from_millis(1));
        assert_eq!(node.on("kube-lb0"), ["no such interface"], "not before {pause:?}");
        node.pass(Duration::from_millis(1));
        assert!(node.on("kube-lb0").is_empty());
        pause *= 2;
    }
    assert_eq!(told(&node), 1, "told once");
    node.pass(seconds(61));
    delete(&mut node);
    assert!(node.on("kube-lb0").is_empty(), "after a calm minute it begins anew");
}
