//! A person at a terminal: follows the tour, looks around, plays with nodes, and has seen enough.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde_json::Value;

use crate::documents;
use crate::screen::Screen;
use crate::stage::{NOBODY, ROOT, Stage, machine};

/// What is shown between two steps.
pub const QUESTION: &str = "[Enter] next step, [s] skip the tour, [q] quit";
/// How many there are.
const STEPS: usize = 6;
/// The local address of the tour.
const LOCAL: &str = "192.168.7.200";

/// Waits for the question between two steps.
pub fn is_asked(screen: &Screen) -> Result<()> {
    screen.last_line_is(QUESTION, |line| line == QUESTION).map(drop)
}

/// The commands that the tour has typed, as they can be copied from the screen.
fn typed(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        match (goes_on, line.strip_prefix("$ "), commands.last_mut()) {
            (true, _, Some(last)) => last.extend(["\n", line]),
            (false, Some(command), _) => commands.push(command.to_owned()),
            _ => continue,
        }
        goes_on = line.ends_with('\\');
    }
    commands
}

/// The lines that the demo gives to those who have another terminal, with a pager that does not wait.
fn advice(text: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.contains("In another terminal:")).skip(1);
    let lines = lines.take_while(|line| line.starts_with(' '));
    lines.map(|line| format!("{}\n", line.trim())).collect::<String>().replace("less ", "cat ")
}

/// The milliseconds of the gap that a status line tells.
fn gap(status: &str) -> u64 {
    let told = Regex::new(r"gap since last key (\d+) ms").expect("a good rule");
    told.captures(status).and_then(|found| found[1].parse().ok()).unwrap_or_default()
}

/// Whoever reads on a narrow screen sees every line whole. Folders of a test are longer than those of a person.
fn fits_the_screen(screen: &Screen, stage: &Stage) -> Result<()> {
    let folder = stage.path("").display().to_string();
    let (wide, narrow) = (screen.joined()?, screen.text()?);
    let split: Vec<&str> = wide.lines().filter(|line| !narrow.lines().any(|it| it == line.trim_end())).collect();
    ensure!(split.iter().all(|line| line.contains(&folder)), "too long for 80 columns: {split:#?}");
    Ok(())
}

/// The nodes whose kernels have the local address on their NIC, as `sh on NODE` shows.
fn holders(stage: &Stage, advice: &str) -> Result<Vec<String>> {
    let place = advice.lines().find(|line| line.starts_with("cd ")).context("where to look into a node")?;
    let mut found = Vec::new();
    for node in ["node1", "node2", "node3"] {
        let shown = stage.pastes(&format!("{place}\nsh on {node} ip -j addr show dev eth0\n"))?;
        let shown: Value = serde_json::from_str(&shown)?;
        let all = shown[0]["addr_info"].as_array().cloned().unwrap_or_default();
        if all.iter().any(|entry| entry["local"] == LOCAL) {
            found.push(node.to_owned());
        }
    }
    Ok(found)
}

/// Everything that is printed can be pasted, and shows the cluster.
fn looks_around(stage: &Stage, screen: &Screen, typed_at_least: usize) -> Result<String> {
    let text = screen.joined()?;
    let advice = advice(&text);
    ensure!(advice.contains("sh on client curl -s http://172.32.100.225\n"), "how to be a client:\n{advice}");
    let seen = stage.pastes(&advice)?;
    for part in
        ["service/kuard-svc-local", "node/node3", "172.32.100.225", "proto bird", "kuard-", " saw ", "table inet demo"]
    {
        ensure!(seen.contains(part), "{part} is missing in\n{advice}\n--- prints\n{seen}");
    }
    let commands = typed(&text);
    ensure!(commands.len() >= typed_at_least, "at least {typed_at_least} commands: {commands:#?}");
    let again = stage.pastes(&format!("{advice}{}\n", commands.join("\n")))?;
    ensure!(again.contains("service/kuard-svc-dual-remote unchanged") && again.contains("172.32.100.225"), "{again}");
    let place = advice.lines().find(|line| line.starts_with("cd ")).context("where to look into a machine")?;
    let wrong = stage.pastes(&format!("{place}\n! sh on printer true 2>&1\n"))?;
    let names = "node1, node2, node3, router, client, desk";
    ensure!(wrong == format!("no machine is called 'printer'; there are {names}\n"), "{wrong}");
    Ok(advice)
}

