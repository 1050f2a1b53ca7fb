//! Allocation stories, by the scenario IDs of the specification, in a town small enough to read.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::addr::{AddrRange, Aggregation, parse_subnet};
use crate::book::{Holding, Surroundings};
use crate::group::{Entry, Placement, Ranges, clashes};
use crate::pool::{Port, Protocol};
use crate::reserved::Guard;
use crate::service::Asks;

mod balance;
mod external;
mod families;
mod laws;
mod multi_pool;
mod namespaces;
mod pins;
mod sharing;

/// A cluster in memory: the book, and every Service as the API would show it.
struct Town {
    scope: Scope,
    groups: Vec<Group>,
    surroundings: Surroundings,
    book: Book,
    services: BTreeMap<String, ServiceView>,
}

impl Town {
    fn new(groups: &[Group]) -> Self {
        let scope =
            Scope { classes: vec!["purelb.io/purelb".into(), "purelb.io/purelbv2".into()], default_announcer: true };
        let mut town = Self {
            scope,
            groups: groups.to_vec(),
            surroundings: Surroundings::default(),
            book: Book::default(),
            services: BTreeMap::new(),
        };
        town.rebuild();
        town
    }

    /// What an edit of groups, Nodes or leases leads to.
    fn rebuild(&mut self) {
        let clashes = clashes(&self.groups);
        let usable = |i: &usize| !clashes.iter().any(|clash| clash.refused == *i);
        let groups = (0..self.groups.len()).filter(usable).map(|i| self.groups[i].clone()).collect();
        let refused = clashes
            .iter()
            .map(|clash| (self.groups[clash.refused].name.clone(), clash.problem.reason.clone()))
            .collect();
        self.book = std::mem::take(&mut self.book).rebuilt(groups, refused, self.surroundings.clone());
    }

    fn with_active(mut self, subnets: &[&str]) -> Self {
        self.surroundings.active_subnets = subnets.iter().map(|subnet| parse_subnet(subnet).unwrap()).collect();
        self.rebuild();
        self
    }

    /// Creates or edits a Service and lets the allocator have one look at it.
    fn put(&mut self, svc: ServiceView) -> Wish {
        let name = svc.key.to_string();
        self.services.insert(name.clone(), svc);
        self.look(&name)
    }

    fn edit(&mut self, name: &str, change: impl FnOnce(&mut ServiceView)) -> Wish {
        change(self.services.get_mut(name).unwrap());
        self.look(name)
    }

    /// One pass: decide, enter it in the book, write it. Who loses an address is looked at once more.
    fn look(&mut self, name: &str) -> Wish {
        let svc = self.services[name].clone();
        match decide(&self.scope, &self.book, &svc) {
            Decision::Wish(wish) if matches!(wish.reason, Some(Reason::AddressLost { .. })) => {
                let mut lost = self.write(name, wish);
                let then = self.look(name);
                lost.notices.extend(then.notices);
                Wish { notices: lost.notices, ..then }
            }
            Decision::Wish(wish) => self.write(name, wish),
            other => panic!("{name}: {other:?}"),
        }
    }

    fn write(&mut self, name: &str, wish: Wish) -> Wish {
        let svc = self.services.get_mut(name).unwrap();
        let holding = Holding { uid: svc.uid.clone(), claim: svc.claim(), addrs: wish.addrs.clone() };
        self.book.hold(holding);
        svc.ingress = wish.addrs.iter().copied().map(Ingress::of).collect();
        svc.brand = wish.brand.clone();
        svc.condition = Some(wish.condition.clone());
        svc.asks.re_evaluate = false;
        assert!(wish.is_fulfilled_by(svc));
        wish
    }

    fn delete(&mut self, name: &str) {
        self.services.remove(name);
        self.book.release(name, None);
    }

    fn group(&mut self, name: &str) -> &mut Group {
        self.groups.iter_mut().find(|group| group.name == name).unwrap()
    }

