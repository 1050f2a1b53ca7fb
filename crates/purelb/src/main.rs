//! The `purelb` program: one binary, one subcommand for each of its jobs.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use purelb::{agent, allocator};

mod crds;
mod validate;

/// Addresses for Kubernetes Services of type LoadBalancer, without a cloud.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make the network bring traffic for the addresses to this node; runs on every node
    Agent(agent::command::Args),
    /// Give addresses to Services of type LoadBalancer; any number may run, one leads
    Allocator(allocator::command::Args),
    /// Print the CustomResourceDefinitions that PureLB needs in a cluster
    Crds(crds::Args),
    /// Check ServiceGroup, LBNodeAgent and BGPConfiguration manifests without a cluster
    Validate(validate::Args),
}

/// Exit code of a command that could not do its work at all; 1 is for what the work found.
const COULD_NOT: u8 = 2;

fn main() -> ExitCode {
    let done = match Cli::parse_from(double_dashed(std::env::args_os())).command {
        Command::Agent(args) => agent::command::run(&args),
        Command::Allocator(args) => allocator::command::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Crds(args) => crds::run(&args),
        Command::Validate(args) => validate::run(&args),
    };
    done.unwrap_or_else(|error| {
        eprintln!("purelb: {error:#}");
        ExitCode::from(COULD_NOT)
    })
}

/// The daemons of the PureLB this replaces took `-port` for `--port`, and manifests write it so.
fn double_dashed(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<_> = args.collect();
    if args.get(1).is_some_and(|command| command == "agent" || command == "allocator") {
        for arg in args.iter_mut().skip(2) {
            let single = arg.to_str().and_then(|text| text.strip_prefix('-')).filter(|name| name.len() > 1);
            if let Some(name) = single.filter(|name| !name.starts_with('-')) {
                *arg = format!("--{name}").into();
            }
        }
    }
    args
}

/// Writes to standard output; a reader that has seen enough (`purelb crds | head`) is no error.
fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
