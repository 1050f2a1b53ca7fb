//! `purelb-demo`: PureLB on one machine, without Kubernetes: real daemons, a real router, and a tour of what they do.

mod ask;
mod cluster;
mod ending;
mod folder;
mod keeper;
mod process;
mod proxy;
mod router;
mod sandbox;
mod show;
mod site;
mod slices;
mod stay;
mod tour;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::ending::Ending;
use crate::show::{Form, Show};
use crate::site::Site;
use crate::stay::Keys;

/// PureLB on one machine, without Kubernetes: nodes, a router and clients as network namespaces, and the real daemons.
///
/// It touches nothing outside of its own namespaces and leaves nothing behind. On a terminal it shows what PureLB does
/// step by step, then stays up for you to play with.
#[derive(Clone, Debug, Parser)]
#[command(version)]
struct Cli {
    /// How many nodes there are
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    nodes: u8,
    /// Show all steps without waiting, then exit: 0 only if each of them was seen to work
    #[arg(long)]
    once: bool,
    /// Print one JSON object per step instead of text; without --once, a last one says where the cluster is
    #[arg(long)]
    json: bool,
    /// Keep the objects of the cluster in this folder, and begin with those that are there
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// The folder of the run: given by the process that made the namespaces to the one that works in them
    #[arg(long, value_name = "FOLDER", hide = true)]
    inside: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Some(folder) = cli.inside.clone() else {
        return sandbox::run(cli.once).unwrap_or_else(|error| {
            eprintln!("purelb-demo: {error:#}");
            ExitCode::FAILURE
        });
    };
    let form = if cli.json { Form::Json } else { Form::Text };
    let mut show = Show::new(form, &folder);
    let ended = Ending::watch(&folder).and_then(|ending| inside(&cli, &folder, &mut show, &ending));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            show.failure(&error);
            ExitCode::from(ending::FAILED)
        }
    }
}

/// Builds everything, shows it, and stays until somebody has seen enough.
fn inside(cli: &Cli, folder: &std::path::Path, show: &mut Show, ending: &Ending) -> Result<()> {
    let keys = if cli.once || cli.json { Keys::none() } else { Keys::of_the_terminal(ending)? };
    let mut site = Site::build(folder, cli.nodes, cli.data.as_deref(), show)?;
    tour::run(&mut site, show, &keys)?;
    if !cli.once {
        stay::run(&mut site, show, &keys)?;
    }
    Ok(())
}
