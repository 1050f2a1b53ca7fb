//! The laws of allocation as properties: nothing twice, nothing changed unasked, and a second look changes nothing.

use super::*;

#[derive(Clone, Debug)]
enum Event {
    Put(u8, Shape),
    Delete(u8),
    ReEvaluate(u8),
    EditPool(usize, u8, u8),
    NodeAddress(u8),
    Restart,
}

#[derive(Clone, Debug)]
struct Shape {
    families: Vec<Family>,
    group: Option<&'static str>,
    pin: Option<u8>,
    key: Option<&'static str>,
    port: u16,
    multi: Option<bool>,
    prefers: bool,
}

fn some_shape() -> impl Strategy<Value = Shape> {
    let families = prop_oneof![
        3 => Just(vec![Family::V4]),
        2 => Just(vec![Family::V4, Family::V6]),
        1 => Just(vec![Family::V6]),
        1 => Just(vec![]),
    ];
    let group = prop_oneof![3 => Just(None), 1 => Just(Some("other")), 1 => Just(Some("none"))];
    let key = prop_oneof![3 => Just(None), 1 => Just(Some("k1")), 1 => Just(Some("k2"))];
    let multi = prop_oneof![4 => Just(None), 1 => Just(Some(true))];
    (families, group, prop::option::weighted(0.2, 0_u8..24), key, 80_u16..83, multi, any::<bool>()).prop_map(
        |(families, group, pin, key, port, multi, prefers)| Shape { families, group, pin, key, port, multi, prefers },
    )
}

fn some_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0_u8..8, some_shape()).prop_map(|(n, shape)| Event::Put(n, shape)),
        2 => (0_u8..8).prop_map(Event::Delete),
        1 => (0_u8..8).prop_map(Event::ReEvaluate),
        1 => (0_usize..2, 1_u8..12, 0_u8..10).prop_map(|(group, from, more)| Event::EditPool(group, from, more)),
        1 => (0_u8..24).prop_map(Event::NodeAddress),
        1 => Just(Event::Restart),
    ]
}

fn start() -> Town {
    let default = group("default", &["10.0.0.1-10.0.0.4", "10.0.0.8-10.0.0.9", "2001:db8::1-2001:db8::4"]);
    let other = group("other", &["10.0.0.16-10.0.0.18"]);
    Town::new(&[default, other]).with_active(&["10.0.0.0/16"])
}

/// Law 1: nobody shares an address but by key and without a common port, whatever was edited.
fn no_strangers(town: &Town) -> Result<(), TestCaseError> {
    for (name, svc) in &town.services {
        for (other, theirs) in town.services.range(name.clone()..).skip(1) {
            let shares = shares(svc, theirs);
            for addr in svc.addresses().iter().filter(|addr| theirs.addresses().contains(addr)) {
                prop_assert!(shares, "{addr}: {name} and {other}");
            }
        }
    }
    Ok(())
}

fn shares(a: &ServiceView, b: &ServiceView) -> bool {
    let one_key = a.asks.sharing_key.is_some() && a.asks.sharing_key == b.asks.sharing_key;
    one_key && a.ports.iter().all(|port| !b.ports.contains(port))
}

/// Whether an edit has put a Service in the way of another on one address.
fn is_in_the_way(town: &Town, svc: &ServiceView, addr: IpAddr) -> bool {
    let others = town.services.values().filter(|other| other.key != svc.key && other.addresses().contains(&addr));
    others.into_iter().any(|other| !shares(svc, other))
}

/// What changed in a Service although nobody asked: held before, gone now, and of a family it still wants.
fn moved_unasked(town: &Town, before: &ServiceView, after: &ServiceView) -> bool {
    let wanted = |addr: &IpAddr| after.families.is_empty() || after.families.contains(&Family::of(*addr));
    let now = after.addresses();
    let gone = before.addresses().into_iter().filter(wanted).filter(|addr| !now.contains(addr));
    gone.into_iter().any(|addr| !is_in_the_way(town, before, addr))
}

