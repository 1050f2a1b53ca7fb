//! The files of an OCI image layout: content under its digest, and an index that says where to begin.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::layer::digest;

/// A folder in which an image is written.
pub struct Layout {
    folder: PathBuf,
}

/// How one piece of content is referred to.
pub struct Descriptor {
    media_type: &'static str,
    /// `sha256:…` of the content.
    pub digest: String,
    /// Its length in bytes.
    pub size: u64,
}

impl Descriptor {
    /// The form other content refers to it in.
    pub fn json(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.digest, "size": self.size})
    }
}

impl Layout {
    /// Makes the folder; content of an image that was there before is removed.
    pub fn make(folder: &Path) -> Result<Self> {
        let layout = Self { folder: folder.to_owned() };
        if folder.join("oci-layout").exists() {
            fs::remove_dir_all(folder.join("blobs")).context("cannot remove the image that was there")?;
        }
        fs::create_dir_all(folder.join("blobs/sha256"))
            .with_context(|| format!("cannot make a folder for the image in {}", folder.display()))?;
        layout.file("oci-layout", json!({"imageLayoutVersion": "1.0.0"}).to_string().as_bytes())?;
        Ok(layout)
    }

    /// Stores content under its digest.
    pub fn blob(&self, media_type: &'static str, content: &[u8]) -> Result<Descriptor> {
        let digest = digest(content);
        self.file(&format!("blobs/{}", digest.replace(':', "/")), content)?;
        Ok(Descriptor { media_type, digest, size: content.len() as u64 })
    }

    /// Stores an object under its digest.
    pub fn json(&self, media_type: &'static str, object: &Value) -> Result<Descriptor> {
        self.blob(media_type, object.to_string().as_bytes())
    }

    /// Says that this manifest is the image, and its tag.
    pub fn index(&self, manifest: &Descriptor, architecture: &str, tag: &str) -> Result<()> {
        let mut entry = manifest.json();
        entry["platform"] = json!({"architecture": architecture, "os": "linux"});
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        let media_type = "application/vnd.oci.image.index.v1+json";
        let index = json!({"schemaVersion": 2, "mediaType": media_type, "manifests": [entry]});
        self.file("index.json", index.to_string().as_bytes())
    }

    fn file(&self, name: &str, content: &[u8]) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
    }
}
