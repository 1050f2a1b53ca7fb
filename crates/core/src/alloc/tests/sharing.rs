//! Several Services on one address (SH-1, SH-8, AL-4).

use super::*;

#[test]
fn sh_1_dual_stack_sharers_get_the_same_addresses() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/30", "2001:db8::/126"])]);
    let first = town.put(svc("s1").dual().shared("key")).text();
    assert_eq!(town.put(svc("s2").dual().shared("key").port(81)).text(), first);
    town.delete("test/s1");
    assert_eq!(town.put(svc("s3").dual().shared("key").port(81)).text(), "PortInUse", "s2 is still there");
    town.delete("test/s2");
    assert_eq!(town.look("test/s3").text(), first);
}

#[test]
fn b44_a_sharing_key_means_the_same_in_every_namespace() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    assert_eq!(town.put(svc("red/a").shared("k")).text(), "1.2.3.0");
    assert_eq!(town.put(svc("blue/a").shared("k").port(81)).text(), "1.2.3.0");
    assert_eq!(town.put(svc("blue/b").shared("k")).text(), "PortInUse");
}

#[test]
fn sh_8_keys_are_told_apart() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    assert_eq!(town.put(svc("a").shared("A")).text(), "1.2.3.0");
    assert_eq!(town.put(svc("b").shared("B")).text(), "1.2.3.1");
    assert_eq!(town.put(svc("c").shared("A").port(81)).text(), "1.2.3.0");
}

#[test]
fn adding_a_key_to_a_live_service_moves_nothing_and_lets_others_join() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    town.put(svc("a"));
    assert_eq!(town.edit("test/a", |svc| svc.asks.sharing_key = Some("k".into())).text(), "1.2.3.0");
    assert_eq!(town.put(svc("b").shared("k").port(81)).text(), "1.2.3.0");
}

#[test]
fn al_4_a_full_pool_serves_sharers_and_those_who_wait() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/31"])]);
    town.put(svc("s1"));
    town.put(svc("s2"));
    assert_eq!(town.put(svc("s3")).text(), "Exhausted");
    town.delete("test/s1");
    assert_eq!(town.edit("test/s3", |svc| svc.asks.sharing_key = Some("k".into())).text(), "1.2.3.0");
    assert_eq!(town.put(svc("s4").shared("k").port(81)).text(), "1.2.3.0");
    assert_eq!(town.put(svc("s5")).text(), "Exhausted");
}

#[test]
fn bug_16_a_port_that_was_dropped_is_free_at_once() {
    let mut town = Town::new(&[group("default", &["1.2.3.0/24"])]);
    town.put(svc("a").shared("k").port(80));
    town.edit("test/a", |svc| svc.ports[0].number = 443);
    assert_eq!(town.put(svc("b").shared("k").port(80)).text(), "1.2.3.0");
}
