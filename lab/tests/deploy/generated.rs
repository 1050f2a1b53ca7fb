//! One-file installs and what they are made from.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use purelb_lab::control_plane::programs::Programs;
use purelb_lab::daemon;

use crate::cluster::{root, shipped};

fn manifests(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.insert(name, fs::read_to_string(&path)?);
        }
    }
    Ok(found)
}

#[tokio::test]
async fn one_file_installs_are_what_their_kustomizations_say() -> Result<()> {
    let kubectl = Programs::find().await?.path("kubectl");
    let fresh = tempfile::tempdir()?;
    let mut script = Command::new(root().join("scripts/manifests"));
    script.arg(fresh.path()).env("PURELB_BIN", kubectl.parent().unwrap_or(Path::new(".")));
    ensure!(script.status()?.success(), "scripts/manifests failed");
    let (fresh, committed) = (manifests(fresh.path())?, manifests(Path::new(&shipped("")))?);
    assert_eq!(fresh.keys().collect::<Vec<_>>(), committed.keys().collect::<Vec<_>>());
    for (name, text) in &committed {
        assert!(*text == fresh[name], "deploy/{name} is out of date: run `make manifests` and commit");
    }
    Ok(())
}

#[test]
fn every_definition_is_part_of_the_install() -> Result<()> {
    let listed = fs::read_to_string(shipped("crds/Kustomization"))?;
    for entry in fs::read_dir(shipped("crds"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        assert!(
            name == "Kustomization" || listed.contains(&format!("\n- {name}\n")),
            "{name} is not in the Kustomization"
        );
    }
    Ok(())
}

#[test]
fn manifests_name_the_image_of_this_version() -> Result<()> {
    let image = concat!("image: purelb:", env!("CARGO_PKG_VERSION"));
    for name in ["install.yaml", "install-nobgp.yaml", "upgrade-from-0.13.yaml", "upgrade-from-0.17.yaml"] {
        let text = fs::read_to_string(shipped(name))?;
        let images: Vec<_> = text.lines().filter(|line| line.contains("image: ")).map(str::trim).collect();
        assert_eq!(images, [image, image], "{name}");
    }
    Ok(())
}

#[test]
fn samples_pass_the_offline_check_without_a_word() -> Result<()> {
    let folders = ["-f", &shipped("samples"), "-f", &shipped("samples-bgp")];
    let output = Command::new(daemon::program()?).arg("validate").args(folders).output()?;
    let printed = String::from_utf8(output.stdout)?;
    assert!(output.status.success() && printed.ends_with(": 0 errors, 0 warnings\n"), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
    Ok(())
}
