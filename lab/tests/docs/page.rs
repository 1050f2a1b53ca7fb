//! The Markdown files of the repository, and the blocks in them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the lab is in the repository")
}

/// A Markdown file.
pub struct Page {
    /// Its path in the repository.
    pub name: String,
    pub text: String,
}

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The word after the fence, such as `yaml`.
    pub kind: String,
    /// The line of the fence, counted from one.
    pub line: usize,
    pub text: String,
}

/// Every Markdown file that people read, sorted.
pub fn pages() -> Result<Vec<Page>> {
    let mut paths = found(root(), false)?;
    for folder in ["docs", "deploy", "examples", "lab", "crates", "fuzz"] {
        paths.extend(found(&root().join(folder), true)?);
    }
    paths.sort();
    paths.into_iter().map(|path| page(&path)).collect()
}

/// The Markdown file of this name.
pub fn named(name: &str) -> Result<Page> {
    page(&root().join(name))
}

fn page(path: &Path) -> Result<Page> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Page { name: path.strip_prefix(root())?.display().to_string(), text })
}

fn found(folder: &Path, deep: bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && deep && path.file_name().is_none_or(|name| name != "target") {
            found.extend(self::found(&path, deep)?);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    Ok(found)
}

impl Page {
    /// The blocks of one kind, as they would be without the list that they stand in.
    pub fn blocks(&self, kind: &str) -> Vec<Block> {
        blocks(&self.text).into_iter().filter(|block| block.kind == kind).collect()
    }

    /// The text without the blocks: line numbers, counted from one, and lines.
    pub fn prose(&self) -> Vec<(usize, &str)> {
        let mut inside = false;
        let mut prose = Vec::new();
        for (number, line) in self.text.lines().enumerate() {
            let fence = line.trim_start().starts_with("```");
            if !fence && !inside {
                prose.push((number + 1, line));
            }
            inside ^= fence;
        }
        prose
    }
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(Block, usize)> = None;
    for (number, line) in markdown.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        open = match (open.take(), line.trim_start().strip_prefix("```")) {
            (None, Some(kind)) => {
                Some((Block { kind: kind.to_owned(), line: number + 1, text: String::new() }, indent))
            }
            (Some((block, _)), Some("")) => {
                blocks.push(block);
                None
            }
            (Some((mut block, indent)), _) => {
                block.text.extend([line.get(indent..).unwrap_or_default(), "\n"]);
                Some((block, indent))
            }
            (None, None) => None,
        };
    }
    blocks
}

#[test]
fn blocks_in_lists_lose_their_indent() {
    let found = blocks("1. so:\n\n   ```yaml\n   a:\n     b\n\n   ```\n\n```sh\nls\n```\n");
    let block = |kind: &str, line, text: &str| Block { kind: kind.into(), line, text: text.into() };
    assert_eq!(found, [block("yaml", 3, "a:\n  b\n\n"), block("sh", 9, "ls\n")]);
}
