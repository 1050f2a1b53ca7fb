//! Is a container ready, is it alive? Asked over the network, as the kubelet does.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A probe with its history.
pub(super) struct Asked {
    probe: Probe,
    next: Instant,
    good: i32,
    bad: i32,
    /// The answer that holds now.
    pub(super) holds: bool,
    /// Why the last try failed.
    pub(super) complaint: String,
}

/// A probe that the lab does not know.
pub(super) fn refused(container: &Container) -> Option<String> {
    let all = [&container.startup_probe, &container.readiness_probe, &container.liveness_probe];
    let unknown = all.into_iter().flatten().any(|probe| probe.http_get.is_none() && probe.tcp_socket.is_none());
    unknown.then(|| "the lab knows httpGet and tcpSocket probes only".to_owned())
}

impl Asked {
    /// `holds` is what is believed before the first answer.
    pub(super) fn new(probe: &Probe, started: Instant, holds: bool) -> Self {
        let wait = seconds(probe.initial_delay_seconds, 0);
        Self { probe: probe.clone(), next: started + wait, good: 0, bad: 0, holds, complaint: String::new() }
    }

    /// Asks if it is time to.
    pub(super) async fn ask(&mut self, container: &Container, address: IpAddr) {
        if Instant::now() < self.next {
            return;
        }
        let patience = seconds(self.probe.timeout_seconds, 1);
        let answer = tokio::time::timeout(patience, attempt(&self.probe, container, address)).await;
        let answer = answer.map_err(anyhow::Error::from).flatten();
        // From the end of this try: one runner asks for many.
        self.next = Instant::now() + seconds(self.probe.period_seconds, 10);
        match answer {
            Ok(()) => (self.good, self.bad) = (self.good + 1, 0),
            Err(error) => {
                (self.good, self.bad) = (0, self.bad + 1);
                self.complaint = format!("{error:#}");
            }
        }
        if self.good >= self.probe.success_threshold.unwrap_or(1) {
            self.holds = true;
        } else if self.bad >= self.probe.failure_threshold.unwrap_or(3) {
            self.holds = false;
        }
    }

    /// Whether it has failed as often as it may.
    pub(super) fn has_failed(&self) -> bool {
        self.bad >= self.probe.failure_threshold.unwrap_or(3)
    }
}

fn seconds(asked: Option<i32>, usual: u64) -> Duration {
    Duration::from_secs(asked.and_then(|asked| asked.try_into().ok()).unwrap_or(usual))
}

async fn attempt(probe: &Probe, container: &Container, address: IpAddr) -> Result<()> {
    if let Some(get) = &probe.http_get {
        let host = get.host.as_ref().map_or(Ok(address), |host| host.parse()).context("no address")?;
        return http(get, SocketAddr::new(host, port(&get.port, container)?)).await;
    }
    let socket = probe.tcp_socket.as_ref().context("the lab does not know this probe")?;
    let host = socket.host.as_ref().map_or(Ok(address), |host| host.parse()).context("no address")?;
    TcpStream::connect((host, port(&socket.port, container)?)).await?;
    Ok(())
}

fn port(asked: &IntOrString, container: &Container) -> Result<u16> {
    let number = match asked {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let ports = container.ports.iter().flatten();
            let named = ports.into_iter().find(|port| port.name.as_ref() == Some(name));
            named.with_context(|| format!("the container has no port {name}"))?.container_port
        }
    };
    number.try_into().context("no port number")
}

async fn http(get: &HTTPGetAction, at: SocketAddr) -> Result<()> {
    if get.scheme.as_deref() == Some("HTTPS") {
        bail!("the lab's probes do not speak HTTPS");
    }
    let mut stream = TcpStream::connect(at).await?;
    let path = get.path.as_deref().unwrap_or("/");
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nUser-Agent: kube-probe/lab\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.context("no answer")?;
    let code = std::str::from_utf8(&head[9..]).ok().and_then(|code| code.parse::<u16>().ok());
    ensure!(code.is_some_and(|code| (200..400).contains(&code)), "the answer is {code:?}");
    Ok(())
}
