//! Whatever is thrown at the server, it answers like an API server, and its views of the world agree.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use purelb_kubelite::Kubelite;
use serde_json::{Value, json};
use tower::Service as _;

/// One request.
#[derive(Debug, Clone)]
struct Shot {
    method: String,
    path: String,
    query: String,
    content_type: &'static str,
    body: Vec<u8>,
}

/// An answer, read to its end.
struct Answer {
    code: u16,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

async fn fire(server: &Kubelite, shot: &Shot) -> Option<Answer> {
    let uri = if shot.query.is_empty() { shot.path.clone() } else { format!("{}?{}", shot.path, shot.query) };
    let method = Method::from_bytes(shot.method.as_bytes()).ok()?;
    let mut request = Request::builder().method(method).uri(uri);
    if !shot.content_type.is_empty() {
        request = request.header("content-type", shot.content_type);
    }
    // What is no HTTP request at all cannot reach the server.
    let request = request.body(Full::new(Bytes::from(shot.body.clone()))).ok()?;
    let answer = server.clone().call(request).await.expect("the server always answers");
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("bodies do not fail").to_bytes();
    Some(Answer { code, text: String::from_utf8_lossy(&body).into_owned() })
}

async fn get(server: &Kubelite, path: &str, query: &str) -> Answer {
    let shot =
        Shot { method: "GET".into(), path: path.into(), query: query.into(), content_type: "", body: Vec::new() };
    fire(server, &shot).await.expect("a request")
}

fn definition() -> Value {
    let rule = json!([{"rule": "self.size < 9 && (!has(oldSelf.size) || self.size >= oldSelf.size)"}]);
    let spec = json!({"type": "object", "x-kubernetes-validations": rule, "properties": {
        "size": {"type": "integer", "minimum": 0, "default": 1}, "tags": {"type": "array", "items": {"type": "string"}},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
               "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                   "spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
    };
    json!({
        "metadata": {"name": "things.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1", false), version("v2", true)],
        },
    })
}

/// Objects that are good, each a starting point for damage.
fn samples() -> Vec<Value> {
    vec![
        json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}],
               "ipFamilyPolicy": "PreferDualStack", "externalTrafficPolicy": "Local"}}),
        json!({"metadata": {"name": "b"}, "spec": {"ports": [{"name": "t", "port": 53, "nodePort": 30001},
               {"name": "u", "port": 53, "protocol": "UDP"}], "type": "NodePort", "clusterIP": "10.96.0.77"}}),
        json!({"metadata": {"name": "a", "finalizers": ["x.io/y"]}, "spec": {"clusterIP": "None"}}),
        json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 3}}),
        json!({"apiVersion": "example.org/v2", "kind": "Thing", "metadata": {"generateName": "g-"}, "spec": {"tags": ["x"]}}),
        json!({"metadata": {"name": "a"}, "involvedObject": {"namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z"}),
        json!({"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]}),
        json!({"metadata": {"name": "a"}, "spec": {"leaseDurationSeconds": 5, "renewTime": "2026-01-01T00:00:00.000000Z"}}),
        json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        json!({"metadata": {"labels": {"x": "2"}, "resourceVersion": "7"}, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}),
        json!([{"op": "add", "path": "/metadata/labels", "value": {"y": "z"}}, {"op": "remove", "path": "/spec/ports/0"}]),
        json!({"preconditions": {"uid": "x"}, "propagationPolicy": "Background"}),
        definition(),
        json!({"metadata": {"generateName": "c-"}, "spec": {"type": "NodePort", "clusterIP": "10.96.0.77",
               "ports": [{"port": 80, "nodePort": 30001}]}}),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(vec!["", "a", "None", "LoadBalancer", "ExternalName", "IPv6", "\u{0}", "$patch", "10.96.0.9", "🦀"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key =
            select(vec!["name", "spec", "metadata", "$patch", "port", "nodePort", "finalizers", "uid", "type", ""]);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key, inner), 0..4)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

/// Replaces the value at the `n`-th place of a document.
fn damage(value: &mut Value, n: &mut usize, with: &Value) {
    if *n == 0 {
        *value = with.clone();
    }
    *n = n.wrapping_sub(1);
    match value {
        Value::Object(members) => members.values_mut().for_each(|member| damage(member, n, with)),
        Value::Array(items) => items.iter_mut().for_each(|item| damage(item, n, with)),
        _ => {}
    }
}

fn any_body() -> impl Strategy<Value = Vec<u8>> {
    let sample = select(samples());
    let damaged = (sample.clone(), 0..40_usize, any_json()).prop_map(|(mut sample, mut place, with)| {
        damage(&mut sample, &mut place, &with);
        sample.to_string().into_bytes()
    });
    prop_oneof![
        4 => sample.prop_map(|sample| sample.to_string().into_bytes()),
        4 => damaged,
        1 => any_json().prop_map(|value| value.to_string().into_bytes()),
        1 => vec(any::<u8>(), 0..40),
    ]
}

const COLLECTIONS: [&str; 12] = [
    "/api/v1/namespaces/default/services",
    "/api/v1/services",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/events",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases",
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
    "/apis/example.org/v1/namespaces/default/things",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
];

fn any_path() -> impl Strategy<Value = String> {
    let known = (
        select(COLLECTIONS.to_vec()),
        select(vec!["", "", "/a", "/a", "/b", "/a/status", "/a/x", "/things.example.org"]),
    );
    prop_oneof![
        12 => known.prop_map(|(collection, rest)| format!("{collection}{rest}")),
        1 => select(vec!["/version", "/apis", "/api", "/api/v1", "/healthz", "/apis/example.org/v2", "/api/v1/watch/services"])
            .prop_map(str::to_owned),
        1 => "/[ -~]{0,30}",
    ]
}

fn any_query() -> impl Strategy<Value = String> {
    let key = select(vec![
        "watch",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "labelSelector",
        "fieldSelector",
        "dryRun",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "timeoutSeconds",
        "fieldValidation",
        "%zz",
    ]);
    let value = prop_oneof![
        select(vec![
            "true",
            "0",
            "1",
            "18446744073709551615",
            "-1",
            "All",
            "Strict",
            "Exact",
            "NotOlderThan",
            "x%20in%20(1"
        ])
        .prop_map(str::to_owned),
        select(vec!["x=1", "spec.type=LoadBalancer", "metadata.name=a", "!x", "spec.nodeName!=a", "%ff", "e30"])
            .prop_map(str::to_owned),
        "[!-~]{0,8}",
    ];
    vec((key, value), 0..3).prop_map(|pairs| {
        let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join("&")
    })
}

/// Requests that fit what they address, so that there is something to damage.
fn apt_shot() -> impl Strategy<Value = Shot> {
    let place = select(vec![(0, 0), (0, 1), (0, 2), (10, 3), (4, 5), (9, 6), (8, 7), (2, 8), (11, 12), (0, 13)]);
    let create =
        place.clone().prop_map(|(path, sample)| ("POST", COLLECTIONS[path].to_owned(), "", samples()[sample].clone()));
    let name = || select(vec!["a", "b"]);
    let delete = (place.clone(), name())
        .prop_map(|((path, _), name)| ("DELETE", format!("{}/{name}", COLLECTIONS[path]), "", json!({})));
    let kind = select(vec!["application/merge-patch+json", "application/strategic-merge-patch+json"]);
    let change = select(vec![
        json!({"spec": {"type": "ClusterIP"}}),
        json!({"spec": {"type": "LoadBalancer"}}),
        json!({"spec": {"type": "ExternalName", "externalName": "a.b"}}),
        json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}}),
        json!({"spec": {"ipFamilyPolicy": "SingleStack"}}),
        json!({"spec": {"ports": [{"port": 81}]}}),
        json!({"spec": {"size": 4, "externalTrafficPolicy": "Cluster"}}),
        json!({"metadata": {"finalizers": null, "labels": {"x": "3"}}}),
    ]);
    let patch = (place, name(), kind, change)
        .prop_map(|((path, _), name, kind, change)| ("PATCH", format!("{}/{name}", COLLECTIONS[path]), kind, change));
    prop_oneof![3 => create, 1 => delete, 3 => patch].prop_map(|(method, path, content_type, body)| Shot {
        method: method.into(),
        path,
        query: String::new(),
        content_type,
        body: body.to_string().into_bytes(),
    })
}

