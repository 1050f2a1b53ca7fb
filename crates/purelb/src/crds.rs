//! `purelb crds`: the CustomResourceDefinitions, on standard output or as files.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use crate::print;

/// What to do with the definitions.
#[derive(clap::Args)]
pub struct Args {
    /// Write one file for each definition into this folder instead of printing them
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints or writes the definitions.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(dir) = &args.dir else {
        print(&purelb_api::crds_yaml())?;
        return Ok(ExitCode::SUCCESS);
    };
    fs::create_dir_all(dir).with_context(|| format!("cannot create the folder {}", dir.display()))?;
    for (name, text) in purelb_api::crd_files() {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
