//! The lab's own network: is it what the tests take it for?

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use purelb_lab::net::witness::mac;
use purelb_lab::net::{Capture, Echo, Lan, Namespace, Probe, Witness};

/// Two nodes and a client on one segment.
fn three() -> Result<(Lan, [Namespace; 3])> {
    let lan = Lan::new()?;
    let all = [Namespace::new("node-a")?, Namespace::new("node-b")?, Namespace::new("client")?];
    Ok((lan, all))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        ensure!(Instant::now() < deadline, "it never came true that {what}");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[test]
fn a_namespace_is_separate_from_the_machine() -> Result<()> {
    let (one, other) = (Namespace::new("one")?, Namespace::new("other")?);
    one.sysctl("net.ipv4.conf.lo.promote_secondaries", "1")?;
    let read = || std::fs::read_to_string("/proc/sys/net/ipv4/conf/lo/promote_secondaries").unwrap_or_default();
    assert_eq!((one.run(read).trim(), other.run(read).trim()), ("1", "0"));
    let links = one.ip(&["-j", "link"])?;
    assert_eq!(links.as_array().map(Vec::len), Some(1), "{links}");
    assert_eq!(links[0]["ifname"], "lo");
    assert!(links[0]["flags"].as_array().is_some_and(|flags| flags.contains(&"UP".into())));
    Ok(())
}

#[test]
fn clients_on_a_segment_are_answered_in_both_families() -> Result<()> {
    let (lan, [a, b, client]) = three()?;
    lan.plug(&a, "eth0", &["192.168.7.11/24", "fd00:7::11/64"])?;
    lan.plug(&b, "eth0", &["192.168.7.12/24", "fd00:7::12/64"])?;
    lan.plug(&client, "eth0", &["192.168.7.99/24", "fd00:7::99/64"])?;
    for (node, target) in [(&a, "192.168.7.11:7"), (&b, "[fd00:7::12]:7")] {
        let target = target.parse()?;
        let _echo = Echo::start(node, target)?;
        let probe = Probe::start(&client, target)?;
        until("a hundred packets are answered", || probe.answers_of(node.name()) >= 100)?;
        let report = probe.finish()?;
        assert_eq!(report.lost(), 0, "{report:?}");
        assert_eq!(report.path, [node.name()], "{report:?}");
    }
    Ok(())
}

#[test]
fn a_cut_wire_is_a_gap_as_long_as_the_cut() -> Result<()> {
    let (lan, [a, _, client]) = three()?;
    let plug = lan.plug(&a, "eth0", &["192.168.7.11/24"])?;
    lan.plug(&client, "eth0", &["192.168.7.99/24"])?;
    let target = "192.168.7.11:7".parse()?;
    let _echo = Echo::start(&a, target)?;
    let probe = Probe::start(&client, target)?;
    until("it is answered", || probe.answers() > 10)?;
    let cut = Instant::now();
    plug.cut()?;
    let carrier = || a.ip(&["-j", "link", "show", "dev", "eth0"]).map(|shown| shown[0]["operstate"].clone());
    until("the node sees it", || carrier().is_ok_and(|state| state != "UP"))?;
    thread::sleep(Duration::from_millis(150));
    let inner = cut.elapsed();
    plug.mend()?;
    let before = probe.answers();
    until("it is answered again", || probe.answers() > before + 10)?;
    let outer = cut.elapsed();
    let report = probe.finish()?;
    let gap = report.longest_gap + report.stalled;
    assert!(gap > inner - Duration::from_millis(50) && report.longest_gap < outer, "{inner:?}..{outer:?}: {report:?}");
    Ok(())
}

#[test]
fn an_address_that_the_node_lacks_is_silent_until_it_has_it() -> Result<()> {
    let (lan, [a, _, client]) = three()?;
    lan.plug(&a, "eth0", &["192.168.7.11/24"])?;
    lan.plug(&client, "eth0", &["192.168.7.99/24"])?;
    let target = "192.168.7.50:7".parse()?;
    let _echo = Echo::start(&a, target)?;
    let capture = Capture::start(lan.switch(), "lan0", "arp")?;
    let probe = Probe::start(&client, target)?;
    capture.wait_for("the client's question", |line| line.contains("who-has 192.168.7.50 tell 192.168.7.99"))?;
    assert_eq!(probe.answers(), 0);
    a.batch("addr add 192.168.7.50/24 dev eth0\n")?;
    until("it is answered", || probe.answers_of("node-a") > 10)?;
    let report = probe.finish()?;
    assert!(report.lost() > 0, "{report:?}");
    Ok(())
}

#[test]
fn a_witness_tells_who_has_an_address_and_when_nobody_has_or_two_have() -> Result<()> {
    let (lan, [a, b, client]) = three()?;
    lan.plug(&a, "eth0", &["192.168.7.11/24", "fd00:7::11/64"])?;
    lan.plug(&b, "eth0", &["192.168.7.12/24", "fd00:7::12/64"])?;
    lan.plug(&client, "eth0", &["192.168.7.99/24", "fd00:7::99/64"])?;
    let (holders, lines) = (
        [mac(&a)?, mac(&b)?],
        ["192.168.7.50/24 dev eth0", "fd00:7::50/64 dev eth0 nodad"].map(|address| format!("addr add {address}\n")),
    );
    for (address, add) in ["192.168.7.50", "fd00:7::50"].into_iter().zip(lines) {
        let (address, delete) = (address.parse()?, add.replace(" add ", " del ").replace(" nodad", ""));
        let witness = Witness::start(&client, &[address])?;
        let asked = |more: usize| {
            let before = witness.account(address).asked;
            until("it asks", || witness.account(address).asked > before + more)
        };
        asked(20)?;
        assert_eq!(witness.account(address).answered, 0);
        a.batch(&add)?;
        until("the first answers", || witness.account(address).path == holders[..1])?;
        asked(20)?;
        assert!(witness.account(address).doubt.is_zero());
        b.batch(&add)?;
        until("both answer", || witness.account(address).doubt > Duration::from_millis(100))?;
        a.batch(&delete)?;
        asked(20)?;
        b.batch(&delete)?;
        asked(50)?;
        b.batch(&add)?;
        asked(20)?;
        let account = witness.finish(&[address])?.remove(0);
        assert_eq!(account.path.last(), Some(&holders[1]), "{account:?}");
        assert!(account.silence > Duration::from_millis(500), "{account:?}");
    }
    Ok(())
}

/// What a killed test leaves behind is the machine's to keep, so a namespace must hang on nothing but a process.
#[test]
fn a_namespace_is_held_by_the_process_alone() -> Result<()> {
    let held = Namespace::new("held")?;
    let path = held.path();
    let shown = Command::new("ip").args(["netns", "list"]).output()?;
    assert!(!String::from_utf8_lossy(&shown.stdout).contains("held"));
    assert!(std::fs::metadata(&path).is_ok());
    drop(held);
    assert!(std::fs::metadata(&path).is_err(), "something else keeps {path}");
    Ok(())
}
