//! The true dummy interface, in a Linux that runs as a process: what the documentation shows is what operators see.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// As the documentation shows it, index and MAC aside.
const DOCUMENTED: &str = "\
N: kube-lb0: <BROADCAST,NOARP,UP,LOWER_UP> mtu 1500 qdisc noqueue state UNKNOWN group default qlen 1000
    link/ether MAC brd ff:ff:ff:ff:ff:ff
    inet 172.32.100.225/32 scope global kube-lb0
       valid_lft forever preferred_lft forever
    inet6 fc00:370:155:0:8000::/128 scope global
       valid_lft forever preferred_lft forever
    inet6 LINK-LOCAL/64 scope link
       valid_lft forever preferred_lft forever";

const DOCUMENTED_AGGREGATE: [&str; 2] = [
    "    inet 172.22.0.11/24 brd 172.22.0.255 scope global kube-lb0",
    "       valid_lft forever preferred_lft forever",
];

#[test]
fn a_virtual_address_on_a_true_dummy_looks_as_documented() -> Result<()> {
    let shown = shown(&["172.32.100.225/32", "fc00:370:155:0:8000::/128"])?;
    assert_eq!(shown.lines().map(anonymous).collect::<Vec<_>>().join("\n"), DOCUMENTED);
    Ok(())
}

#[test]
fn an_aggregate_on_a_true_dummy_looks_as_documented() -> Result<()> {
    let shown = shown(&["172.22.0.11/24"])?;
    let lines: Vec<_> = shown.lines().map(str::trim_end).collect();
    let start = lines.iter().position(|line| line.contains("inet ")).with_context(|| shown.clone())?;
    assert_eq!(lines[start..start + 2], DOCUMENTED_AGGREGATE);
    Ok(())
}

/// What `ip addr show dev kube-lb0` prints in a fresh Linux after the agent's kernel thread put these there.
fn shown(pairs: &[&str]) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let (init, out) = (folder.path().join("init"), folder.path().join("out"));
    fs::write(&init, script(&out, pairs))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let mut linux = Command::new("timeout");
    linux.args(["60", "linux.uml", "mem=256M", "rootfstype=hostfs", "rootflags=/", "rw", "con=null", "con0=fd:0,fd:1"]);
    linux.arg(format!("init={}", init.display())).arg("quiet");
    // Its memory is a file; it and the control socket belong where the test's other files are.
    linux.env("TMPDIR", folder.path()).env("HOME", folder.path());
    let console = linux.stdin(Stdio::null()).output().context("user-mode-linux is not installed: run scripts/setup")?;
    let console = String::from_utf8_lossy(&console.stdout).into_owned();
    let shown = fs::read_to_string(&out).with_context(|| format!("it did not come so far:\n{console}"))?;
    ensure!(shown.contains("kube-lb0"), "{shown}\n{console}");
    Ok(shown)
}

/// Its root is the root of this machine, so only a tmpfs is written to.
fn script(out: &Path, pairs: &[&str]) -> String {
    format!(
        "#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /mnt\n\
         mkdir -p /mnt/lib; ln -s /usr/lib/uml/modules /mnt/lib/modules\n\
         modprobe -d /mnt dummy numdummies=0; modprobe -d /mnt ipv6\n\
         ip link set lo up\n\
         {} kube-lb0 {} && ip addr show dev kube-lb0 > {}\n\
         echo o > /proc/sysrq-trigger\nread -r _\n",
        env!("CARGO_BIN_EXE_put-addresses"),
        pairs.join(" "),
        out.display()
    )
}

/// Without what differs from node to node, and without the space that `ip` prints at the end of some lines.
fn anonymous(line: &str) -> String {
    let words = line.trim_end().split(' ').map(|word| match word {
        _ if line.contains(": kube-lb0:") && word.trim_end_matches(':').parse::<u32>().is_ok() => "N:".to_owned(),
        word if word.starts_with("fe80:") => "LINK-LOCAL/64".to_owned(),
        word if word.len() == 17 && word.matches(':').count() == 5 && word != "ff:ff:ff:ff:ff:ff" => "MAC".to_owned(),
        word => word.to_owned(),
    });
    let line = words.collect::<Vec<_>>().join(" ");
    if line.starts_with("N:") { line.replace("mtu N:", "mtu 1500").replace("qlen N:", "qlen 1000") } else { line }
}
