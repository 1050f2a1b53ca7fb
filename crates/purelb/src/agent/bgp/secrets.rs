//! The Secrets that a BGPConfiguration names, read by name and read again: the agent may get Secrets, not list them.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Error};
use purelb_api::read;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::SecretNews;

/// How often passwords are read again while all sessions that have one are up.
const CALM: Duration = Duration::from_secs(30);
/// How often otherwise: somebody may just be mending one.
const ANXIOUS: Duration = Duration::from_secs(5);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which Secrets are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Their names.
    pub names: BTreeSet<String>,
    /// Whether a session that has a password is down, or a password is missing.
    pub anxious: bool,
}

/// Reads the wanted Secrets, now and again, and tells what is new, for as long as somebody wants any.
pub async fn watch(
    client: Client,
    namespace: String,
    mut wanted: watch::Receiver<Wanted>,
    news: UnboundedSender<SecretNews>,
) {
    let api: Api<Secret> = Api::namespaced(client, &namespace);
    let mut known = SecretNews::default();
    loop {
        let Wanted { names, anxious } = wanted.borrow_and_update().clone();
        let read = look(&api, &names, &known).await;
        if read != known {
            known = read;
            if news.send(known.clone()).is_err() {
                return;
            }
        }
        let pause = async {
            match (names.is_empty(), anxious) {
                (true, _) => std::future::pending().await,
                (false, true) => sleep(ANXIOUS).await,
                (false, false) => sleep(CALM).await,
            }
        };
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = pause => {}
        }
    }
}

/// What is there now. A Secret that cannot be read stays as it was; one that never was read is neither there nor absent.
async fn look(api: &Api<Secret>, names: &BTreeSet<String>, known: &SecretNews) -> SecretNews {
    let mut news = SecretNews::default();
    for name in names {
        let entries = match timeout(PATIENCE, api.get(name)).await {
            Ok(Ok(secret)) => Some(read::secret(&secret).1),
            Ok(Err(Error::Api(status))) if status.code == 404 => None,
            failed => {
                let error = failed.as_ref().map_or("there is no answer in time", |answer| words(answer.as_ref().err()));
                warn!(secret = name, error, "a Secret with a bgp password cannot be read");
                if !known.asked.contains(name) {
                    news.unread.insert(name.clone());
                    continue;
                }
                known.found.get(name).cloned()
            }
        };
        news.asked.insert(name.clone());
        news.found.extend(entries.map(|entries| (name.clone(), entries)));
    }
    news
}

/// The API server's own words, if any. Those of other errors might quote what was read.
fn words(error: Option<&Error>) -> &str {
    match error {
        Some(Error::Api(status)) => &status.message,
        _ => "there is no usable answer",
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// An API server that answers every question with this code.
    fn api(code: &Arc<AtomicU16>) -> Api<Secret> {
        let code = code.clone();
        let answer = move |_: Request<Body>| {
            let code = code.load(Ordering::Relaxed);
            let body = match code {
                200 => json!({"metadata": {"name": "router"}, "data": {"password": "c2VzYW1l"}}),
                _ => json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "no", "code": code}),
            };
            let answer = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        };
        Api::namespaced(Client::new(tower::service_fn(answer), "home"), "home")
    }

    #[tokio::test]
    async fn a_secret_that_cannot_be_read_at_the_start_does_not_count_as_absent() {
        let code = Arc::new(AtomicU16::new(403));
        let (api, names) = (api(&code), BTreeSet::from(["router".to_owned()]));
        let mut known = SecretNews::default();
        for refusal in [403, 500] {
            code.store(refusal, Ordering::Relaxed);
            known = look(&api, &names, &known).await;
            assert_eq!(known, SecretNews { unread: names.clone(), ..SecretNews::default() });
        }
        code.store(404, Ordering::Relaxed);
        let absent = look(&api, &names, &known).await;
        assert_eq!(absent, SecretNews { asked: names.clone(), ..SecretNews::default() });
        code.store(200, Ordering::Relaxed);
        let read = look(&api, &names, &absent).await;
        assert!(read.asked == names && read.unread.is_empty() && read.found.contains_key("router"));
        code.store(500, Ordering::Relaxed);
        assert_eq!(look(&api, &names, &read).await, read, "what was read stays");
    }
}
