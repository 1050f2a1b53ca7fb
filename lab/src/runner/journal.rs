//! What a runner has to say, in a file with times.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};

/// A log. Clones write to the same one.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    file: Arc<File>,
}

impl Journal {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { file: Arc::new(file.with_context(|| format!("cannot write {}", path.display()))?) })
    }

    /// A line. That it cannot be written has nowhere to be told.
    pub(super) fn tell(&self, words: &str) {
        let line = format!("{:.3} {words}\n", jiff::Timestamp::now());
        let _ = (&*self.file).write_all(line.as_bytes());
    }
}