    fn ranges(&mut self, name: &str) -> &mut Ranges {
        match &mut self.group(name).source {
            Source::Ranges(ranges) => ranges,
            other => panic!("{other:?}"),
        }
    }
}

/// A group whose subnet is wide around its ranges, so that no range touches an edge of it.
fn group(name: &str, pools: &[&str]) -> Group {
    let mut ranges = Ranges::default();
    for pool in pools {
        let range = AddrRange::parse(pool).unwrap();
        let (list, subnet) = match range.family() {
            Family::V4 => (&mut ranges.v4, format!("{}/16", range.first())),
            Family::V6 => (&mut ranges.v6, format!("{}/16", range.first())),
        };
        list.push(Entry {
            field: format!("[{}]", list.len()),
            text: (*pool).into(),
            range,
            subnet: parse_subnet(&subnet).unwrap(),
            aggregation: Aggregation::Subnet,
        });
    }
    Group {
        namespace: "purelb-system".into(),
        name: name.into(),
        placement: Placement::Local,
        source: Source::Ranges(ranges),
        skip_ipv6_dad: false,
        namespaces: Vec::new(),
        enforce_namespaces: false,
        namespace_default: false,
    }
}

fn svc(name: &str) -> ServiceView {
    let key = if name.contains('/') { name.to_owned() } else { format!("test/{name}") };
    ServiceView {
        key: key.as_str().into(),
        uid: format!("uid of {key}"),
        class: None,
        has_cluster_ip: true,
        is_leaving: false,
        families: vec![Family::V4],
        prefers_dual_stack: false,
        ports: vec![Port { protocol: Protocol::Tcp, number: 80 }],
        load_balancer_ip: None,
        asks: Asks::default(),
        brand: Brand::default(),
        ingress: Vec::new(),
        condition: None,
    }
}

impl ServiceView {
    fn families(mut self, families: &[Family]) -> Self {
        self.families = families.to_vec();
        self
    }
    fn dual(self) -> Self {
        self.families(&[Family::V4, Family::V6])
    }
    fn from(mut self, group: &str) -> Self {
        self.asks.group = Some(group.into());
        self
    }
    fn pinned(mut self, addrs: &str) -> Self {
        self.asks.addresses = Some(addrs.into());
        self
    }
    fn shared(mut self, key: &str) -> Self {
        self.asks.sharing_key = Some(key.into());
        self
    }
    fn port(mut self, number: u16) -> Self {
        self.ports = vec![Port { protocol: Protocol::Tcp, number }];
        self
    }
    fn multi(mut self, on: bool) -> Self {
        self.asks.multi_pool = Some(on);
        self
    }
    fn class(mut self, class: &str) -> Self {
        self.class = Some(class.into());
        self
    }
}

impl Wish {
    /// The addresses as one text, or the reason why there are none.
    fn text(&self) -> String {
        if self.addrs.is_empty() { self.condition.reason.clone() } else { notice::list(&self.addrs) }
    }

    fn events(&self) -> Vec<&str> {
        self.notices.iter().map(|notice| notice.reason).collect()
    }
}

#[test]
fn ctl_2_a_first_service_gets_the_first_address_and_says_where_from() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/31"])]);
    let wish = town.put(svc("a"));
    assert_eq!(wish.text(), "1.2.3.0");
    let brand =
        Brand { ours: true, from: Some("default".into()), pool_type: Some("local".into()), skip_ipv6_dad: false };
    assert_eq!(wish.brand, brand);
    assert_eq!((wish.condition.assigned, wish.condition.reason.as_str()), (true, "Assigned"));
    let again = town.look("test/a");
    assert_eq!((again.text(), again.events()), ("1.2.3.0".into(), vec![]), "a second look changes and says nothing");
}

#[test]
fn ctl_4_an_address_that_is_given_back_goes_to_the_service_that_waits() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/32"])]);
    town.put(svc("a"));
    let waits = town.put(svc("b"));
    assert_eq!((waits.text(), waits.events()), ("Exhausted".into(), vec!["AllocationFailed"]));
    assert!(town.look("test/b").events().is_empty(), "the same reason is told once");
    town.delete("test/a");
    assert_eq!(town.look("test/b").text(), "1.2.3.0");
}

