//! An initramfs: files packed as the kernel unpacks them at boot, which is cpio in its "newc" form.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// Where the bytes of a file come from.
enum Content {
    Bytes(Vec<u8>),
    Host(PathBuf),
}

/// Files by their names in the machine, without the first slash. In the order of names a folder comes before what is in it.
#[derive(Default)]
pub(super) struct Archive {
    entries: BTreeMap<String, Option<Content>>,
}

impl Archive {
    /// A file with these bytes. Every file may be executed.
    pub(super) fn file(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.put(name, Some(Content::Bytes(bytes.into())));
    }

    /// A file with what a file of this machine has in it.
    pub(super) fn copy(&mut self, name: &str, from: &Path) {
        self.put(name, Some(Content::Host(from.to_owned())));
    }

    fn put(&mut self, name: &str, content: Option<Content>) {
        let name = name.trim_matches('/');
        for (end, _) in name.match_indices('/') {
            self.entries.entry(name[..end].to_owned()).or_default();
        }
        self.entries.insert(name.to_owned(), content);
    }

    /// Writes it all.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for (number, (name, content)) in self.entries.iter().enumerate() {
            let bytes = match content {
                None => &Vec::new(),
                Some(Content::Bytes(bytes)) => bytes,
                Some(Content::Host(path)) => {
                    &fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
                }
            };
            let mode = if content.is_none() { FOLDER } else { PROGRAM };
            entry(&mut file, u32::try_from(number + 1)?, name, mode, bytes)?;
        }
        entry(&mut file, 0, "TRAILER!!!", 0, &[])?;
        Ok(file.flush()?)
    }
}

/// Thirteen numbers of eight digits after the magic one, then name and bytes, each filled up to a multiple of four.
fn entry(file: &mut impl Write, number: u32, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let (size, name_size) = (u32::try_from(bytes.len())?, u32::try_from(name.len() + 1)?);
    let (owner, group, links, time, device, check) = (0, 0, 1, 0, 0, 0);
    let numbers = [number, mode, owner, group, links, time, size, device, device, device, device, name_size, check];
    let header: String = numbers.iter().map(|number| format!("{number:08x}")).collect();
    write!(file, "070701{header}{name}\0")?;
    fill(file, 6 + header.len() + name.len() + 1)?;
    file.write_all(bytes)?;
    Ok(fill(file, bytes.len())?)
}

fn fill(file: &mut impl Write, written: usize) -> io::Result<()> {
    file.write_all(&[0; 3][..written.next_multiple_of(4) - written])
}
