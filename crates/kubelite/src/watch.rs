//! Watches: a cursor into the shared history for each, so that a slow reader costs nobody anything.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::Shared;
use crate::call::{Call, Form};
use crate::object;
use crate::query::{ListOptions, parse_revision};
use crate::read::{self, Filter};
use crate::state::State;
use crate::status::Refusal;
use crate::store::{Change, Object, at_revision};
use crate::table::{self, Include};

/// Changes taken from the history at a time, so that the lock is held briefly.
const BATCH: usize = 500;
/// How often a watcher that wants bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// A last bookmark comes this long before the end, so that the next watch starts close to it.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// How long a watch lasts whose client sets no limit.
const USUAL: Duration = Duration::from_secs(30 * 60);
/// How long a watch may last.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// One open watch.
struct Watch {
    shared: Arc<Shared>,
    call: Call,
    filter: Filter,
    /// Everything up to this revision has been told.
    cursor: u64,
    bell: watch::Receiver<u64>,
    pending: Option<Bytes>,
    bookmarks: bool,
    /// The next bookmark also marks the end of the initial events.
    mark_initial: bool,
    next_bookmark: Instant,
    deadline: Instant,
    over: bool,
    /// The columns of a table are told once.
    header_told: bool,
}

/// Opens a watch; the stream yields lines of JSON.
///
/// # Errors
/// If the parameters are wrong. A resourceVersion that is too old is an `ERROR` event in the stream.
pub(crate) fn open(
    shared: Arc<Shared>,
    call: Call,
    options: &ListOptions,
) -> Result<impl Stream<Item = Bytes> + Send + use<>, Refusal> {
    let filter = Filter::new(&call, options)?;
    let revision = parse_revision(&options.resource_version).map_err(Refusal::Internal)?;
    let now = Instant::now();
    let deadline = now + options.timeout.unwrap_or(USUAL).min(LONGEST);
    let watch = {
        let state = shared.lock();
        let from_start = match options.send_initial_events {
            Some(wanted) => wanted,
            None => revision.unwrap_or(0) == 0,
        };
        let cursor = if from_start { state.store.revision() } else { revision.unwrap_or(state.store.revision()) };
        let mut watch = Watch {
            filter,
            cursor,
            bell: state.store.bell(),
            pending: None,
            bookmarks: options.bookmarks,
            mark_initial: from_start,
            next_bookmark: next_bookmark(now, deadline),
            deadline,
            over: false,
            header_told: false,
            shared: shared.clone(),
            call,
        };
        if from_start {
            watch.tell_all(&state, options)?;
        }
        watch
    };
    Ok(stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) }))
}

fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END).filter(|last| *last > now);
    last.map_or(now + BOOKMARK_EVERY, |last| last.min(now + BOOKMARK_EVERY))
}

impl Watch {
    /// The state at the start, as if every object had just been added.
    fn tell_all(&mut self, state: &State, options: &ListOptions) -> Result<(), Refusal> {
        let list = ListOptions { resource_version: "0".into(), ..options.clone() };
        let mut lines = BytesMut::new();
        for object in read::list(state, &self.call, &list)?.items {
            self.line(&mut lines, "ADDED", &object);
        }
        if options.send_initial_events == Some(true) && self.bookmarks {
            lines.extend_from_slice(&self.bookmark());
        }
        self.pending = Some(lines.freeze()).filter(|lines| !lines.is_empty());
        Ok(())
    }

