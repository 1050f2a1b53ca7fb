//! What the stories lean on: scripts run and fail as anywhere, a paused machine stands still, and none stays behind.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use purelb_lab::net::{Lan, Namespace};
use purelb_lab::vm::{Ended, Machine, Plan};

/// How many seconds a machine has been running, by its own clock.
fn uptime(machine: &Machine) -> Result<f64> {
    let text = machine.run("cat /proc/uptime")?;
    Ok(text.split_whitespace().next().unwrap_or_default().parse()?)
}

/// Whether the program that listens in the machine is reached from outside.
fn is_reached(client: &Namespace) -> bool {
    let at = SocketAddr::from(([192, 168, 7, 11], 80));
    client.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(1))).is_ok()
}

fn reach(client: &Namespace, machine: &Machine) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_reached(client) {
        ensure!(Instant::now() < deadline, "nobody reaches it: {}", machine.run("ip addr; ip neigh; netstat -ln")?);
    }
    Ok(())
}

#[test]
fn a_machine_runs_scripts_is_paused_and_resumed_and_leaves_nothing_behind() -> Result<()> {
    let lan = Lan::new()?;
    let client = Namespace::new("client")?;
    lan.plug(&client, "eth0", &["192.168.7.1/24"])?;
    let machine = Plan::new("machine").file("/etc/greeting", "hello").nic(&lan).boot()?;
    assert_eq!(machine.run("cat /etc/greeting")?, "hello");
    let (code, output) = (3, "a\nb\n".to_owned());
    assert_eq!(machine.attempt("echo a; echo b >&2; exit 3")?, Ended { code, output });
    machine.run("ip addr add 192.168.7.11/24 dev eth0 && ip link set eth0 up && httpd -p 80")?;
    reach(&client, &machine)?;

    let before = uptime(&machine)?;
    machine.pause()?;
    let paused = Instant::now();
    assert!(!is_reached(&client), "a paused machine answers nobody");
    std::thread::sleep(Duration::from_secs(3));
    let pause = paused.elapsed();
    machine.resume()?;
    let resumed = Instant::now();
    let after = uptime(&machine)?;
    let ran = (after - before) - resumed.elapsed().as_secs_f64();
    assert!(ran < pause.as_secs_f64() / 2.0, "its clock went on for {ran} s of a pause of {pause:?}");
    reach(&client, &machine)?;

    let process = format!("/proc/{}", machine.process());
    assert!(Path::new(&process).exists());
    drop(machine);
    assert!(!Path::new(&process).exists(), "at once");
    Ok(())
}
