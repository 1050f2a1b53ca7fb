//! The container image: one static program on nothing, written as an OCI image layout without a container engine.
//!
//! The same program gives the same bytes: entries have a fixed order and no time of their own.

mod elf;
mod layer;
mod layout;
pub mod program;

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use layer::Layer;
use layout::{Descriptor, Layout};

/// The name of the program in the image.
const ENTRYPOINT: &str = "/purelb";
/// Whoever starts the image without saying as whom, is nobody.
const USER: &str = "65534:65534";

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// `sha256:…` of the manifest: the name of exactly this image.
    pub digest: String,
    /// Bytes a registry transfers.
    pub packed: u64,
    /// Bytes on a node's disk.
    pub unpacked: u64,
}

/// Writes an image layout with this one program and tag into `folder`, which is made if it is not there.
///
/// # Errors
/// When the program cannot be read or would not run on nothing, or the folder cannot be written.
pub fn write(program: &Path, folder: &Path, tag: &str) -> Result<Image> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let architecture = elf::architecture(&bytes).with_context(|| format!("{}", program.display()))?;
    let unpacked = bytes.len() as u64;
    let layer = Layer::with_program(ENTRYPOINT.trim_start_matches('/'), &bytes)?;
    let layout = Layout::make(folder)?;
    let packed = layout.blob("application/vnd.oci.image.layer.v1.tar+gzip", &layer.packed)?;
    let config = layout.json("application/vnd.oci.image.config.v1+json", &config(architecture, tag, &layer.diff_id))?;
    let manifest = manifest(&config, &packed, tag);
    let manifest = layout.json("application/vnd.oci.image.manifest.v1+json", &manifest)?;
    layout.index(&manifest, architecture, tag)?;
    Ok(Image { digest: manifest.digest, packed: packed.size, unpacked })
}

/// Unpacks an image with `umoci`, which knows nothing of us: `bundle/rootfs` becomes a container's root, and
/// `bundle/config.json` says how to start it.
///
/// # Errors
/// When umoci is missing or refuses the image; with its words.
pub fn unpack(layout: &Path, tag: &str, bundle: &Path) -> Result<()> {
    let image = format!("{}:{tag}", layout.display());
    let output = Command::new("umoci").args(["unpack", "--image", &image]).arg(bundle).output();
    let output = output.context("cannot run umoci: `scripts/setup` installs it")?;
    ensure!(output.status.success(), "umoci cannot unpack {image}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn config(architecture: &str, tag: &str, diff_id: &str) -> serde_json::Value {
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"User": USER, "Entrypoint": [ENTRYPOINT], "WorkingDir": "/", "Labels": labels(tag)},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    })
}

fn manifest(config: &Descriptor, layer: &Descriptor, tag: &str) -> serde_json::Value {
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.json(),
        "layers": [layer.json()],
        "annotations": labels(tag),
    })
}

fn labels(tag: &str) -> serde_json::Value {
    json!({
        "org.opencontainers.image.title": "PureLB",
        "org.opencontainers.image.description": "Addresses for Kubernetes Services of type LoadBalancer, without a cloud",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": tag,
    })
}
