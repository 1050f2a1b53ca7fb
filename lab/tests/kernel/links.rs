//! The virtual interface comes, is on, and goes.

use anyhow::{Result, ensure};
use purelb::agent::kernel::KernelNews;
use purelb_core::links::LinkKind;
use purelb_core::plan::Step;
use purelb_lab::net::Namespace;

use crate::node::{LB, Node, put};

/// This kernel has no dummy; the true one is met in `lab/tests/vm`. Whichever it is, users are told the truth.
#[test]
fn where_the_kernel_has_no_dummy_the_virtual_interface_is_an_ifb_and_we_say_so() -> Result<()> {
    let mut node = Node::new()?;
    node.must(vec![Step::MakeLink { name: LB.into() }])?;
    let shown = node.namespace.ip(&["-d", "-j", "link", "show", "dev", LB])?;
    let kind = shown[0]["linkinfo"]["info_kind"].as_str().unwrap_or_default().to_owned();
    let said = node.others.iter().any(|news| matches!(news, KernelNews::NoDummy { name } if name == LB));
    ensure!(said == (kind == "ifb"), "it is {kind}, and the news are {:?}", node.others);
    let (_, told) = node.links.named(LB).expect("the news come before the result");
    assert_eq!(told.kind, if kind == "ifb" { LinkKind::Ifb } else { LinkKind::Dummy });
    assert!(!told.up);
    Ok(())
}

#[test]
fn making_it_twice_does_no_harm() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.must(vec![put(link, "172.32.100.225/32")])?;
    node.must(vec![Step::MakeLink { name: LB.into() }, Step::SetUp { link }])?;
    assert_eq!(node.index(LB)?, link);
    assert_eq!(node.pairs(LB)?, ["172.32.100.225/32"]);
    Ok(())
}

#[test]
fn b36_switching_it_on_also_keeps_siblings_of_a_deleted_primary() -> Result<()> {
    let (node, link) = Node::with_virtual_link()?;
    let shown = node.namespace.ip(&["-j", "link", "show", "dev", LB])?;
    let flags = shown[0]["flags"].as_array().cloned().unwrap_or_default();
    for flag in ["NOARP", "UP", "LOWER_UP"] {
        assert!(flags.iter().any(|shown| shown == flag), "{flags:?}");
    }
    let setting = format!("/proc/sys/net/ipv4/conf/{LB}/promote_secondaries");
    assert_eq!(node.namespace.run(|| std::fs::read_to_string(&setting))?.trim(), "1");
    let told = &node.links.by_index[&link];
    assert!(told.up && told.carrier);
    assert_eq!(told.promote_secondaries, Some(true));
    Ok(())
}

#[test]
fn it_goes_with_its_addresses_and_going_twice_does_no_harm() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.must(vec![put(link, "172.32.100.225/32"), put(link, "fc00:370:155:0:8000::/128")])?;
    node.must(vec![Step::DropLink { link }])?;
    assert!(!node.has_link(LB)?);
    assert_eq!(node.links.named(LB), None);
    node.must(vec![Step::DropLink { link }])
}

#[test]
fn b28_on_an_interface_that_is_gone_each_step_says_so_and_the_others_go_on() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    let gone = link + 1000;
    let steps =
        vec![put(gone, "10.9.0.1/32"), put(link, "10.9.0.2/32"), Step::SetUp { link: gone }, put(link, "10.9.0.3/32")];
    let results: Vec<_> = node.apply(steps)?.into_iter().map(|(_, result)| result).collect();
    assert_eq!((results[1].clone(), results[3].clone()), (Ok(()), Ok(())));
    let words = results[0].clone().expect_err("there is no such interface").to_string();
    assert!(words.contains("10.9.0.1/32") && words.contains("No such device"), "{words}");
    assert!(results[2].is_err());
    assert_eq!(node.pairs(LB)?, ["10.9.0.2/32", "10.9.0.3/32"]);
    Ok(())
}

#[test]
fn kinds_names_and_carrier_are_told_as_ip_shows_them() -> Result<()> {
    let namespace = Namespace::new("node")?;
    namespace.batch("link add kube-lb0 type ifb\nlink add near type veth peer name far\nlink set near up\n")?;
    let node = Node::inside(&namespace)?;
    let of = |name| node.links.named(name).map(|(_, link)| (link.kind, link.up, link.carrier));
    assert_eq!(of("lo"), Some((LinkKind::Loopback, true, true)));
    assert_eq!(of("kube-lb0"), Some((LinkKind::Ifb, false, false)));
    assert_eq!(of("near"), Some((LinkKind::Other, true, false)));
    let shown = namespace.ip(&["-j", "link", "show", "dev", "near"])?;
    let mac = node.links.named("near").and_then(|(_, link)| link.mac).unwrap_or_default();
    let mac: Vec<_> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(shown[0]["address"], mac.join(":"));
    Ok(())
}
