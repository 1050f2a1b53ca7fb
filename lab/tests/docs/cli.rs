//! The page about the command line names the options that there are, and no others.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use purelb_lab::daemon;
use regex::Regex;

use crate::page::named;

/// The long options that a text begins a line or a cell of a table with, but for those that every command has.
fn options(text: &str) -> BTreeSet<String> {
    static OPTION: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^(?:\| | +)(?:`?-\w`?, )?`?(--[a-z][a-z-]*)").expect("a good pattern"));
    let all = OPTION.captures_iter(text).map(|found| found[1].to_owned());
    all.filter(|option| option != "--help" && option != "--version").collect()
}

fn help(arguments: &[&str]) -> Result<String> {
    let output = Command::new(daemon::program()?).args(arguments).arg("--help").output()?;
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn every_option_of_every_command_is_on_the_page() -> Result<()> {
    let page = named("docs/reference/cli.md")?.text;
    let help_of_all = help(&[])?;
    let commands = help_of_all.split_once("Commands:\n").context("there are commands")?.1;
    let commands: Vec<&str> = commands.lines().map_while(|line| line.split_whitespace().next()).collect();
    for command in commands.into_iter().filter(|command| *command != "help") {
        let (_, section) =
            page.split_once(&format!("\n## purelb {command}\n")).with_context(|| format!("no section on {command}"))?;
        let section = section.split("\n## ").next().unwrap_or_default();
        assert_eq!(options(section), options(&help(&[command])?), "purelb {command}");
    }
    Ok(())
}

#[test]
fn options_are_found_in_both_forms() {
    let both =
        ["  -f, --filename <FILE>  A manifest", "| `-f`, `--filename FILE` | a manifest |", "| `--filename FILE` |"];
    assert!(both.iter().all(|text| options(text) == ["--filename".to_owned()].into()));
}
