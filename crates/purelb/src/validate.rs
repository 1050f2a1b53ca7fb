//! `purelb validate`: manifests in, sentences out, no cluster needed.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use purelb_api::validate::validate;

use crate::print;

/// Which manifests to check and how to print what was found.
#[derive(clap::Args)]
pub struct Args {
    /// A manifest, a folder of manifests, or - for standard input; may be given several times
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", required = true)]
    files: Vec<PathBuf>,
    /// How to print what was found
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// How to print a report.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    /// One line for each finding
    Text,
    /// One JSON object
    Json,
}

/// Checks everything named on the command line as one configuration; exit code 1 when anything is wrong.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut texts = Vec::new();
    for path in &args.files {
        texts.extend(read(path)?);
    }
    let report = validate(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let rendered = match args.output {
        Output::Text => report.to_string(),
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    print(&rendered)?;
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Name and text of each manifest behind one argument.
fn read(path: &Path) -> anyhow::Result<Vec<(String, String)>> {
    if path == Path::new("-") {
        let mut text = Vec::new();
        io::stdin().read_to_end(&mut text).context("cannot read standard input")?;
        return Ok(vec![("<stdin>".to_owned(), String::from_utf8_lossy(&text).into_owned())]);
    }
    let mut files = Vec::new();
    collect(path, &mut files)?;
    if files.is_empty() {
        bail!("no manifests in {}: it holds no file ending in .yaml, .yml or .json", path.display());
    }
    files.into_iter().map(|file| Ok((file.display().to_string(), text_of(&file)?))).collect()
}

/// Every manifest below a folder in the order of their names, or the file itself whatever its name.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.with_context(|| format!("cannot read the folder {}", path.display()))?;
    let mut paths: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.is_dir() || is_manifest(path)) {
        collect(path, files)?;
    }
    Ok(())
}

fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known))
}

/// Bytes that are no UTF-8 are left for the YAML reader to complain about, with a line.
fn text_of(file: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
