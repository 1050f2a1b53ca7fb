//! Bytes as kubectl writes them, and bytes as nobody writes them.

use super::*;

/// A field with bytes or a text in it.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("short");
    [&[number << 3 | 2, length], value].concat()
}

fn object(kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    [MAGIC, &field(1, &meta), &field(2, raw)].concat()
}

fn read(bytes: &[u8]) -> Result<Value, Refusal> {
    to_json(bytes).map(|text| serde_json::from_slice(&text).expect("JSON"))
}

/// `kubectl create namespace x`, as recorded from kubectl 1.36.
#[test]
fn a_namespace_from_kubectl_is_read() {
    let recorded =
        b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12\x19\x0a\x11\x0a\x01x\x12\0\x1a\0\"\0*\x002\08\0B\0\x12\0\
        \x1a\x02\x0a\0\x1a\0\"\0";
    assert_eq!(read(recorded), Ok(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})));
}

#[test]
fn maps_lists_numbers_and_either_are_read() {
    let label = [field(1, b"app"), field(2, b"web")].concat();
    let target = [vec![8, 1], field(3, b"http")].concat();
    let port = [vec![24, 0xd8, 0x04], field(4, &target), field(4, &[8, 0, 16, 80])].concat();
    let spec = [field(1, &port), field(2, &label), field(4, b"LoadBalancer")].concat();
    let service = read(&object("Service", &field(2, &spec))).expect("a good service");
    let port = json!({"port": 600, "targetPort": 80});
    assert_eq!(service["spec"], json!({"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [port]}));
    let entry = [field(1, b"a"), field(2, &[0, 255])].concat();
    assert_eq!(read(&object("Secret", &field(2, &entry))).expect("a good secret")["data"], json!({"a": "AP8="}));
}

#[test]
fn a_field_that_is_not_known_is_refused_and_not_dropped() {
    let refusal = read(&object("ConfigMap", &field(9, b"new"))).expect_err("refused");
    assert_eq!(refusal.code(), 415);
    assert!(refusal.to_string().starts_with("field 9 of ConfigMap is understood here only as JSON"), "{refusal}");
    assert!(read(&object("ConfigMap", &field(9, b""))).is_ok(), "nothing is lost with nothing");
}

#[test]
fn garbled_bytes_are_refused_wherever_they_are_cut() {
    let good = object("Namespace", &field(1, &field(1, b"some-name")));
    assert!(read(&good).is_ok());
    for end in 0..good.len() {
        let _ = read(&good[..end]);
    }
    for bad in [
        &b"k8s"[..],
        b"{}",
        b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"k8s\0\x12\xff\x7f",
        b"k8s\0\x0d1234",
    ] {
        assert_eq!(read(bad).expect_err("refused").code(), 415, "{bad:?}");
    }
}
