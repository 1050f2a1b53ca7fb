//! The image as those see it who pull it: unpacked by another program, run where there is nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use purelb_lab::image;

use crate::cluster::shipped;

/// What an image may take on a node's disk.
const LIMIT: u64 = 14_000_000;
const TAG: &str = env!("CARGO_PKG_VERSION");

/// All files under a folder by their path in it.
fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder)?.display().to_string(), fs::read(&path)?);
            }
        }
    }
    Ok(found)
}

/// What a program on nothing but this root prints.
fn run_in(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("chroot").arg(root).args(arguments).output()?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn the_image_is_one_program_that_runs_on_nothing_and_is_the_same_each_time() -> Result<()> {
    let program = image::program::build()?;
    let place = tempfile::tempdir()?;
    let (first, second, bundle) =
        (place.path().join("first"), place.path().join("second"), place.path().join("bundle"));
    let written = image::write(&program, &first, TAG)?;
    assert_eq!(image::write(&program, &second, TAG)?, written);
    assert!(files(&first)? == files(&second)?, "two images of one program differ");
    assert!(written.unpacked <= LIMIT, "{} bytes are more than {LIMIT}", written.unpacked);

    image::unpack(&first, TAG, &bundle)?;
    let root = bundle.join("rootfs");
    assert_eq!(files(&root)?.keys().collect::<Vec<_>>(), ["purelb"], "nothing but the program");
    assert_eq!(run_in(&root, &["/purelb", "--version"])?, format!("purelb {TAG}\n"));
    let definitions = run_in(&root, &["/purelb", "crds"])?;
    for entry in fs::read_dir(shipped("crds"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            assert!(definitions.contains(&fs::read_to_string(&path)?), "{} differs", path.display());
        }
    }
    let runtime: serde_json::Value = serde_json::from_slice(&fs::read(bundle.join("config.json"))?)?;
    assert_eq!(runtime["process"]["args"], serde_json::json!(["/purelb"]));
    assert_eq!(runtime["process"]["user"]["uid"], 65534);
    Ok(())
}

#[test]
fn a_program_that_needs_a_dynamic_linker_is_refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let refused = image::write(&std::env::current_exe()?, folder.path(), TAG).err().context("tests are linked so")?;
    assert!(format!("{refused:#}").contains("needs a dynamic linker"), "{refused:#}");
    assert_eq!(fs::read_dir(folder.path())?.count(), 0, "nothing half written");
    Ok(())
}
