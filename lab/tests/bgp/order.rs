//! What happens first, by the clocks of the wire and of the kernel: a route is told after its address is there, and taken
//! back before it leaves.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use anyhow::{Context, Result};
use purelb_lab::net::{Capture, Namespace};

use crate::configured::neighbors;
use crate::routes::host;
use crate::story::Story;

/// Seconds since midnight, UTC.
type Clock = f64;

const DAY: f64 = 86_400.0;

/// `ip monitor` with the kernel's news of addresses, each with its time.
struct Monitor {
    program: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Monitor {
    fn start(namespace: &Namespace) -> Result<Self> {
        let mut command = namespace.command("ip");
        command.args(["-ts", "-o", "monitor", "address"]).env("TZ", "UTC").stdout(Stdio::piped());
        let mut program = command.spawn().context("cannot run ip")?;
        let output = program.stdout.take().context("ip has no output")?;
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let monitor = Self { program, lines: lines.clone() };
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                lines.lock().expect("nobody panics with it").push(line);
            }
        });
        // It does not say when it begins, so it is given something to tell until it does.
        while monitor.lines.lock().expect("nobody panics with it").is_empty() {
            namespace.batch("addr add 127.9.9.9/32 dev lo\naddr del 127.9.9.9/32 dev lo\n")?;
        }
        Ok(monitor)
    }

    /// When the kernel told of an address on `kube-lb0`, or that it is gone.
    fn when(&self, address: &str, gone: bool) -> Option<Clock> {
        let lines = self.lines.lock().expect("nobody panics with it").clone();
        let about = |line: &&String| line.contains("kube-lb0") && line.contains(&format!(" {address}/"));
        let found = lines.iter().filter(about).find(|line| line.contains("Deleted") == gone)?;
        // [2026-01-02T03:04:05.678901]
        let time = found.split_once('T')?.1.split_once(']')?.0;
        let parts: Vec<f64> = time.split(':').filter_map(|part| part.parse().ok()).collect();
        (parts.len() == 3).then(|| parts[0] * 3600.0 + parts[1] * 60.0 + parts[2])
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// What tcpdump writes above the prefixes that are told, of IPv4 and of other families.
const TOLD: [&str; 2] = ["Updated routes", "Multi-Protocol Reach NLRI"];
/// The same of those that are taken back.
const TAKEN_BACK: [&str; 2] = ["Withdrawn routes", "Multi-Protocol Unreach NLRI"];

/// The times of the packets that have a prefix under one of these headings of tcpdump, in order.
fn packets(capture: &Capture, headings: [&str; 2], prefix: &str) -> Vec<Clock> {
    let (mut time, mut under, mut found) = (0.0, false, Vec::new());
    for line in capture.lines() {
        if let Some(epoch) = line.split_whitespace().next().and_then(|word| word.parse::<f64>().ok())
            && !line.starts_with(char::is_whitespace)
        {
            time = epoch % DAY;
        }
        let text = line.trim();
        let is_prefix = text.contains('/') && !text.contains(' ');
        if text == prefix {
            found.extend(under.then_some(time));
        } else if !is_prefix && !["AFI:", "nexthop:"].iter().any(|detail| text.starts_with(detail)) {
            under = headings.iter().any(|heading| text.starts_with(heading));
        }
    }
    found
}

/// Seconds from one time of the day to another as milliseconds.
fn milliseconds(from: Clock, to: Clock) -> f64 {
    (to - from).rem_euclid(DAY) * 1000.0
}

/// Each router is told of the address after it came, and told otherwise before it went.
fn in_order(wire: &Capture, kernel: &Monitor, address: IpAddr, routers: usize) -> Result<()> {
    let (prefix, address) = (host(address), address.to_string());
    let (told, taken_back) = (packets(wire, TOLD, &prefix), packets(wire, TAKEN_BACK, &prefix));
    assert!(told.len() >= routers && taken_back.len() >= routers, "{:#?}", wire.lines());
    let (came, went) =
        (kernel.when(&address, false).context("it came")?, kernel.when(&address, true).context("it went")?);
    for told in told {
        println!("{prefix} told {:.1} ms after the address came", milliseconds(came, told));
        assert!(milliseconds(came, told) < 20_000.0, "a route was told before its address was there");
    }
    for taken_back in taken_back {
        let before = milliseconds(taken_back, went);
        println!("{prefix} taken back {before:.1} ms before the address went");
        assert!((100.0..1200.0).contains(&before), "taken back {before:.1} ms before the address went");
    }
    Ok(())
}

#[tokio::test]
async fn routes_come_after_their_addresses_and_go_before_them() -> Result<()> {
    let story = Story::begin("routes_come_after_their_addresses_and_go_before_them").await?;
    story.configure(neighbors(story.gates(), |_| ())).await?;
    story.established(6).await?;
    let node = &story.nodes()[0];
    // What the node says, not what routers tell it of other nodes.
    let own_words = format!("tcp port 179 and (src host {} or src host {})", node.v4, node.v6);
    let wire = Capture::start(&node.namespace, "eth0", &own_words)?;
    let kernel = Monitor::start(&node.namespace)?;
    story.group("single", ["/32", "/128"]).await?;
    let addresses = story.service("web", "single", "Cluster").await?;
    addresses.into_iter().try_for_each(|address| story.routed(story.gates(), &host(address), &[0, 1, 2]))?;
    story.delete("web").await?;
    addresses.into_iter().try_for_each(|address| story.routed(story.gates(), &host(address), &[]))?;
    let gone = |address: IpAddr| kernel.when(&address.to_string(), true).is_some();
    story.until("the addresses are gone", async |_| Ok(addresses.into_iter().all(gone))).await?;
    addresses.into_iter().try_for_each(|address| in_order(&wire, &kernel, address, story.gates().len()))?;
    story.close()
}
