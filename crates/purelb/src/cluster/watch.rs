//! Watches as streams of plain changes: a list that begins, objects that are there, objects that are gone.

use std::fmt::Debug;

use futures::{Stream, StreamExt, future};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tracing::warn;

/// How many objects of a list are read at once. Whole objects are large and are not kept, so that the largest page is
/// what a daemon needs most memory for.
const PAGE: u32 = 100;

/// One change of a watched set of objects.
#[derive(Clone, Debug)]
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
    watcher(api, config.page_size(PAGE)).default_backoff().filter_map(move |event| {
        future::ready(match event {
            Ok(watcher::Event::Init) => Some(Change::Restarted),
            Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => Some(Change::Here(object)),
            Ok(watcher::Event::Delete(object)) => Some(Change::Gone(object)),
            Ok(watcher::Event::InitDone) => Some(Change::Complete),
            Err(error) => {
                warn!(kind, %error, "the watch is interrupted");
                None
            }
        })
    })
}