    /// The next lines, or nothing when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(lines) = self.pending.take() {
                return Some(lines);
            }
            if self.over || Instant::now() >= self.deadline {
                return None;
            }
            if self.catch_up() {
                continue;
            }
            tokio::select! {
                rung = self.bell.changed() => self.over = rung.is_err(),
                () = sleep_until(self.deadline) => self.over = true,
                () = sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.pending = Some(self.bookmark());
                    self.next_bookmark = next_bookmark(Instant::now(), self.deadline);
                }
            }
        }
    }

    /// Reads what is new in the history; false if there is nothing to do but wait.
    fn catch_up(&mut self) -> bool {
        let (changes, revision) = {
            let state = self.shared.lock();
            self.bell.mark_unchanged();
            if self.cursor >= state.store.revision() {
                self.over = self.is_orphaned(&state);
                return self.over;
            }
            (state.store.changes_since(self.cursor, BATCH), state.store.revision())
        };
        let mut lines = BytesMut::new();
        match changes {
            Ok(changes) => {
                for change in &changes {
                    self.cursor = change.revision;
                    self.tell(&mut lines, change);
                }
            }
            Err(_) => {
                let message = format!("too old resource version: {} ({revision})", self.cursor);
                write_line(&mut lines, "ERROR", &Refusal::Expired(message, None).to_status().to_string().into());
                self.over = true;
            }
        }
        self.pending = Some(lines.freeze()).filter(|lines| !lines.is_empty());
        true
    }

    /// A changed or removed definition ends the watches of its kind, as on the real server.
    fn is_orphaned(&self, state: &State) -> bool {
        let current = state.registry.by_bucket(&self.call.resource.bucket);
        !current.is_some_and(|current| Arc::ptr_eq(current, &self.call.resource))
    }

    /// A change as this watcher sees it: what enters its selection is added, what leaves it is deleted.
    fn tell(&mut self, lines: &mut BytesMut, change: &Change) {
        if change.bucket != self.call.resource.bucket {
            return;
        }
        let admitted = |object: &&Object| self.filter.admits(&change.key, object);
        let (before, after) = (change.before.as_ref().filter(admitted), change.after.as_ref().filter(admitted));
        match (before, after) {
            (None, Some(after)) => self.line(lines, "ADDED", after),
            (Some(_), Some(after)) => self.line(lines, "MODIFIED", after),
            (Some(before), None) => self.line(lines, "DELETED", &at_revision(before, change.revision)),
            (None, None) => {}
        }
    }

    fn line(&mut self, lines: &mut BytesMut, kind: &str, object: &Object) {
        let text = match (self.call.form, self.call.show(object)) {
            (Form::Table(include), shown) => self.table(&shown, include).to_string().into(),
            (_, Cow::Borrowed(_)) => object.text(),
            (_, Cow::Owned(shown)) => shown.to_string().into(),
        };
        write_line(lines, kind, &text);
    }

    /// A table of one row.
    fn table(&mut self, shown: &Value, include: Include) -> Value {
        let columns = &self.call.served.columns;
        let header = if std::mem::replace(&mut self.header_told, true) { Value::Null } else { table::header(columns) };
        let metadata = json!({"resourceVersion": object::meta(shown, "resourceVersion")});
        table::table(&metadata, &header, &[table::row(columns, shown, include, self.shared.now())])
    }

    fn bookmark(&mut self) -> Bytes {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if std::mem::take(&mut self.mark_initial) {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.call.form {
            Form::Full => {
                let (kind, api_version) = (&self.call.resource.kind, self.call.served.api_version());
                json!({"kind": kind, "apiVersion": api_version, "metadata": metadata})
            }
            Form::MetadataOnly => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            // Its only row is about no object and carries the bookmark.
            Form::Table(_) => self.table(&json!({"metadata": metadata}), Include::Metadata),
        };
        let mut lines = BytesMut::new();
        write_line(&mut lines, "BOOKMARK", &object.to_string().into());
        lines.freeze()
    }
}

fn write_line(lines: &mut BytesMut, kind: &str, object: &Bytes) {
    lines.extend_from_slice(b"{\"type\":\"");
    lines.extend_from_slice(kind.as_bytes());
    lines.extend_from_slice(b"\",\"object\":");
    lines.extend_from_slice(object);
    lines.extend_from_slice(b"}\n");
}
