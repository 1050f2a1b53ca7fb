//! The kernel in memory, on which the agent's stories run, against the real one: the same steps, the same addresses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, Result};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use purelb_core::links::Links;
use purelb_core::model::ModelKernel;
use purelb_core::moment::Moment;
use purelb_core::plan::{Step, Why};
use serde_json::Value;

use crate::node::{LB, Node};

const CASES: u32 = 25;

/// Addresses in few subnets, so that they meet each other.
const ADDRS: [&str; 9] =
    ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.1", "10.0.1.2", "fd00::1", "fd00::2", "fd00::3", "fd00:0:0:1::1"];

/// Something to do, on whatever index the virtual interface has in each kernel.
#[derive(Clone, Debug)]
enum Deed {
    Put { addr: IpAddr, long: bool, no_prefix_route: bool, no_dad: bool, valid: Option<u32> },
    Drop { addr: IpAddr, long: bool },
    SetUp,
    Remake,
}

fn deed() -> impl Strategy<Value = Deed> {
    let addr = || select(&ADDRS[..]).prop_map(|text| text.parse::<IpAddr>().expect("an address"));
    let valid = prop_oneof![Just(None), Just(Some(300))];
    let put = (addr(), any::<bool>(), any::<bool>(), any::<bool>(), valid).prop_map(
        |(addr, long, no_prefix_route, no_dad, valid)| {
            // `nodad` says nothing about IPv4, and nobody asks for it there.
            Deed::Put { addr, long, no_prefix_route, no_dad: no_dad && addr.is_ipv6(), valid }
        },
    );
    let drop = (addr(), any::<bool>()).prop_map(|(addr, long)| Deed::Drop { addr, long });
    prop_oneof![20 => put, 12 => drop, 1 => Just(Deed::SetUp), 1 => Just(Deed::Remake)]
}

fn prefix(addr: IpAddr, long: bool) -> u8 {
    match (addr, long) {
        (IpAddr::V4(_), true) => 32,
        (IpAddr::V4(_), false) => 24,
        (IpAddr::V6(_), true) => 128,
        (IpAddr::V6(_), false) => 64,
    }
}

fn steps(deed: &Deed, link: u32, shown: &Links) -> Vec<Step> {
    match *deed {
        Deed::Put { addr, long, no_prefix_route, no_dad, valid } => {
            let prefix = prefix(addr, long);
            let there = shown
                .by_index
                .get(&link)
                .is_some_and(|link| link.addrs.iter().any(|held| held.is(addr, prefix) && held.prefix == prefix));
            let (preferred, refresh) = (valid.unwrap_or(0), there);
            vec![Step::PutAddr { link, addr, prefix, no_prefix_route, no_dad, valid, preferred, refresh }]
        }
        Deed::Drop { addr, long } => {
            vec![Step::DropAddr { link, addr, prefix: prefix(addr, long), why: Why::NoService }]
        }
        Deed::SetUp => vec![Step::SetUp { link }],
        Deed::Remake => vec![Step::DropLink { link }, Step::MakeLink { name: LB.into() }],
    }
}

/// An address with all that the plan looks at: prefix length, flags, and whether it is for ever.
type Seen = (IpAddr, u8, bool, bool, bool);

/// What `ip` shows.
fn real(node: &Node) -> Result<BTreeSet<Seen>> {
    let seen = |addr: Value| -> Option<Seen> {
        let forever = addr["valid_life_time"].as_u64()? == u64::from(u32::MAX);
        let prefix = u8::try_from(addr["prefixlen"].as_u64()?).ok()?;
        let flag = |name: &str| addr[name] == true;
        Some((addr["local"].as_str()?.parse().ok()?, prefix, flag("noprefixroute"), flag("nodad"), forever))
    };
    node.shown(LB)?.into_values().map(|addr| seen(addr).context("an address that cannot be read")).collect()
}

/// What a set of links shows.
fn modelled(links: &Links) -> BTreeSet<Seen> {
    let link = links.named(LB).map(|(_, link)| link.addrs.clone()).unwrap_or_default();
    let global = link.iter().filter(|held| !matches!(held.addr, IpAddr::V6(v6) if v6.is_unicast_link_local()));
    global.map(|held| (held.addr, held.prefix, held.no_prefix_route, held.no_dad, held.valid_until.is_none())).collect()
}

/// Does the deeds in both kernels and compares after each.
fn compare(promotes: bool, deeds: &[Deed]) -> Result<(), TestCaseError> {
    let fail = |error: anyhow::Error| TestCaseError::fail(format!("{error:#}"));
    let (mut node, mut link) = Node::with_virtual_link().map_err(fail)?;
    let mut model = ModelKernel::new(node.links.clone());
    let setting = format!("net.ipv4.conf.{LB}.promote_secondaries");
    node.namespace.sysctl(&setting, if promotes { "1" } else { "0" }).map_err(fail)?;
    model.set_promotion(LB, promotes);
    let mut twin = link;
    for deed in deeds {
        let shown = model.links().clone();
        let results = node.apply(steps(deed, link, &node.links)).map_err(fail)?;
        let twins =
            steps(deed, twin, &shown).iter().map(|step| model.apply(step, Moment::default()).0).collect::<Vec<_>>();
        for ((step, result), twin) in results.iter().zip(&twins) {
            // Taking off what is not there is done already for our kernel thread, and an error for a kernel.
            let same = result.is_ok() == twin.is_ok() || matches!(step, Step::DropAddr { .. });
            prop_assert!(same, "{:?}: {:?} and {:?}", step, result, twin);
        }
        let real = real(&node).map_err(fail)?;
        prop_assert_eq!(&modelled(model.links()), &real, "the model and the kernel after {:?}", deed);
        prop_assert_eq!(&modelled(&node.links), &real, "our news and the kernel after {:?}", deed);
        link = node.index(LB).map_err(fail)?;
        twin = model.links().named(LB).map(|(index, _)| index).unwrap_or_default();
    }
    Ok(())
}

#[test]
fn the_model_kernel_does_as_the_real_one_does() {
    let config = Config { cases: CASES, max_shrink_iters: 200, failure_persistence: None, ..Config::default() };
    let histories = (any::<bool>(), proptest::collection::vec(deed(), 1..30));
    let checked = TestRunner::new(config).run(&histories, |(promotes, deeds)| compare(promotes, &deeds));
    if let Err(problem) = checked {
        panic!("{problem}");
    }
}
