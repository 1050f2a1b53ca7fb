//! The allocator as operators run it: its own process, with the program of the image.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::cluster::{Cluster, HOME};

/// What the allocator says when it begins to give out addresses.
const DECIDING: &str = "addresses are given out";
/// How often memory is looked at while it settles.
const PAUSE: Duration = Duration::from_millis(500);

/// A running allocator.
pub struct Daemon {
    child: Child,
    /// From the start of the process until it decided.
    pub start: Duration,
}

impl Daemon {
    /// Starts one and waits until it gives out addresses.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let mut command = Command::new(purelb_lab::daemon::program()?);
        command.args(["allocator", "--port", "0", "--namespace", HOME, "--kubeconfig"]).arg(cluster.plane.kubeconfig());
        command.env("DEFAULT_ANNOUNCER", "PureLB").stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let begun = Instant::now();
        let mut child = command.spawn().context("cannot start the allocator")?;
        let mut lines = BufReader::new(child.stdout.take().context("standard output is piped")?).lines();
        deciding(&mut lines).await?;
        let start = begun.elapsed();
        // Nobody may be kept waiting by a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { child, start })
    }

    /// Ends it as Kubernetes would, so that the lease is free for the next one.
    pub async fn stop(mut self) -> Result<()> {
        let pid = self.child.id().context("the allocator has ended by itself")?;
        let sent = Command::new("kill").arg(pid.to_string()).status().await?;
        ensure!(sent.success(), "the allocator could not be told to stop");
        self.child.wait().await?;
        Ok(())
    }

    /// Resident memory in MiB once it no longer moves, and the most there ever was.
    pub async fn memory(&self) -> Result<(f64, f64)> {
        let (mut before, mut calm) = (0.0, 0);
        while calm < 4 {
            tokio::time::sleep(PAUSE).await;
            let now = self.status("VmRSS")?;
            calm = if (now - before).abs() < 0.1 { calm + 1 } else { 0 };
            before = now;
        }
        Ok((before, self.status("VmHWM")?))
    }

    fn status(&self, field: &str) -> Result<f64> {
        let pid = self.child.id().context("the allocator has ended by itself")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("/proc tells no {field}"))? / 1024.0)
    }
}

async fn deciding(lines: &mut Lines<BufReader<ChildStdout>>) -> Result<()> {
    while let Some(line) = lines.next_line().await? {
        if line.contains(DECIDING) {
            return Ok(());
        }
    }
    anyhow::bail!("the allocator ended before it decided anything")
}