fn apply(town: &mut Town, event: &Event) -> Option<String> {
    match event {
        Event::Put(n, shape) => {
            let name = format!("test/s{n}");
            let mut svc = town.services.get(&name).cloned().unwrap_or_else(|| svc(&name));
            svc.families.clone_from(&shape.families);
            svc.asks.group = shape.group.map(Into::into);
            svc.asks.addresses = shape.pin.map(|pin| format!("10.0.0.{pin}"));
            svc.asks.sharing_key = shape.key.map(Into::into);
            svc.asks.multi_pool = shape.multi;
            svc.prefers_dual_stack = shape.prefers;
            svc.ports[0].number = shape.port;
            // The sharing key and ports of the moment count: a sharer that changes them may be in another's way, and loses.
            town.services.insert(name.clone(), svc);
            return Some(name);
        }
        Event::Delete(n) => town.delete(&format!("test/s{n}")),
        Event::ReEvaluate(n) => {
            if let Some(svc) = town.services.get_mut(&format!("test/s{n}")) {
                svc.asks.re_evaluate = true;
                return Some(format!("test/s{n}"));
            }
        }
        Event::EditPool(which, from, more) => {
            let name = ["default", "other"][*which];
            let base = if *which == 0 { 0 } else { 32 };
            let pool = format!("10.0.0.{}-10.0.0.{}", base + from, base + from + more);
            *town.ranges(name) = group("x", &[&pool]).ranges().unwrap().clone();
            town.rebuild();
        }
        Event::NodeAddress(n) => {
            town.surroundings.node_addresses = [(format!("10.0.0.{n}").parse().unwrap(), "node".into())].into();
            town.rebuild();
        }
        Event::Restart => {
            town.book = Book::default();
            town.rebuild();
            for svc in town.services.values().filter(|svc| svc.brand.ours) {
                let holding = Holding { uid: svc.uid.clone(), claim: svc.claim(), addrs: svc.addresses() };
                town.book.hold(holding);
            }
        }
    }
    None
}

/// Law 1: an address given out by this decision was nobody else's, or is shared by key without a common port.
fn given_rightly(town: &Town, name: &str, fresh: &[IpAddr]) -> Result<(), TestCaseError> {
    let me = &town.services[name];
    for (other, svc) in town.services.iter().filter(|(other, _)| *other != name) {
        for addr in fresh.iter().filter(|addr| svc.addresses().contains(addr)) {
            prop_assert!(me.asks.sharing_key.is_some(), "{addr} given to {name} although {other} has it");
            prop_assert!(
                me.ports.iter().all(|port| !svc.ports.contains(port)),
                "{addr}: {name} and {other} share a port"
            );
        }
    }
    prop_assert!(!fresh.iter().any(|addr| town.surroundings.node_addresses.contains_key(addr)), "a Node's address");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn nothing_twice_nothing_changed_unasked_and_a_second_look_changes_nothing(
        events in prop::collection::vec(some_event(), 1..40),
    ) {
        let mut town = start();
        for event in &events {
            let names: Vec<_> = match apply(&mut town, event) {
                Some(name) => vec![name],
                None => town.services.keys().cloned().collect(),
            };
            for name in names {
                let before = town.services[&name].clone();
                let wish = town.look(&name);
                let after = town.services[&name].clone();
                prop_assert!(before.asks.re_evaluate || !moved_unasked(&town, &before, &after), "{event:?}: {before:?} to {after:?}");
                let fresh: Vec<_> = wish.addrs.iter().filter(|addr| !before.addresses().contains(addr)).copied().collect();
                given_rightly(&town, &name, &fresh)?;
                let again = town.look(&name);
                prop_assert_eq!(&again.addrs, &wish.addrs, "a second look at {} after {:?}", name, event);
                prop_assert!(again.notices.is_empty(), "{:?}", again.notices);
            }
            no_strangers(&town)?;
        }
    }
}
