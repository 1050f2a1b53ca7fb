//! `cargo lab up` and `cargo lab down`: nothing stays, also after a crash.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use purelb_lab::cluster::keeper::Notice;
use purelb_lab::daemon;
use purelb_lab::tested::seen;
use serde_json::Value;
use tempfile::TempDir;

use crate::site::SECOND;

/// How soon a cluster is there for a developer whose programs are built.
const UP_WITHIN: Duration = Duration::from_secs(60);

/// How long the rest may take to be gone after a crash.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// How long a program may take to say its first words.
const SPEAKS_WITHIN: Duration = Duration::from_secs(30);

/// A place where `lab` remembers a cluster of its own, beside any other on the machine.
struct Desk {
    state: TempDir,
}

impl Desk {
    fn lab(&self, arguments: &[&str]) -> Result<String> {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
        lab.args(arguments).env("PURELB_LAB_STATE", self.state.path().join("lab"));
        lab.env("PURELB_PROGRAM", daemon::program()?);
        let Output { status, stdout, stderr } = lab.output()?;
        let (said, complaint) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        ensure!(status.success(), "lab {} failed: {said}{complaint}", arguments.join(" "));
        Ok(said.into_owned())
    }

    /// A small one is up soon.
    fn up_small(&self) -> Result<Trace> {
        Ok(self.up(&["--nodes", "1", "--router", "none"])?.0)
    }

    /// Starts a cluster, and returns what `up` said about it.
    fn up(&self, arguments: &[&str]) -> Result<(Trace, String)> {
        let said = self.lab(&[&["up"], arguments].concat())?;
        let folder = self.state.path().join("lab");
        let notice: Notice = serde_json::from_slice(&fs::read(folder.join("notice"))?)?;
        assert!(said.contains(&format!("export KUBECONFIG={}", notice.kubeconfig.display())), "{said}");
        let keeper: Value = serde_json::from_slice(&fs::read(folder.join("keeper"))?)?;
        let keeper = i32::try_from(keeper["pid"].as_i64().context("the keeper has an id")?)?;
        let trace = Trace { keeper, notice, folder };
        assert!(trace.processes()?.len() > 6, "etcd, three servers, kube-proxy and others: {:?}", trace.processes()?);
        Ok((trace, said))
    }
}

/// A story that fails must not leave its cluster behind either.
impl Drop for Desk {
    fn drop(&mut self) {
        let _ = self.lab(&["down"]);
    }
}

/// What a cluster would leave behind if it left something.
struct Trace {
    keeper: i32,
    notice: Notice,
    folder: PathBuf,
}

impl Trace {
    /// Everything in the keeper's session, as `ps` sees it.
    fn processes(&self) -> Result<Vec<String>> {
        let output = Command::new("ps").args(["-o", "pid=,stat=,args=", "-s", &self.keeper.to_string()]).output()?;
        let lines = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
        Ok(lines.into_iter().filter(|line| !line.split_whitespace().nth(1).unwrap_or("Z").starts_with('Z')).collect())
    }

    fn folders(&self) -> Vec<&Path> {
        let parents = [self.notice.logs.parent(), self.notice.kubeconfig.parent()];
        parents.into_iter().flatten().chain([self.folder.as_path()]).filter(|folder| folder.exists()).collect()
    }

    fn mounts(&self) -> Result<Vec<String>> {
        let logs = self.notice.logs.parent().context("logs are in a folder")?.display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(mounts.lines().filter(|line| line.contains(&logs)).map(str::to_owned).collect())
    }

    /// Namespaces have no names: they are gone with the last process that knows them.
    fn assert_gone(&self) -> Result<()> {
        assert_eq!(self.processes()?, Vec::<String>::new(), "no process is left");
        assert_eq!(self.folders(), Vec::<&Path>::new(), "no folder is left");
        assert_eq!(self.mounts()?, Vec::<String>::new(), "no mount is left");
        Ok(())
    }
}

/// `up` says of every network how to look into it, and how to ask a Service; the commands are real ones.
fn explained(trace: &Trace, said: &str) -> Result<()> {
    let networks = &trace.notice.networks;
    for name in ["node1", "node2", "node3", "router", "client", "far-client"] {
        let (_, path) = networks.iter().find(|(one, _)| one == name).with_context(|| format!("there is no {name}"))?;
        let line = said.lines().find(|line| line.split_whitespace().next() == Some(name));
        ensure!(line.is_some_and(|line| line.ends_with(&format!("nsenter --net={path}"))), "{name}: {said}");
    }
    for words in [
        "Look into a network, for example: cargo lab in node1 ip addr",
        "cargo lab in client curl -s http://ADDRESS/",
        "cargo lab in far-client curl -s http://ADDRESS/",
        "cargo lab logs NAMESPACE/NAME",
        "cargo lab down",
    ] {
        ensure!(said.contains(words), "not a word of {words:?}: {said}");
    }
    Ok(())
}

/// Starts a Pod, so that there is more than the cluster's own programs, and waits for it.
fn run_something(desk: &Desk) -> Result<()> {
    desk.lab(&["kubectl", "run", "echo", "--image=echo"])?;
    desk.lab(&["kubectl", "wait", "--for=condition=Ready", "pod/echo", "--timeout=120s"])?;
    // A Pod without a probe is ready as soon as it is started, and has said nothing yet.
    let deadline = Instant::now() + SPEAKS_WITHIN;
    while !desk.lab(&["logs", "echo"])?.contains("listening on 8080") {
        ensure!(Instant::now() < deadline, "the Pod says nothing");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(desk.lab(&["in", "node1", "ip", "addr"])?.contains("192.168.7.11/24"));
    Ok(())
}

#[test]
fn a_lab_that_is_ended_leaves_nothing_behind() -> Result<()> {
    let _alone = SECOND.blocking_lock();
    let desk = Desk { state: tempfile::tempdir()? };
    assert!(desk.lab(&["kubectl", "get", "nodes"]).is_err_and(|error| error.to_string().contains("cargo lab up")));
    let begun = Instant::now();
    let (trace, said) = desk.up(&[])?;
    let took = begun.elapsed();
    explained(&trace, &said)?;
    assert!(took < UP_WITHIN, "it was up after {took:?}");
    seen("A cluster for developers", "three nodes, router and clients are up after", format!("{} s", took.as_secs()));
    run_something(&desk)?;
    assert!(desk.lab(&["up"]).is_err_and(|error| error.to_string().contains("a lab is up already")));
    desk.lab(&["down"])?;
    trace.assert_gone()?;
    desk.lab(&["down"]).context("once more is no mistake")?;
    Ok(())
}

#[test]
fn a_lab_whose_keeper_is_killed_leaves_nothing_behind() -> Result<()> {
    let _alone = SECOND.blocking_lock();
    let desk = Desk { state: tempfile::tempdir()? };
    let trace = desk.up_small()?;
    run_something(&desk)?;
    // Only the one that was started here, by its number.
    ensure!(Command::new("kill").args(["-KILL", &trace.keeper.to_string()]).status()?.success());
    let deadline = Instant::now() + GONE_WITHIN;
    while !trace.processes()?.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    desk.lab(&["down"])?;
    trace.assert_gone()
}
