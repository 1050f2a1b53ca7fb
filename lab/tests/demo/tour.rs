//! The tour without a person: what a machine reads of it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Instant, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::documents;
use crate::stage::{NOBODY, PATIENCE, ROOT, Stage, machine};

/// The objects that a demo prints.
pub fn lines(demo: &mut Child) -> Result<impl Iterator<Item = Result<Value>> + use<>> {
    let output = demo.stdout.take().context("the output is a pipe")?;
    Ok(BufReader::new(output).lines().map(|line| Ok(serde_json::from_str(&line?)?)))
}

fn sum(counts: &Value) -> u64 {
    counts.as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
}

#[tokio::test]
async fn the_tour_works_for_an_ordinary_user_without_sudo() -> Result<()> {
    let stage = Stage::for_user(NOBODY).await?;
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
    stage.is_swept(true, &[])
}

#[tokio::test]
async fn the_tour_works_as_root_and_prints_what_the_documents_show() -> Result<()> {
    let stage = Stage::for_user(ROOT).await?;
    let before = machine()?;
    let demo = stage.command("purelb-demo").arg("--once").env(BEGUN, since_1970()?).stdin(Stdio::null()).output()?;
    let (printed, complaint) = (String::from_utf8(demo.stdout)?, String::from_utf8(demo.stderr)?);
    ensure!(demo.status.success(), "it exits with {}: {printed}{complaint}", demo.status);
    ensure!(printed.contains("All 6 steps were seen to work") && complaint.is_empty(), "{printed}{complaint}");
    ensure!(printed.lines().all(|line| !line.contains('\x1b')), "it can be read in a file: {printed}");
    documents::are_true(&printed, false)?;
    ensure!(machine()? == before, "the machine's own network is as it was");
    stage.is_swept(true, &[])
}

/// When `make demo` began, as `scripts/demo` says it.
const BEGUN: &str = "PURELB_DEMO_BEGUN";

fn since_1970() -> Result<String> {
    Ok(UNIX_EPOCH.elapsed()?.as_secs_f64().to_string())
}

#[tokio::test]
async fn a_data_folder_keeps_the_objects_and_their_addresses() -> Result<()> {
    let stage = Stage::for_user(ROOT).await?;
    let data = stage.path("data").display().to_string();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut demo = stage.start(&["--once", "--json", "--data", &data])?;
        let mut steps = lines(&mut demo)?;
        let first = steps.next().context("it ended before its first step")??;
        seen.push(first["facts"]["addresses"].clone());
        demo.kill()?;
        demo.wait()?;
        stage.is_swept(false, &[])?;
    }
    ensure!(seen[0].is_array() && seen[0] == seen[1], "an assigned address does not change: {seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_step_that_is_not_seen_to_work_says_so() -> Result<()> {
    let stage = Stage::for_user(ROOT).await?;
    // A daemon that only knows its version.
    fs::write(stage.path("purelb"), "#!/bin/sh\n[ \"$1\" = --version ]\n")?;
    let demo = stage.start(&["--once", "--json"])?.wait_with_output()?;
    let told: Value = serde_json::from_slice(&demo.stdout).context("one JSON object")?;
    ensure!(!demo.status.success() && told["ok"] == false && told["step"] == 1, "{told:#}");
    let logs = PathBuf::from(told["logs"].as_str().context("it names its logs")?);
    ensure!(told["error"].as_str().is_some_and(|text| text.contains("expected")), "{told:#}");
    ensure!(logs.join("allocator-1.log").exists(), "the logs stay: {told:#}");
    stage.is_swept(false, &[])
}
