//! Questions about the state of a daemon, answered by the one task that owns it.

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

/// Questions, each with a place for the answer.
pub type Questions = mpsc::Receiver<oneshot::Sender<Value>>;

/// Someone who asks, and the questions for the owner of the state to answer.
pub fn channel() -> (impl Fn() -> BoxFuture<'static, Value> + Send + Sync + 'static, Questions) {
    let (ask, questions) = mpsc::channel(1);
    let inspector = move || {
        let ask = ask.clone();
        async move {
            let (reply, answer) = oneshot::channel();
            let asked = ask.send(reply).await;
            let answer = if asked.is_ok() { answer.await.ok() } else { None };
            answer.unwrap_or_else(|| json!({"error": "the daemon is stopping"}))
        }
        .boxed()
    };
    (inspector, questions)
}
