//! Machines that do not let the demo begin get a sentence that says what to do.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use anyhow::{Result, ensure};

use crate::stage::{NOBODY, ROOT, Stage};

/// What `unshare` says where ordinary users get no namespace, and where they get one without rights in it.
const REFUSALS: [&str; 2] = [
    "unshare: unshare failed: Operation not permitted",
    "unshare: write failed /proc/self/uid_map: Operation not permitted",
];

#[tokio::test]
async fn who_gets_no_namespaces_is_told_what_to_do() -> Result<()> {
    for (user, advice) in [(NOBODY, "ordinary users may not make user namespaces here"), (ROOT, "root may not make")] {
        let stage = Stage::for_user(user).await?;
        for words in REFUSALS {
            fs::write(stage.path("unshare"), format!("#!/bin/sh\necho '{words}' >&2\nexit 1\n"))?;
            fs::set_permissions(stage.path("unshare"), Permissions::from_mode(0o755))?;
            let demo = stage.command("purelb-demo").arg("--once").stdin(Stdio::null()).output()?;
            let told = String::from_utf8(demo.stderr)?;
            ensure!(demo.status.code() == Some(1), "it exits with {}: {told}", demo.status);
            ensure!(told.contains(words) && told.contains(&format!("purelb-demo: {advice}")), "{told}");
            ensure!(told.lines().all(|line| line.len() <= 80), "{told}");
            stage.is_swept(true, &[])?;
        }
    }
    Ok(())
}