#[test]
fn the_seeds_event_and_annotations_for_an_automatic_group() {
    let mut remotedual = group("remotedual", &["172.32.100.225-172.32.100.229", "fc00:370:155:0:8000::/126"]);
    remotedual.placement = Placement::Auto;
    let wish = Town::new(&[remotedual]).put(svc("kuard-svc-dual-remote").dual().from("remotedual"));
    assert_eq!(wish.text(), "172.32.100.225, fc00:370:155:0:8000::");
    assert_eq!(wish.brand, Brand { ours: true, from: Some("remotedual".into()), ..Brand::default() });
    let message = "Assigned {Ingress:[{IP:172.32.100.225 Hostname: Ports:[]} {IP:fc00:370:155:0:8000:: Hostname: \
                   Ports:[]}]} from pool remotedual";
    assert_eq!((wish.notices[0].reason, wish.notices[0].message.as_str()), ("AddressAssigned", message));
}

#[test]
fn mp_14_and_15_only_services_of_our_classes_are_handled() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    let verdict = |town: &Town, svc: &ServiceView| decide(&town.scope, &town.book, svc) == Decision::LeaveAlone;
    assert!(verdict(&town, &svc("a").class("example.com/other")));
    assert!(!verdict(&town, &svc("a").class("purelb.io/purelb")));
    assert!(!verdict(&town, &svc("a").class("purelb.io/purelbv2")));
    town.scope.default_announcer = false;
    assert!(verdict(&town, &svc("a")), "no class, and not the default");
    assert!(!verdict(&town, &svc("a").class("purelb.io/purelbv2")));
    let mut headless = svc("a").class("purelb.io/purelbv2");
    headless.has_cluster_ip = false;
    assert!(verdict(&town, &headless));
}

#[test]
fn mp_6_and_b45_somebody_elses_ingress_is_left_alone() {
    let town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    for foreign in [Ingress { addr: None, plain: false }, Ingress::of("9.9.9.9".parse().unwrap())] {
        let mut svc = svc("a");
        svc.ingress = vec![foreign];
        assert_eq!(decide(&town.scope, &town.book, &svc), Decision::LeaveAlone);
        assert_eq!(decide(&town.scope, &town.book, &svc.multi(true)), Decision::LeaveAlone);
    }
}

#[test]
fn bug_14_a_lost_brand_is_repaired_unless_somebody_else_has_the_address() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    let mut lost = svc("a");
    lost.ingress = vec![Ingress::of("1.2.3.7".parse().unwrap())];
    let wish = town.put(lost.clone());
    assert_eq!((wish.text(), wish.brand.ours), ("1.2.3.7".into(), true));
    lost.key = "test/b".into();
    assert_eq!(decide(&town.scope, &town.book, &lost), Decision::LeaveAlone, "a has it");
}

#[test]
fn a_brand_that_was_lost_with_all_annotations_is_restored_where_our_condition_names_the_addresses() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/31", "2001:db8::/127"])]);
    town.put(svc("a").dual());
    town.put(svc("b"));
    for pool in ["1.2.3.0/30", "5.6.7.0/24"] {
        *town.ranges("default") = group("x", &[pool]).ranges().unwrap().clone();
        town.rebuild();
        town.look("test/a");
        let kept = town.edit("test/a", |svc| svc.brand = Brand::default());
        assert_eq!((kept.text().as_str(), kept.brand.ours), ("1.2.3.0, 2001:db8::", true), "now in {pool}");
    }
    let stranger = |change: &dyn Fn(&mut ServiceView)| {
        let mut svc = town.services["test/a"].clone();
        svc.brand = Brand::default();
        change(&mut svc);
        decide(&town.scope, &town.book, &svc) == Decision::LeaveAlone
    };
    assert!(!stranger(&|_| ()));
    assert!(stranger(&|svc| svc.ingress[1] = Ingress::of("9.9.9.9".parse().unwrap())), "somebody else wrote that");
    assert!(stranger(&|svc| svc.ingress[1] = Ingress { addr: None, plain: false }));
    assert!(stranger(&|svc| svc.condition = None), "nothing says that it is ours");
    assert!(stranger(&|svc| svc.condition.as_mut().unwrap().assigned = false));
}

