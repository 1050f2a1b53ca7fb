//! Every way to an identifier, and every way to none.

use rstest::rstest;

use super::*;
use crate::bgp::samples::{configuration, node};

fn resolve(text: &str, node: &NodeFacts) -> Result<(String, &'static str), &'static str> {
    let wish = RouterIdWish::parse(text).map_err(|reason| reason.name())?;
    let found = router_id(&Configuration { router_id: wish, ..configuration() }, node);
    found.map(|(id, source)| (id.to_string(), source.name())).map_err(|reason| reason.name())
}

#[rstest]
#[case::explicit("10.0.0.9", "10.0.0.9", "explicit")]
#[case::node_ip("${NODE_IP}", "192.0.2.1", "template")]
#[case::node_ipv4("${NODE_IPV4}", "192.0.2.1", "template")]
#[case::external("${NODE_EXTERNAL_IP}", "198.51.100.1", "template")]
#[case::annotation("${node.annotations['example.org/router-id']}", "10.9.9.9", "template")]
#[case::nothing("", "192.0.2.1", "node-ipv4")]
fn an_identifier_is_found_where_the_configuration_says(#[case] text: &str, #[case] id: &str, #[case] source: &str) {
    let mut node = node("node-1");
    node.annotations.insert("example.org/router-id".to_owned(), "10.9.9.9".to_owned());
    assert_eq!(
        resolve(text, &node).map(|(id, source)| (id, source.to_owned())),
        Ok((id.to_owned(), source.to_owned()))
    );
}

#[rstest]
#[case::loopback("127.0.0.1")]
#[case::link_local("169.254.1.1")]
#[case::nobody("0.0.0.0")]
#[case::ipv6("2001:db8::1")]
#[case::partly("${NODE_IP}0")]
#[case::unknown("${HOSTNAME}")]
#[case::empty_key("${node.annotations['']}")]
#[case::odd_key("${node.annotations['a b']}")]
fn what_cannot_be_an_identifier_is_refused(#[case] text: &str) {
    assert_eq!(resolve(text, &node("node-1")), Err("RouterIdSyntax"));
}

#[test]
fn an_endless_text_is_refused_and_not_repeated_whole() {
    let Err(Reason::RouterIdSyntax { text }) = RouterIdWish::parse(&"x".repeat(300)) else { panic!("it was read") };
    assert_eq!(text.len(), 256);
}

#[rstest]
#[case("${NODE_IP}")]
#[case("${NODE_EXTERNAL_IP}")]
#[case("${node.annotations['example.org/router-id']}")]
fn a_template_without_an_answer_says_what_the_node_lacks(#[case] text: &str) {
    let mut node = NodeFacts { name: "node-6".to_owned(), ..NodeFacts::default() };
    node.internal = vec!["2001:db8::6".parse().unwrap(), "169.254.0.6".parse().unwrap()];
    node.annotations.insert("example.org/router-id".to_owned(), "127.0.0.1".to_owned());
    assert_eq!(resolve(text, &node), Err("RouterIdUnresolved"));
}

/// FNV-1a of "a" and "foobar" as its authors publish them.
#[test]
fn names_are_hashed_by_fnv_1a() {
    assert_eq!((fnv1a(""), fnv1a("a"), fnv1a("foobar")), (0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968));
}

/// Worked out by hand: 0xbf9c_f968 = 3,214,735,720; modulo 65,534 and plus 1 it is 30,885 = 120 * 256 + 165.
#[test]
fn a_node_without_an_ipv4_address_goes_by_its_name() {
    let internal = vec!["2001:db8::6".parse().unwrap()];
    let node = NodeFacts { name: "foobar".to_owned(), internal, ..NodeFacts::default() };
    assert_eq!(resolve("", &node), Ok(("10.255.120.165".to_owned(), "hash-from-node-name")));
}

#[rstest]
#[case("0.0.0.0/0")]
#[case("10.255.0.0/16")]
#[case("198.51.100.77/24")]
fn a_hashed_identifier_is_inside_its_pool(#[case] pool: &str) {
    let configuration = Configuration { router_id_pool: pool.parse().unwrap(), ..configuration() };
    for i in 0..1000 {
        let id = hashed(&configuration, &format!("node-{i}"));
        let pool = configuration.router_id_pool;
        assert!(pool.contains(&id) && id != pool.network() && id != pool.broadcast(), "{id} of {pool}");
    }
}

#[rstest]
#[case::nothing("", true)]
#[case::node_ip("${NODE_IP}", true)]
#[case::external("${NODE_EXTERNAL_IP}", true)]
#[case::explicit("10.0.0.9", false)]
#[case::annotation("${node.annotations['example.org/router-id']}", false)]
fn an_identifier_that_hangs_on_addresses_waits_for_the_first(#[case] text: &str, #[case] waits: bool) {
    let configuration = Configuration { router_id: RouterIdWish::parse(text).unwrap(), ..configuration() };
    let mut node = NodeFacts { name: "node-6".to_owned(), ..NodeFacts::default() };
    assert_eq!(awaits_addresses(&configuration, &node), waits);
    node.internal = vec!["2001:db8::6".parse().unwrap()];
    assert!(!awaits_addresses(&configuration, &node), "of whichever family");
}
