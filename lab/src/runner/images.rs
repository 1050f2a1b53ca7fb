//! The images that Pods may name: unpacked roots on this machine. There is no registry.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// An unpacked image.
#[derive(Clone, Debug)]
pub struct Image {
    /// The folder that a container sees as its root.
    pub root: PathBuf,
    /// What runs where the Pod gives no command.
    pub entrypoint: Vec<String>,
    /// What the image adds to the environment.
    pub variables: Vec<(String, String)>,
    /// As whom it runs where the Pod does not say.
    pub user: User,
}

/// A user and a group by their numbers; root, if nobody says otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Where an image comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// What `umoci unpack` left in this folder: `config.json` and `rootfs`.
    Unpacked(PathBuf),
    /// Programs of this machine, with the libraries they load, and their places in the image. The first is what runs.
    Programs(Vec<(PathBuf, String)>),
}

/// Images by the last part of their name, without tag or digest: `purelb` is `ghcr.io/purelb/purelb:v1` too.
#[derive(Clone, Debug, Default)]
pub struct Images(BTreeMap<String, Image>);

impl Images {
    /// Makes the images that have to be made, in this folder.
    ///
    /// # Errors
    /// When a program or a folder is missing.
    pub fn make(folder: &Path, sources: &BTreeMap<String, Source>) -> Result<Self> {
        let image = |(name, source): (&String, &Source)| {
            let image = match source {
                Source::Unpacked(bundle) => Image::unpacked(bundle),
                Source::Programs(programs) => Image::of_programs(folder.join(name), programs),
            };
            Ok((name.clone(), image.with_context(|| format!("no image {name}"))?))
        };
        sources.iter().map(image).collect::<Result<_>>().map(Self)
    }

    /// The image that a Pod names.
    ///
    /// # Errors
    /// When there is none, with the names that there are.
    pub fn find(&self, reference: &str) -> Result<&Image, String> {
        let names = || self.0.keys().cloned().collect::<Vec<_>>().join(", ");
        self.0.get(short(reference)).ok_or_else(|| format!("the lab has no image {reference}; it has {}", names()))
    }
}

fn short(reference: &str) -> &str {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    last.split(['@', ':']).next().unwrap_or(last)
}

impl Image {
    fn unpacked(bundle: &Path) -> Result<Self> {
        let text = fs::read(bundle.join("config.json")).context("the folder is no unpacked image")?;
        let process = serde_json::from_slice::<Value>(&text)?["process"].take();
        let texts = |list: &Value| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let variables = texts(&process["env"]).iter().filter_map(|pair| pair.split_once('=')).map(owned).collect();
        let id = |name: &str| process["user"][name].as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or_default();
        let user = User { uid: id("uid"), gid: id("gid") };
        Ok(Self { root: bundle.join("rootfs"), entrypoint: texts(&process["args"]), variables, user })
    }

    fn of_programs(folder: PathBuf, programs: &[(PathBuf, String)]) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        for (program, inside) in programs {
            copy(program, &folder, Path::new(inside))?;
            for library in libraries(program)? {
                copy(&library, &folder, &library)?;
            }
        }
        let (_, first) = programs.first().context("an image needs a program")?;
        let entrypoint = vec![first.clone()];
        Ok(Self { root: folder, entrypoint, variables: Vec::new(), user: User::default() })
    }
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Copies a file to its place in an image.
fn copy(source: &Path, folder: &Path, inside: &Path) -> Result<()> {
    let target = folder.join(inside.strip_prefix("/").unwrap_or(inside));
    fs::create_dir_all(target.parent().context("a file is in a folder")?)?;
    if !target.exists() {
        fs::copy(source, &target).with_context(|| format!("cannot copy {}", source.display()))?;
    }
    Ok(())
}

/// The libraries that a program loads, with their loader; none if it is static.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let is_static = String::from_utf8_lossy(&output.stderr).contains("not a dynamic executable");
    ensure!(output.status.success() || is_static, "ldd does not understand {}", program.display());
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_last_part() {
        assert_eq!(short("ghcr.io/purelb/purelb:v1.2@sha256:abc"), "purelb");
        assert_eq!(short("localhost:5000/echo"), "echo");
        assert_eq!(short("echo"), "echo");
    }
}