fn any_shot() -> impl Strategy<Value = Shot> {
    let method = select(vec!["GET", "POST", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE", "HEAD", "DANCE"]);
    let content_type = select(vec![
        "",
        "application/json",
        "application/merge-patch+json",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "text/plain",
    ]);
    (method, any_path(), any_query(), content_type, any_body()).prop_map(|(method, path, query, content_type, body)| {
        Shot { method: method.into(), path, query, content_type, body }
    })
}

/// A refusal is a `Status` that names its own code, or the plain 404 of a path outside the API.
fn check_answer(shot: &Shot, answer: &Answer) {
    if answer.code < 400 || (answer.code == 404 && answer.text == "404 page not found\n") {
        return;
    }
    let status = answer.json();
    assert_eq!(status["kind"], "Status", "{shot:?}: {}", answer.text);
    assert_eq!(status["code"], answer.code, "{shot:?}: {}", answer.text);
    assert!(status["message"].as_str().is_some_and(|text| !text.is_empty()), "{shot:?}: {}", answer.text);
}

/// No cluster address and no node port belongs to two Services.
fn check_allocations(services: &BTreeMap<String, Value>) {
    let mut held = BTreeSet::new();
    for (name, service) in services {
        let spec = &service["spec"];
        let ips = spec["clusterIPs"].as_array().into_iter().flatten().filter(|ip| **ip != "None").cloned();
        let ports = spec["ports"].as_array().into_iter().flatten().map(|port| port["nodePort"].clone());
        let ports = ports.chain([spec["healthCheckNodePort"].clone()]).filter(|port| !port.is_null());
        let own: BTreeSet<String> = ips.chain(ports).map(|it| it.to_string()).collect();
        for it in own {
            assert!(held.insert(it.clone()), "{it} is held twice, also by {name}");
        }
    }
}

fn keyed(items: impl Iterator<Item = Value>) -> BTreeMap<String, Value> {
    let key = |item: &Value| format!("{}/{}", item["metadata"]["namespace"], item["metadata"]["name"]);
    let bare = |mut item: Value| {
        let members = item.as_object_mut().expect("objects in lists");
        members.remove("kind");
        members.remove("apiVersion");
        item
    };
    items.map(|item| (key(&item), bare(item))).collect()
}

/// What a watcher pieces together from the beginning is what a list shows.
async fn check_views(server: &Kubelite, path: &str) -> BTreeMap<String, Value> {
    let list = get(server, path, "").await.json();
    let listed = keyed(list["items"].as_array().cloned().unwrap_or_default().into_iter());
    let told = get(server, path, "watch=true&resourceVersion=1&timeoutSeconds=1").await.text;
    let mut pieced = BTreeMap::new();
    for line in told.lines() {
        let event: Value = serde_json::from_str(line).expect("an event");
        let one = keyed([event["object"].clone()].into_iter());
        let (key, object) = one.into_iter().next().expect("one object");
        let known = pieced.contains_key(&key);
        match event["type"].as_str() {
            Some("ADDED") => assert!(!known, "{key} was added twice"),
            Some("MODIFIED" | "DELETED") => assert!(known, "{key} changed before it was added"),
            other => panic!("unexpected event {other:?}"),
        }
        if event["type"] == "DELETED" {
            pieced.remove(&key)
        } else {
            pieced.insert(key, object)
        };
    }
    assert_eq!(pieced, listed, "watch and list of {path} differ");
    listed
}

async fn play(shots: Vec<Shot>) {
    let server = Kubelite::new();
    let install = Shot {
        method: "POST".into(),
        path: COLLECTIONS[11].into(),
        query: String::new(),
        content_type: "application/json",
        body: definition().to_string().into_bytes(),
    };
    let installed = fire(&server, &install).await.expect("a request");
    assert_eq!(installed.code, 201, "{}", installed.text);
    for shot in &shots {
        if let Some(answer) = fire(&server, shot).await {
            check_answer(shot, &answer);
        }
    }
    check_allocations(&check_views(&server, "/api/v1/services").await);
    check_views(&server, "/api/v1/namespaces").await;
    check_views(&server, "/apis/coordination.k8s.io/v1/leases").await;
}

proptest! {
    #[test]
    fn any_request_gets_a_proper_answer_and_the_views_agree(shots in vec(prop_oneof![any_shot(), apt_shot()], 1..40)) {
        // Time is paused: watches run to their end at once.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(play(shots));
    }
}
