//! The tour without a person: what a machine reads of it.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::documents;
use crate::stage::{NOBODY, ROOT, Stage, machine, signal_to};

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
    let mut demo = stage.start(&["--once", "--json"])?;
    let steps = lines(&mut demo)?.collect::<Result<Vec<Value>>>()?;
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
        ensure!(mistake["facts"]["answered"][family] == 50, "{mistake:#}");
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
    // A folder is written whole, so that it can be copied, and that of a test is longer than that of a person.
    let folder = stage.path("").display().to_string();
    let long = |line: &&str| line.chars().count() > COLUMNS && !line.contains(&folder);
    let long: Vec<&str> = printed.lines().filter(long).collect();
    ensure!(long.is_empty(), "too long for {COLUMNS} columns: {long:#?}");
    documents::are_true(&printed, false)?;
    ensure!(machine()? == before, "the machine's own network is as it was");
    stage.is_swept(true, &[])
}

/// What everybody's screen has.
const COLUMNS: usize = 80;
/// When `make demo` began, as `scripts/demo` says it.
const BEGUN: &str = "PURELB_DEMO_BEGUN";

fn since_1970() -> Result<String> {
    Ok(UNIX_EPOCH.elapsed()?.as_secs_f64().to_string())
}

#[tokio::test]
async fn five_nodes_are_five_next_hops_and_the_cluster_stays_for_a_machine_until_it_is_told_to_end() -> Result<()> {
    let stage = Stage::for_user(NOBODY).await?;
    let mut demo = stage.start(&["--nodes", "5", "--json"])?;
    let told = lines(&mut demo)?;
    let mut steps = Vec::new();
    for step in told {
        let step = step?;
        let last = step["stays"] == true || step["ok"] == false;
        steps.push(step);
        if last {
            break;
        }
    }
    let [spread, .., end, stays] = &steps[..] else { anyhow::bail!("six steps, an end and a place: {steps:#?}") };
    ensure!(end["ok"] == true && end["steps"] == 6 && steps.len() == 8, "{steps:#?}");
    for family in ["IPv4", "IPv6"] {
        ensure!(spread["facts"]["next_hops"][family] == 5, "{spread:#}");
        ensure!(sum(&spread["facts"]["entered"][family]) == 500, "{spread:#}");
    }
    let kubeconfig = stays["kubeconfig"].as_str().context("it says where its cluster is")?;
    let nodes = stage.pastes(&format!("kubectl --kubeconfig {kubeconfig} get nodes -o name\n"))?;
    ensure!(nodes.lines().eq((1..=5).map(|number| format!("node/node{number}"))), "{nodes}");
    signal_to(demo.id(), "TERM")?;
    let code = demo.wait()?;
    ensure!(code.success(), "who is told to end ends well: {code}");
    stage.is_swept(true, &[])
}

/// What the cluster calls the first Service of the tour: another one of the same name has another UID.
fn uid(stage: &Stage) -> Result<String> {
    let runs = stage.runs();
    let [run] = &runs[..] else { anyhow::bail!("one demo runs: {runs:?}") };
    let kubectl = format!("kubectl --kubeconfig {}", run.join("kubeconfig").display());
    stage.pastes(&format!("{kubectl} get svc kuard-svc-dual-remote -o jsonpath='{{.metadata.uid}}'\n"))
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
        seen.push((first["facts"]["addresses"].clone(), uid(&stage)?));
        demo.kill()?;
        demo.wait()?;
        stage.is_swept(false, &[])?;
    }
    ensure!(seen[0].0.is_array() && !seen[0].1.is_empty(), "the Service has addresses and a UID: {seen:?}");
    ensure!(seen[0] == seen[1], "it is the same Service with the same addresses: {seen:?}");
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

#[tokio::test]
async fn the_last_step_that_is_not_seen_to_work_says_so_too() -> Result<()> {
    let stage = Stage::for_user(ROOT).await?;
    fs::rename(stage.path("purelb"), stage.path("purelb-itself"))?;
    // A second allocator that never leads.
    let idle = "#!/bin/sh\n[ \"$1 $HOSTNAME\" != 'allocator allocator-2' ] || exec sleep 600\n\
        exec \"${0%/*}/purelb-itself\" \"$@\"\n";
    fs::write(stage.path("purelb"), idle)?;
    fs::set_permissions(stage.path("purelb"), Permissions::from_mode(0o755))?;
    let mut demo = stage.start(&["--once", "--json"])?;
    let steps = lines(&mut demo)?.collect::<Result<Vec<Value>>>()?;
    let code = demo.wait()?;
    let [before @ .., last] = &steps[..] else { anyhow::bail!("it ended before its first step") };
    ensure!(before.len() == 5 && before.iter().all(|step| step["ok"] == true), "{steps:#?}");
    ensure!(code.code() == Some(1) && last["ok"] == false && last["step"] == 6, "{code}: {last:#}");
    let error = last["error"].as_str().context("it says what is wrong")?;
    ensure!(error.contains("expected: all 20 Services have an address"), "{error}");
    stage.is_swept(false, &[])
}

#[tokio::test]
async fn pods_that_get_the_addresses_of_others_that_went_answer_over_both_families() -> Result<()> {
    let stage = Stage::for_user(ROOT).await?;
    fs::rename(stage.path("kubectl"), stage.path("kubectl-itself"))?;
    // New pods are created only when those that were deleted are unplugged, so that their addresses are free again.
    let late = "#!/bin/sh\n[ \"$*\" != 'apply -f pods.yaml' ] || \
        while sh ../on node2 ip link show dev pod2 >/dev/null 2>&1; do sleep 0.05; done\nexec kubectl-itself \"$@\"\n";
    fs::write(stage.path("kubectl"), late)?;
    fs::set_permissions(stage.path("kubectl"), Permissions::from_mode(0o755))?;
    let mut demo = stage.start(&["--once", "--json"])?;
    let steps = lines(&mut demo)?.collect::<Result<Vec<Value>>>()?;
    let code = demo.wait()?;
    ensure!(code.success() && steps.iter().all(|step| step["ok"] == true), "it exits with {code}: {steps:#?}");
    stage.is_swept(true, &[])
}
