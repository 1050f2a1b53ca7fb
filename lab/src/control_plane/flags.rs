//! Where everything lies, and the command lines that follow from it.

use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

/// How many of the last log lines an error shows.
const TAIL: usize = 15;

/// What an API server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Only its API is wanted: no controllers run, so that Pods need no ServiceAccount.
    Alone,
    /// It is the head of a cluster, whose nodes find it at this address.
    Cluster(IpAddr),
}

/// The folder of one control plane.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
}

impl Place {
    /// The files below are in `folder`, which must have a short path: Unix sockets allow 107 bytes.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// A file in the folder.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What a program printed.
    #[must_use]
    pub fn log(&self, program: &str) -> PathBuf {
        self.file(&format!("{program}.log"))
    }

    /// Who asked the API server for what.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.file("audit.log")
    }

    /// Where etcd listens.
    #[must_use]
    pub fn etcd_socket(&self) -> PathBuf {
        self.file("etcd.sock")
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    /// A sentence and the end of both logs, which are about to be removed with the folder.
    #[must_use]
    pub fn failure(&self, answer: &str) -> anyhow::Error {
        let (etcd, apiserver) = (tail(&self.log("etcd")), tail(&self.log("kube-apiserver")));
        anyhow!("the API server did not get ready: {answer}\n--- etcd\n{etcd}\n--- kube-apiserver\n{apiserver}")
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_else(|error| error.to_string());
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

/// Whether a server gave up because its port was taken.
#[must_use]
pub fn port_taken(log: &Path) -> bool {
    fs::read_to_string(log).is_ok_and(|text| text.contains("bind: address already in use"))
}

/// etcd on Unix sockets: no port to race for. Its data need not survive a power cut.
#[must_use]
pub fn etcd(place: &Place) -> Vec<OsString> {
    let flags = [
        ("data-dir", text(&place.file("etcd"))),
        ("listen-client-urls", socket(&place.etcd_socket())),
        ("listen-peer-urls", socket(&place.file("peer.sock"))),
        // Must be host and port, and is never used: there is one member, and its client knows the socket.
        ("advertise-client-urls", "http://127.0.0.1:2379".to_owned()),
        ("log-level", "warn".to_owned()),
        ("unsafe-no-fsync", "true".to_owned()),
    ];
    arguments(&flags)
}

/// The API server: RBAC, dual stack, and only what its purpose needs.
#[must_use]
pub fn apiserver(place: &Place, port: u16, purpose: Purpose) -> Vec<OsString> {
    let mut flags = vec![
        ("etcd-servers", socket(&place.etcd_socket())),
        ("bind-address", "127.0.0.1".to_owned()),
        ("secure-port", port.to_string()),
        ("cert-dir", text(&place.file("certificates"))),
        ("tls-cert-file", text(&place.file("serving.crt"))),
        ("tls-private-key-file", text(&place.file("serving.key"))),
        ("service-cluster-ip-range", "10.96.0.0/16,fd00:96::/112".to_owned()),
        ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
        ("service-account-key-file", text(&place.file("accounts.pub"))),
        ("service-account-signing-key-file", text(&place.file("accounts.key"))),
        ("authorization-mode", "RBAC".to_owned()),
        ("token-auth-file", text(&place.file("tokens.csv"))),
        // As usual in clusters; workloads of older releases ask for it.
        ("allow-privileged", "true".to_owned()),
    ];
    match purpose {
        Purpose::Alone => flags.extend([
            // There are no other API servers to agree with, and no address worth publishing.
            ("endpoint-reconciler-type", "none".to_owned()),
            // It refuses Pods until a controller-manager has made their ServiceAccount; there is none here.
            ("disable-admission-plugins", "ServiceAccount".to_owned()),
        ]),
        Purpose::Cluster(address) => flags.push(("advertise-address", address.to_string())),
    }
    // The link says that a run keeps it; see [`crate::audit`].
    let log = place.audit_log();
    if log.is_symlink() || matches!(purpose, Purpose::Cluster(_)) {
        flags.push(("audit-policy-file", text(&place.file("audit-policy"))));
        flags.push(("audit-log-path", text(&log)));
        // In millions of bytes. Nobody looks for a second file.
        flags.push(("audit-log-maxsize", "4000".to_owned()));
    }
    arguments(&flags)
}

/// The controller-manager: every controller there is, at once and without an election.
#[must_use]
pub fn controller_manager(place: &Place, kubeconfig: &Path) -> Vec<OsString> {
    arguments(&[
        ("kubeconfig", text(kubeconfig)),
        ("service-account-private-key-file", text(&place.file("accounts.key"))),
        ("root-ca-file", text(&place.file("serving.crt"))),
        // Each controller with the rights of its own account: together as one user they have too few.
        ("use-service-account-credentials", "true".to_owned()),
        ("leader-elect", "false".to_owned()),
        // Nobody asks for its metrics.
        ("secure-port", "0".to_owned()),
    ])
}

/// The scheduler, without an election.
#[must_use]
pub fn scheduler(kubeconfig: &Path) -> Vec<OsString> {
    let flags =
        [("kubeconfig", text(kubeconfig)), ("leader-elect", "false".to_owned()), ("secure-port", "0".to_owned())];
    arguments(&flags)
}

fn arguments(flags: &[(&str, String)]) -> Vec<OsString> {
    flags.iter().map(|(name, value)| format!("--{name}={value}").into()).collect()
}

fn socket(path: &Path) -> String {
    format!("unix://{}", path.display())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
