//! Local addresses: on one elected node, no longer than its lease allows.

use rstest::rstest;

use super::*;
use crate::elect::rank;

/// An address of the node's subnet that `node` wins against the other one.
fn won_by(node: &str) -> String {
    let other = if node == "node-a" { "node-b" } else { "node-a" };
    let mut addrs = (100..200).map(|host| format!("192.168.1.{host}"));
    addrs.find(|addr| rank(node, ip(addr)) < rank(other, ip(addr))).unwrap()
}

const SUBNETS: [&str; 2] = ["192.168.1.0/24", "fd00:1::/64"];

#[test]
fn a06_the_elected_node_holds_an_address_with_the_nics_mask_until_its_fence() {
    let mut node = Node::up();
    node.serve(svc("web", &["192.168.1.100", "fd00:1::100"]));
    assert_eq!(node.on("eth0"), nic_and(&["192.168.1.100/24", "fd00:1::100/64"]));
    let fence = node.now + seconds(8);
    let v4 = node.held("eth0", "192.168.1.100");
    assert_eq!((v4.valid_until, v4.no_prefix_route, v4.deprecated), (Some(fence), true, false));
    let v6 = node.held("eth0", "fd00:1::100");
    assert_eq!((v6.valid_until, v6.no_prefix_route, v6.deprecated), (Some(fence), true, true));
    let told = node.changes.iter().filter_map(|change| match change {
        Change::Taken { tell: Some(telling), local: true, adopted: false, link, .. } => Some((telling, link)),
        _ => None,
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|(telling, link)| telling.link == 2 && ***link == *"eth0" && telling.how.count == 3));
}

#[test]
fn b22_each_renewal_moves_the_lifetime_and_without_one_the_node_lets_go_before_others_may_take_over() {
    let mut node = Node::up();
    node.serve(svc("web", &["192.168.1.100", "fd00:1::100", "10.9.0.1"]));
    for _ in 0..10 {
        node.pass(seconds(5));
        node.renew();
        assert_eq!(node.held("eth0", "192.168.1.100").valid_until, Some(node.now + seconds(8)));
    }
    assert!(!node.history.iter().any(|step| matches!(step, Step::DropAddr { .. })));
    node.pass(seconds(7));
    assert_eq!(node.on("eth0").len(), 4);
    node.pass(seconds(1));
    assert_eq!(node.on("eth0"), nic_and(&[]), "a second and more before the lease ends");
    assert_eq!(node.state.verdict(ip("192.168.1.100")), Some(&Verdict::Fenced));
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32"], "virtual addresses follow no lease");
}

#[test]
fn the_address_of_a_killed_agent_goes_by_itself() {
    let mut node = Node::up();
    node.serve(svc("web", &["192.168.1.100"]));
    let fence = node.now + seconds(8);
    assert_eq!(node.kernel.next_expiry(), Some(fence));
    node.kernel.expire(fence);
    assert_eq!(node.on("eth0"), nic_and(&[]));
}

#[rstest]
#[case::as_given(600, Some(300), 600)]
#[case::only_valid(180, None, 180)]
#[case::floor(30, None, 60)]
#[case::almost(59, None, 60)]
#[case::just(60, None, 60)]
#[case::capped(120, Some(300), 120)]
fn a07_lifetimes_a_user_wrote_are_used_and_renewed_by_renewals(
    #[case] valid: u32,
    #[case] preferred: Option<u32>,
    #[case] expected: u64,
) {
    let mut node = Node::up();
    let on_nic =
        AddressOptions { valid_lifetime: Some(valid), preferred_lifetime: preferred, no_prefix_route: Some(false) };
    node.state.set_setup(Setup::Config(AgentConfig { on_nic, ..config() })).unwrap();
    node.serve(svc("web", &["192.168.1.100"]));
    let held = node.held("eth0", "192.168.1.100");
    assert_eq!((held.valid_until, held.no_prefix_route), (Some(node.now + seconds(expected)), false));
    for _ in 0..200 {
        node.pass(seconds(5));
        node.renew();
    }
    assert!(node.held("eth0", "192.168.1.100").valid_until.unwrap() >= node.now + seconds(expected / 2));
    node.pass(seconds(8));
    assert_eq!(node.on("eth0"), nic_and(&[]), "fenced long before that lifetime ends");
}