#[test]
fn b26_an_assigned_address_stays_when_its_group_is_edited_deleted_or_changed_by_annotation() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/31"]), group("other", &["4.5.6.0/31"])]);
    town.put(svc("a"));
    let moved = town.edit("test/a", |svc| svc.asks.group = Some("other".into()));
    assert_eq!((moved.text().as_str(), moved.condition.reason.as_str()), ("1.2.3.0", "MovePending"));
    assert_eq!(moved.events(), ["MovePending"]);
    assert!(town.look("test/a").events().is_empty());

    town.edit("test/a", |svc| svc.asks.group = None);
    *town.ranges("default") = group("x", &["1.2.3.8/31"]).ranges().unwrap().clone();
    town.rebuild();
    let orphan = town.look("test/a");
    assert_eq!((orphan.text().as_str(), orphan.condition.reason.as_str()), ("1.2.3.0", "Orphaned"));
    assert_eq!(orphan.brand.from.as_deref(), Some("default"), "where it came from is not forgotten");

    town.groups.clear();
    town.rebuild();
    let kept = town.look("test/a");
    assert_eq!((kept.text().as_str(), kept.condition.assigned), ("1.2.3.0", true));
}

#[test]
fn b27_a_group_or_pin_that_is_asked_for_no_longer_is_a_move_that_is_pending_too() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/31"]), group("other", &["4.5.6.0/31"])]);
    town.put(svc("named").from("other"));
    town.put(svc("pinned").pinned("4.5.6.1"));
    for (name, addr) in [("test/named", "4.5.6.0"), ("test/pinned", "4.5.6.1")] {
        let pending = town.edit(name, |svc| svc.asks = Asks::default());
        assert_eq!((pending.text().as_str(), pending.condition.reason.as_str()), (addr, "MovePending"));
        assert!(town.edit(name, |svc| svc.asks.re_evaluate = true).text().starts_with("1.2.3."));
    }
    town.put(svc("at home").pinned("4.5.6.0"));
    let content = town.edit("test/at home", |svc| (svc.asks.addresses, svc.asks.group) = (None, Some("other".into())));
    assert_eq!((content.text().as_str(), content.condition.reason.as_str()), ("4.5.6.0", "Assigned"), "nothing moves");
}

#[test]
fn re_evaluate_carries_a_pending_move_out_and_never_loses_the_address_when_it_fails() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/31"]), group("other", &["4.5.6.0/32"])]);
    town.put(svc("a"));
    town.put(svc("taker").from("other"));
    let stuck = town.edit("test/a", |svc| (svc.asks.group, svc.asks.re_evaluate) = (Some("other".into()), true));
    assert_eq!((stuck.text().as_str(), stuck.condition.reason.as_str()), ("1.2.3.0", "MovePending"));
    assert_eq!(stuck.events(), ["MovePending", "Exhausted"], "why it could not move is told");
    town.delete("test/taker");
    let moved = town.edit("test/a", |svc| svc.asks.re_evaluate = true);
    assert_eq!((moved.text(), moved.brand.from.as_deref()), ("4.5.6.0".into(), Some("other")));
    assert_eq!(moved.events(), ["AddressReleased", "AddressAssigned"]);
    assert_eq!(town.put(svc("b")).text(), "1.2.3.0", "what it had is free again");
}

#[test]
fn re_evaluate_without_a_reason_to_move_keeps_the_address() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/30"])]);
    town.put(svc("low"));
    town.put(svc("a"));
    town.delete("test/low");
    assert_eq!(town.edit("test/a", |svc| svc.asks.re_evaluate = true).text(), "1.2.3.1");
}

