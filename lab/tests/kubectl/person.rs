//! Somebody at a shell with kubectl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Longer than any command takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// One person with a folder, a kubeconfig and a namespace of their own.
pub struct Person {
    /// Where they are, for messages.
    server: &'static str,
    programs: PathBuf,
    folder: TempDir,
    /// What must live as long as they work.
    _ground: Option<tokio::task::JoinHandle<()>>,
}

impl Person {
    pub async fn new(
        server: &'static str,
        programs: &Path,
        kubeconfig: &str,
        namespace: &str,
        ground: Option<tokio::task::JoinHandle<()>>,
    ) -> Result<Self> {
        let person = Self { server, programs: programs.to_owned(), folder: tempfile::tempdir()?, _ground: ground };
        person.writes("kubeconfig", kubeconfig)?;
        person.shell(&format!("kubectl create namespace {namespace}")).await?;
        person.shell(&format!("kubectl config set-context --current --namespace={namespace}")).await?;
        Ok(person)
    }

    fn command(&self, line: &str) -> Command {
        let mut shell = Command::new("sh");
        let path = format!("{}:{}", self.programs.display(), std::env::var("PATH").unwrap_or_default());
        shell.args(["-c", line]).current_dir(self.folder.path()).env("PATH", path).kill_on_drop(true);
        shell
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .env("KUBECACHEDIR", self.folder.path().join("cache"));
        shell.stdin(Stdio::null());
        shell
    }

    /// Writes a file into their folder.
    pub fn writes(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.folder.path().join(name), text)?)
    }

    /// Runs a command and returns what it prints, settled.
    pub async fn shell(&self, line: &str) -> Result<String> {
        let output = timeout(PATIENCE, self.command(&format!("{{ {line}\n}} 2>&1")).output()).await;
        let output = output.with_context(|| format!("on {}: {line} does not end", self.server))??;
        Ok(settle(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Runs a command and expects this on the screen.
    pub async fn types(&self, line: &str, shown: &str) -> Result<()> {
        let seen = self.shell(line).await?;
        ensure!(seen == shown.trim(), "on {}: {line}\n--- shows\n{seen}\n--- expected\n{}", self.server, shown.trim());
        Ok(())
    }

    /// Starts a command that goes on.
    pub fn starts(&self, line: &str) -> Result<Screen> {
        let mut child = self.command(&format!("exec {line}")).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("standard output was piped")?).lines();
        Ok(Screen { server: self.server, line: line.into(), lines, _child: child })
    }
}

/// What a command that goes on prints.
pub struct Screen {
    server: &'static str,
    line: String,
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Screen {
    /// Expects this as the next line.
    pub async fn prints(&mut self, shown: &str) -> Result<()> {
        let Ok(next) = timeout(PATIENCE, self.lines.next_line()).await else {
            bail!("on {}: {} does not print {shown}", self.server, self.line)
        };
        let seen = settle(&next?.unwrap_or_default());
        ensure!(seen == shown, "on {}: {}\n--- prints\n{seen}\n--- expected\n{shown}", self.server, self.line);
        Ok(())
    }
}

/// Puts words in the place of what differs from run to run, and two spaces between columns.
fn settle(text: &str) -> String {
    static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let rules = [
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
            (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
            (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
            (r#"(Resource Version:\s+|resourceVersion: ")\d+"#, "${1}REVISION"),
            (r"nodePort: 3\d{4}", "nodePort: PORT"),
            (r"\b10\.96\.\d+\.\d+\b", "CLUSTER-IP"),
            (r"\b(\d+):3\d{4}/", "$1:PORT/"),
            (r"\b3\d{4}/TCP", "PORT/TCP"),
            (r"(?m)(^|  )(\d+[smhd])+\b", "${1}AGE"),
            (r"<invalid>", "AGE"),
            (r"[ \t]{2,}|\t", "  "),
            (r"(?m)[ \t]+$", ""),
        ];
        rules.map(|(rule, word)| (Regex::new(rule).expect("a good rule"), word)).into()
    });
    let settled = RULES.iter().fold(text.to_owned(), |text, (rule, word)| rule.replace_all(&text, *word).into_owned());
    settled.trim().to_owned()
}
