//! Routes are told only while their address is there, and an address leaves after its route.

use proptest::prelude::*;

use super::laws::{Act, act, perform};
use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// Routers that hear what they are told when the story says so.
#[derive(Default)]
struct Routers {
    /// What was said and not heard yet.
    said: Vec<(u64, BTreeSet<IpNet>)>,
    acts_on: u64,
    told: BTreeSet<IpNet>,
}

impl Routers {
    fn say(&mut self, state: &State) {
        let version = state.routes_version();
        if self.said.last().map_or(self.acts_on, |(last, _)| *last) != version {
            self.said.push((version, state.routes().keys().copied().collect()));
        }
    }

    fn listen(&mut self, state: &mut State, now: Moment) {
        if let Some((version, routes)) = self.said.pop() {
            self.said.clear();
            (self.acts_on, self.told) = (version, routes);
        }
        state.hear_routers(self.acts_on, true, |net| self.told.contains(net), now);
    }
}

/// A node that tells routers what is on `kube-lb0`, and the routers.
struct Site {
    node: Node,
    routers: Routers,
}

impl Site {
    fn up(aggregation: &str) -> Self {
        let mut node = Node::up();
        node.state.set_groups(vec![far(aggregation, "/128")]);
        node.state.set_imported(vec!["kube-lb*".into()]);
        let mut site = Self { node, routers: Routers::default() };
        site.rest();
        site
    }

    /// Everything that can happen without the routers happens; then they hear it, and have time to act.
    fn rest(&mut self) {
        self.hold();
        self.listen();
    }

    /// Everything happens that can without the routers.
    fn hold(&mut self) {
        self.node.rest();
        self.routers.say(&self.node.state);
    }

    fn listen(&mut self) {
        for _ in 0..3 {
            self.routers.listen(&mut self.node.state, self.node.now);
            self.hold();
            self.node.pass(Duration::from_millis(200));
            self.hold();
        }
    }

    fn serve(&mut self, name: &str, addrs: &[&str]) {
        self.node.state.set_service(AgentService { from: Some("far".into()), ..svc(name, addrs) });
        self.rest();
    }

    fn delete(&mut self, name: &str) {
        self.node.state.drop_service(&format!("test/{name}"));
    }

    fn told(&self) -> Vec<String> {
        self.routers.told.iter().map(ToString::to_string).collect()
    }

    fn held(&self) -> Vec<String> {
        self.node.on("kube-lb0")
    }
}

#[test]
fn a_route_is_told_once_the_kernel_shows_its_address() {
    let mut site = Site::up("/32");
    site.node.refuse = |step| matches!(step, Step::PutAddr { .. });
    site.serve("web", &["10.9.0.1", "fd09::1"]);
    assert!(site.told().is_empty(), "the kernel refuses the address");
    site.node.refuse = |_| false;
    site.node.pass(seconds(1));
    site.rest();
    assert_eq!(site.told(), ["10.9.0.1/32", "fd09::1/128"]);
    let groups: Vec<_> =
        site.node.state.routes().values().map(|groups| groups.iter().cloned().collect::<Vec<_>>()).collect();
    assert_eq!(groups, [[Arc::<str>::from("far")], ["far".into()]], "each knows its group");
}

#[test]
fn an_address_leaves_when_no_router_has_its_route() {
    let mut site = Site::up("/32");
    site.serve("web", &["10.9.0.1"]);
    site.delete("web");
    site.hold();
    assert_eq!(site.held(), ["10.9.0.1/32"], "routers may still send traffic");
    assert!(site.node.state.waits_for_routers());
    site.listen();
    assert_eq!((site.told(), site.held()), (vec![], vec![]));
    assert!(!site.node.state.waits_for_routers());
}

#[test]
fn a_router_that_does_not_answer_keeps_an_address_for_one_second() {
    let mut site = Site::up("/32");
    site.serve("web", &["10.9.0.1"]);
    site.delete("web");
    site.hold();
    site.node.pass(Duration::from_millis(999));
    assert_eq!(site.held(), ["10.9.0.1/32"]);
    site.node.pass(Duration::from_millis(1));
    assert_eq!((site.told(), site.held()), (vec!["10.9.0.1/32".to_owned()], vec![]));
}

