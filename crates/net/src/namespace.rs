//! One network namespace that belongs to this process.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{self, Command, Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

/// Says that the namespace is made and where `/proc` has it, and keeps it until we have taken hold of it.
const HOLD: &str = "ip link set lo up && read -r pid _ </proc/self/stat && echo \"$pid\" && read -r _";

/// A network namespace. Clones are the same one; it is gone with the last of them and the last program in it.
#[derive(Clone)]
pub struct Namespace {
    name: Arc<str>,
    file: Arc<File>,
}

impl Namespace {
    /// A new namespace with nothing but `lo`, which is up. The name is for people only and need not be unique.
    ///
    /// # Errors
    /// When the machine does not let us make one: this needs root.
    pub fn new(name: &str) -> Result<Self> {
        // A thread cannot unshare itself without `unsafe`; a child can, and lends us its namespace.
        let mut child = Command::new("unshare");
        child.args(["--net", "sh", "-c", HOLD]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().context("cannot run unshare")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("the output is a pipe")?).read_line(&mut line)?;
        let file = File::open(format!("/proc/{}/ns/net", line.trim()));
        drop(child.stdin.take());
        child.wait()?;
        ensure!(!line.is_empty(), "no namespace for {name}: are we root, and is iproute2 installed?");
        Ok(Self { name: name.into(), file: Arc::new(file?) })
    }

    /// What it was called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A path to it for other programs, while this process runs.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", own_process(), self.file.as_raw_fd())
    }

    /// The beginning of a command line that looks inside.
    #[must_use]
    pub fn enter(&self) -> String {
        format!("nsenter --net={}", self.path())
    }

    /// Runs this on a thread of its own inside. Sockets opened there stay inside, wherever they are used later.
    ///
    /// # Panics
    /// When the closure panics, or the thread cannot enter.
    pub fn run<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> T {
        let body = || {
            self.step_in().expect("a namespace that we hold can be entered");
            inside()
        };
        match thread::scope(|scope| scope.spawn(body).join()) {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Moves the calling thread inside, for good.
    ///
    /// # Errors
    /// When the rights to do so were given up since it was made.
    pub fn step_in(&self) -> Result<()> {
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.file.as_fd(), network).with_context(|| format!("cannot enter {self:?}"))
    }

    /// A command that runs inside. Whoever starts a long one sees to it that it ends with this process.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").arg(program);
        command
    }

    /// What `ip` with these arguments prints as JSON; begin them with `-j`.
    ///
    /// # Errors
    /// When `ip` refuses, with its words, or prints something else.
    pub fn ip(&self, arguments: &[&str]) -> Result<Value> {
        let text = output(self.command("ip").args(arguments)).with_context(|| format!("in {}", self.name))?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).with_context(|| format!("ip {} printed no JSON: {text}", arguments.join(" ")))
    }

    /// Gives `ip` several commands at once, one a line.
    ///
    /// # Errors
    /// When one of them fails; the ones after it are not tried.
    pub fn batch(&self, lines: &str) -> Result<()> {
        let mut command = self.command("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot run ip")?;
        child.stdin.take().context("the input is a pipe")?.write_all(lines.as_bytes())?;
        let Output { status, stderr, .. } = child.wait_with_output()?;
        let complaint = String::from_utf8_lossy(&stderr);
        ensure!(status.success(), "ip refused in {}: {complaint}\n{lines}", self.name);
        Ok(())
    }

    /// Sets a kernel parameter below `net`, for example `net.ipv4.conf.all.promote_secondaries`.
    ///
    /// A dot inside an interface's name is written as a slash, as `sysctl` has it.
    ///
    /// # Errors
    /// When there is no such parameter.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        let swap = |letter| {
            if letter == '.' {
                '/'
            } else if letter == '/' {
                '.'
            } else {
                letter
            }
        };
        let path = format!("/proc/sys/{}", key.chars().map(swap).collect::<String>());
        // /proc/sys/net shows the namespace of the thread that looks.
        self.run(|| fs::write(&path, value)).with_context(|| format!("cannot set {key} in {}", self.name))
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.enter())
    }
}

/// The name of this process in `/proc`, which in a process namespace of its own differs from its process id.
#[must_use]
pub fn own_process() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| {
        let link = fs::read_link("/proc/self").ok();
        link.map_or_else(|| process::id().to_string(), |link| link.display().to_string())
    })
}

/// What a short command prints; an error has its complaint.
fn output(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output()?;
    let complaint = String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "{command:?} failed: {complaint}{}", String::from_utf8_lossy(&stdout));
    Ok(String::from_utf8(stdout)?)
}
