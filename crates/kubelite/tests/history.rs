//! Watches over time: bookmarks, limits, compaction and readers that fall behind. The clock is paused, so time passes by itself.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use purelb_kubelite::{Kubelite, ResponseBody};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::Service as _;

async fn send(server: &Kubelite, method: &str, path: &str, body: &Value) -> Result<http::Response<ResponseBody>> {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let request = Request::builder().method(method).uri(path).body(Full::new(body))?;
    Ok(server.clone().call(request).await?)
}

async fn write(server: &Kubelite, name: &str) -> Result<()> {
    let object = json!({"metadata": {"name": name}});
    let answer = send(server, "POST", "/api/v1/namespaces/default/configmaps", &object).await?;
    assert_eq!(answer.status(), 201);
    Ok(())
}

/// An open watch on config maps.
struct Watch(ResponseBody);

impl Watch {
    async fn open(server: &Kubelite, query: &str) -> Result<Self> {
        let path = format!("/api/v1/configmaps?watch=true&{query}");
        let answer = send(server, "GET", &path, &Value::Null).await?;
        assert_eq!(answer.status(), 200);
        Ok(Self(answer.into_body()))
    }

    /// The events of the next chunk; nothing at the end of the watch.
    async fn next(&mut self) -> Option<Vec<Value>> {
        let chunk = self.0.frame().await?.ok()?.into_data().ok()?;
        let lines = chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Some(lines.map(|line| serde_json::from_slice(line).expect("JSON in every line")).collect())
    }

    async fn rest(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(more) = self.next().await {
            events.extend(more);
        }
        events
    }
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_time_with_a_bookmark_shortly_before() -> Result<()> {
    let server = Kubelite::new();
    let start = Instant::now();
    let revision = server.revision();
    let mut watch =
        Watch::open(&server, &format!("resourceVersion={revision}&timeoutSeconds=10&allowWatchBookmarks=1")).await?;
    let bookmark = watch.next().await.expect("a bookmark");
    assert_eq!(types(&bookmark), ["BOOKMARK"]);
    assert_eq!(bookmark[0]["object"]["metadata"], json!({"resourceVersion": revision.to_string()}));
    assert_eq!(start.elapsed().as_secs(), 8);
    assert_eq!(watch.next().await, None);
    assert_eq!(start.elapsed().as_secs(), 10);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_tells_every_minute_how_far_it_is() -> Result<()> {
    let server = Kubelite::new();
    let mut watch = Watch::open(&server, "timeoutSeconds=300&allowWatchBookmarks=true").await?;
    let first = watch.next().await.expect("a bookmark");
    assert_eq!(first[0]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let second = watch.next().await.expect("another");
    assert_eq!(second[0]["object"]["metadata"].get("annotations"), None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_does_not_keep_a_watch_beyond_its_time() -> Result<()> {
    let server = Kubelite::new();
    let mut watch = Watch::open(&server, "timeoutSeconds=5").await?;
    let mut told = 0;
    for i in 0..100 {
        write(&server, &format!("c{i}")).await?;
        tokio::time::advance(Duration::from_millis(100)).await;
        match watch.next().await {
            Some(events) => told += events.len(),
            None => break,
        }
    }
    assert!((40..60).contains(&told), "{told} writes in five seconds");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn after_compaction_old_revisions_are_gone_and_new_ones_work() -> Result<()> {
    let server = Kubelite::new();
    let old = server.revision();
    write(&server, "a").await?;
    server.compact();
    let events = Watch::open(&server, &format!("resourceVersion={old}")).await?.rest().await;
    assert_eq!(types(&events), ["ERROR"]);
    assert_eq!(events[0]["object"]["code"], 410);
    assert_eq!(events[0]["object"]["reason"], "Expired");

    let mut watch = Watch::open(&server, &format!("resourceVersion={}", server.revision())).await?;
    write(&server, "b").await?;
    let events = watch.next().await.expect("the write");
    assert_eq!(events[0]["object"]["metadata"]["name"], "b");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_behind_the_history_is_told_so() -> Result<()> {
    let server = Kubelite::builder().history(10).build();
    let mut slow = Watch::open(&server, &format!("resourceVersion={}", server.revision())).await?;
    let mut quick = Watch::open(&server, &format!("resourceVersion={}", server.revision())).await?;
    let mut seen = 0;
    for i in 0..20 {
        write(&server, &format!("c{i}")).await?;
        seen += quick.next().await.expect("the write").len();
    }
    assert_eq!(seen, 20, "one that keeps up misses nothing");
    assert_eq!(types(&slow.rest().await), ["ERROR"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_page_goes_on_at_the_moment_of_the_first_one() -> Result<()> {
    let server = Kubelite::new();
    for name in ["a", "b", "c"] {
        write(&server, name).await?;
    }
    let path = "/api/v1/namespaces/default/configmaps";
    let page = async |query: String| -> Result<Value> {
        let answer = send(&server, "GET", &format!("{path}?{query}"), &Value::Null).await?;
        Ok(serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?)
    };
    let first = page("limit=1".into()).await?;
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    send(&server, "DELETE", &format!("{path}/b"), &Value::Null).await?;
    let token = first["metadata"]["continue"].as_str().expect("more to come").to_owned();
    let rest = page(format!("limit=5&continue={token}")).await?;
    let names: Vec<&Value> =
        rest["items"].as_array().expect("items").iter().map(|it| &it["metadata"]["name"]).collect();
    assert_eq!(names, ["b", "c"], "b was there when the list began");

    server.compact();
    let expired = page(format!("limit=5&continue={token}")).await?;
    assert_eq!((&expired["code"], &expired["reason"]), (&json!(410), &json!("Expired")));
    let token = expired["metadata"]["continue"].as_str().expect("a way to go on").to_owned();
    let rest = page(format!("limit=5&continue={token}")).await?;
    assert_eq!(rest["items"].as_array().map(Vec::len), Some(1), "as things are now");
    Ok(())
}

#[tokio::test]
async fn ten_watchers_see_a_thousand_objects_each_once_and_in_order() -> Result<()> {
    const OBJECTS: usize = 1000;
    let server = Kubelite::new();
    let start = format!("resourceVersion={}", server.revision());
    let mut readers = Vec::new();
    for _ in 0..10 {
        let mut watch = Watch::open(&server, &start).await?;
        readers.push(tokio::spawn(async move {
            let mut revisions: Vec<u64> = Vec::new();
            while revisions.len() < OBJECTS {
                let events = watch.next().await.expect("an open watch");
                let revision =
                    |event: &Value| event["object"]["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
                revisions.extend(events.iter().filter_map(revision));
            }
            revisions
        }));
    }
    for i in 0..OBJECTS {
        write(&server, &format!("c{i}")).await?;
    }
    for reader in readers {
        let revisions = reader.await?;
        assert_eq!(revisions.len(), OBJECTS);
        assert!(revisions.is_sorted_by(|a, b| a < b), "in order, none twice");
    }
    Ok(())
}
