//! The one layer of the image: an archive with one file.

use std::io::Write;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// An archive, compressed as registries want it.
pub struct Layer {
    /// The compressed archive.
    pub packed: Vec<u8>,
    /// `sha256:…` of the archive before compression.
    pub diff_id: String,
}

impl Layer {
    /// The archive with this program and nothing else.
    pub fn with_program(name: &str, program: &[u8]) -> Result<Self> {
        let archive = archive(name, program).context("cannot write the archive")?;
        // Neither time nor file name: they would differ from one writing to the next.
        let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
        gzip.write_all(&archive)?;
        Ok(Self { packed: gzip.finish()?, diff_id: digest(&archive) })
    }
}

fn archive(name: &str, program: &[u8]) -> Result<Vec<u8>> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(program.len() as u64);
    let mut archive = Builder::new(Vec::new());
    archive.append_data(&mut header, name, program)?;
    Ok(archive.into_inner()?)
}

/// The name of content in an image.
pub fn digest(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
