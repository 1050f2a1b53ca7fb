//! Runs every console block of the documents and compares what it prints with what the document shows.
//!
//! In a `console` block a line that begins with `$ ` is a command; what follows, up to the next one, is its output.
//! Commands run in the root of the repository with the fresh `purelb`, the real kubectl, and, for documents that use
//! kubectl, an API server of their own. A command that ends in `&` goes on until its document ends.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use purelb_lab::control_plane::watchdog::Watchdog;
use purelb_lab::{ControlPlane, daemon};
use tempfile::TempDir;

use crate::page::{Page, pages, root};

/// One command and the output the document shows for it.
#[derive(Debug)]
struct Step {
    command: String,
    shown: String,
}

fn steps(page: &Page) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for block in page.blocks("console") {
        for line in block.text.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), shown: String::new() }),
                (None, Some(step)) => step.shown.extend([line, "\n"]),
                (None, None) => panic!("{}: output without a command: {line}", page.name),
            }
        }
    }
    steps
}

fn search_path(first: impl Iterator<Item = PathBuf>) -> Result<OsString> {
    let rest = env::var_os("PATH").unwrap_or_default();
    Ok(env::join_paths(first.chain(env::split_paths(&rest)))?)
}

/// Where the commands of one document run.
struct Desk {
    path: OsString,
    kubeconfig: PathBuf,
    /// What a document leaves running ends with this.
    background: Watchdog,
    logs: TempDir,
}

impl Desk {
    fn run(&mut self, step: &Step) -> Result<String> {
        if let Some(command) = step.command.strip_suffix(" &") {
            self.start(command)?;
            return Ok(String::new());
        }
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("exec 2>&1; {}", step.command)]).current_dir(root());
        shell.env("PATH", &self.path).env("KUBECONFIG", &self.kubeconfig);
        let output = shell.output().with_context(|| format!("cannot run {}", step.command))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn start(&mut self, command: &str) -> Result<()> {
        let mut variable = OsString::from("PATH=");
        variable.push(&self.path);
        let mut kubeconfig = OsString::from("KUBECONFIG=");
        kubeconfig.push(&self.kubeconfig);
        let line = [variable, kubeconfig, "bash".into(), "-c".into(), format!("exec {command}").into()];
        self.background.start(Path::new("/usr/bin/env"), &self.logs.path().join("log"), line.into())?;
        Ok(())
    }
}

#[tokio::test]
async fn every_console_block_prints_what_the_document_shows() -> Result<()> {
    let purelb = daemon::program()?.parent().context("the program has a folder")?.to_owned();
    let mut ran = 0;
    for page in pages()? {
        let steps = steps(&page);
        let needs_server = steps.iter().any(|step| step.command.contains("kubectl"));
        let plane = if needs_server { Some(ControlPlane::start().await?) } else { None };
        let kubectl = plane.as_ref().map(|plane| PathBuf::from(plane.kubectl().as_std().get_program()));
        let programs = [Some(purelb.clone()), kubectl.as_deref().and_then(Path::parent).map(Path::to_owned)];
        let path = search_path(programs.into_iter().flatten())?;
        let kubeconfig = plane.as_ref().map_or("/dev/null".into(), ControlPlane::kubeconfig);
        let logs = tempfile::tempdir()?;
        let mut desk = Desk { path, kubeconfig, background: Watchdog::guard(logs.path())?, logs };
        for step in &steps {
            let printed = desk.run(step)?;
            assert_eq!(printed, step.shown, "{}: $ {}", page.name, step.command);
            ran += 1;
        }
    }
    assert!(ran > 10, "the documents have commands to run, but only {ran} were found");
    Ok(())
}
