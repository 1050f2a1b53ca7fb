//! The BGP container of 0.17: what is on `kube-lb0` goes to the neighbors that the BGPConfiguration names. BIRD speaks.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use rustix::process::{Pid, Signal as Word, kill_process};
use serde_json::Value;
use tokio::process::Command;
use tokio::signal::unix::Signal;

use super::{agent, node};

/// Where its probes ask.
const HEALTH: u16 = 7474;
const CONFIG: &str = "/tmp/bird.conf";
const SOCKET: &str = "/var/run/gobgp/bird.ctl";

pub async fn run(told: &mut Signal) -> Result<()> {
    let kind = GroupVersionKind::gvk("bgp.purelb.io", "v1", "BGPConfiguration");
    let configurations: Api<DynamicObject> = Api::namespaced_with(
        agent::client().await?,
        "purelb-system",
        &ApiResource::from_gvk_with_plural(&kind, "configs"),
    );
    let configuration = configurations.get("default").await.context("no BGPConfiguration")?;
    // The agent of the same Pod makes the interface, and BIRD may come first: it waits for interfaces.
    fs::write(CONFIG, written(&configuration.data["spec"])?)?;
    let mut bird = Command::new("/bird").args(["-f", "-c", CONFIG, "-s", SOCKET]).spawn().context("no BIRD")?;
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, HEALTH))?;
    thread::spawn(move || listener.incoming().flatten().for_each(healthy));
    tokio::select! {
        ended = bird.wait() => ensure!(ended?.success(), "BIRD has ended"),
        _ = told.recv() => {
            let id = bird.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).context("BIRD has ended")?;
            kill_process(id, Word::TERM)?;
            bird.wait().await?;
        }
    }
    Ok(())
}

/// The configuration in BIRD's language.
fn written(spec: &Value) -> Result<String> {
    let own = node::networks()?;
    let (asn, id) = (&spec["global"]["asn"], own.iter().find(|own| own.addr().is_ipv4()).context("no IPv4")?.addr());
    let mut text = format!(
        "log stderr all;\nrouter id {id};\nprotocol device {{ scan time 1; }}
         protocol direct {{ ipv4; ipv6; interface \"{}\"; }}\n",
        node::VIRTUAL
    );
    for neighbor in spec["neighbors"].as_array().into_iter().flatten() {
        let config = &neighbor["config"];
        let peer: IpAddr = config["neighborAddress"].as_str().unwrap_or_default().parse()?;
        let own = own.iter().find(|own| own.contains(&peer)).with_context(|| format!("{peer} is far away"))?.addr();
        let family = if peer.is_ipv4() { "ipv4" } else { "ipv6" };
        text += &format!(
            "protocol bgp {{ local {own} as {asn}; neighbor {peer} as {}; direct; hold time 9;
               connect retry time 1; connect delay time 1; error wait time 1, 2;
               {family} {{ import none; export where source = RTS_DEVICE; next hop self; }}; }}\n",
            config["peerAsn"]
        );
    }
    Ok(text)
}

/// Answers a probe; one that goes away asks again.
fn healthy(mut stream: TcpStream) {
    let _ = answer(&mut stream);
}

fn answer(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    // One read is enough: a probe is one packet.
    let _ = stream.read(&mut [0; 1024])?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}
