//! Objects on disk: one file of JSON lines, so that a server goes on after a restart where it stopped.
//!
//! Every request that changed something appends one line with all its changes, before anybody is told of them. What was
//! acknowledged is therefore in the hands of the kernel, and survives the death of the process at any moment; a line that
//! the death cut short was never acknowledged, and is dropped when the file is read again. The disk is asked to keep up
//! (fsync) only when the file is written anew, so the loss of the whole machine may cost the last seconds.
//!
//! A file that has grown far beyond its objects is written anew beside the old one and takes its name.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::store::{Bucket, Change, Key};

/// The form of the file; another one is refused.
const FORMAT: u32 = 1;
/// A file may grow by this much, and to twice its size, before it is written anew.
const ROOM: u64 = 8 * 1024 * 1024;

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Another server has the folder.
    #[error("{} is in use by another server: stop that one first, or choose another folder", .0.display())]
    Busy(PathBuf),
    /// The file system refused.
    #[error("cannot use {}: {source}", .path.display())]
    Io {
        /// What was to be read or written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line in the middle of the file is not what was written.
    #[error("line {line} of {} is damaged ({why}): restore the file from a copy, or delete it to begin with an empty \
             cluster", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    kubelite: u32,
    revision: u64,
}

/// Every other line: what one request changed.
#[derive(Serialize, Deserialize)]
struct Line<T> {
    revision: u64,
    changes: Vec<Entry<T>>,
}

#[derive(Serialize, Deserialize)]
struct Entry<T> {
    bucket: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    /// The object from now on; nothing if it is gone.
    object: Option<T>,
}

/// What a file holds.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Kept {
    pub revision: u64,
    pub buckets: HashMap<String, BTreeMap<Key, Value>>,
}

/// The open file.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// All of it that counts; a failed write may leave more behind.
    length: u64,
    /// Whether a failed write may have left more behind.
    torn: bool,
    /// The length above which the file is written anew.
    limit: u64,
    pending: Vec<Arc<Change>>,
    /// Held as long as the server lives.
    _lock: File,
}

impl Journal {
    /// Takes a folder, which is made if it is not there, and reads what it holds.
    ///
    /// # Errors
    /// If another server has the folder, or it cannot be read or written.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Kept), DataError> {
        fs::create_dir_all(folder).map_err(refused(folder))?;
        let lock = lock(folder)?;
        let path = folder.join("objects.jsonl");
        let kept = match fs::read(&path) {
            Ok(bytes) => parse(&path, &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept { revision: 1, ..Kept::default() },
            Err(error) => return Err(refused(&path)(error)),
        };
        let entries = kept
            .buckets
            .iter()
            .flat_map(|(bucket, objects)| objects.iter().map(move |(key, object)| entry(bucket, key, Some(object))));
        let file = write_anew(&path, kept.revision, entries).map_err(refused(&path))?;
        let length = file.metadata().map_err(refused(&path))?.len();
        let journal = Self { path, file, length, torn: false, limit: limit(length), pending: Vec::new(), _lock: lock };
        Ok((journal, kept))
    }

    /// Remembers a change for the next commit.
    pub(crate) fn note(&mut self, change: Arc<Change>) {
        self.pending.push(change);
    }

    /// Writes all changes since the last commit as one line. After a failure they wait for the next one.
    pub(crate) fn commit(&mut self, revision: u64) -> Result<(), DataError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let changes = self.pending.iter().map(|it| entry(&it.bucket, &it.key, it.after.as_ref().map(|it| it.value())));
        let line = text(&Line { revision, changes: changes.collect() });
        self.append(&line).map_err(refused(&self.path))?;
        self.pending.clear();
        Ok(())
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.torn {
            // Half a line in the middle of the file would spoil it; at its end it does not count.
            self.file.set_len(self.length)?;
        }
        self.torn = true;
        self.file.write_all(line)?;
        self.torn = false;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Writes the file anew if it has grown far beyond its objects. A failure leaves the old file in use.
    pub(crate) fn tidy(&mut self, revision: u64, buckets: &HashMap<String, Bucket>) {
        if self.length <= self.limit || !self.pending.is_empty() {
            return;
        }
        let entries = buckets.iter().flat_map(|(bucket, objects)| {
            objects.iter().map(move |(key, object)| entry(bucket, key, Some(object.value())))
        });
        if let Ok(file) = write_anew(&self.path, revision, entries) {
            self.length = file.metadata().map_or(0, |it| it.len());
            self.file = file;
        }
        self.limit = limit(self.length);
    }
}

fn limit(length: u64) -> u64 {
    length.saturating_mul(2).saturating_add(ROOM)
}

fn refused(path: &Path) -> impl Fn(io::Error) -> DataError + use<> {
    let path = path.to_owned();
    move |source| DataError::Io { path: path.clone(), source }
}

fn lock(folder: &Path) -> Result<File, DataError> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(refused(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DataError::Busy(folder.to_owned())),
        Err(TryLockError::Error(error)) => Err(refused(&path)(error)),
    }
}

fn entry<T>(bucket: &str, key: &Key, object: Option<T>) -> Entry<T> {
    Entry { bucket: bucket.into(), namespace: key.namespace.clone(), name: key.name.clone(), object }
}

fn text(line: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("plain values with text keys are always JSON");
    text.push(b'\n');
    text
}

/// A new file with these objects in the place of the old one; whenever this is interrupted, one of the two is whole.
fn write_anew<'a>(path: &Path, revision: u64, entries: impl Iterator<Item = Entry<&'a Value>>) -> io::Result<File> {
    let part = path.with_extension("new");
    // Secrets are among the objects. Writes go to the end wherever that is: it moves back after a failed one.
    let file = File::options().append(true).create(true).mode(0o600).open(&part)?;
    file.set_len(0)?;
    let mut file = BufWriter::new(file);
    file.write_all(&text(&Header { kubelite: FORMAT, revision }))?;
    for entry in entries {
        file.write_all(&text(&Line { revision, changes: vec![entry] }))?;
    }
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    if let Some(folder) = path.parent() {
        // The new file has the name now: whether or not the disk keeps up, nobody will read the old one again.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    Ok(file)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Kept, DataError> {
    let damaged = |line: usize, why: String| DataError::Damaged { path: path.to_owned(), line, why };
    // What follows the last line end was cut short before it was acknowledged.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
    let mut lines = whole.split(|byte| *byte == b'\n').enumerate();
    let (_, first) = lines.next().unwrap_or_default();
    let header: Header = serde_json::from_slice(first).map_err(|error| damaged(1, error.to_string()))?;
    if header.kubelite != FORMAT {
        return Err(damaged(1, format!("its form is {}, this server knows {FORMAT}", header.kubelite)));
    }
    let mut kept = Kept { revision: header.revision, ..Kept::default() };
    for (number, line) in lines {
        let line: Line<Value> = serde_json::from_slice(line).map_err(|error| damaged(number + 1, error.to_string()))?;
        kept.apply(line);
    }
    Ok(kept)
}

impl Kept {
    fn apply(&mut self, line: Line<Value>) {
        self.revision = self.revision.max(line.revision);
        for change in line.changes {
            let bucket = self.buckets.entry(change.bucket).or_default();
            let key = Key::new(&change.namespace, &change.name);
            match change.object {
                Some(object) => bucket.insert(key, object),
                None => bucket.remove(&key),
            };
        }
    }
}

#[cfg(test)]
mod tests;
