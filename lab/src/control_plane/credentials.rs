//! Keys, the serving certificate, the administrator's token and kubeconfig.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{KeyPair, generate_simple_self_signed};
use serde_json::json;

use super::flags::{Place, Purpose};
use crate::audit;

/// The server listens on loopback and lives as long as one test process; a fixed secret is secret enough.
const TOKEN: &str = "lab-administrator";

/// The programs of a cluster that speak to its API server, with the users whose rights every API server brings along.
const USERS: [(&str, &str); 3] = [
    ("lab-controller-manager", "system:kube-controller-manager"),
    ("lab-scheduler", "system:kube-scheduler"),
    ("lab-proxy", "system:kube-proxy"),
];

/// Names and addresses under which programs look for the API server: on the machine, and in any cluster.
const NAMES: [&str; 7] =
    ["127.0.0.1", "localhost", "10.96.0.1", "fd00:96::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];

/// Writes what the API server reads. Our own keys cost milliseconds; the RSA ones it would make itself, a second.
///
/// # Errors
/// When a key cannot be made or a file not written.
pub fn write(place: &Place, purpose: Purpose) -> Result<()> {
    let mut names = NAMES.map(str::to_owned).to_vec();
    if let Purpose::Cluster(address) = purpose {
        names.push(address.to_string());
    }
    let serving = generate_simple_self_signed(names).context("cannot make the serving certificate")?;
    let accounts = KeyPair::generate().context("cannot make the ServiceAccount key")?;
    for (file, text) in [
        ("serving.crt", serving.cert.pem()),
        ("serving.key", serving.signing_key.serialize_pem()),
        ("accounts.pub", accounts.public_key_pem()),
        ("accounts.key", accounts.serialize_pem()),
        ("tokens.csv", tokens()),
        ("audit-policy", audit_policy(purpose)),
    ] {
        fs::write(place.file(file), text).with_context(|| format!("cannot write {file}"))?;
    }
    if let Some(kept) = audit::kept_log() {
        symlink(kept, place.audit_log()).context("cannot say where the audit log is kept")?;
    }
    Ok(())
}

fn tokens() -> String {
    let programs = USERS.map(|(token, user)| format!("{token},{user},{user}\n"));
    format!("{TOKEN},administrator,administrator,\"system:masters\"\n{}", programs.concat())
}

/// Who did what, without the contents.
fn audit_policy(purpose: Purpose) -> String {
    // Of an API server that is alone, only what PureLB does is of interest to anybody.
    let rules = match purpose {
        Purpose::Cluster(_) => json!([{"level": "Metadata"}]),
        Purpose::Alone => {
            let homes = ["system:serviceaccounts:purelb-system", "system:serviceaccounts:purelb"];
            json!([{"level": "Metadata", "userGroups": homes}, {"level": "None"}])
        }
    };
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules,
    });
    policy.to_string()
}

/// Writes the administrator's kubeconfig (as JSON, which is YAML too).
///
/// # Errors
/// When the file cannot be written.
pub fn write_kubeconfig(place: &Place, port: u16) -> Result<()> {
    let text = kubeconfig(&place.file("serving.crt"), &format!("127.0.0.1:{port}"), TOKEN);
    fs::write(place.kubeconfig(), text).context("cannot write the kubeconfig")
}

/// Writes a kubeconfig for a user of the API server, who finds it at `server` (`host:port`), and returns its path.
///
/// # Errors
/// When there is no such user, or the file cannot be written.
pub fn write_for(place: &Place, user: &str, server: &str) -> Result<PathBuf> {
    let known = USERS.iter().find(|(_, name)| *name == user);
    let (token, _) = known.with_context(|| format!("the API server knows no user {user}"))?;
    let file = place.file(&format!("{}.kubeconfig", token.trim_start_matches("lab-")));
    fs::write(&file, kubeconfig(&place.file("serving.crt"), server, token)).context("cannot write a kubeconfig")?;
    Ok(file)
}

fn kubeconfig(authority: &Path, server: &str, token: &str) -> String {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "administrator"}}],
        "clusters": [{"name": "lab", "cluster": {
            "server": format!("https://{server}"),
            "certificate-authority": authority,
        }}],
        "users": [{"name": "administrator", "user": {"token": token}}],
    });
    format!("{kubeconfig:#}\n")
}
