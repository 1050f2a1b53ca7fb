//! The program that goes into the image, built so that it needs nothing around it.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Builds the release of `purelb` as one static program and returns its path; `PURELB_STATIC` names one that is there.
///
/// # Errors
/// When it does not build; the compiler's words are on standard error.
pub fn build() -> Result<PathBuf> {
    if let Some(program) = env::var_os("PURELB_STATIC") {
        return Ok(program.into());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the lab is in the repository")?;
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--locked", "--package", "purelb", "--bin", "purelb", "--target", &target]);
    cargo.arg("--message-format=json-render-diagnostics").current_dir(root);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags(root)).stderr(Stdio::inherit());
    let built = cargo.output().context("cannot run cargo")?;
    ensure!(built.status.success(), "purelb does not build for {target}: `scripts/setup` installs what that needs");
    let messages = String::from_utf8(built.stdout)?;
    executable(&messages).context("cargo did not say where the program is")
}

/// Where it was built must not show in the program: the names of folders become the same everywhere.
fn flags(root: &Path) -> OsString {
    let home = env::var_os("HOME").unwrap_or_default();
    let cargo = env::var_os("CARGO_HOME").map_or_else(|| Path::new(&home).join(".cargo"), PathBuf::from);
    let target = root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let mut flags = OsString::new();
    // Of several that fit the last counts.
    for (from, to) in [(cargo.as_path(), "/cargo"), (root, "/purelb"), (&target, "/purelb/target")] {
        if !flags.is_empty() {
            flags.push("\u{1f}");
        }
        flags.push("--remap-path-prefix=");
        flags.push(from);
        flags.push("=");
        flags.push(to);
    }
    flags
}

/// The program named in cargo's messages, which are JSON objects, one a line.
fn executable(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back()
}
