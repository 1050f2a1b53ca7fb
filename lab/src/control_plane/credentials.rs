//! Keys, the serving certificate, the administrator's token and kubeconfig.

use std::fs;

use anyhow::{Context, Result};
use rcgen::{KeyPair, generate_simple_self_signed};
use serde_json::json;

use super::flags::Place;

/// The server listens on loopback and lives as long as one test process; a fixed secret is secret enough.
const TOKEN: &str = "lab-administrator";

/// Writes what the API server reads. Our own keys cost milliseconds; the RSA ones it would make itself, a second.
///
/// # Errors
/// When a key cannot be made or a file not written.
pub fn write(place: &Place) -> Result<()> {
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let serving = generate_simple_self_signed(names).context("cannot make the serving certificate")?;
    let accounts = KeyPair::generate().context("cannot make the ServiceAccount key")?;
    for (file, text) in [
        ("serving.crt", serving.cert.pem()),
        ("serving.key", serving.signing_key.serialize_pem()),
        ("accounts.pub", accounts.public_key_pem()),
        ("accounts.key", accounts.serialize_pem()),
        ("tokens.csv", format!("{TOKEN},administrator,administrator,\"system:masters\"\n")),
    ] {
        fs::write(place.file(file), text).with_context(|| format!("cannot write {file}"))?;
    }
    Ok(())
}

/// Writes the administrator's kubeconfig (as JSON, which is YAML too).
///
/// # Errors
/// When the file cannot be written.
pub fn write_kubeconfig(place: &Place, port: u16) -> Result<()> {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "administrator"}}],
        "clusters": [{"name": "lab", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": place.file("serving.crt"),
        }}],
        "users": [{"name": "administrator", "user": {"token": TOKEN}}],
    });
    fs::write(place.kubeconfig(), format!("{kubeconfig:#}\n")).context("cannot write the kubeconfig")
}