#[test]
fn b26_re_evaluate_gives_an_orphan_a_new_home() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/31"])]);
    town.put(svc("a"));
    *town.ranges("default") = group("x", &["1.2.3.8/31"]).ranges().unwrap().clone();
    town.rebuild();
    assert_eq!(town.edit("test/a", |svc| svc.asks.re_evaluate = true).text(), "1.2.3.8");
}

#[test]
fn law_9_node_addresses_and_the_edges_of_a_local_subnet_are_never_given_out() {
    let mut local = group("default", &["10.1.0.0-10.1.0.3"]);
    let subnet = parse_subnet("10.1.0.0/30").unwrap();
    if let Source::Ranges(ranges) = &mut local.source {
        ranges.v4[0].subnet = subnet;
    }
    let mut town = Town::new(&[local]);
    town.surroundings.node_addresses.insert("10.1.0.1".parse().unwrap(), "node1".into());
    town.rebuild();
    assert_eq!(town.put(svc("a")).text(), "10.1.0.2", ".0 is the network, .1 a Node");
    assert_eq!(town.put(svc("b")).text(), "Exhausted");
    let pinned = town.put(svc("c").pinned("10.1.0.1"));
    assert_eq!(pinned.condition.reason, "AddressReserved");
    assert!(pinned.condition.message.contains("Node node1"), "{}", pinned.condition.message);
    assert_eq!(town.put(svc("d").pinned("10.1.0.3")).text(), "AddressReserved");

    town.group("default").placement = Placement::Auto;
    town.delete("test/a");
    town.rebuild();
    assert_eq!(town.put(svc("e")).text(), "10.1.0.0", "no live node has the subnet: it is routed");
    town.delete("test/e");
    let mut town = town.with_active(&["10.1.0.0/30"]);
    assert_eq!(town.put(svc("f")).text(), "10.1.0.2");
}

#[test]
fn law_9_a_pool_that_is_a_whole_subnet_never_gives_out_what_agents_refuse() {
    let mut local = group("default", &["10.1.0.0/29"]);
    local.placement = Placement::Remote;
    if let Source::Ranges(ranges) = &mut local.source {
        ranges.v4[0].subnet = parse_subnet("10.1.0.0/29").unwrap();
    }
    let mut town = Town::new(&[local]);
    let early = town.put(svc("early").pinned("10.1.0.1"));
    assert_eq!(early.text(), "10.1.0.1", "no agent has said yet whose it is");
    let addr = |last: u8| IpAddr::from([10, 1, 0, last]);
    town.surroundings.guarded =
        [(addr(1), Guard::Gateway), (addr(2), Guard::ApiServer), (addr(3), Guard::DnsServer)].into();
    let mut town = town.with_active(&["10.1.0.0/29"]);
    let kept = town.look("test/early");
    assert_eq!((kept.text().as_str(), kept.condition.reason.as_str()), ("10.1.0.1", "AddressReserved"), "it stays");
    assert_eq!(kept.events(), ["AddressReserved"]);
    assert!(kept.condition.message.contains("address of a default gateway"), "{}", kept.condition.message);
    assert_eq!(town.put(svc("a")).text(), "10.1.0.3", "a name server may be a Service");
    assert_eq!(town.put(svc("b").pinned("10.1.0.7")).text(), "AddressReserved", "where agents have the subnet");
    assert_eq!(
        town.edit("test/early", |svc| (svc.asks.addresses, svc.asks.re_evaluate) = (None, true)).text(),
        "10.1.0.4"
    );
}

#[test]
fn bug_11_a_restart_gives_nobody_an_address_that_is_taken() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/30"])]);
    town.put(svc("a"));
    town.put(svc("b"));
    let groups = town.groups.clone();
    let services = town.services.clone();
    let mut restarted = Town::new(&groups);
    for svc in services.values() {
        let holding = Holding { uid: svc.uid.clone(), claim: svc.claim(), addrs: svc.addresses() };
        restarted.book.hold(holding);
    }
    restarted.services = services;
    assert_eq!(restarted.put(svc("0-sorts-first")).text(), "1.2.3.2");
    assert_eq!(restarted.look("test/a").text(), "1.2.3.0");
}

