//! An observer of its own: it sees every write to every Service of a namespace, in order, and shows it to the judge.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use futures::{AsyncBufReadExt, TryStreamExt};
use http::Request;
use kube::Client;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::judge::Judge;

/// A running observer.
pub struct Observer {
    task: JoinHandle<Result<Judge>>,
    /// The version up to which it is to watch, once that is known.
    last: watch::Sender<u64>,
}

impl Observer {
    /// Begins with the Services that `path` lists now.
    pub async fn start(client: Client, path: String) -> Result<Self> {
        let list: Value = client.request(Request::get(&path).body(Vec::new())?).await?;
        let mut judge = Judge::default();
        for service in list["items"].as_array().into_iter().flatten() {
            judge.see("ADDED", service, Instant::now())?;
        }
        let version = version(&list)?;
        let (last, end) = watch::channel(u64::MAX);
        let task = tokio::spawn(async move {
            let mut watched = Watched { client, path, version, judge };
            watched.until(end).await?;
            Ok(watched.judge)
        });
        Ok(Self { task, last })
    }

    /// Whether the judge has seen enough.
    pub fn objects(&self) -> bool {
        self.task.is_finished()
    }

    /// The verdict on everything up to this version.
    pub async fn verdict(self, version: u64) -> Result<Judge> {
        self.last.send_replace(version);
        self.task.await.context("the observer panicked")?
    }
}

struct Watched {
    client: Client,
    path: String,
    version: u64,
    judge: Judge,
}

impl Watched {
    async fn until(&mut self, mut end: watch::Receiver<u64>) -> Result<()> {
        loop {
            let last = *end.borrow_and_update();
            if self.version >= last {
                return Ok(());
            }
            tokio::select! {
                watched = self.watch() => watched?,
                changed = end.changed() => changed?,
            }
        }
    }

    /// One watch, to its end. Where it ends the next one goes on, so that no write is missed and none seen twice.
    async fn watch(&mut self) -> Result<()> {
        let query = format!("watch=1&allowWatchBookmarks=true&timeoutSeconds=30&resourceVersion={}", self.version);
        let request = Request::get(format!("{}?{query}", self.path)).body(Vec::new())?;
        let mut lines = std::pin::pin!(self.client.request_stream(request).await?.lines());
        while let Some(line) = lines.try_next().await? {
            let event: Value = serde_json::from_str(&line)?;
            let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
            match kind {
                "ERROR" => bail!("the observer has lost the thread: {object}"),
                "BOOKMARK" => {}
                kind => self.judge.see(kind, object, Instant::now())?,
            }
            let seen = version(object)?;
            ensure!(seen >= self.version, "the watch went back in time");
            self.version = seen;
        }
        Ok(())
    }
}

/// The resourceVersion of an object, which is a number.
pub fn version(object: &Value) -> Result<u64> {
    let text = object["metadata"]["resourceVersion"].as_str().context("an object has a version")?;
    text.parse().with_context(|| format!("{text} is no number"))
}
