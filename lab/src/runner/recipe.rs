//! What one container is: everything that the process which becomes it must know, and nothing of Kubernetes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One container, ready to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recipe {
    /// A folder of its own on the machine; its root is put together there.
    pub folder: PathBuf,
    /// The unpacked image.
    pub image: PathBuf,
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// Its environment, all of it.
    pub variables: Vec<(String, String)>,
    /// Where it starts.
    pub directory: PathBuf,
    /// What it calls itself.
    pub hostname: String,
    /// What is mounted into its root.
    pub mounts: Vec<Mount>,
    /// What it may do.
    pub rights: Rights,
}

/// A file or folder of the machine in a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mount {
    /// On the machine.
    pub source: PathBuf,
    /// In the container.
    pub target: PathBuf,
    /// Whether the container may only read it.
    pub read_only: bool,
}

/// What a container may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
    /// Its capabilities, a bit for each as in `/proc/self/status`.
    pub capabilities: u64,
    /// Whether it may never have more than these.
    pub no_new_privs: bool,
    /// Whether its root cannot be written.
    pub read_only_root: bool,
    /// Whether it is under the RuntimeDefault filter.
    pub confined: bool,
    /// Whether it sees the machine's kernel parameters as they are.
    pub privileged: bool,
}