#[test]
fn i20_b12_attributes_follow_the_configuration() {
    let mut node = Node::up();
    node.serve(svc("web", &["192.168.1.100", "fd00:1::100"]));
    for (valid, no_prefix_route) in [(300, true), (0, true), (300, false), (0, true), (400, true), (300, true)] {
        let on_nic = AddressOptions {
            valid_lifetime: Some(valid),
            preferred_lifetime: None,
            no_prefix_route: Some(no_prefix_route),
        };
        node.state.set_setup(Setup::Config(AgentConfig { on_nic, ..config() })).unwrap();
        node.rest();
        for addr in ["192.168.1.100", "fd00:1::100"] {
            let held = node.held("eth0", addr);
            let until = (valid > 0).then(|| node.now + seconds(u64::from(valid)));
            assert_eq!((held.valid_until, held.no_prefix_route), (until, no_prefix_route), "{addr}");
        }
    }
}

#[test]
fn a12_duplicate_address_detection_is_skipped_where_the_service_says_so() {
    for skip in [false, true] {
        let mut node = Node::up();
        node.serve(AgentService { skip_ipv6_dad: skip, ..svc("web", &["fd00:1::100"]) });
        assert_eq!(node.held("eth0", "fd00:1::100").no_dad, skip);
    }
}

#[test]
fn another_nodes_address_is_taken_when_that_node_is_gone_and_given_back_when_it_returns() {
    let mut node = Node::up();
    let addr = won_by("node-b");
    node.peer("node-b", &SUBNETS, Some(u64::MAX));
    node.serve(svc("web", &[&addr]));
    assert_eq!(node.state.verdict(ip(&addr)), Some(&Verdict::Elsewhere { node: "node-b".into() }));
    // It lets go, lists nothing any more, and only then deletes its lease.
    node.peer("node-b", &[], Some(u64::MAX));
    node.state.lease_gone("node-b", node.now);
    node.rest();
    assert_eq!(node.on("eth0"), nic_and(&[&format!("{addr}/24")]));
    node.peer("node-b", &SUBNETS, Some(u64::MAX));
    node.rest();
    assert_eq!(node.on("eth0"), nic_and(&[]));
    assert!(
        node.changes
            .iter()
            .any(|change| matches!(change, Change::Lost { why: Some(Why::LostElection), local: true, .. }))
    );
}

#[test]
fn a_newcomer_is_acknowledged_only_when_its_addresses_are_off_the_nic() {
    let mut node = Node::up();
    let addr = won_by("node-b");
    node.serve(svc("web", &[&addr]));
    let before = node.state.lease_wish();
    assert!(!before.urgent);
    node.peer("node-b", &SUBNETS, Some(0));
    let version = node.version;
    assert!(node.state.lease_wish().saw < version, "before anything was decided");
    node.state.want(node.now);
    let steps = node.state.steps(node.now, 128);
    assert!(node.state.lease_wish().saw < version, "before the kernel let go");
    node.apply(steps);
    node.rest();
    let wish = node.state.lease_wish();
    assert!(wish.urgent && wish.saw >= version);
    node.renew();
    assert!(!node.state.lease_wish().urgent);
}

