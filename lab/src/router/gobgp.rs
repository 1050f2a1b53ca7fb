//! GoBGP 4: its configuration and its tool. It keeps a table and leaves the kernel alone.

use std::env;
use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use super::{Neighbour, Program, Settings};

pub(super) fn programs(folder: &Path, config: &str) -> Result<Vec<Program>> {
    let file = folder.join("gobgpd.toml");
    fs::write(&file, config)?;
    let arguments = ["-f".into(), file.into(), "--api-hosts".into(), door(folder).into(), "--pprof-disable".into()];
    Ok(vec![Program { path: programs_folder()?.join("gobgpd"), arguments: arguments.into(), door: None }])
}

pub(super) fn tool(folder: &Path, command: &str) -> Result<Command> {
    let mut tool = Command::new(programs_folder()?.join("gobgp"));
    tool.args(["--target", &door(folder)]).args(command.split(' '));
    Ok(tool)
}

fn door(folder: &Path) -> String {
    format!("unix://{}", folder.join("gobgp.sock").display())
}

/// `PURELB_BIN`, or else what `lab/tools/build` prints.
fn programs_folder() -> Result<PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOLDER.get_or_init(|| find().map_err(|error| format!("{error:#}"))).clone().map_err(|error| anyhow!(error))
}

fn find() -> Result<PathBuf> {
    if let Some(folder) = env::var_os("PURELB_BIN") {
        return Ok(folder.into());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/build");
    let output = Command::new(script).args(["gobgp", "gobgpd"]).stderr(Stdio::inherit()).output();
    let output = output.context("cannot run lab/tools/build")?;
    ensure!(output.status.success(), "lab/tools/build failed ({}): is Go installed?", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().into())
}

/// The next hops that the table has for a prefix, given the table as `gobgp -j global rib` prints it.
pub(super) fn next_hops(table: &str, prefix: &str) -> Result<Vec<IpAddr>> {
    let table: Value = serde_json::from_str(table).context("gobgp prints JSON")?;
    let paths = table[prefix].as_array().into_iter().flatten();
    let attributes = paths.flat_map(|path| path["attrs"].as_array().into_iter().flatten());
    let hops = attributes.filter_map(|attribute| attribute["nexthop"].as_str());
    hops.map(|hop| hop.parse().with_context(|| format!("{hop} is no address"))).collect()
}

/// How many prefixes the table has.
pub(super) fn route_count(table: &str) -> Result<usize> {
    let table: Value = serde_json::from_str(table).context("gobgp prints JSON")?;
    Ok(table.as_object().map_or(0, serde_json::Map::len))
}

pub(super) fn config(settings: &Settings) -> String {
    let mut text = format!("[global.config]\nas = {}\nrouter-id = \"{}\"\n", settings.asn, settings.id);
    settings.neighbours.iter().for_each(|one| session(&mut text, one));
    text
}

fn session(text: &mut String, neighbour: &Neighbour) {
    let mut line = |words: String| writeln!(text, "{words}").expect("a string takes all");
    line("[[neighbors]]\n[neighbors.config]".into());
    line(format!("neighbor-address = \"{}\"\npeer-as = {}", neighbour.address, neighbour.asn));
    if let Some(password) = &neighbour.password {
        line(format!("auth-password = \"{password}\""));
    }
    line("[neighbors.timers.config]\nconnect-retry = 1\nidle-hold-time-after-reset = 1".into());
    line(format!("hold-time = {}\nkeepalive-interval = {}", neighbour.hold, neighbour.hold / 3));
    line(format!("[neighbors.transport.config]\npassive-mode = {}", neighbour.passive));
    if neighbour.ttl_security {
        line("[neighbors.ttl-security.config]\nenabled = true\nttl-min = 255".into());
    }
    if neighbour.graceful_restart {
        line("[neighbors.graceful-restart.config]\nenabled = true\nhelper-only = true\nrestart-time = 60".into());
    }
    for (name, _) in [("ipv4", neighbour.v4), ("ipv6", neighbour.v6)].into_iter().filter(|(_, spoken)| *spoken) {
        line(format!("[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{name}-unicast\""));
        if neighbour.graceful_restart {
            line("[neighbors.afi-safis.mp-graceful-restart.config]\nenabled = true".into());
        }
    }
}
