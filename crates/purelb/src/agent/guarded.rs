//! Addresses that must never be announced or captured: those of the API server and of this node's DNS servers.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use purelb_core::place::Guard;
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::debug;

/// Which DNS servers this node asks.
const RESOLVERS: &str = "/etc/resolv.conf";
/// How often the API server's name and the list of DNS servers are looked up again.
const AGAIN: Duration = Duration::from_secs(300);
/// How soon, if the API server's name could not be found.
const SOON: Duration = Duration::from_secs(5);

/// Addresses with what they are.
pub type Guarded = BTreeMap<IpAddr, Guard>;

/// Looks the addresses up, now and again, for as long as somebody listens; the API server by its host name.
pub fn watch(api_server: String) -> watch::Receiver<Guarded> {
    let (sender, guarded) = watch::channel(dns_servers(&fs::read_to_string(RESOLVERS).unwrap_or_default()));
    tokio::spawn(async move {
        loop {
            let (found, pause) = look(&api_server).await;
            sender.send_if_modified(|known| {
                let news = *known != found;
                *known = found;
                news
            });
            tokio::select! {
                () = sender.closed() => return,
                () = sleep(pause) => {}
            }
        }
    });
    guarded
}

async fn look(api_server: &str) -> (Guarded, Duration) {
    let mut found = dns_servers(&fs::read_to_string(RESOLVERS).unwrap_or_default());
    // As it stands in a URL, an IPv6 address is in brackets.
    let host = api_server.trim_matches(['[', ']']);
    match lookup_host((host, 0)).await {
        Ok(addrs) => {
            found.extend(addrs.map(|addr| (addr.ip().to_canonical(), Guard::ApiServer)));
            (found, AGAIN)
        }
        Err(error) => {
            debug!(host, %error, "the address of the API server cannot be found; its route is not guarded yet");
            (found, SOON)
        }
    }
}

/// The servers of a resolv.conf; what is none is passed over.
fn dns_servers(text: &str) -> Guarded {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| *word == "nameserver")?;
        // A link-local server is written with its interface.
        words.next()?.split('%').next()?.parse::<IpAddr>().ok()
    });
    servers.map(|addr| (addr.to_canonical(), Guard::DnsServer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dns_server_is_guarded_and_odd_lines_are_passed_over() {
        let text = "# by hand\nsearch example.net\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\n\
                    nameserver\nnameserver nobody\n  nameserver ::ffff:192.0.2.54 # old\n";
        let servers: Vec<_> = dns_servers(text).into_keys().map(|addr| addr.to_string()).collect();
        assert_eq!(servers, ["192.0.2.53", "192.0.2.54", "fe80::1"]);
    }
}