#[test]
fn a_newcomer_waits_until_the_former_holder_has_let_go() {
    let mut node = Node::starting(ModelKernel::new(fresh_links()));
    let addr = won_by("node-a");
    node.peer("node-b", &SUBNETS, Some(0));
    node.state.set_service(svc("web", &[&addr]));
    node.state.set_setup(Setup::Config(config())).unwrap();
    node.state.set_synced(true);
    node.rest();
    node.renew();
    assert!(matches!(node.state.verdict(ip(&addr)), Some(Verdict::Waiting { .. })));
    assert_eq!(node.on("eth0"), nic_and(&[]));
    let heard = node.version;
    node.peer("node-b", &SUBNETS, Some(heard));
    node.rest();
    assert_eq!(node.on("eth0"), nic_and(&[&format!("{addr}/24")]));
}

#[test]
fn an_interface_that_loses_its_carrier_gives_its_addresses_up_before_the_lease_says_so() {
    let mut node = Node::up();
    node.serve(svc("web", &["192.168.1.100"]));
    let news = node.kernel.set_carrier("eth0", false);
    node.hear(news);
    node.state.want(node.now);
    assert_eq!(node.state.lease_wish().subnets.len(), 1, "the subnet stays listed while an address of it is held");
    node.rest();
    assert_eq!(node.on("eth0"), nic_and(&[]));
    let wish = node.state.lease_wish();
    assert!(wish.subnets.is_empty() && wish.urgent && wish.publish);
    node.renew();
    let news = node.kernel.set_carrier("eth0", true);
    node.hear(news);
    node.rest();
    node.renew();
    assert_eq!(node.on("eth0"), nic_and(&["192.168.1.100/24"]));
}

#[test]
fn i16_b11_the_nodes_own_address_is_refused_and_never_touched() {
    let mut node = Node::up();
    node.history.clear();
    let announcing = [Some("node-a,eth0,192.168.1.10".to_owned()), None];
    node.serve(svc("gateway", &["192.168.1.1"]));
    node.state.set_guarded([(ip("192.168.1.10"), crate::place::Guard::Node)].into());
    node.serve(AgentService { announcing, ..svc("greedy", &["192.168.1.10"]) });
    assert!(matches!(node.state.verdict(ip("192.168.1.10")), Some(Verdict::Nowhere(Reason::AddressReserved { .. }))));
    assert!(matches!(node.state.verdict(ip("192.168.1.1")), Some(Verdict::Nowhere(Reason::AddressReserved { .. }))));
    node.state.drop_service("test/greedy");
    node.rest();
    assert_eq!((node.on("eth0"), node.history.len()), (nic_and(&[]), 0));
}

#[test]
fn i08_b11_kube_ipvs0_is_never_touched() {
    let mut links = fresh_links();
    links.by_index.insert(7, link("kube-ipvs0", LinkKind::Dummy, &["192.168.1.100/32", "10.9.0.1/32", "10.96.0.1/32"]));
    let mut node = Node::starting(ModelKernel::new(links));
    node.sync(Setup::Config(config()));
    let ipvs = node.on("kube-ipvs0");
    node.serve(svc("web", &["192.168.1.100", "10.9.0.1"]));
    assert_eq!((node.on("kube-lb0"), node.on("eth0")), (vec!["10.9.0.1/32".into()], nic_and(&["192.168.1.100/24"])));
    node.state.drop_service("test/web");
    node.rest();
    node.state.leave(Leaving::Go);
    node.rest();
    assert_eq!((node.on("kube-ipvs0"), node.on("eth0")), (ipvs, nic_and(&[])));
}

