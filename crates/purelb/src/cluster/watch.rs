//! Watches as streams of plain changes: a list that begins, objects that are there, objects that are gone.

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

/// How many objects of a list are read at once. Whole objects are large and are not kept, so that the largest page is
/// what a daemon needs most memory for.
const PAGE: u32 = 100;

/// The first and the longest pause after trouble, to which chance adds up to a half. Long enough for an API server that has
/// a thousand watchers to come back, short enough that two seconds after it is back everybody knows what happened.
const FIRST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(1);
/// The longest pause where the cluster does not have a kind: short enough that a CRD applied late is noticed soon.
const ABSENT: Duration = Duration::from_secs(5);
/// How long a watch must have been well for the next pause to be the first again.
const WELL: Duration = Duration::from_secs(60);

/// One change of a watched set of objects.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Change<T> {
    /// A new list begins, because the watch is new or was broken for too long.
    Restarted,
    /// The object is there and looks like this.
    Here(T),
    /// The object is gone, or no longer what the watch asks for.
    Gone(T),
    /// The list is complete: what was known before and did not come again is gone.
    Complete,
}

impl<T> Change<T> {
    /// The same change about what becomes of the object.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Change<U> {
        match self {
            Change::Restarted => Change::Restarted,
            Change::Here(object) => Change::Here(f(object)),
            Change::Gone(object) => Change::Gone(f(object)),
            Change::Complete => Change::Complete,
        }
    }
}

/// Watches for ever. Lists are read from the store, not from a cache that may be behind; trouble is waited out with
/// growing pauses.
pub fn changes<K>(kind: &'static str, api: Api<K>, config: watcher::Config) -> impl Stream<Item = Change<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watch(kind, api, config, false)
}

/// The same for a kind that this cluster need not have, or not for us. As long as it does not, there are no changes, and no
/// more than one complaint.
pub fn changes_if_any<K>(kind: &'static str, api: Api<K>, config: watcher::Config) -> impl Stream<Item = Change<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watch(kind, api, config, true)
}

fn watch<K>(kind: &'static str, api: Api<K>, config: watcher::Config, optional: bool) -> impl Stream<Item = Change<K>>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let (mut trouble, mut expired) = (Growing::after_trouble(), Growing::after_trouble());
    let (mut forbidden, mut absent) = (false, Growing::up_to(ABSENT));
    watcher(api, config.page_size(PAGE)).filter_map(move |event| {
        let mut pause = None;
        let change = match event {
            Ok(watcher::Event::Init) => Some(Change::Restarted),
            Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => Some(Change::Here(object)),
            Ok(watcher::Event::Delete(object)) => Some(Change::Gone(object)),
            Ok(watcher::Event::InitDone) => Some(Change::Complete),
            Err(error) => {
                // A server that does not have the kind may say that it is forbidden, if no rights are given for it.
                let code = refusal(&error).filter(|_| optional);
                match code {
                    Some(404) => debug!(kind, "the cluster does not have this kind; it is looked for again"),
                    Some(403) if std::mem::replace(&mut forbidden, true) => debug!(kind, %error, "still forbidden"),
                    _ => warn!(kind, %error, "the watch is interrupted"),
                }
                pause = Some(match code {
                    Some(403 | 404) => absent.pause(),
                    _ if is_expired(&error) => expired.pause(),
                    _ => trouble.pause(),
                });
                None
            }
        };
        async move {
            if let Some(pause) = pause {
                sleep(pause).await;
            }
            change
        }
    })
}

/// The code with which the API server refuses a list or a watch.
fn refusal(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

/// Whether the API server has forgotten what the watch would go on from. It is there and well, and a list follows.
fn is_expired(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) => status.code == 410,
        error => refusal(error) == Some(410),
    }
}

/// Each pause is about twice the last one, until the watch has been well for a while; by chance up to half as long again, so
/// that not all watchers come at once.
pub(super) struct Growing {
    next: Duration,
    longest: Duration,
    last: Option<Instant>,
}

impl Growing {
    fn up_to(longest: Duration) -> Self {
        Self { next: FIRST, longest, last: None }
    }

    /// The pauses of a watch in trouble.
    pub fn after_trouble() -> Self {
        Self::up_to(LONGEST)
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let now = Instant::now();
        if self.last.replace(now).is_some_and(|last| now.duration_since(last) > WELL) {
            self.next = FIRST;
        }
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        by_chance(pause)
    }
}

fn by_chance(pause: Duration) -> Duration {
    let chance = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
    pause + pause.mul_f64(chance / 2.0)
}

impl Iterator for Growing {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.pause())
    }
}

impl Backoff for Growing {
    /// Called for each event. One of them says that a list begins, which is no sign that it will end well.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future;
    use http::{Request, Response, StatusCode};
    use k8s_openapi::api::core::v1::Service;
    use kube::Client;
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    #[rstest]
    #[case::a_server_in_trouble(500, 30..=90)]
    #[case::a_kind_that_is_not_there(404, 6..=16)]
    #[tokio::test(start_paused = true)]
    async fn nobody_asks_again_and_again(#[case] code: u16, #[case] expected: std::ops::RangeInclusive<usize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let server = service_fn(move |_: Request<Body>| {
            counter.fetch_add(1, Ordering::Relaxed);
            let status = json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "No", "code": code});
            let answer = Response::builder().status(StatusCode::from_u16(code).unwrap());
            future::ready(Ok::<_, std::io::Error>(answer.body(Body::from(status.to_string().into_bytes())).unwrap()))
        });
        let services: Api<Service> = Api::all(Client::new(server, "default"));
        let mut heard = std::pin::pin!(changes_if_any("Service", services, watcher::Config::default()));
        let minute = async { while heard.next().await.is_some() {} };
        assert!(tokio::time::timeout(Duration::from_secs(60), minute).await.is_err(), "it never gives up");
        let asked = asked.load(Ordering::Relaxed);
        assert!(expected.contains(&asked), "it asked {asked} times in a minute");
    }
}
