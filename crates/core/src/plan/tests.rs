//! Plans for single situations of the kernel.

use std::net::IpAddr;

use super::*;
use crate::links::OUR_PROTOCOL;
use crate::model::ModelKernel;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn kernel(addrs: &[(&str, u8)]) -> ModelKernel {
    let ours = |(addr, prefix): &(&str, u8)| HeldAddr { protocol: OUR_PROTOCOL, ..HeldAddr::plain(ip(addr), *prefix) };
    let link = Link {
        name: "kube-lb0".into(),
        kind: LinkKind::Dummy,
        up: true,
        carrier: true,
        mac: None,
        promote_secondaries: Some(true),
        addrs: addrs.iter().map(ours).collect(),
    };
    ModelKernel::new(Links { by_index: [(3, link)].into(), default_routes: Vec::new() })
}

fn desired(addrs: &[(&str, u8)]) -> Desired {
    let wanted = |prefix| WantedAddr {
        link: "kube-lb0".into(),
        prefix,
        no_prefix_route: false,
        no_dad: false,
        lifetime: Lifetime::Forever,
        tell: None,
    };
    let addrs = addrs.iter().map(|(addr, prefix)| (ip(addr), wanted(*prefix))).collect();
    Desired { virtual_link: Some("kube-lb0".into()), former_links: BTreeSet::new(), addrs }
}

fn planned(desired: &Desired, kernel: &ModelKernel) -> Vec<String> {
    let own =
        Ownership { is_ours: &|_, held| held.protocol == OUR_PROTOCOL, why: &|_| Why::NoService, waits: &|_, _| false };
    let short = |step: &Step| match step {
        Step::PutAddr { addr, prefix, .. } => format!("put {addr}/{prefix}"),
        Step::DropAddr { addr, prefix, .. } => format!("drop {addr}/{prefix}"),
        other => format!("{other:?}"),
    };
    plan(desired, kernel.links(), Moment::default(), own).iter().map(short).collect()
}

#[test]
fn b13_a_new_prefix_length_comes_before_the_old_one_goes_where_the_kernel_permits() {
    let steps =
        planned(&desired(&[("10.9.0.1", 32), ("10.9.0.2", 32)]), &kernel(&[("10.9.0.1", 24), ("10.9.0.2", 24)]));
    assert_eq!(steps, ["put 10.9.0.1/32", "put 10.9.0.2/32", "drop 10.9.0.1/24", "drop 10.9.0.2/24"]);
    let steps = planned(&desired(&[("fd09::1", 64)]), &kernel(&[("fd09::1", 128)]));
    assert_eq!(steps, ["drop fd09::1/128", "put fd09::1/64"]);
}

#[test]
fn b13_a_second_prefix_length_that_was_left_behind_goes() {
    let steps = planned(&desired(&[("10.9.0.1", 32)]), &kernel(&[("10.9.0.1", 32), ("10.9.0.1", 24)]));
    assert_eq!(steps, ["drop 10.9.0.1/24"]);
}

#[test]
fn an_address_that_would_end_within_a_second_is_not_put_at_all() {
    let mut soon = desired(&[("10.9.0.1", 32)]);
    let end = Moment(Duration::from_millis(999));
    soon.addrs.get_mut(&ip("10.9.0.1")).unwrap().lifetime = Lifetime::Until { valid: end, preferred: end };
    assert!(planned(&soon, &kernel(&[])).is_empty());
}

#[test]
fn b22_a_lifetime_ends_when_it_was_to_end_however_late_it_is_given() {
    let put = |valid: Option<u32>| Step::PutAddr {
        link: 2,
        addr: ip("192.168.1.100"),
        prefix: 24,
        no_prefix_route: true,
        no_dad: false,
        valid,
        preferred: valid.unwrap_or(0),
        refresh: false,
    };
    let drop = Step::DropAddr { link: 2, addr: ip("192.168.1.101"), prefix: 24, why: Why::LostElection };
    let steps = || vec![put(Some(7)), put(Some(2)), put(None), drop.clone()];
    let at = |millis| Moment(Duration::from_millis(millis));
    let late = |millis: u64| {
        let InTime { steps, over, counted_from } = in_time(steps(), at(10_000), at(10_000 + millis));
        (steps, over, counted_from)
    };
    assert_eq!(late(100), (steps(), vec![], at(10_000)), "within the margin that the election leaves");
    assert_eq!(late(700), (vec![put(Some(6)), put(Some(1)), put(None), drop.clone()], vec![], at(11_000)));
    assert_eq!(late(1001), (vec![put(Some(5)), put(None), drop.clone()], vec![put(Some(0))], at(12_000)));
    assert_eq!(late(60_000), (vec![put(None), drop.clone()], vec![put(Some(0)), put(Some(0))], at(70_000)));
}

#[test]
fn b22_what_the_kernel_did_late_is_shortened_or_taken_back() {
    let put = |addr: &str, valid: Option<u32>, refresh| Step::PutAddr {
        link: 2,
        addr: ip(addr),
        prefix: 24,
        no_prefix_route: true,
        no_dad: false,
        valid,
        preferred: valid.unwrap_or(0),
        refresh,
    };
    let at = |millis| Moment(Duration::from_millis(millis));
    let done =
        [put("192.168.1.100", Some(7), false), put("192.168.1.101", Some(2), false), put("192.168.1.102", None, false)];
    assert_eq!(done_late(&done, at(0), at(500)), None, "in time");
    assert_eq!(done_late(&done[2..], at(0), at(9_000)), None, "what does not end cannot end late");
    let late = done_late(&done, at(0), at(2_500)).unwrap();
    assert_eq!(late.steps, [put("192.168.1.100", Some(4), true)]);
    let off = Step::DropAddr { link: 2, addr: ip("192.168.1.101"), prefix: 24, why: Why::Fenced };
    assert_eq!(late.over.iter().filter_map(|step| step.undo(Why::Fenced)).collect::<Vec<_>>(), [off]);
    assert_eq!(done_late(&late.steps, late.counted_from, at(3_400)), None, "it ends at seven, as was decided");
    assert_eq!(done_late(&late.steps, late.counted_from, at(7_400)).unwrap().over.len(), 1, "late a second time");
}

#[test]
fn steps_and_wishes_can_be_recorded() {
    fn recordable<T: serde::Serialize + serde::de::DeserializeOwned>() {}
    recordable::<Step>();
    recordable::<Desired>();
    recordable::<crate::links::LinkNews>();
    recordable::<crate::want::AgentService>();
}