#[test]
fn i08_b14_an_address_that_is_also_on_a_dummy_or_the_loopback_is_announced_unless_it_is_a_nodes() {
    let mut links = fresh_links();
    links.by_index.insert(7, link("kube-dummy-if", LinkKind::Dummy, &["192.168.1.100/32", "10.9.0.1/32"]));
    links.by_index.get_mut(&1).unwrap().addrs.push(HeldAddr::plain(ip("10.9.0.2"), 32));
    links.by_index.get_mut(&1).unwrap().addrs.push(HeldAddr::plain(ip("10.9.0.3"), 32));
    let mut node = Node::starting(ModelKernel::new(links));
    node.sync(Setup::Config(config()));
    node.state.set_guarded([(ip("10.9.0.3"), crate::place::Guard::Node)].into());
    node.serve(svc("web", &["192.168.1.100", "10.9.0.1"]));
    node.serve(svc("dsr", &["10.9.0.2"]));
    node.serve(svc("greedy", &["10.9.0.3"]));
    let (on_virtual, on_nic) = (node.on("kube-lb0"), node.on("eth0"));
    assert_eq!(
        (on_virtual, on_nic),
        (vec!["10.9.0.1/32".into(), "10.9.0.2/32".into()], nic_and(&["192.168.1.100/24"]))
    );
    assert!(matches!(node.state.verdict(ip("10.9.0.3")), Some(Verdict::Nowhere(Reason::AddressReserved { .. }))));
    // Without a Service it counts as the node's own again: no aggregate may capture it.
    node.state.drop_service("test/dsr");
    node.state.set_groups(vec![far("/30", "/128")]);
    node.rest();
    assert!(matches!(node.state.verdict(ip("10.9.0.1")), Some(Verdict::Nowhere(Reason::AggregateCaptures { .. }))));
    assert_eq!(node.on("kube-dummy-if"), ["10.9.0.1/32", "192.168.1.100/32"]);
}

#[test]
fn b11_a_service_may_be_the_nodes_name_server_and_its_siblings_stay_but_a_gateway_may_not() {
    use crate::place::Guard;
    let mut node = Node::up();
    node.state.set_groups(vec![far("default", "default")]);
    node.state.set_guarded([(ip("10.9.0.53"), Guard::DnsServer), (ip("192.168.1.1"), Guard::DnsServer)].into());
    node.serve(svc("web", &["10.9.0.1"]));
    assert!(matches!(node.state.verdict(ip("10.9.0.1")), Some(Verdict::Nowhere(Reason::AggregateCaptures { .. }))));
    node.serve(svc("dns", &["10.9.0.53"]));
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/24", "10.9.0.53/24"]);
    node.serve(svc("gateway", &["192.168.1.1"]));
    assert!(matches!(node.state.verdict(ip("192.168.1.1")), Some(Verdict::Nowhere(Reason::AddressReserved { .. }))));
}

#[test]
fn b10_a_permanent_local_address_is_kept_over_a_restart_until_the_lease_can_be_renewed_again() {
    let on_nic = AddressOptions { valid_lifetime: Some(0), ..AddressOptions::default() };
    let permanent = AgentConfig { on_nic, ..config() };
    let mut before = Node::up();
    before.state.set_setup(Setup::Config(permanent.clone())).unwrap();
    before.serve(svc("web", &["192.168.1.100"]));
    assert_eq!(before.held("eth0", "192.168.1.100").valid_until, None);
    let restarted = || {
        let mut node = Node::starting(before.kernel.clone());
        node.version = before.version;
        node.state.set_setup(Setup::Config(permanent.clone())).unwrap();
        node.state.set_service(svc("web", &["192.168.1.100"]));
        let subnets = ["192.168.1.0/24".parse().unwrap()].into();
        node.state.hear_leases(vec![node.lease("node-a", &subnets, Some(0))], node.now);
        node.state.set_synced(true);
        node.rest();
        node
    };
    let mut node = restarted();
    assert_eq!((node.on("eth0"), node.history.len()), (nic_and(&["192.168.1.100/24"]), 0), "before the first renewal");
    node.renew();
    node.pass(seconds(5));
    assert_eq!(
        (node.on("eth0"), node.held("eth0", "192.168.1.100").valid_until),
        (nic_and(&["192.168.1.100/24"]), None)
    );
    let mut node = restarted();
    node.pass(LEASE);
    assert_eq!(node.on("eth0"), nic_and(&[]), "without a lease it goes in the end");
}

