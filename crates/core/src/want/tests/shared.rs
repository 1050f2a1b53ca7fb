//! Services that come, change and go, alone and sharing an address.

use super::*;

#[test]
fn a04_a20_a_shared_address_goes_with_the_last_service_that_has_it() {
    let mut node = Node::up();
    node.serve(svc("a", &["10.9.0.1"]));
    node.serve(svc("b", &["10.9.0.1"]));
    node.serve(svc("c", &["10.9.0.11"]));
    node.state.drop_service("test/a");
    node.rest();
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32", "10.9.0.11/32"]);
    node.state.drop_service("test/b");
    node.rest();
    assert_eq!(node.on("kube-lb0"), ["10.9.0.11/32"]);
}

#[test]
fn a05_services_that_only_know_an_address_do_not_keep_it() {
    let mut node = Node::up();
    let local = |name: &str| AgentService { policy_local: true, ..svc(name, &["10.9.0.1"]) };
    for name in ["a", "b"] {
        node.state.set_endpoints(&format!("test/{name}").into(), BTreeSet::from(["node-a".to_owned()]));
        node.serve(local(name));
    }
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32"]);
    for name in ["a", "b"] {
        node.state.set_endpoints(&format!("test/{name}").into(), BTreeSet::new());
    }
    node.rest();
    assert!(node.on("kube-lb0").is_empty());
}

#[test]
fn one_service_for_all_nodes_keeps_the_address_for_one_that_is_not() {
    let mut node = Node::up();
    node.serve(svc("a", &["10.9.0.1"]));
    node.serve(AgentService { policy_local: true, ..svc("b", &["10.9.0.1"]) });
    assert_eq!(node.on("kube-lb0"), ["10.9.0.1/32"]);
    node.state.drop_service("test/a");
    node.rest();
    assert!(node.on("kube-lb0").is_empty());
}

#[test]
fn i02_b4_addresses_a_service_no_longer_has_go_at_once() {
    let mut node = Node::up();
    node.serve(svc("web", &["10.9.0.1", "fd09::1", "192.168.1.100"]));
    node.serve(svc("web", &["10.9.0.1"]));
    assert_eq!((node.on("kube-lb0"), node.on("eth0")), (vec!["10.9.0.1/32".to_owned()], nic_and(&[])));
    node.serve(svc("web", &["10.9.0.2"]));
    assert_eq!(node.on("kube-lb0"), ["10.9.0.2/32"]);
    node.serve(svc("web", &[]));
    assert!(node.on("kube-lb0").is_empty());
}

#[test]
fn b5_a_service_of_another_type_has_nothing() {
    let mut node = Node::up();
    node.serve(svc("web", &["10.9.0.1", "192.168.1.100"]));
    node.serve(AgentService { ours: false, ..svc("web", &["10.9.0.1", "192.168.1.100"]) });
    assert_eq!((node.on("kube-lb0"), node.on("eth0")), (Vec::<String>::new(), nic_and(&[])));
}

#[test]
fn i03_a_service_that_another_controller_serves_is_left_alone() {
    let mut node = Node::up();
    node.history.clear();
    node.serve(AgentService { ours: false, ..svc("web", &["192.168.1.100"]) });
    assert_eq!((node.history.len(), node.state.verdict(ip("192.168.1.100"))), (0, None));
}

#[test]
fn our_own_annotation_changes_nothing() {
    let mut node = Node::up();
    node.serve(svc("web", &["192.168.1.100"]));
    node.history.clear();
    let told = [Some("node-a,eth0,192.168.1.100".to_owned()), None];
    node.serve(AgentService { announcing: told, ..svc("web", &["192.168.1.100"]) });
    assert!(node.history.is_empty() && node.state.work.unwished.is_empty());
}

#[test]
fn a17_a18_without_configuration_or_interface_an_address_is_given_up_with_its_reason() {
    let mut node = Node::up();
    node.state.set_groups(vec![group(
        "near",
        Placement::Local,
        vec![entry("192.168.1.100/30", "192.168.1.0/24", "/32")],
    )]);
    node.serve(svc("web", &["192.168.1.100"]));
    let elsewhere = AgentConfig { local_interface: LocalInterface::Matching("^wlan".into()), ..config() };
    node.state.set_setup(Setup::Config(elsewhere)).unwrap();
    node.rest();
    assert_eq!(node.on("eth0"), nic_and(&[]));
    assert!(node.changes.iter().any(|change| matches!(change, Change::Lost { why: Some(Why::NoLocalInterface), .. })));
    node.state.set_setup(Setup::Config(config())).unwrap();
    node.rest();
    node.renew();
    assert_eq!(node.on("eth0"), nic_and(&["192.168.1.100/24"]));
    node.state.set_setup(Setup::None).unwrap();
    node.rest();
    assert!(node.changes.iter().any(|change| matches!(change, Change::Lost { why: Some(Why::NoConfig), .. })));
}

#[test]
fn a19_a_configuration_that_cannot_be_followed_changes_nothing() {
    let mut node = Node::up();
    node.serve(svc("web", &["192.168.1.100", "10.9.0.1"]));
    let bad = AgentConfig { local_interface: LocalInterface::Matching("[".into()), ..config() };
    assert!(node.state.set_setup(Setup::Config(bad)).is_err());
    node.rest();
    assert_eq!((node.on("kube-lb0").len(), node.on("eth0")), (1, nic_and(&["192.168.1.100/24"])));
}
