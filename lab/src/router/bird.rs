//! BIRD 2: its configuration and its tool.

use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Neighbour, Program, Settings};

/// All next hops of a route go to the kernel; nothing of ours goes to neighbours.
const HEAD: &str = "log stderr all;
protocol device { scan time 1; }
protocol kernel { ipv4 { export all; import none; }; merge paths on; }
protocol kernel { ipv6 { export all; import none; }; merge paths on; }
";

pub(super) fn programs(folder: &Path, config: &str) -> Result<Vec<Program>> {
    let file = folder.join("bird.conf");
    fs::write(&file, config)?;
    let arguments = ["-f".into(), "-c".into(), file.into(), "-s".into(), folder.join("bird.ctl").into()];
    Ok(vec![Program { path: "/usr/sbin/bird".into(), arguments: arguments.into(), door: None }])
}

pub(super) fn tool(folder: &Path, command: &str) -> Command {
    let mut tool = Command::new("/usr/sbin/birdc");
    tool.arg("-s").arg(folder.join("bird.ctl")).args(command.split(' '));
    tool
}

/// Protocols of BIRD have names.
pub(super) fn name(address: IpAddr) -> String {
    format!("n_{}", address.to_string().replace(['.', ':'], "_"))
}

pub(super) fn config(settings: &Settings) -> String {
    let sessions = settings.neighbours.iter().map(|one| session(settings.asn, one));
    format!("{HEAD}router id {};\n{}", settings.id, sessions.collect::<String>())
}

fn session(asn: u32, neighbour: &Neighbour) -> String {
    let mut text = format!("protocol bgp {} {{\n  local as {asn};\n", name(neighbour.address));
    let mut line = |words: String| writeln!(text, "  {words};").expect("a string takes all");
    let zone = if neighbour.is_link_local() { "%eth0" } else { "" };
    line(format!("neighbor {}{zone} as {}", neighbour.address, neighbour.asn));
    // Next hops are on the wire; without this BIRD would look for them in routes that it does not have.
    line("direct".into());
    line(format!("hold time {}", neighbour.hold));
    line("connect retry time 1".into());
    line("connect delay time 1".into());
    line("error wait time 1, 2".into());
    line(format!("graceful restart {}", if neighbour.graceful_restart { "aware" } else { "off" }));
    if let Some(password) = &neighbour.password {
        line(format!("password \"{password}\""));
    }
    if !neighbour.four_octets {
        line("enable as4 off".into());
    }
    if neighbour.ttl_security {
        line("ttl security on".into());
    }
    if neighbour.passive {
        line("passive on".into());
    }
    let extended = if neighbour.extended_next_hop { "extended next hop on; " } else { "" };
    if neighbour.v4 {
        line(format!("ipv4 {{ import all; export none; {extended}}}"));
    }
    if neighbour.v6 {
        line("ipv6 { import all; export none; }".into());
    }
    text + "}\n"
}