#[test]
fn b21_an_address_of_ours_left_alone_on_a_nic_keeps_no_subnet() {
    let mut node = Node::up();
    node.serve(svc("web", &["192.168.1.100"]));
    let news = node.kernel.set_promotion("eth0", true);
    node.hear(news);
    let news = node.kernel.delete_addr("eth0", ip("192.168.1.10"), 24);
    node.hear(news);
    node.rest();
    assert_eq!(node.on("eth0"), ["fd00:1::10/64"]);
    assert!(!node.state.lease_wish().subnets.contains(&"192.168.1.0/24".parse().unwrap()));
}

#[rstest]
#[case::recent_kernel(true)]
#[case::old_kernel(false)]
fn b10_a_restarted_agent_keeps_what_it_holds(#[case] keeps_protocol: bool) {
    let mut links = fresh_links();
    links.by_index.get_mut(&1).unwrap().addrs.iter_mut().for_each(|held| held.protocol = u8::from(keeps_protocol));
    let mut kernel = ModelKernel::new(links);
    kernel.keeps_protocol = keeps_protocol;
    let mut before = Node::starting(kernel);
    before.sync(Setup::Config(config()));
    let told = [Some("node-a,eth0,192.168.1.100".to_owned()), None];
    let service = AgentService { announcing: told, ..svc("web", &["192.168.1.100", "10.9.0.1"]) };
    before.serve(service.clone());
    assert_eq!(before.on("eth0"), nic_and(&["192.168.1.100/24"]));

    let lease = before.lease("node-a", &SUBNETS.iter().map(|net| net.parse().unwrap()).collect(), Some(1));
    let mut after = Node::starting(before.kernel.clone());
    after.now = before.now + seconds(2);
    after.state.set_setup(Setup::Config(config())).unwrap();
    after.state.set_groups(vec![far("/32", "/128")]);
    after.state.set_service(service);
    after.state.hear_leases(vec![lease], after.now);
    after.state.set_synced(true);
    after.rest();
    after.pass(seconds(1));
    assert_eq!(after.on("eth0"), nic_and(&["192.168.1.100/24"]), "kept although nothing was renewed yet");
    after.renew();
    assert_eq!(after.held("eth0", "192.168.1.100").valid_until, Some(after.now + seconds(8)));
    assert!(
        after.history.iter().all(|step| matches!(step, Step::PutAddr { refresh: true, .. })),
        "{:?}",
        after.history
    );
    let adopted =
        after.changes.iter().filter(|change| matches!(change, Change::Taken { adopted: true, tell: None, .. }));
    assert_eq!(adopted.count(), 2);
}

#[test]
fn a_restarted_agent_that_cannot_renew_lets_go_when_its_predecessor_would_have() {
    let mut before = Node::up();
    before.serve(svc("web", &["192.168.1.100"]));
    let lease = before.lease("node-a", &SUBNETS.iter().map(|net| net.parse().unwrap()).collect(), Some(1));
    let fence = before.now + seconds(8);
    let mut after = Node::starting(before.kernel.clone());
    after.state.set_setup(Setup::Config(config())).unwrap();
    after.state.set_service(svc("web", &["192.168.1.100"]));
    after.state.hear_leases(vec![lease], after.now);
    after.state.set_synced(true);
    after.pass(seconds(7));
    assert_eq!(after.on("eth0").len(), 3);
    after.pass(fence.since(after.now));
    assert_eq!(after.on("eth0"), nic_and(&[]));
}