#[test]
fn routers_that_were_told_have_a_moment_to_act_on_it() {
    let mut site = Site::up("/32");
    site.serve("web", &["10.9.0.1"]);
    site.delete("web");
    site.hold();
    site.routers.listen(&mut site.node.state, site.node.now);
    site.node.pass(Duration::from_millis(199));
    assert_eq!((site.told(), site.held()), (vec![], vec!["10.9.0.1/32".to_owned()]));
    site.node.pass(Duration::from_millis(1));
    assert!(site.held().is_empty());
}

#[test]
fn where_no_router_listens_nobody_waits() {
    let mut site = Site::up("/32");
    site.serve("web", &["10.9.0.1"]);
    site.delete("web");
    site.hold();
    site.node.state.hear_routers(site.node.state.routes_version(), false, |_| false, site.node.now);
    site.hold();
    assert!(site.held().is_empty());
}

#[test]
fn a_service_that_is_back_at_once_keeps_address_and_route() {
    let mut site = Site::up("/32");
    site.serve("web", &["10.9.0.1"]);
    site.delete("web");
    site.hold();
    site.serve("web", &["10.9.0.1"]);
    site.node.pass(seconds(5));
    assert_eq!((site.told(), site.held()), (vec!["10.9.0.1/32".to_owned()], vec!["10.9.0.1/32".to_owned()]));
    assert!(!site.node.history.iter().any(|step| matches!(step, Step::DropAddr { .. })));
}

#[test]
fn two_addresses_in_one_aggregate_are_one_route_which_goes_with_the_last() {
    let mut site = Site::up("/24");
    site.serve("web", &["10.9.0.1"]);
    site.serve("shop", &["10.9.0.2"]);
    assert_eq!(site.told(), ["10.9.0.0/24"]);
    site.delete("web");
    site.hold();
    assert_eq!(site.held(), ["10.9.0.2/24"], "the route stays, so there is nothing to wait for");
    site.delete("shop");
    site.hold();
    assert_eq!(site.held(), ["10.9.0.2/24"]);
    site.listen();
    assert_eq!((site.told(), site.held()), (vec![], vec![]));
}

#[test]
fn a_route_follows_endpoints_and_a_new_aggregation_in_the_same_order() {
    let mut site = Site::up("/32");
    site.node.state.set_endpoints(&"test/web".into(), ["node-a".to_owned()].into());
    site.node.state.set_service(AgentService { policy_local: true, ..svc("web", &["10.9.0.1", "fd09::1"]) });
    site.rest();
    assert_eq!(site.told(), ["10.9.0.1/32", "fd09::1/128"]);
    site.node.state.set_groups(vec![far("/28", "/112")]);
    site.hold();
    assert_eq!(site.held(), ["10.9.0.1/28", "10.9.0.1/32", "fd09::1/128"], "IPv6 has one length at a time");
    site.listen();
    assert_eq!(
        (site.told(), site.held()),
        (vec!["10.9.0.0/28".into(), "fd09::/112".into()], vec!["10.9.0.1/28".into(), "fd09::1/112".into()])
    );
    site.node.state.set_endpoints(&"test/web".into(), BTreeSet::new());
    site.hold();
    assert_eq!(site.held().len(), 2);
    site.listen();
    assert_eq!((site.told(), site.held()), (vec![], vec![]));
}

#[test]
fn an_agent_that_leaves_takes_routes_back_before_the_addresses_and_the_interface() {
    let mut site = Site::up("/32");
    site.serve("web", &["10.9.0.1"]);
    site.node.state.leave(Leaving::Go);
    site.hold();
    assert_eq!(site.held(), ["10.9.0.1/32"]);
    site.listen();
    assert_eq!((site.told(), site.held()), (vec![], vec!["no such interface".to_owned()]));
}

#[test]
fn an_agent_that_will_be_succeeded_leaves_routes_and_addresses() {
    let mut site = Site::up("/32");
    site.serve("web", &["10.9.0.1"]);
    site.node.state.leave(Leaving::Stay(seconds(60)));
    site.rest();
    assert_eq!((site.told(), site.held()), (vec!["10.9.0.1/32".to_owned()], vec!["10.9.0.1/32".to_owned()]));
}

