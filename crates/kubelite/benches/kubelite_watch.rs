//! What watchers cost: a thousand writes with nobody watching (the floor) and with ten watchers that read every event.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use purelb_kubelite::{Kubelite, ResponseBody};
use serde_json::json;
use tokio::runtime::Runtime;
use tower::Service as _;

const OBJECTS: usize = 1000;

async fn send(server: &Kubelite, method: &str, path: &str, body: String) -> http::Response<ResponseBody> {
    let request = Request::builder().method(method).uri(path).body(Full::new(Bytes::from(body)));
    server.clone().call(request.expect("a request")).await.expect("the server always answers")
}

async fn write_all(server: &Kubelite) {
    for i in 0..OBJECTS {
        let object =
            json!({"metadata": {"name": format!("s{i}")}, "spec": {"ports": [{"port": 80}], "type": "LoadBalancer"}});
        let answer = send(server, "POST", "/api/v1/namespaces/default/services", object.to_string()).await;
        assert_eq!(answer.status(), 201);
    }
}

/// Reads one watch until all objects written after `start` were seen.
async fn read_all(server: Kubelite, start: u64) {
    let path = format!("/api/v1/services?watch=true&resourceVersion={start}");
    let mut body = send(&server, "GET", &path, String::new()).await.into_body();
    let mut seen = 0;
    while seen < OBJECTS {
        let frame = body.frame().await.expect("an open watch").expect("no errors on this body");
        let lines = frame.into_data().unwrap_or_default();
        seen += black_box(lines).iter().filter(|byte| **byte == b'\n').count();
    }
}

async fn with_watchers(server: Kubelite, watchers: usize) {
    let start = server.revision();
    let readers: Vec<_> = (0..watchers).map(|_| tokio::spawn(read_all(server.clone(), start))).collect();
    write_all(&server).await;
    for reader in readers {
        reader.await.expect("a reader does not panic");
    }
}

fn bench(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let mut group = criterion.benchmark_group("kubelite_watch");
    group.sample_size(10);
    for watchers in [0, 1, 10] {
        group.bench_function(format!("{OBJECTS} writes, {watchers} watchers"), |bencher| {
            bencher.iter_batched(
                Kubelite::new,
                |server| runtime.block_on(with_watchers(server, watchers)),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