#[test]
fn a_restarted_agent_with_other_interfaces_lists_what_its_predecessor_left_on_a_nic() {
    let mut before = Node::up();
    before.serve(svc("web", &["192.168.1.100"]));
    let lease = before.lease("node-a", &SUBNETS.iter().map(|net| net.parse().unwrap()).collect(), Some(1));
    let mut after = Node::starting(before.kernel.clone());
    after.refuse = |step| matches!(step, Step::DropAddr { .. });
    let elsewhere = AgentConfig { local_interface: LocalInterface::Matching("eth9".into()), ..config() };
    after.state.set_setup(Setup::Config(elsewhere)).unwrap();
    after.state.set_service(svc("web", &["192.168.1.100"]));
    after.state.hear_leases(vec![lease], after.now);
    after.state.set_synced(true);
    after.rest();
    let listed: Vec<_> = after.state.lease_wish().subnets.iter().map(ToString::to_string).collect();
    assert_eq!(listed, ["192.168.1.0/24"], "peers must not take what is still on the NIC");
    after.refuse = |_| false;
    after.pass(seconds(1));
    assert_eq!(after.on("eth0"), nic_and(&[]));
    assert!(after.state.lease_wish().subnets.is_empty());
}

/// Another node renews its lease and claims an address.
fn claim(node: &mut Node, name: &str, addr: &str, saw: u64) {
    node.version += 1;
    let subnets = SUBNETS.iter().map(|net| net.parse().unwrap()).collect();
    let lease = LeaseView { claims: BTreeSet::from([ip(addr)]), ..node.lease(name, &subnets, Some(saw)) };
    node.state.hear_lease(lease, node.now);
    node.rest();
}

fn near(addr: &str) -> AgentService {
    AgentService { affinity: true, ..svc("web", &[addr]) }
}

fn endpoints(node: &mut Node, nodes: &[&str]) {
    node.state.set_endpoints(&"test/web".into(), nodes.iter().map(|node| (*node).to_owned()).collect());
    node.rest();
}

#[test]
fn a13_an_address_near_endpoints_is_claimed_first_and_taken_when_all_know() {
    let mut node = Node::up();
    let addr = won_by("node-b");
    node.peer("node-b", &SUBNETS, Some(u64::MAX - 1));
    node.serve(near(&addr));
    endpoints(&mut node, &["node-a"]);
    let wish = node.state.lease_wish();
    assert!(wish.urgent && wish.claims == BTreeSet::from([ip(&addr)]), "{wish:?}");
    node.peer("node-b", &SUBNETS, Some(0));
    node.renew();
    assert_eq!(node.on("eth0"), nic_and(&[]), "node-b may hold it and not know of the claim");
    node.peer("node-b", &SUBNETS, Some(node.version));
    node.rest();
    assert_eq!(node.on("eth0"), nic_and(&[&format!("{addr}/24")]));
    node.serve(AgentService { shared: true, ..near(&addr) });
    assert_eq!(node.on("eth0"), nic_and(&[]), "a shared address follows no Service's endpoints");
    assert!(node.state.lease_wish().claims.is_empty());
}

#[test]
fn what_another_node_claims_is_let_go_whatever_this_node_knows_of_the_service() {
    let mut node = Node::up();
    let addr = won_by("node-a");
    node.peer("node-b", &SUBNETS, Some(u64::MAX));
    node.serve(svc("web", &[&addr]));
    assert_eq!(node.on("eth0"), nic_and(&[&format!("{addr}/24")]));
    node.state.hear_lease(
        LeaseView {
            claims: BTreeSet::from([ip(&addr)]),
            version: Some(900),
            renewed: Some("claiming".into()),
            ..node.lease("node-b", &SUBNETS.iter().map(|net| net.parse().unwrap()).collect(), Some(u64::MAX))
        },
        node.now,
    );
    node.state.want(node.now);
    assert!(node.state.lease_wish().saw < 900, "acknowledged only when it is off the NIC");
    node.rest();
    assert_eq!(node.on("eth0"), nic_and(&[]));
    let wish = node.state.lease_wish();
    assert!(wish.urgent && wish.saw >= 900, "node-b waits for it: {wish:?}");
    node.version = 900;
    node.peer("node-b", &SUBNETS, Some(u64::MAX));
    node.rest();
    assert_eq!(node.on("eth0"), nic_and(&[&format!("{addr}/24")]), "back with the claim gone");
}

