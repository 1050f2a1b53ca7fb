//! The sidecar as Kubernetes meets it: a process with an environment, signals and an exit code.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may what it is made of")]

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use purelb_core::addr::Family;
use purelb_ipam::{Ipam, IpamError, Wanted};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const V4: Wanted = Wanted::Families(&[Family::V4]);

/// Starts the program and waits for the line by which it says that it listens.
async fn start(folder: &Path) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_purelb-ipam-sidecar"))
        .env("SIDECAR_SOCKET", folder.join("ipam.sock"))
        .env("SIDECAR_STATE", folder.join("state.json"))
        .env("SIDECAR_PROVIDER", "acme")
        .env("SIDECAR_POOL_CIDR", "192.0.2.0/24")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().expect("it says that it listens");
    (child, line)
}

async fn terminate(mut child: Child) -> ExitStatus {
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    child.wait().await.unwrap()
}

#[tokio::test]
async fn sigterm_ends_it_cleanly_although_the_allocator_is_connected() {
    let folder = tempfile::tempdir().unwrap();
    let (child, line) = start(folder.path()).await;
    let socket = folder.path().join("ipam.sock").to_str().unwrap().to_owned();
    assert_eq!(line, format!("acme: giving out 192.0.2.0/24 on {socket}"));
    let ipam = Ipam::new(&socket);
    ipam.allocate("blue", "default/web", None, V4).await.unwrap();

    assert!(terminate(child).await.success());

    let error = ipam.allocate("blue", "default/web", None, V4).await.unwrap_err();
    assert!(matches!(error, IpamError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn killed_and_started_again_it_knows_every_holder_and_the_allocator_finds_it() {
    let folder = tempfile::tempdir().unwrap();
    let ipam = Ipam::new(folder.path().join("ipam.sock").to_str().unwrap());
    let (mut child, _) = start(folder.path()).await;
    let held = ipam.allocate("blue", "default/web", None, V4).await.unwrap();

    child.kill().await.unwrap();
    assert!(ipam.stats("blue").await.unwrap_err().is_retryable());
    let (_child, _) = start(folder.path()).await;

    assert_ne!(ipam.allocate("blue", "default/api", None, V4).await.unwrap(), held);
    assert_eq!(ipam.allocate("blue", "default/web", None, V4).await.unwrap(), held);
}
