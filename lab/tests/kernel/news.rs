//! What others do to the node's interfaces is heard at once, whole and in order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::Result;
use purelb::agent::clock::Clock;
use purelb::agent::kernel::{self, Kernel, Order};
use purelb_lab::net::{Lan, Namespace};

use crate::node::{LB, Node, drop_addr, put};

#[test]
fn b27_an_address_or_an_interface_deleted_by_hand_is_told() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    node.must(vec![put(link, "10.1.0.1/32"), put(link, "fd00:1::1/128"), put(link, "10.1.0.2/32")])?;
    node.namespace.batch("addr del 10.1.0.1/32 dev kube-lb0\naddr del fd00:1::1/128 dev kube-lb0\n")?;
    node.wait("both to go", |node| node.told(LB) == ["10.1.0.2/32"])?;
    node.namespace.batch("link del kube-lb0\n")?;
    node.wait("the interface to go", |node| node.links.named(LB).is_none())
}

#[test]
fn a_cut_wire_is_told_and_so_is_its_repair() -> Result<()> {
    let (lan, namespace) = (Lan::new()?, Namespace::new("node")?);
    let plug = lan.plug(&namespace, "eth0", &["192.168.1.11/24"])?;
    let mut node = Node::inside(&namespace)?;
    let carrier = |node: &Node| node.links.named("eth0").map(|(_, link)| (link.up, link.carrier));
    assert_eq!(carrier(&node), Some((true, true)));
    plug.cut()?;
    node.wait("the carrier to go", |node| carrier(node) == Some((true, false)))?;
    plug.mend()?;
    node.wait("the carrier to come", |node| carrier(node) == Some((true, true)))?;
    assert_eq!(node.told("eth0"), ["192.168.1.11/24"], "its addresses are kept");
    Ok(())
}

/// The kernel says "link deleted" of a port that leaves its bridge, in the bridge's family. The interface stays.
#[test]
fn an_interface_that_leaves_its_bridge_is_not_gone() -> Result<()> {
    let namespace = Namespace::new("node")?;
    namespace.batch(
        "link add br0 type bridge\nlink add near type veth peer name far\nlink set near master br0\nlink set near up\n",
    )?;
    let mut node = Node::inside(&namespace)?;
    let (before, _) = node.links.named("near").expect("it is there");
    // The address is the news that comes after all that the kernel said about the port.
    namespace.batch("link set near nomaster\naddr add 10.2.0.1/24 dev near\n")?;
    node.wait("the address", |node| node.told("near") == ["10.2.0.1/24"])?;
    assert_eq!(node.links.named("near").map(|(index, _)| index), Some(before));
    Ok(())
}

/// The promise that the owner leans on: when steps are told as done, what they did has been told.
#[test]
fn the_kernels_words_come_before_the_result() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    let pairs: Vec<_> = (1..200).flat_map(|n| [format!("10.3.{n}.1/32"), format!("fd00:3::{n:x}/128")]).collect();
    node.must(pairs.iter().map(|pair| put(link, pair)).collect())?;
    assert_eq!(node.told(LB), sorted(pairs.clone()));
    assert_eq!(node.pairs(LB)?, sorted(pairs.clone()));
    node.must(pairs.iter().map(|pair| drop_addr(link, pair)).collect())?;
    assert_eq!(node.told(LB), [""; 0]);
    assert_eq!(node.pairs(LB)?, [""; 0]);
    Ok(())
}

/// So little room that the kernel must drop what it says; then everything is read anew and nothing is missing.
#[test]
fn lost_notifications_are_made_good_by_reading_everything() -> Result<()> {
    let namespace = Namespace::new("node")?;
    namespace.batch("link add kube-lb0 type ifb\nlink set kube-lb0 up\n")?;
    let clock = Clock::new();
    let kernel = namespace.run(|| kernel::start_with_room(clock, 1))?;
    let mut node = Node::of(&namespace, kernel, clock)?;
    let before = node.dumps;
    let pairs: Vec<_> = (0..2000).map(|n| format!("10.{}.{}.1/32", n / 250, n % 250)).collect();
    namespace.batch(&pairs.iter().map(|pair| format!("addr add {pair} dev kube-lb0\n")).collect::<String>())?;
    node.wait("all of them", |node| node.told(LB).len() == pairs.len())?;
    assert_eq!(node.told(LB), node.pairs(LB)?);
    assert!(node.dumps > before, "nothing was lost: this test has tested nothing");
    // Our own steps keep the promise of order all the same.
    let link = node.index(LB)?;
    let ours: Vec<_> = (0..300).map(|n| format!("172.16.{}.{}/32", n / 250, n % 250)).collect();
    node.must(ours.iter().map(|pair| put(link, pair)).collect())?;
    assert_eq!(node.told(LB), sorted([pairs, ours].concat()));
    Ok(())
}

/// A list that changes while it is read is read again; half of one would look as if addresses had gone.
#[test]
fn i18_in_a_busy_kernel_no_list_ever_misses_what_stays() -> Result<()> {
    let (mut node, link) = Node::with_virtual_link()?;
    let stay: Vec<_> = (0..600).map(|n| format!("10.4.{}.{}/32", n / 250, n % 250)).collect();
    node.must(stay.iter().map(|pair| put(link, pair)).collect())?;
    let (namespace, stop) = (node.namespace.clone(), AtomicBool::new(false));
    let come_and_go: String =
        (0..100).map(|n| format!("addr add 10.5.0.{n}/32 dev {LB}\naddr del 10.5.0.{n}/32 dev {LB}\n")).collect();
    thread::scope(|scope| {
        let busy = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                namespace.batch(&come_and_go).expect("ip works");
            }
        });
        let watched = (|| -> Result<()> {
            for round in 2..40 {
                node.give(Order::Dump);
                node.wait("everything", |node| node.dumps == round)?;
                let told = node.told(LB);
                assert!(stay.iter().all(|pair| told.binary_search(pair).is_ok()), "list {round} is not whole");
            }
            Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        busy.join().expect("ip works");
        watched
    })
}

fn sorted(mut pairs: Vec<String>) -> Vec<String> {
    pairs.sort();
    pairs
}

#[test]
fn with_the_last_one_who_gives_orders_the_threads_end() -> Result<()> {
    let namespace = Namespace::new("node")?;
    let Kernel { mut news, orders } = namespace.run(|| kernel::start(Clock::new()))?;
    let clone = orders.clone();
    drop(orders);
    clone.give(Order::Dump);
    drop(clone);
    while news.blocking_recv().is_some() {}
    Ok(())
}
