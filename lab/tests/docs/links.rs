//! Links from page to page lead somewhere, to the heading they name.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use anyhow::Result;
use regex::Regex;

use crate::page::{Page, named, pages, root};

/// The targets of a line's links. A bracket after a backslash is a bracket.
fn targets(line: &str) -> Vec<&str> {
    static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[^\\]\]\(([^)\s]+)\)").expect("a good pattern"));
    LINK.captures_iter(line).filter_map(|found| found.get(1)).map(|target| target.as_str()).collect()
}

/// The name by which a heading is linked to: lower case, blanks as dashes, no other signs.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().to_lowercase();
    let kept = letters.chars().filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn anchors(page: &Page) -> Vec<String> {
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let headings = page.prose().into_iter().filter(|(_, line)| line.starts_with('#'));
    headings
        .map(|(_, line)| {
            let name = anchor(line.trim_start_matches('#'));
            let before = taken.entry(name.clone()).or_default();
            *before += 1;
            if *before == 1 { name } else { format!("{name}-{}", *before - 1) }
        })
        .collect()
}

/// A path of the repository without `..`.
fn straight(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        if part == Component::ParentDir {
            whole.pop();
        } else {
            whole.push(part);
        }
        whole
    })
}

/// What is wrong with a link of a page, if something is.
fn fault(page: &Page, target: &str) -> Result<Option<String>> {
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let folder = Path::new(&page.name).parent().unwrap_or(Path::new(""));
    let file = if path.is_empty() { PathBuf::from(&page.name) } else { straight(&folder.join(path)) };
    if !root().join(&file).exists() {
        return Ok(Some(format!("there is no {}", file.display())));
    }
    let Some(anchor) = anchor else { return Ok(None) };
    let known = anchors(&named(&file.display().to_string())?);
    Ok((!known.iter().any(|one| one == anchor)).then(|| format!("{} has the headings {known:?}", file.display())))
}

#[test]
fn every_link_leads_somewhere() -> Result<()> {
    let (mut followed, mut faults) = (0, Vec::new());
    for page in pages()? {
        for (number, line) in page.prose() {
            for target in targets(line).into_iter().filter(|target| !target.contains("://")) {
                followed += 1;
                faults.extend(fault(&page, target)?.map(|fault| format!("{}:{number}: {target}: {fault}", page.name)));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(followed > 50, "only {followed} links were found");
    Ok(())
}

#[test]
fn every_page_of_the_documentation_can_be_found_from_its_first_page() -> Result<()> {
    let first = named("docs/README.md")?;
    let listed: Vec<PathBuf> = first
        .prose()
        .iter()
        .flat_map(|(_, line)| targets(line))
        .map(|target| straight(&Path::new("docs").join(target)))
        .collect();
    for page in pages()? {
        let own = page.name.starts_with("docs/") && !page.name.starts_with("docs/decisions/0");
        let known = page.name == first.name || listed.iter().any(|path| *path == Path::new(&page.name));
        assert!(!own || known, "docs/README.md does not list {}", page.name);
    }
    Ok(())
}

#[test]
fn headings_are_linked_to_by_their_letters() {
    assert_eq!(anchor(" The image, and the program"), "the-image-and-the-program");
    assert_eq!(anchor(" spec.neighbors[]"), "specneighbors");
    assert_eq!(targets("a [b](c.md#d) and [`e`](../f.md)"), ["c.md#d", "../f.md"]);
}