/// Kills the node with the local address, revives it, stops its agent, and revives that.
fn plays(stage: &Stage, screen: &Screen, advice: &str) -> Result<()> {
    let all = holders(stage, advice)?;
    let [owner] = &all[..] else { anyhow::bail!("one node has {LOCAL}: {all:?}") };
    let number = owner.trim_start_matches("node");
    screen.presses(number)?;
    let chosen = format!("*{owner} ");
    screen.last_line_is(&chosen, |line| line.contains(&chosen))?;
    screen.presses("k")?;
    screen.shows(&format!("s  {owner} loses power"))?;
    let down = format!("*{owner} down 0/s");
    let status =
        screen.last_line_is(&down, |line| line.contains(&down) && gap(line) > 0 && line.starts_with("lost 0 "))?;
    ensure!(gap(&status) >= 1000, "without power a node is missed for about its lease: {status}");
    for (key, word) in [("r", "comes back"), ("s", "stops"), ("r", "comes back")] {
        let before = screen.text()?.matches(word).count();
        screen.presses(key)?;
        screen.last_line_is(&format!("{owner} {word}"), |line| {
            let told = screen.text().is_ok_and(|text| text.matches(word).count() > before);
            let marked = line.contains(&format!("*{owner} down"));
            told && line.starts_with("lost 0 ") && marked == (word == "stops")
        })?;
    }
    screen.until(&format!("{owner} has {LOCAL} again"), || Ok(holders(stage, advice)? == all))?;
    screen.presses("1")?;
    screen.last_line_is("*node1", |line| line.contains("| *node1 ")).map(drop)
}

/// Follows the tour so many steps, skips the rest, and looks around and plays.
async fn afternoon(user: u32, steps: usize, typed_at_least: usize) -> Result<()> {
    let stage = Stage::for_user(user).await?;
    let before = machine()?;
    let screen = Screen::open(&stage)?;
    screen.types("purelb-demo")?;
    is_asked(&screen)?;
    screen.presses("x")?;
    for step in 2..=steps {
        screen.presses("Enter")?;
        screen.shows(&format!("== {step}/{STEPS} "))?;
        screen.until(&format!("the end of step {step}"), || {
            Ok(screen.text()?.matches("-- seen to work in ").count() == step)
        })?;
        if step < STEPS {
            is_asked(&screen)?;
        }
    }
    if steps < STEPS {
        screen.presses("s")?;
    }
    screen.shows("It stays up.")?;
    screen.last_line_is("who answers", |line| line.starts_with("lost 0 | gap since last key 0 ms | *node1 "))?;
    let text = screen.text()?;
    ensure!(!text.contains(QUESTION), "a question that was answered is gone");
    ensure!(text.contains("All 6 steps were seen to work") == (steps == STEPS), "{text}");
    fits_the_screen(&screen, &stage)?;
    let advice = looks_around(&stage, &screen, typed_at_least)?;
    plays(&stage, &screen, &advice)?;
    documents::are_true(&screen.joined()?, true)?;
    screen.presses("C-c")?;
    screen.is_as_before(0)?;
    ensure!(machine()? == before, "the machine's own network is as it was");
    stage.is_swept(true, &screen.processes()?)
}

#[tokio::test]
async fn a_person_follows_the_whole_tour_and_plays_with_nodes_as_root() -> Result<()> {
    afternoon(ROOT, STEPS, 20).await
}

#[tokio::test]
async fn a_person_skips_the_tour_after_its_first_step_and_plays_with_nodes_as_an_ordinary_user() -> Result<()> {
    afternoon(NOBODY, 1, 5).await
}

#[tokio::test]
async fn while_a_command_takes_its_time_the_screen_says_what_is_awaited() -> Result<()> {
    let stage = Stage::for_user(NOBODY).await?;
    fs::rename(stage.path("kubectl"), stage.path("kubectl-itself"))?;
    let gate = stage.path("gate").display().to_string();
    let slow = format!(
        "#!/bin/sh\n[ \"$1\" != wait ] || until [ -e {gate} ]; do sleep 0.05; done\nexec kubectl-itself \"$@\"\n"
    );
    fs::write(stage.path("kubectl"), slow)?;
    fs::set_permissions(stage.path("kubectl"), Permissions::from_mode(0o755))?;
    let screen = Screen::open(&stage)?;
    screen.types("purelb-demo")?;
    let told = "... the allocator assigns addresses to the Service (";
    let early = screen.last_line_is(told, |line| line.starts_with(told))?;
    screen.last_line_is("that time goes by", |line| line.starts_with(told) && line != early)?;
    fs::write(&gate, "")?;
    is_asked(&screen)?;
    ensure!(!screen.text()?.contains(told), "what is over is erased");
    screen.presses("q")?;
    screen.is_as_before(0)?;
    stage.is_swept(true, &screen.processes()?)
}

#[test]
fn commands_are_found_on_the_screen_as_they_can_be_copied() {
    let text = "== 1/6\n$ kubectl get a \\\n    -o name\na\nrouter$ ip route\n$ kubectl get b\nb";
    assert_eq!(typed(text), ["kubectl get a \\\n    -o name", "kubectl get b"]);
}
