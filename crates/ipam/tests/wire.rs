//! The bytes of the contract: sidecars written for PureLB 0.17 must keep understanding us, and we them.

use prost::Message;
use purelb_ipam::v1::allocate_request::Selector;
use purelb_ipam::v1::release_request::Target;
use purelb_ipam::v1::{
    AllocateRequest, AllocateResponse, AllocatedIp, ExplicitIPs, FamilyRequest, ReleaseRequest, ReleaseResponse,
    StatsRequest, StatsResponse,
};

fn ask(selector: Selector) -> Vec<u8> {
    let (pool, service, sharing_key) = ("p".into(), "s".into(), "k".into());
    AllocateRequest { pool, service, sharing_key, selector: Some(selector) }.encode_to_vec()
}

fn release(target: Target) -> Vec<u8> {
    ReleaseRequest { pool: "p".into(), service: "s".into(), target: Some(target) }.encode_to_vec()
}

// A byte before each value says its field and type: field × 8 + 2 for text and messages, + 0 for numbers.

#[test]
fn allocate_has_the_fields_of_the_contract() {
    let families = Selector::Families(FamilyRequest { want_ipv4: true, want_ipv6: true });
    assert_eq!(ask(families), b"\x0a\x01p\x12\x01s\x1a\x01k\x2a\x04\x08\x01\x10\x01");
    let explicit = Selector::Explicit(ExplicitIPs { ips: vec!["x".into()] });
    assert_eq!(ask(explicit), b"\x0a\x01p\x12\x01s\x1a\x01k\x22\x03\x0a\x01x");
    let answer = AllocateResponse { ips: vec![AllocatedIp { ip: "x".into() }] };
    assert_eq!(answer.encode_to_vec(), b"\x0a\x03\x0a\x01x");
}

#[test]
fn release_has_the_fields_of_the_contract() {
    assert_eq!(release(Target::Ip("x".into())), b"\x0a\x01p\x12\x01s\x1a\x01x");
    assert_eq!(release(Target::All(true)), b"\x0a\x01p\x12\x01s\x20\x01");
    assert_eq!(ReleaseResponse {}.encode_to_vec(), b"");
}

#[test]
fn stats_has_the_fields_of_the_contract() {
    assert_eq!(StatsRequest { pool: "p".into() }.encode_to_vec(), b"\x0a\x01p");
    let answer = StatsResponse {
        in_use_v4: 1,
        in_use_v6: 2,
        size_v4: 3,
        size_v6: 4,
        has_known_capacity: true,
        display_addresses: vec!["d".into()],
    };
    assert_eq!(answer.encode_to_vec(), b"\x08\x01\x10\x02\x18\x03\x20\x04\x28\x01\x32\x01d");
}
