//! Where the Kubernetes programs are: the folder that `lab/tools/build` prints, or `PURELB_BIN`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// The folder with etcd, kube-apiserver and kubectl.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Takes `PURELB_BIN` where it is set; otherwise builds what is missing, which takes minutes once per version.
    ///
    /// # Errors
    /// When the build fails; its own words are on standard error.
    pub async fn find() -> Result<Self> {
        if let Some(folder) = env::var_os("PURELB_BIN") {
            return Ok(Self { folder: folder.into() });
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/build");
        let output = Command::new(&script).stderr(Stdio::inherit()).output().await;
        let output = output.with_context(|| format!("cannot run {}", script.display()))?;
        ensure!(output.status.success(), "{} failed ({}): is Go installed?", script.display(), output.status);
        let folder = String::from_utf8(output.stdout).context("the build script printed no text")?;
        Ok(Self { folder: folder.trim_end().into() })
    }

    /// Programs that are in this folder already.
    #[must_use]
    pub fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The path of one program.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
