//! The volumes of a Pod as folders of the machine, with ServiceAccount tokens as the kubelet gives them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Secret, ServiceAccount, ServiceAccountTokenProjection};
use k8s_openapi::api::core::v1::{Container, DownwardAPIVolumeFile, Volume, VolumeProjection};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};

use super::recipe::Mount;
use super::variables::View;

/// A Pod's volumes.
pub(super) struct Volumes {
    folder: PathBuf,
    paths: BTreeMap<String, PathBuf>,
    /// When the tokens should be asked for anew.
    pub(super) stale: Option<Instant>,
}

impl Volumes {
    /// Makes all volumes of a Pod below a folder.
    pub(super) async fn make(folder: &Path, client: &Client, view: &View<'_>) -> Result<Self> {
        let mut volumes = Self { folder: folder.to_owned(), paths: BTreeMap::new(), stale: None };
        volumes.fill(client, view).await?;
        Ok(volumes)
    }

    /// Writes their contents, or writes them again: tokens do not last.
    pub(super) async fn fill(&mut self, client: &Client, view: &View<'_>) -> Result<()> {
        let shelf = Shelf { client, view, namespace: view.pod.namespace().unwrap_or_default() };
        self.stale = None;
        for volume in view.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let name = &volume.name;
            let path = self.one(&shelf, volume).await.with_context(|| format!("no volume {name}"))?;
            self.paths.insert(name.clone(), path);
        }
        Ok(())
    }

    async fn one(&mut self, shelf: &Shelf<'_>, volume: &Volume) -> Result<PathBuf> {
        if let Some(host) = &volume.host_path {
            return Ok(PathBuf::from(&host.path));
        }
        let folder = self.folder.join(&volume.name);
        fs::create_dir_all(&folder)?;
        if volume.empty_dir.is_some() {
            // Any user of the Pod may write there.
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
        } else if let Some(map) = &volume.config_map {
            shelf.config_map(&folder, &map.name, map.items.as_deref()).await?;
        } else if let Some(secret) = &volume.secret {
            let name = secret.secret_name.clone().unwrap_or_default();
            shelf.secret(&folder, &name, secret.items.as_deref()).await?;
        } else if let Some(projected) = &volume.projected {
            for source in projected.sources.iter().flatten() {
                self.project(shelf, &folder, source).await?;
            }
        } else if let Some(downward) = &volume.downward_api {
            shelf.downward(&folder, downward.items.as_deref())?;
        } else {
            bail!("the lab does not know volumes of this kind");
        }
        Ok(folder)
    }

    async fn project(&mut self, shelf: &Shelf<'_>, folder: &Path, source: &VolumeProjection) -> Result<()> {
        if let Some(token) = &source.service_account_token {
            let fresh = shelf.token(folder, token).await?;
            self.stale = Some(self.stale.map_or(fresh, |other| other.min(fresh)));
        }
        if let Some(map) = &source.config_map {
            shelf.config_map(folder, &map.name, map.items.as_deref()).await?;
        }
        if let Some(secret) = &source.secret {
            shelf.secret(folder, &secret.name, secret.items.as_deref()).await?;
        }
        if let Some(downward) = &source.downward_api {
            shelf.downward(folder, downward.items.as_deref())?;
        }
        Ok(())
    }

    /// Where a container wants them.
    pub(super) fn mounts(&self, container: &Container) -> Result<Vec<Mount>, String> {
        let asked = container.volume_mounts.iter().flatten();
        asked
            .map(|mount| {
                let path = self.paths.get(&mount.name);
                let path = path.ok_or_else(|| format!("the Pod has no volume {}", mount.name))?;
                Ok(Mount {
                    source: mount.sub_path.as_ref().map_or_else(|| path.clone(), |below| path.join(below)),
                    target: PathBuf::from(&mount.mount_path),
                    read_only: mount.read_only.unwrap_or_default(),
                })
            })
            .collect()
    }
}

/// Where the contents come from.
struct Shelf<'a> {
    client: &'a Client,
    view: &'a View<'a>,
    namespace: String,
}

impl Shelf<'_> {
    async fn config_map(&self, folder: &Path, name: &str, items: Option<&[KeyToPath]>) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let map = maps.get(name).await.with_context(|| format!("no ConfigMap {name}"))?;
        let texts = map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
        write_all(folder, texts.collect(), items)
    }

    async fn secret(&self, folder: &Path, name: &str, items: Option<&[KeyToPath]>) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets.get(name).await.with_context(|| format!("no Secret {name}"))?;
        write_all(folder, secret.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0)).collect(), items)
    }

    fn downward(&self, folder: &Path, items: Option<&[DownwardAPIVolumeFile]>) -> Result<()> {
        for item in items.into_iter().flatten() {
            let field = item.field_ref.as_ref().context("the lab does not know resource fields")?;
            let value = self.view.field(field).map_err(anyhow::Error::msg)?;
            write(&folder.join(&item.path), value.as_bytes())?;
        }
        Ok(())
    }

    /// Asks for a token that is bound to the Pod, and returns when to ask again.
    async fn token(&self, folder: &Path, asked: &ServiceAccountTokenProjection) -> Result<Instant> {
        let pod = self.view.pod;
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let account = account.unwrap_or_else(|| "default".to_owned());
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name_any()),
            uid: pod.uid(),
        };
        let seconds = asked.expiration_seconds.unwrap_or(3600);
        let spec = TokenRequestSpec {
            audiences: asked.audience.iter().cloned().collect(),
            bound_object_ref: Some(bound),
            expiration_seconds: Some(seconds),
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let answer = accounts.create_token_request(&account, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("no token for the ServiceAccount {account}"))?;
        write(&folder.join(&asked.path), answer.status.context("no token came")?.token.as_bytes())?;
        let life = Duration::from_secs(seconds.try_into().unwrap_or_default());
        Ok(Instant::now() + life * 4 / 5)
    }
}

/// Writes the items, or everything.
fn write_all(folder: &Path, contents: BTreeMap<String, Vec<u8>>, items: Option<&[KeyToPath]>) -> Result<()> {
    let Some(items) = items else {
        return contents.iter().try_for_each(|(key, bytes)| write(&folder.join(key), bytes));
    };
    for item in items {
        let bytes = contents.get(&item.key).with_context(|| format!("it has no key {}", item.key))?;
        write(&folder.join(&item.path), bytes)?;
    }
    Ok(())
}

/// In one step: a reader sees the old contents or the new.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
    let part = path.with_extension("part");
    fs::write(&part, bytes)?;
    fs::set_permissions(&part, fs::Permissions::from_mode(0o644))?;
    Ok(fs::rename(part, path)?)
}
