//! What the proofs have seen, noted while they run, and `docs/tested.md` made of it.
//!
//! A proof calls [`seen`]; the run names the file that collects with the environment variable `PURELB_TESTED`; at the end
//! [`render`] makes the page. Nothing is asserted here: whether a number is good is for the proof to say.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// The environment variable that names the file in which a run collects.
pub const FILE: &str = "PURELB_TESTED";

/// The proofs, by number.
const PROOFS: [&str; 12] = [
    "The first seed: a Service of both families, on every node and at the router",
    "The second seed: the flat form, and one route for an aggregate",
    "The third seed: local addresses, and traffic spread over nodes",
    "externalTrafficPolicy Local, and nodes that are not selected",
    "Addresses as kubectl shows them given, refused and released",
    "Nodes in trouble: who answers, and for how long nobody does",
    "PureLB is replaced while clients are at work",
    "Upgrades from PureLB 0.13 and 0.17",
    "Uninstalling leaves nothing behind",
    "Rights: no request is denied, and no right is unused",
    "Every kube-proxy with every router",
    "Bad input, and what the user is told",
];

const OPENING: &str = "\
# What was tested, and what was seen

Written by `make tested`: every line was seen by a proof of the lab, on a cluster of Kubernetes' own programs with PureLB
installed from its manifests. Times, losses and rates are of one run on one machine, and differ from run to run; what must
never happen is asserted by the proofs themselves, which are in `lab/tests/cluster`.
";

/// One line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    proof: String,
    what: String,
    value: String,
}

/// Notes what a proof has seen. `proof` is its number, such as `6`; `what` a few words for one row of the page,
/// and `value` what it was, with its unit. Without `PURELB_TESTED` it does nothing.
///
/// # Panics
/// When the file cannot be written: a run that was asked for its findings must not lose some.
pub fn seen(proof: &str, what: &str, value: impl Display) {
    let Some(file) = std::env::var_os(FILE) else { return };
    note(Path::new(&file), proof, what, &value.to_string()).expect("the file of PURELB_TESTED can be written");
}

fn note(file: &Path, proof: &str, what: &str, value: &str) -> Result<()> {
    let line = Line { proof: proof.to_owned(), what: what.to_owned(), value: value.to_owned() };
    let mut line = serde_json::to_string(&line)?;
    line.push('\n');
    // One write of a whole line: several programs append at once.
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    Ok(file.write_all(line.as_bytes())?)
}

/// The page made of the lines of a run: proofs by number, rows by their words. A row that was seen more than once shows
/// each value once.
///
/// # Errors
/// When a line is not one of ours, or there is none at all.
pub fn render(lines: &str) -> Result<String> {
    let mut proofs: BTreeMap<(usize, String), BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for line in lines.lines() {
        let Line { proof, what, value } =
            serde_json::from_str(line).with_context(|| format!("not a line that a proof wrote: {line}"))?;
        let values = proofs.entry(place(&proof)).or_default().entry(what).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }
    ensure!(!proofs.is_empty(), "no proof has noted anything; was {FILE} set while they ran?");
    let mut page = OPENING.to_owned();
    for ((_, title), rows) in proofs {
        write!(page, "\n## {title}\n\n| what | seen |\n| --- | --- |\n")?;
        for (what, values) in rows {
            writeln!(page, "| {} | {} |", cell(&what), cell(&values.join("; ")))?;
        }
    }
    Ok(page)
}

/// Where a proof stands on the page, and its heading.
fn place(proof: &str) -> (usize, String) {
    let number: Option<usize> =
        proof.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|n| n.parse().ok());
    let title = number.and_then(|number| PROOFS.get(number.checked_sub(1)?));
    match (number, title) {
        (Some(number), Some(title)) => (number, format!("{number}. {title}")),
        // Findings without a number of their own come last.
        _ => (usize::MAX, proof.to_owned()),
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proofs_note_becomes_a_page_in_the_order_of_the_proofs() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("seen");
        for (proof, what, value) in [
            ("11", "nftables with BIRD", "300 of 300 answered"),
            ("6", "agent killed, 192.168.7.200", "nobody for 9800 ms"),
            ("6", "agent asked to stop, 192.168.7.200", "nobody for 35 ms"),
            ("6", "agent killed, 192.168.7.200", "nobody for 9700 ms"),
            ("6", "agent killed, 192.168.7.200", "nobody for 9800 ms"),
        ] {
            note(&file, proof, what, value)?;
        }
        let page = render(&std::fs::read_to_string(&file)?)?;
        let rest = page.split_once("\n## ").context("there is a heading")?.1;
        assert_eq!(
            rest,
            "6. Nodes in trouble: who answers, and for how long nobody does\n\n| what | seen |\n| --- | --- |\n\
             | agent asked to stop, 192.168.7.200 | nobody for 35 ms |\n\
             | agent killed, 192.168.7.200 | nobody for 9800 ms; nobody for 9700 ms |\n\n\
             ## 11. Every kube-proxy with every router\n\n| what | seen |\n| --- | --- |\n\
             | nftables with BIRD | 300 of 300 answered |\n"
        );
        Ok(())
    }

    #[test]
    fn a_run_that_noted_nothing_makes_no_page() {
        assert!(render("").is_err_and(|error| error.to_string().contains(FILE)));
        assert!(render("warning: unused\n").is_err());
    }
}
