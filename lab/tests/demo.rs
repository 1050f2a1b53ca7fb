//! The demo as people start it: as root, as an ordinary user, and ended in every way there is.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb_lab::control_plane::programs::Programs;
use purelb_lab::daemon::program;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Mutex;

/// Demos one after the other: each starts a dozen processes.
static TURN: Mutex<()> = Mutex::const_new(());
/// Only a guard against waiting for ever.
const PATIENCE: Duration = Duration::from_secs(60);
/// The user `nobody`.
const NOBODY: u32 = 65534;

/// The programs of the demo, where every user can read them, and a folder for what it writes.
struct Stage {
    folder: TempDir,
    user: u32,
}

impl Stage {
    async fn for_user(user: u32) -> Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("demo-test-").permissions(Permissions::from_mode(0o755)).tempdir()?;
        let purelb = program()?;
        build("purelb-demo")?;
        let kubectl = Programs::find().await?.path("kubectl");
        for file in [&purelb, &purelb.with_file_name("purelb-demo"), &kubectl] {
            fs::copy(file, folder.path().join(file.file_name().context("a program has a name")?))?;
        }
        for name in ["tmp", "data"] {
            let writable = folder.path().join(name);
            fs::create_dir(&writable)?;
            chown(&writable, Some(user), Some(user))?;
        }
        Ok(Self { folder, user })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, arguments: &[&str]) -> Result<Child> {
        let id = self.user.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(self.path("purelb-demo"));
        command.args(arguments).env_clear().env("HOME", self.path("tmp")).env("TMPDIR", self.path("tmp"));
        command.env("PATH", format!("{}:/usr/bin:/bin", self.folder.path().display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().context("cannot run setpriv")
    }

    /// Waits until nothing is left: no process that got its folder from us, no file in it.
    fn is_swept(&self, files_too: bool) -> Result<()> {
        let begun = Instant::now();
        loop {
            let processes = processes_of(self.folder.path());
            let files = fs::read_dir(self.path("tmp"))?.flatten().map(|entry| entry.path()).collect::<Vec<_>>();
            if processes.is_empty() && (files.is_empty() || !files_too) {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "left behind: processes {processes:?}, files {files:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
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

/// The processes whose environment names this folder, as the kernel tells.
fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = all.filter(|entry| {
        fs::read(entry.path().join("environ")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&folder))
    });
    ours.map(|entry| fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " ")).collect()
}

/// The machine's own interfaces, addresses, routes and rules.
fn machine() -> Result<Vec<Vec<u8>>> {
    ["ip -br addr", "ip route", "ip -6 route", "nft list ruleset"]
        .map(|line| Ok(Command::new("sh").args(["-c", line]).output()?.stdout))
        .into_iter()
        .collect()
}

fn lines(demo: &mut Child) -> Result<impl Iterator<Item = Result<Value>> + use<>> {
    let output = demo.stdout.take().context("the output is a pipe")?;
    Ok(BufReader::new(output).lines().map(|line| Ok(serde_json::from_str(&line?)?)))
}

fn sum(counts: &Value) -> u64 {
    counts.as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
}

/// Runs the whole tour, and looks at what a machine reads of it.
async fn tour(user: u32) -> Result<()> {
    let _turn = TURN.lock().await;
    let stage = Stage::for_user(user).await?;
    let before = machine()?;
    let begun = Instant::now();
    let mut demo = stage.start(&["--once", "--json"])?;
    let mut told = lines(&mut demo)?;
    let mut steps = vec![told.next().context("it ended before its first step")??];
    let first = begun.elapsed();
    println!("the first step was seen to work {:.1} s after the start", first.as_secs_f64());
    ensure!(first <= PATIENCE, "the first step took {first:?}");
    for step in told {
        steps.push(step?);
    }
    let code = demo.wait()?;
    ensure!(code.success(), "it exits with {code}: {steps:#?}");
    let [spread, local, death, moving, mistake, leader, end] = &steps[..] else {
        anyhow::bail!("six steps and an end: {steps:#?}")
    };
    ensure!(steps.iter().all(|step| step["ok"] == true) && end["steps"] == 6, "{steps:#?}");
    for family in ["IPv4", "IPv6"] {
        let facts = |name: &str| &spread["facts"][name][family];
        ensure!(facts("next_hops") == 3, "{spread:#}");
        ensure!(sum(facts("entered")) == 300 && sum(facts("answered")) == 300, "{spread:#}");
        ensure!(moving["facts"]["client_address_kept"][family] == 50, "{moving:#}");
    }
    let (from, to) = (&death["facts"]["from"], &death["facts"]["to"]);
    ensure!(&local["facts"]["winner"] == from && to != from, "{death:#}");
    // A lease of three seconds, renewed every second, and time for a busy machine.
    let gap = death["facts"]["gap_ms"].as_u64().unwrap_or_default();
    ensure!((1_000..20_000).contains(&gap), "a dead node leaves a gap of about its lease: {gap} ms");
    ensure!(mistake["facts"]["sentence"].as_str().is_some_and(|words| words.contains("runs backwards")), "{mistake:#}");
    let leaders = leader["facts"]["leaders"].as_array().cloned().unwrap_or_default();
    ensure!(leaders.len() == 2 && leaders[0] != leaders[1], "one dies and another leads: {leader:#}");
    ensure!(machine()? == before, "the machine's own network is as it was");
    stage.is_swept(true)
}

#[tokio::test]
async fn the_tour_works_as_root() -> Result<()> {
    tour(0).await
}

#[tokio::test]
async fn the_tour_works_for_an_ordinary_user_without_sudo() -> Result<()> {
    tour(NOBODY).await
}

#[tokio::test]
async fn nothing_is_left_however_it_ends() -> Result<()> {
    let _turn = TURN.lock().await;
    let stage = Stage::for_user(0).await?;
    for signal in ["INT", "TERM", "KILL"] {
        let mut demo = stage.start(&["--once", "--json"])?;
        let mut steps = lines(&mut demo)?;
        let first = steps.next().context("it ended before its first step")??;
        ensure!(first["ok"] == true, "{first:#}");
        let pid = demo.id().to_string();
        ensure!(Command::new("sh").args(["-c", r#"kill -"$0" "$1""#, signal, &pid]).status()?.success(), "no {signal}");
        demo.wait()?;
        // A process that is killed cannot remove its folder; the next start does.
        stage.is_swept(signal != "KILL").with_context(|| format!("after SIG{signal}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn a_data_folder_keeps_the_objects_and_their_addresses() -> Result<()> {
    let _turn = TURN.lock().await;
    let stage = Stage::for_user(0).await?;
    let data = stage.path("data").display().to_string();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut demo = stage.start(&["--once", "--json", "--data", &data])?;
        let mut steps = lines(&mut demo)?;
        let first = steps.next().context("it ended before its first step")??;
        seen.push(first["facts"]["addresses"].clone());
        demo.kill()?;
        demo.wait()?;
        stage.is_swept(false)?;
    }
    ensure!(seen[0].is_array() && seen[0] == seen[1], "an assigned address does not change: {seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_step_that_is_not_seen_to_work_says_so() -> Result<()> {
    let _turn = TURN.lock().await;
    let stage = Stage::for_user(0).await?;
    // A daemon that only knows its version.
    fs::write(stage.path("purelb"), "#!/bin/sh\n[ \"$1\" = --version ]\n")?;
    let demo = stage.start(&["--once", "--json"])?.wait_with_output()?;
    let told: Value = serde_json::from_slice(&demo.stdout).context("one JSON object")?;
    ensure!(!demo.status.success() && told["ok"] == false && told["step"] == 1, "{told:#}");
    let logs = PathBuf::from(told["logs"].as_str().context("it names its logs")?);
    ensure!(told["error"].as_str().is_some_and(|text| text.contains("expected")), "{told:#}");
    ensure!(logs.join("allocator-1.log").exists(), "the logs stay: {told:#}");
    stage.is_swept(false)
}
