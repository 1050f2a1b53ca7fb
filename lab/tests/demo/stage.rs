//! Where a demo of the tests runs: its programs in a folder that every user can read, and a user.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb_lab::control_plane::programs::Programs;
use purelb_lab::daemon::program;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

/// Demos one after the other: each starts a dozen processes.
static TURN: Mutex<()> = Mutex::const_new(());
/// Only a guard against waiting for ever.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The user `root`.
pub const ROOT: u32 = 0;
/// The user `nobody`.
pub const NOBODY: u32 = 65534;

/// The programs of the demo, where every user can read them, and folders for what is written.
pub struct Stage {
    folder: TempDir,
    user: u32,
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    pub async fn for_user(user: u32) -> Result<Self> {
        let turn = TURN.lock().await;
        let folder =
            tempfile::Builder::new().prefix("demo-test-").permissions(Permissions::from_mode(0o755)).tempdir()?;
        let purelb = program()?;
        build("purelb-demo")?;
        let kubectl = Programs::find().await?.path("kubectl");
        for file in [&purelb, &purelb.with_file_name("purelb-demo"), &kubectl] {
            fs::copy(file, folder.path().join(file.file_name().context("a program has a name")?))?;
        }
        let stage = Self { folder, user, _turn: turn };
        for name in ["tmp", "data"] {
            stage.folder_for_the_user(name)?;
        }
        Ok(stage)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new folder that the user may write to.
    pub fn folder_for_the_user(&self, name: &str) -> Result<PathBuf> {
        let writable = self.path(name);
        fs::create_dir(&writable)?;
        chown(&writable, Some(self.user), Some(self.user))?;
        Ok(writable)
    }

    /// A program that runs as the user, in an environment that has little more than the demo in it.
    pub fn command(&self, program: &str) -> Command {
        let id = self.user.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--reuid", &id, "--regid", &id, "--clear-groups", "--", program]);
        command.env_clear().env("HOME", self.path("tmp")).env("TMPDIR", self.path("tmp"));
        command.env("PATH", format!("{}:/usr/bin:/bin", self.folder.path().display()));
        command.current_dir(self.folder.path());
        command
    }

    pub fn start(&self, arguments: &[&str]) -> Result<Child> {
        let mut command = self.command(&self.path("purelb-demo").display().to_string());
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().context("cannot run setpriv")
    }

    /// What a shell of the user in another terminal prints for these lines, each of which must succeed.
    pub fn pastes(&self, lines: &str) -> Result<String> {
        let mut shell = self.command("sh");
        shell.arg("-e").env("HOME", self.path("data")).env_remove("TMPDIR");
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        shell.stdin.take().context("the input is a pipe")?.write_all(lines.as_bytes())?;
        let output = shell.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{lines}\n--- prints\n{text}{}", String::from_utf8_lossy(&output.stderr));
        Ok(text)
    }

    /// The programs that run on this stage, as the kernel tells: their environment names its folder.
    pub fn processes(&self) -> Vec<Process> {
        let folder = self.folder.path().display().to_string();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ours = all.filter(|entry| {
            fs::read(entry.path().join("environ")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&folder))
        });
        ours.filter_map(|entry| Process::of(&entry.path())).collect()
    }

    /// Waits until nothing is left: no process but those of the terminal, and no file.
    pub fn is_swept(&self, files_too: bool, terminal: &[u32]) -> Result<()> {
        let begun = Instant::now();
        loop {
            let mut processes = self.processes();
            processes.retain(|process| !terminal.contains(&process.id));
            let files = fs::read_dir(self.path("tmp"))?.flatten().map(|entry| entry.path()).collect::<Vec<_>>();
            if processes.is_empty() && (files.is_empty() || !files_too) {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "left behind: processes {processes:?}, files {files:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The folders of runs, living and dead.
    pub fn runs(&self) -> Vec<PathBuf> {
        let root = self.path("tmp").join(format!("purelb-demo-{}", self.user));
        let all = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
        all.filter(|path| path.is_dir()).collect()
    }
}

/// A program that runs.
#[derive(Debug)]
pub struct Process {
    pub id: u32,
    /// The program and its arguments.
    pub words: Vec<String>,
}

impl Process {
    fn of(folder: &Path) -> Option<Self> {
        let id = folder.file_name()?.to_str()?.parse().ok()?;
        let line = fs::read_to_string(folder.join("cmdline")).unwrap_or_default();
        Some(Self { id, words: line.split('\0').map(str::to_owned).collect() })
    }

    /// Ends it with a signal.
    pub fn gets(&self, signal: &str) -> Result<()> {
        signal_to(self.id, signal)
    }
}

/// Sends a signal.
pub fn signal_to(process: u32, signal: &str) -> Result<()> {
    let sent = Command::new("sh").args(["-c", r#"kill -"$0" "$1""#, signal, &process.to_string()]).status()?;
    ensure!(sent.success(), "process {process} does not get SIG{signal}");
    Ok(())
}

/// Builds a program beside that of the daemons, unless somebody has put both in a place of their own.
fn build(package: &str) -> Result<()> {
    if std::env::var_os("PURELB_PROGRAM").is_some() {
        return Ok(());
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", package]).current_dir(env!("CARGO_MANIFEST_DIR"));
    ensure!(cargo.status().context("cannot run cargo")?.success(), "{package} does not build");
    Ok(())
}

/// The machine's own interfaces, addresses, routes, rules and named namespaces.
pub fn machine() -> Result<Vec<Vec<u8>>> {
    ["ip -br addr", "ip route", "ip -6 route", "nft list ruleset", "ip netns"]
        .map(|line| Ok(Command::new("sh").args(["-c", line]).output()?.stdout))
        .into_iter()
        .collect()
}