#[test]
fn the_holder_keeps_an_address_until_the_node_with_the_endpoint_claims_it() {
    let mut node = Node::up();
    let addr = won_by("node-a");
    node.peer("node-b", &SUBNETS, Some(u64::MAX));
    node.serve(near(&addr));
    assert_eq!(node.on("eth0"), nic_and(&[&format!("{addr}/24")]), "no endpoints, no preference");
    endpoints(&mut node, &["node-b"]);
    assert_eq!(node.on("eth0"), nic_and(&[&format!("{addr}/24")]), "node-b may not have heard of it");
    claim(&mut node, "node-b", &addr, u64::MAX);
    assert_eq!(node.on("eth0"), nic_and(&[]));
}

#[test]
fn a_node_that_does_not_claim_what_it_should_is_waited_for_a_moment_only() {
    let mut node = Node::up();
    let addr = won_by("node-a");
    node.peer("node-b", &SUBNETS, Some(u64::MAX));
    node.state.set_endpoints(&"test/web".into(), BTreeSet::from(["node-b".to_owned()]));
    node.serve(near(&addr));
    assert_eq!(node.on("eth0"), nic_and(&[]), "it is node-b's to take");
    node.pass(seconds(2));
    assert_eq!(node.on("eth0"), nic_and(&[&format!("{addr}/24")]));
}

#[test]
fn agents_that_do_not_claim_go_where_the_endpoints_are() {
    let mut node = Node::up();
    let addr = won_by("node-a");
    node.peer("node-b", &SUBNETS, None);
    node.serve(near(&addr));
    endpoints(&mut node, &["node-b"]);
    assert_eq!(node.on("eth0"), nic_and(&[]), "an agent of the reference takes it");
    endpoints(&mut node, &["nowhere"]);
    assert_eq!(node.on("eth0"), nic_and(&[&format!("{addr}/24")]), "nobody near the endpoints can");
    assert!(node.state.fell_back(ip(&addr)));
}

#[test]
fn e23_endpoints_on_nodes_that_are_alive_and_cannot_serve_the_address_are_a_fallback() {
    let mut node = Node::up();
    let addr = won_by("node-a");
    node.peer("node-b", &[], Some(u64::MAX));
    node.serve(near(&addr));
    assert!(!node.state.fell_back(ip(&addr)), "no endpoints, no preference");
    endpoints(&mut node, &["node-b"]);
    assert!(node.state.fell_back(ip(&addr)));
    assert_eq!(node.on("eth0"), nic_and(&[&format!("{addr}/24")]));
    endpoints(&mut node, &["node-a", "node-b"]);
    node.renew();
    assert!(!node.state.fell_back(ip(&addr)), "one of them can");
}

#[test]
fn a_claim_stays_in_the_lease_until_the_address_is_off_the_nic() {
    let mut node = Node::up();
    let addr = won_by("node-b");
    node.peer("node-b", &SUBNETS, Some(u64::MAX));
    node.serve(near(&addr));
    endpoints(&mut node, &["node-a"]);
    node.renew();
    node.peer("node-b", &SUBNETS, Some(u64::MAX));
    node.rest();
    assert_eq!(node.on("eth0"), nic_and(&[&format!("{addr}/24")]));
    node.state.set_endpoints(&"test/web".into(), BTreeSet::new());
    node.state.want(node.now);
    assert_eq!(node.state.lease_wish().claims.len(), 1);
    node.rest();
    assert_eq!(node.on("eth0"), nic_and(&[]));
    let wish = node.state.lease_wish();
    assert!(wish.urgent && wish.claims.is_empty(), "{wish:?}");
}