#[test]
fn bug_13_a_late_delete_of_an_earlier_namesake_frees_nothing() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/31"])]);
    town.put(svc("a"));
    assert!(town.book.release("test/a", Some("uid of an older one")).is_none());
    assert_eq!(town.put(svc("b")).text(), "1.2.3.1");
}

#[test]
fn b20_two_services_that_already_hold_one_address_keep_it_and_are_told() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/31"])]);
    town.put(svc("a"));
    let mut twin = svc("b");
    twin.brand = town.services["test/a"].brand.clone();
    twin.ingress = town.services["test/a"].ingress.clone();
    town.book.hold(Holding { uid: twin.uid.clone(), claim: twin.claim(), addrs: twin.addresses() });
    let wish = town.put(twin);
    assert_eq!((wish.text().as_str(), wish.condition.reason.as_str()), ("1.2.3.0", "AddressInUse"));
    assert_eq!(wish.events(), ["AddressInUse"]);
}

#[test]
fn ns_8_and_b23_a_missing_group_is_a_sentence_that_says_what_to_create() {
    let mut town = Town::new(&[]);
    let wish = town.put(svc("a"));
    assert_eq!(wish.condition.reason, "NoGroups");
    assert!(wish.condition.message.contains("create one named default"), "{}", wish.condition.message);
    let mut town = Town::new(&[group("web", &["1.2.3.0/24"]), group("wider", &["1.2.0.0/16"])]);
    assert!(
        town.put(svc("a").from("nonexistent-pool")).condition.message.starts_with("unknown pool \"nonexistent-pool\"")
    );
    let wish = town.put(svc("b").from("wider"));
    assert_eq!(wish.condition.reason, "GroupUnusable", "b23: a broken group is not an unknown one");
    assert!(wish.condition.message.contains("overlaps"), "{}", wish.condition.message);
}

#[test]
fn al_1_an_address_that_somebody_shows_is_skipped() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/30"])]);
    let mut shows = svc("a");
    shows.ingress = vec![Ingress::of("1.2.3.0".parse().unwrap())];
    town.book.hold(Holding { uid: shows.uid.clone(), claim: shows.claim(), addrs: shows.addresses() });
    assert_eq!(town.put(svc("b")).text(), "1.2.3.1");
}

#[test]
fn al_8_skip_ipv6_dad_follows_the_group() {
    let mut skipping = group("default", &["1.2.3.0/24"]);
    skipping.skip_ipv6_dad = true;
    let mut town = Town::new(&[skipping, group("plain", &["4.5.6.0/24"])]);
    assert!(town.put(svc("a")).brand.skip_ipv6_dad);
    assert!(!town.put(svc("b").from("plain")).brand.skip_ipv6_dad);
}

#[test]
fn a_service_that_is_being_deleted_gets_nothing_new_and_keeps_what_it_has() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24", "2001:db8::/120"])]);
    let mut leaving = svc("a");
    leaving.is_leaving = true;
    assert_eq!(decide(&town.scope, &town.book, &leaving), Decision::LeaveAlone);
    town.put(svc("b"));
    let mut leaving = town.services["test/b"].clone().dual();
    leaving.is_leaving = true;
    assert_eq!(decide(&town.scope, &town.book, &leaving), Decision::LeaveAlone, "and no second family");
}

#[test]
fn multi_pool_from_two_families_to_one_gives_the_other_back() {
    let mut remote = group("default", &["1.2.3.0/24", "1.2.4.0/24", "2001:db8::/120", "2001:db8:1::/120"]);
    remote.placement = Placement::Remote;
    let mut town = Town::new(&[remote]);
    assert_eq!(town.put(svc("a").dual().multi(true)).addrs.len(), 4);
    let single = town.edit("test/a", |svc| svc.families = vec![Family::V4]);
    assert_eq!((single.text().as_str(), single.events()), ("1.2.3.0, 1.2.4.0", vec!["AddressReleased"]));
}
