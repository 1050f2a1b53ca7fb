//! The kustomizations of the documents: they build, name the image that the reader brought, and the API server takes them.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Context, Result, ensure};
use purelb_lab::ControlPlane;
use serde_json::Value;
use tempfile::TempDir;

use crate::page::{named, pages, root};

/// The image as the documents name it, with the tag of this version.
const IMAGE: &str = concat!("registry.example/purelb:", env!("CARGO_PKG_VERSION"));
/// The first line of such a block.
const TITLE: &str = "# kustomization.yaml\n";

/// The kustomizations that a page shows.
fn shown(page: &str) -> Result<Vec<String>> {
    let blocks = named(page)?.blocks("yaml").into_iter().map(|block| block.text);
    Ok(blocks.filter(|text| text.starts_with(TITLE)).collect())
}

/// A folder of the reader's own, with this kustomization beside `deploy`.
fn folder(kustomization: &str) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    symlink(root().join("deploy"), folder.path().join("deploy"))?;
    fs::write(folder.path().join("kustomization.yaml"), kustomization)?;
    Ok(folder)
}

async fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> Result<String> {
    let output = plane.kubectl().args(arguments).output().await?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl {}: {complaint}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

/// What the API server makes of a kustomization, as a list of objects.
async fn applied(plane: &ControlPlane, kustomization: &str) -> Result<Vec<Value>> {
    let folder = folder(kustomization)?;
    let path = folder.path().display().to_string();
    let apply = ["apply", "--validate=strict", "--warnings-as-errors", "-o", "json", "-k", &path];
    let mut list: Value = serde_json::from_str(&kubectl(plane, &apply).await?)?;
    match list["items"].take() {
        Value::Array(objects) => Ok(objects),
        other => anyhow::bail!("not a list: {other}"),
    }
}

/// An API server that knows our kinds.
async fn server() -> Result<ControlPlane> {
    let plane = ControlPlane::start().await?;
    let definitions = root().join("deploy/install-crds.yaml").display().to_string();
    kubectl(&plane, &["apply", "-f", &definitions]).await?;
    kubectl(&plane, &["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).await?;
    Ok(plane)
}

fn containers(object: &Value) -> impl Iterator<Item = &Value> {
    object["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten()
}

#[tokio::test]
async fn kustomizations_of_install_and_upgrade_name_the_image_of_the_registry() -> Result<()> {
    let plane = server().await?;
    for (page, count, brings_agent) in [("docs/how-to/install.md", 1, true), ("docs/how-to/upgrade.md", 2, false)] {
        let kustomizations = shown(page)?;
        assert_eq!(kustomizations.len(), count, "{page}");
        for kustomization in kustomizations {
            let objects = applied(&plane, &kustomization).await?;
            let images: Vec<_> = objects.iter().flat_map(containers).map(|container| &container["image"]).collect();
            assert_eq!(images, [IMAGE, IMAGE], "{page}: {kustomization}");
            let agents = objects.iter().filter(|object| object["kind"] == "LBNodeAgent").count();
            assert_eq!(agents > 0, brings_agent, "{page}: an upgrade leaves the LBNodeAgent alone\n{kustomization}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_sidecar_of_an_external_ipam_joins_the_allocator() -> Result<()> {
    let plane = server().await?;
    let [kustomization] = &shown("examples/ipam-sidecar/README.md")?[..] else {
        anyhow::bail!("not one kustomization")
    };
    let objects = applied(&plane, kustomization).await?;
    let allocator = objects.iter().find(|object| object["kind"] == "Deployment").context("there is an allocator")?;
    assert_eq!(allocator["spec"]["replicas"], 1, "its memory is a file");
    let pod = &allocator["spec"]["template"]["spec"];
    let [ours, sidecar] = &containers(allocator).collect::<Vec<_>>()[..] else { anyhow::bail!("{pod}") };
    let mounts = |container: &Value| container["volumeMounts"].as_array().cloned().unwrap_or_default();
    let socket = mounts(ours).pop().context("the allocator sees the socket")?;
    assert_eq!(socket["mountPath"], "/var/run/purelb");
    assert!(mounts(sidecar).contains(&socket), "both see the same folder: {sidecar}");
    assert_eq!(pod["securityContext"]["runAsUser"], 65534, "the socket is for the allocator's user alone");
    let names = |value: &Value| value.as_array().into_iter().flatten().map(|one| one["name"].clone()).collect();
    let (volumes, all): (Vec<Value>, Vec<Value>) = (names(&pod["volumes"]), mounts(sidecar));
    assert!(all.iter().all(|mount| volumes.contains(&mount["name"])), "{pod}");

    kubectl(&plane, &["create", "namespace", "strict"]).await?;
    let strictly = "pod-security.kubernetes.io/enforce=restricted";
    kubectl(&plane, &["label", "namespace", "strict", strictly]).await?;
    let metadata = serde_json::json!({"name": "trial", "labels": allocator["spec"]["template"]["metadata"]["labels"]});
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod});
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), pod.to_string())?;
    let create = ["create", "-n", "strict", "--dry-run=server", "-f", &file.path().display().to_string()];
    kubectl(&plane, &create).await?;
    Ok(())
}

#[test]
fn every_kustomization_is_looked_at() -> Result<()> {
    for page in pages()? {
        let kustomizations = page.blocks("yaml").iter().filter(|block| block.text.starts_with(TITLE)).count();
        let known = ["docs/how-to/install.md", "docs/how-to/upgrade.md", "examples/ipam-sidecar/README.md"];
        assert!(kustomizations == 0 || known.contains(&page.name.as_str()), "{} has a kustomization", page.name);
    }
    Ok(())
}
