//! `purelb agent --cleanup` takes off what agents put there and nothing else.

use anyhow::Result;
use purelb::agent::cleanup::cleanup;
use purelb_core::plan::Step;

use crate::node::{LB, Node, put, put_local};

#[test]
fn everything_of_ours_goes_and_nothing_else() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.namespace.batch(
        "link add eth0 type veth peer name far\nlink set eth0 up\nlink set far up\naddr add 192.168.1.11/24 dev eth0\n\
         link add kube-ipvs0 type ifb\nlink set kube-ipvs0 up\naddr add 10.1.0.1/32 dev kube-ipvs0\n",
    )?;
    let nic = node.index("eth0")?;
    node.must(vec![put(link, "10.1.0.1/32"), put(link, "fd00:1::1/128"), put_local(nic, "192.168.1.100/24", 300)])?;
    let cleaned = node.namespace.run(|| cleanup(&[LB]))?;
    assert!(!node.has_link(LB)?);
    assert_eq!(node.pairs("eth0")?, ["192.168.1.11/24"]);
    assert_eq!(node.pairs("kube-ipvs0")?, ["10.1.0.1/32"]);
    assert_eq!((cleaned.addrs.len(), cleaned.links.as_slice()), (3, &[LB.to_owned()][..]));
    assert!(cleaned.errors.is_empty() && cleaned.kept.is_empty());
    let again = node.namespace.run(|| cleanup(&[LB]))?;
    assert!(again.addrs.is_empty() && again.links.is_empty());
    Ok(())
}

#[test]
fn an_interface_with_an_address_of_the_operator_stays_with_it() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.namespace.batch("addr add 10.2.0.9/32 dev kube-lb0\n")?;
    node.must(vec![put(link, "10.2.0.1/32")])?;
    let cleaned = node.namespace.run(|| cleanup(&[LB]))?;
    assert_eq!(node.pairs(LB)?, ["10.2.0.9/32"]);
    assert_eq!(cleaned.kept.iter().map(|found| found.addr.to_string()).collect::<Vec<_>>(), ["10.2.0.9"]);
    assert_eq!((cleaned.addrs.len(), cleaned.links.len()), (1, 0));
    Ok(())
}

#[test]
fn an_interface_of_another_kind_that_was_lent_to_us_stays() -> Result<()> {
    let mut node = Node::new()?;
    node.namespace.batch("link add kube-lb0 type bridge\n")?;
    let link = node.index(LB)?;
    node.must(vec![Step::SetUp { link }, put(link, "10.3.0.1/32")])?;
    node.namespace.run(|| cleanup(&[LB]))?;
    assert!(node.has_link(LB)?);
    assert_eq!(node.pairs(LB)?, [""; 0]);
    Ok(())
}