#[test]
fn b26_the_holder_says_what_to_do_about_policy_local_and_keeps_the_address() {
    let mut node = Node::up();
    let service = AgentService { policy_local: true, ..svc("web", &["192.168.1.100"]) };
    node.serve(service.clone());
    assert_eq!(node.state.policy("test/web"), Some(PolicyWish::Rewrite));
    node.serve(AgentService { policy_rewritten: true, ..service.clone() });
    assert_eq!(node.state.policy("test/web"), Some(PolicyWish::SetBack));
    node.serve(AgentService { allow_local: true, ..service.clone() });
    assert_eq!(node.state.policy("test/web"), Some(PolicyWish::Allowed));
    node.serve(AgentService { policy_local: false, policy_rewritten: true, ..service });
    assert_eq!(node.state.policy("test/web"), None);
    let said = node.changes.iter().filter_map(|change| match change {
        Change::Policy { say, .. } => Some(*say),
        _ => None,
    });
    let said = said.collect::<Vec<_>>();
    assert_eq!(said, [Some(PolicyWish::Rewrite), Some(PolicyWish::SetBack), Some(PolicyWish::Allowed), None]);
    assert!(!node.history.iter().any(|step| matches!(step, Step::DropAddr { .. })));
}

#[test]
fn b26_a_service_that_has_no_local_address_any_more_keeps_its_policy() {
    let mut node = Node::up();
    let both = AgentService { policy_local: true, ..svc("web", &["10.9.0.1", "192.168.1.100"]) };
    node.serve(both.clone());
    assert_eq!(node.state.policy("test/web"), Some(PolicyWish::Rewrite));
    node.serve(AgentService { addrs: vec![ip("10.9.0.1")], ..both });
    assert_eq!(node.state.policy("test/web"), None);
}

/// An automatic group, or a remote one, with an address in the node's own subnet.
fn at_home(placement: Placement) -> Group {
    group("near", placement, vec![entry("192.168.1.0/24", "192.168.1.0/24", "/32")])
}

#[test]
fn an_address_in_a_subnet_of_the_node_stays_on_its_nic_when_the_default_route_is_lost() {
    for placement in [Placement::Auto, Placement::Remote, Placement::Local] {
        let mut node = Node::up();
        node.tell(Fact::Groups(vec![at_home(placement)]));
        node.serve(svc("web", &["192.168.1.100"]));
        node.serve(svc("gateway", &["192.168.1.1"]));
        assert_eq!(node.on("eth0"), nic_and(&["192.168.1.100/24"]));
        let subnets = node.state.lease_wish().subnets;
        node.hear(vec![LinkNews::DefaultRoutes(Vec::new())]);
        node.rest();
        assert_eq!((node.on("eth0"), node.on("kube-lb0")), (nic_and(&["192.168.1.100/24"]), vec![]), "{placement:?}");
        assert_eq!(node.state.lease_wish().subnets, subnets, "{placement:?}");
        let verdict = node.state.verdict(ip("192.168.1.1"));
        assert!(matches!(verdict, Some(Verdict::Nowhere(Reason::AddressReserved { .. }))), "{verdict:?}");
    }
}

#[test]
fn an_agent_that_starts_without_a_default_route_goes_on_with_what_its_lease_says() {
    let mut links = fresh_links();
    links.default_routes.clear();
    for said in [true, false] {
        let mut node = Node::starting(ModelKernel::new(links.clone()));
        node.tell(Fact::Setup(Setup::Config(config())));
        node.tell(Fact::Groups(vec![at_home(Placement::Auto)]));
        let subnets = said.then(|| "192.168.1.0/24".parse().unwrap()).into_iter().collect();
        let own = node.lease("node-a", &subnets, None);
        node.tell(Fact::Leases(vec![own]));
        node.tell(Fact::Synced(true));
        node.rest();
        node.renew();
        node.serve(svc("web", &["192.168.1.100"]));
        node.pass(LEASE);
        node.renew();
        let expected = if said { nic_and(&["192.168.1.100/24"]) } else { nic_and(&[]) };
        assert_eq!((node.on("eth0"), node.on("kube-lb0")), (expected, vec![]), "a lease that lists it: {said}");
    }
}
