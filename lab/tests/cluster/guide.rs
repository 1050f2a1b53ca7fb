//! `docs/how-to/virtual-addresses.md`, followed on a cluster: every line it shows is printed.
//!
//! Its blocks of plain text have commands after `$ `, `node1$ ` or `router$ `, and below each some lines of what it prints.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use purelb_lab::Cluster;
use regex::Regex;

use crate::purelb::installed;
use crate::site::{SOON, deployment, rolled_out};

/// A command, where it is typed, and some of the lines that it prints.
#[derive(Debug, Default)]
struct Step {
    place: String,
    command: String,
    shown: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn steps(page: &str) -> Vec<Step> {
    static PROMPT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^(\w*)\$ (.*)$").expect("a good pattern"));
    let mut steps: Vec<Step> = Vec::new();
    let blocks = page.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next());
    for line in blocks.flat_map(str::lines).filter(|line| !["", "..."].contains(line)) {
        match (PROMPT.captures(line), steps.last_mut()) {
            (Some(typed), _) => {
                steps.push(Step { place: typed[1].to_owned(), command: typed[2].to_owned(), shown: Vec::new() });
            }
            (None, Some(step)) => step.shown.push(settled(line)),
            (None, None) => panic!("output without a command: {line}"),
        }
    }
    steps
}

/// A line without blanks and times that differ from run to run. Which of two addresses came first differs, too.
fn settled(line: &str) -> String {
    static RULES: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
        let rule = |text: &str| Regex::new(text).expect("a good pattern");
        [(rule(r"\b\d+[smh](?: \(x\d+ over \d+[smh]\))? "), "AGE "), (rule(r" secondary"), ""), (rule(r"\s+"), " ")]
    });
    let settled = RULES.iter().fold(line.to_owned(), |text, (rule, word)| rule.replace_all(&text, *word).into_owned());
    settled.trim().to_owned()
}

/// What the command prints there.
fn printed(cluster: &Cluster, step: &Step) -> Result<String> {
    let mut shell = match step.place.as_str() {
        "" => Command::new("bash"),
        "router" => cluster.router_network().command("bash"),
        node => cluster.node(node)?.namespace.command("bash"),
    };
    let kubectl = cluster.plane.programs().path("kubectl");
    let folder = kubectl.parent().context("kubectl is in a folder")?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    shell.args(["-c", &step.command]).current_dir(root()).env("PATH", path);
    let output = shell.env("KUBECONFIG", cluster.plane.kubeconfig()).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {complaint}", step.command);
    Ok(String::from_utf8(output.stdout)?)
}

/// Fails with the lines of the page that the command does not print.
fn prints_it(cluster: &Cluster, step: &Step) -> Result<()> {
    let text = printed(cluster, step)?;
    let lines: BTreeSet<String> = text.lines().map(settled).collect();
    let missing: Vec<_> = step.shown.iter().filter(|line| !lines.contains(*line)).collect();
    ensure!(missing.is_empty(), "{}$ {} did not print {missing:#?} but\n{text}", step.place, step.command);
    Ok(())
}

async fn follow(cluster: &Cluster, step: &Step) -> Result<()> {
    // What changes something is told once.
    if ["kubectl apply", "kubectl patch"].iter().any(|verb| step.command.starts_with(verb)) {
        return prints_it(cluster, step);
    }
    let shows = async |cluster: &Cluster| prints_it(cluster, step).map(|()| true);
    cluster.until(&format!("{}$ {} prints what the page shows", step.place, step.command), SOON, shows).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_virtual_addresses_shows_what_is_printed() -> Result<()> {
    let story = "guide::the_guide_to_virtual_addresses_shows_what_is_printed";
    let page = fs::read_to_string(root().join("docs/how-to/virtual-addresses.md"))?;
    let steps = steps(&page);
    assert!(steps.len() > 6, "{steps:#?}");
    let folder = root().join("docs/examples/virtual");
    for name in ["public.yaml", "one-route.yaml"] {
        assert!(page.contains(&fs::read_to_string(folder.join(name))?), "the page does not show {name} as it is");
    }
    installed()
        .await?
        .prove(story, async |cluster| {
            cluster.apply(&deployment("default", "web", 3)).await?;
            rolled_out(cluster, "default", "deployment/web").await?;
            for step in &steps {
                follow(cluster, step).await?;
            }
            cluster.kubectl(&["delete", "deployment/web"]).await?;
            cluster.kubectl(&["delete", "--ignore-not-found", "-f", &folder.display().to_string()]).await.map(drop)
        })
        .await
}

#[test]
fn lines_differ_by_more_than_their_age() {
    let line = "  Normal  AddressAssigned  5s    purelb-allocator  Assigned";
    assert_eq!(settled(line), settled("  Normal  AddressAssigned  7s (x2 over 12s)  purelb-allocator  Assigned"));
    assert_ne!(settled(line), settled("  Normal  AddressReleased  5s    purelb-allocator  Assigned"));
}
