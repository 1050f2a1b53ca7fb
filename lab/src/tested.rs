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

Written by `make test-long`: every line was seen by a proof of the lab, on a cluster of Kubernetes' own programs with PureLB
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
/// When a line is not one of ours, or a proof has noted nothing: a page without it would look complete.
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
    let silent: Vec<String> = (1..=PROOFS.len())
        .filter(|number| !proofs.keys().any(|(place, _)| place == number))
        .map(|number| place(&number.to_string()).1)
        .collect();
    ensure!(
        silent.is_empty(),
        "these proofs have noted nothing; did they run, and was {FILE} set?\n  {}",
        silent.join("\n  ")
    );
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

/// Words as a cell shows them: signs that mean something in a page are only signs.
fn cell(text: &str) -> String {
    let mut shown = String::new();
    for sign in text.chars() {
        match sign {
            '\n' => shown.push(' '),
            '|' | '[' | ']' | '*' | '<' => shown.extend(['\\', sign]),
            sign => shown.push(sign),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run of all proofs notes, without some of them.
    fn lines(notes: &[(&str, &str, &str)], without: &[usize]) -> Result<String> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("seen");
        for (proof, what, value) in notes {
            note(&file, proof, what, value)?;
        }
        for number in (1..=PROOFS.len()).filter(|number| !without.contains(number)) {
            note(&file, &number.to_string(), "it", "holds")?;
        }
        Ok(std::fs::read_to_string(&file)?)
    }

    #[test]
    fn a_pattern_in_a_message_is_no_link() {
        assert_eq!(cell("'[a-z](\\.[a-z])*'\nor <none> | x"), "'\\[a-z\\](\\.\\[a-z\\])\\*' or \\<none> \\| x");
    }

    #[test]
    fn what_proofs_note_becomes_a_page_in_the_order_of_the_proofs() -> Result<()> {
        let notes = [
            ("A cluster for developers", "time until it was up", "17 s"),
            ("12", "a misspelt field", "unknown field"),
            ("6", "agent killed, 192.168.7.200", "nobody for 9800 ms"),
            ("6", "agent asked to stop, 192.168.7.200", "nobody for 35 ms"),
            ("6", "agent killed, 192.168.7.200", "nobody for 9700 ms"),
            ("6", "agent killed, 192.168.7.200", "nobody for 9800 ms"),
        ];
        let page = render(&lines(&notes, &[6, 12])?)?;
        let parts: Vec<&str> = page.split("\n## ").collect();
        assert_eq!(parts.len(), 1 + PROOFS.len() + 1, "{page}");
        assert_eq!(
            parts[6],
            "6. Nodes in trouble: who answers, and for how long nobody does\n\n| what | seen |\n| --- | --- |\n\
             | agent asked to stop, 192.168.7.200 | nobody for 35 ms |\n\
             | agent killed, 192.168.7.200 | nobody for 9800 ms; nobody for 9700 ms |\n"
        );
        assert!(parts[12].starts_with("12. Bad input"), "{}", parts[12]);
        assert!(parts[13].starts_with("A cluster for developers\n"), "{}", parts[13]);
        Ok(())
    }

    #[test]
    fn a_proof_that_has_noted_nothing_is_named_instead_of_a_page() -> Result<()> {
        let error = render(&lines(&[], &[3, 11])?).expect_err("two are missing").to_string();
        assert!(error.contains(FILE) && error.contains("\n  3. The third seed"), "{error}");
        assert!(error.contains("\n  11. Every kube-proxy") && error.lines().count() == 3, "{error}");
        assert_eq!(render("").expect_err("all are missing").to_string().lines().count(), 1 + PROOFS.len());
        assert!(render("warning: unused\n").is_err());
        Ok(())
    }
}
