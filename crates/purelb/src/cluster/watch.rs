//! Watches as streams of plain changes: a list that begins, objects that are there, objects that are gone.

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures::{Stream, StreamExt, future};
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tracing::{debug, warn};

/// How many objects of a list are read at once. Whole objects are large and are not kept, so that the largest page is
/// what a daemon needs most memory for.
const PAGE: u32 = 100;

/// The first and the longest pause after trouble. Long enough for an API server that has a thousand watchers to come
/// back, short enough that a CRD applied late is noticed soon.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
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
    let mut forbidden = false;
    watcher(api, config.page_size(PAGE)).backoff(pauses()).filter_map(move |event| {
        future::ready(match event {
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
                None
            }
        })
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

fn pauses() -> impl Backoff {
    ResetTimerBackoff::new(Growing(PAUSES.0), WELL)
}

/// Each pause is about twice the last one; by chance up to twice as long, so that not all watchers come at once.
struct Growing(Duration);

impl Iterator for Growing {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSES.1);
        let chance = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
        Some(pause + pause.mul_f64(chance))
    }
}

impl Backoff for Growing {
    fn reset(&mut self) {
        self.0 = PAUSES.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_short_enough_to_notice_a_crd_that_is_applied_late() {
        let taken: Vec<_> = pauses().take(50).collect();
        assert_eq!(taken.len(), 50, "it never gives up");
        assert!(taken[0] <= PAUSES.0 * 2, "{taken:?}");
        assert!(taken.iter().all(|pause| *pause <= PAUSES.1 * 2), "{taken:?}");
        let last: Duration = taken[40..].iter().sum();
        assert!(last >= PAUSES.1 * 5, "no hot loop: {taken:?}");
    }
}