#[test]
fn what_others_put_on_the_interface_is_told_and_only_there() {
    let mut site = Site::up("/32");
    for (link, addr, prefix) in
        [("kube-lb0", "172.16.5.9", 24), ("kube-lb0", "169.254.1.1", 32), ("eth0", "192.0.2.7", 32)]
    {
        let news = site.node.kernel.add_addr(link, HeldAddr::plain(ip(addr), prefix));
        site.node.hear(news);
    }
    site.rest();
    assert_eq!(site.told(), ["172.16.5.0/24"]);
    site.node.state.set_imported(vec!["eth?".into()]);
    site.rest();
    assert_eq!(site.told(), ["192.0.2.7/32", "192.168.1.0/24", "fd00:1::/64"]);
    site.node.state.set_imported(Vec::new());
    site.rest();
    assert!(site.told().is_empty());
}

#[test]
fn an_agent_that_starts_tells_what_it_finds_before_it_knows_everything() {
    let mut site = Site::up("/32");
    site.serve("web", &["10.9.0.1"]);
    let mut node = Node::starting(site.node.kernel);
    node.state.set_imported(vec!["kube-lb0".into()]);
    node.state.want(node.now);
    assert_eq!(node.state.routes().keys().copied().collect::<Vec<_>>(), [net("10.9.0.1/32")]);
    node.sync(Setup::Config(config()));
    node.rest();
    assert_eq!(node.state.routes().len(), 0, "no Service explains it now");
}

#[test]
fn a_local_address_never_waits_for_routers() {
    let mut site = Site::up("/32");
    site.node.state.set_imported(vec!["*".into()]);
    site.serve("web", &["192.168.1.100"]);
    site.delete("web");
    site.hold();
    assert_eq!(site.node.on("eth0"), nic_and(&[]));
}

#[test]
fn addresses_that_come_and_go_beside_the_nodes_own_are_known() {
    let mut site = Site::up("/32");
    site.serve("web", &["10.9.0.1", "192.168.1.100"]);
    let fleeting: Vec<_> = site.node.state.fleeting().iter().map(ToString::to_string).collect();
    assert_eq!(fleeting, ["192.168.1.100"], "nobody mistakes one on kube-lb0 for the node's own");
    site.delete("web");
    site.rest();
    assert!(site.node.state.fleeting().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_router_was_told_is_there_unless_it_was_taken_back_a_second_ago(
        acts in prop::collection::vec((act(), any::<bool>()), 1..40),
    ) {
        let mut site = Site::up("/32");
        let mut taken_back: std::collections::BTreeMap<IpNet, Moment> = Default::default();
        // What others take off is gone before we hear of it.
        let ours = |act: &Act| !matches!(act, Act::SomebodyDeletes(_) | Act::SomebodyDeletesTheLink | Act::Promotion(_));
        for (act, listens) in acts.iter().filter(|(act, _)| ours(act)) {
            perform(&mut site.node, act);
            site.hold();
            if *listens {
                site.listen();
            }
            let wished: BTreeSet<_> = site.node.state.routes().keys().copied().collect();
            taken_back.retain(|net, _| !wished.contains(net));
            for told in site.routers.told.difference(&wished) {
                taken_back.entry(*told).or_insert(site.node.now);
            }
            let links = site.node.kernel.links();
            let shown: BTreeSet<_> = links.by_index.values().filter(|link| link.name == "kube-lb0").flat_map(|link| &link.addrs)
                .filter_map(|held| IpNet::new(held.addr, held.prefix).ok().map(|net| net.trunc())).collect();
            for told in site.routers.told.difference(&shown) {
                // Time passes inside an act, too: what was taken back at its beginning is not seen before its end.
                let waited = matches!(act, Act::Pass(millis) if *millis >= 1000)
                    || taken_back.get(told).is_some_and(|since| site.node.now.since(*since) >= seconds(1));
                prop_assert!(waited, "{told} is told and not there after {act:?}");
            }
            prop_assert!(wished.is_subset(&shown), "{wished:?} {shown:?}");
        }
        site.listen();
        site.node.pass(seconds(2));
        prop_assert!(!site.node.state.waits_for_routers());
    }
}
