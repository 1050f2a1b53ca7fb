//! What the documents show of the demo is what it prints, but for numbers and names that differ from run to run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use regex::Regex;

/// The beginning of what the demo shows after the tour.
const STAY: &str = "It stays up.";

/// The lines of a document that show the demo: its blocks of plain text, those of the tour or the one after it.
fn shown(document: &str, after_the_tour: bool) -> Vec<&str> {
    let blocks = document.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next());
    let blocks = blocks.filter(|block| block.contains(STAY) == after_the_tour);
    blocks.flat_map(str::lines).filter(|line| !["", "...", "$ make demo"].contains(&line.trim())).collect()
}

/// A line without what differs from run to run.
fn settled(line: &str) -> String {
    static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let rules = [
            (r"/\S*/purelb-demo-\d+/run-\w+", "FOLDER"),
            (r"allocator-\d_\w+", "ALLOCATOR"),
            (r"\d+", "N"),
            (r"#+", "#"),
            (r"\s+", " "),
        ];
        rules.map(|(rule, word)| (Regex::new(rule).expect("a good rule"), word)).into()
    });
    let settled = RULES.iter().fold(line.to_owned(), |text, (rule, word)| rule.replace_all(&text, *word).into_owned());
    settled.trim().to_owned()
}

/// Every line of the tour, or after it, that the documents show is one that was printed.
pub fn are_true(printed: &str, after_the_tour: bool) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the lab is in the repository")?;
    let printed: BTreeSet<String> = printed.lines().map(settled).collect();
    for name in ["README.md", "docs/how-to/demo.md"] {
        let document = fs::read_to_string(root.join(name))?;
        let shown = shown(&document, after_the_tour);
        ensure!(!shown.is_empty() || after_the_tour, "{name} shows nothing of the demo");
        let wrong: Vec<&&str> = shown.iter().filter(|line| !printed.contains(&settled(line))).collect();
        ensure!(wrong.is_empty(), "{name} shows what was not printed: {wrong:#?}\n--- but\n{printed:#?}");
    }
    Ok(())
}

#[test]
fn lines_differ_by_more_than_their_numbers() {
    let line = "  node1       92  ############";
    assert_eq!(settled(line), settled("  node1      103  #############"));
    assert_ne!(settled(line), settled("  client      92  ############"));
    let text = "```text\n$ make demo\na\n...\n```\nwords\n```text\nIt stays up.\n```\n";
    assert_eq!((shown(text, false), shown(text, true)), (vec!["a"], vec![STAY]));
}
