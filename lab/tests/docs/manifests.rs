//! The YAML of the documents: whole objects pass `purelb validate`, and pieces are lines of the examples.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use purelb_lab::daemon;

use crate::page::{Block, pages, root};

/// Whose objects they are.
const OURS: [&str; 2] = ["apiVersion: purelb.io/", "apiVersion: bgp.purelb.io/"];
/// How blocks begin that other tests run: `kustomizations.rs` here, and `lab/tests/cluster/uninstall.rs`.
const OTHERS: [&str; 2] = ["# kustomization.yaml\n", "# cleanup.yaml\n"];

/// What `purelb validate -f -` says to a text.
fn verdict(text: &str) -> Result<String> {
    let mut validate = Command::new(daemon::program()?);
    validate.args(["validate", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = validate.spawn()?;
    child.stdin.take().context("the input is a pipe")?.write_all(text.as_bytes())?;
    Ok(String::from_utf8(child.wait_with_output()?.stdout)?)
}

/// The lines of all examples that are applied, without their indent.
fn tested_lines() -> Result<BTreeSet<String>> {
    let mut lines = BTreeSet::new();
    for entry in fs::read_dir(root().join("docs/examples"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "yaml") {
            lines.extend(fs::read_to_string(path)?.lines().map(|line| line.trim().to_owned()));
        }
    }
    Ok(lines)
}

#[test]
fn every_object_of_ours_is_valid_and_every_piece_is_of_a_tested_example() -> Result<()> {
    let tested = tested_lines()?;
    let mut whole = 0;
    for page in pages()? {
        for Block { line, text, .. } in page.blocks("yaml") {
            let place = format!("{}:{line}", page.name);
            if OTHERS.iter().any(|title| text.starts_with(title)) {
                continue;
            }
            if OURS.iter().any(|version| text.contains(version)) {
                let said = verdict(&text)?;
                assert!(said.ends_with(": 0 errors, 0 warnings\n") && said.lines().count() == 1, "{place}: {said}");
                whole += 1;
                continue;
            }
            let strange: Vec<_> = text.lines().filter(|line| !tested.contains(line.trim())).collect();
            assert!(strange.is_empty(), "{place}: no example of docs/examples has {strange:#?}");
        }
    }
    assert!(whole > 2, "the documents have objects of ours, but only {whole} were found");
    Ok(())
}
