//! FRR 8: its configuration and its tool.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Neighbour, Program, Settings};

pub(super) fn programs(folder: &Path, config: &str) -> Result<Vec<Program>> {
    let mut all = Vec::new();
    for (program, name, text) in [("/usr/lib/frr/zebra", "zebra", ""), ("/usr/lib/frr/bgpd", "bgpd", config)] {
        let file = folder.join(format!("{name}.conf"));
        fs::write(&file, text)?;
        let mut arguments: Vec<OsString> = vec!["-f".into(), file.into()];
        arguments.extend(["-i".into(), folder.join(format!("{name}.pid")).into()]);
        arguments.extend(["-z".into(), folder.join("zserv.api").into()]);
        // Each router has its own sockets; no program of FRR is reached over TCP.
        arguments.extend([
            "--vty_socket".into(),
            folder.into(),
            "-P".into(),
            "0".into(),
            "--log".into(),
            "stdout".into(),
        ]);
        // bgpd does not know the machine's interfaces until it has found zebra.
        let door = Some(folder.join("zserv.api"));
        all.push(Program { path: program.into(), arguments, door });
    }
    Ok(all)
}

pub(super) fn tool(folder: &Path, command: &str) -> Command {
    let mut tool = Command::new("/usr/bin/vtysh");
    tool.arg("--vty_socket").arg(folder).args(["-d", "bgpd", "-c", command]);
    tool
}

pub(super) fn config(settings: &Settings) -> String {
    let mut text = format!("router bgp {}\n bgp router-id {}\n", settings.asn, settings.id);
    text += " no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n bgp log-neighbor-changes\n";
    if settings.neighbours.iter().any(|one| one.graceful_restart) {
        text += " bgp graceful-restart\n";
    }
    settings.neighbours.iter().for_each(|one| session(&mut text, one));
    family(&mut text, "ipv4", settings.neighbours.iter().filter(|one| one.v4));
    family(&mut text, "ipv6", settings.neighbours.iter().filter(|one| one.v6));
    text
}

fn family<'a>(text: &mut String, name: &str, neighbours: impl Iterator<Item = &'a Neighbour>) {
    let mut line = |words: String| writeln!(text, " {words}").expect("a string takes all");
    line(format!("address-family {name} unicast"));
    line(" maximum-paths 8".into());
    line(" maximum-paths ibgp 8".into());
    neighbours.for_each(|one| line(format!(" neighbor {} activate", one.address)));
    line("exit-address-family".into());
}

fn session(text: &mut String, neighbour: &Neighbour) {
    let mut line =
        |words: String| writeln!(text, " neighbor {} {words}", neighbour.address).expect("a string takes all");
    line(format!("remote-as {}", neighbour.asn));
    if neighbour.is_link_local() {
        line("interface eth0".into());
    }
    line(format!("timers {} {}", neighbour.hold / 3, neighbour.hold));
    line("timers connect 1".into());
    if let Some(password) = &neighbour.password {
        line(format!("password {password}"));
    }
    if neighbour.ttl_security {
        line("ttl-security hops 1".into());
    }
    if neighbour.passive {
        line("passive".into());
    }
    if neighbour.extended_next_hop {
        line("capability extended-nexthop".into());
    }
}
