//! kube-proxy's health ports: the one that says when it last wrote its rules, and those of Services with
//! externalTrafficPolicy Local.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use jiff::Timestamp;
use purelb_core::data_path::Answer;

/// Where kube-proxy tells of its health, unless it was told otherwise.
const HEALTH_PORT: u16 = 10256;
/// It answers within microseconds, or it is stopped or starved.
const PATIENCE: Duration = Duration::from_millis(250);
/// More than any answer has.
const MOST: u64 = 64 * 1024;
/// kube-proxy leaves so much between two writings, unless it was told otherwise (`minSyncPeriod` 1s), and takes some time.
const BETWEEN: Duration = Duration::from_millis(1500);

/// What kube-proxy says of itself.
#[derive(Clone, Debug, serde::Deserialize)]
pub(super) struct Health {
    /// For each family, since Kubernetes 1.33; `lastUpdated` beside it is simply now.
    #[serde(default)]
    status: BTreeMap<String, Written>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    last_updated: Timestamp,
}

impl Health {
    /// Asks for it on this node.
    ///
    /// # Errors
    /// Where nobody answers, or something that is no kube-proxy.
    pub(super) fn ask(node: impl IntoIterator<Item = IpAddr>) -> io::Result<Self> {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let mut failure = io::ErrorKind::ConnectionRefused.into();
        for addr in loopback.into_iter().chain(node) {
            match get(SocketAddr::new(addr, HEALTH_PORT), "/healthz") {
                // One that is ill answers 503, with the same words.
                Ok(answer) => return serde_json::from_slice(&answer.body).map_err(io::Error::other),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// When the rules of this address's family were last written.
    fn written(&self, addr: IpAddr) -> Option<Timestamp> {
        let family = if addr.is_ipv4() { "IPv4" } else { "IPv6" };
        self.status.get(family).map(|status| status.last_updated)
    }
}

/// The writings of one family that were seen.
#[derive(Clone, Copy, Debug, Default)]
struct Writings {
    last: Option<Timestamp>,
    before: Option<Timestamp>,
}

/// When kube-proxy wrote its rules, as far as it was asked.
#[derive(Debug, Default)]
pub(super) struct History {
    v4: Writings,
    v6: Writings,
}

impl History {
    /// kube-proxy says this now.
    pub(super) fn hear(&mut self, health: &Health) {
        let families = [
            (&mut self.v4, health.written(Ipv4Addr::UNSPECIFIED.into())),
            (&mut self.v6, health.written(Ipv6Addr::UNSPECIFIED.into())),
        ];
        for (writings, written) in families {
            if written > writings.last {
                *writings = Writings { last: written, before: writings.last };
            }
        }
    }

    /// Whether the rules were written since a question arose.
    ///
    /// A writing that ended since may have begun before, when kube-proxy had not seen the Service yet; then another follows. So
    /// the second since then counts, or the first when no other has followed in its time. What does not say when it writes its
    /// rules cannot be asked.
    pub(super) fn answer(&self, addr: IpAddr, since: Timestamp, now: Timestamp) -> Answer {
        let Writings { last, before } = if addr.is_ipv4() { self.v4 } else { self.v6 };
        let Some(last) = last else { return Answer::Unknown };
        let twice = before.is_some_and(|before| before > since);
        let settled = last > since && now.duration_since(last).unsigned_abs() >= BETWEEN;
        if twice || settled { Answer::Ready } else { Answer::NotYet }
    }
}

/// Whether kube-proxy says that rules for ready endpoints of a Service on this node are in place.
///
/// It listens for each family apart; in nftables mode on this node's own addresses, in others on all.
pub(super) fn has_endpoints(addr: IpAddr, port: u16, node: impl IntoIterator<Item = IpAddr>) -> bool {
    let loopback = if addr.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    let own = node.into_iter().filter(|own| own.is_ipv4() == addr.is_ipv4());
    let mut doors = std::iter::once(loopback).chain(own).map(|addr| SocketAddr::new(addr, port));
    doors.any(|door| get(door, "/").is_ok_and(|answer| answer.status == 200))
}

struct Reply {
    status: u16,
    body: Vec<u8>,
}

/// Asks for a page, by HTTP/1.0: the answer ends with the connection.
fn get(from: SocketAddr, path: &str) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&from, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {from}\r\n\r\n").as_bytes())?;
    let mut bytes = Vec::new();
    stream.take(MOST).read_to_end(&mut bytes)?;
    reply(&bytes).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn reply(bytes: &[u8]) -> Option<Reply> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = str::from_utf8(&bytes[..end]).ok()?;
    let (version, rest) = head.split_once(' ')?;
    let status = rest.get(..3)?.parse().ok()?;
    version.starts_with("HTTP/1.").then(|| Reply { status, body: bytes[end + 4..].to_vec() })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn history(written: &[&str]) -> History {
        let mut history = History::default();
        for written in written {
            let said = format!(
                r#"{{"lastUpdated":"2026-11-18T01:59:59Z","currentTime":"2026-11-18T01:59:59Z","nodeEligible":true,
                    "healthy":true,"status":{{"IPv4":{{"lastUpdated":"2026-11-18T01:00:{written}Z","healthy":true}}}}}}"#
            );
            history.hear(&serde_json::from_str(&said).unwrap());
        }
        history
    }

    fn at(second: &str) -> Timestamp {
        format!("2026-11-18T01:00:{second}Z").parse().unwrap()
    }

    /// The question arose in second 10.
    #[rstest]
    #[case::before(&["09"], "15", Answer::NotYet)]
    #[case::one_that_may_have_begun_before(&["09", "10.2"], "10.3", Answer::NotYet)]
    #[case::said_many_times(&["10.2", "10.2", "10.2"], "10.3", Answer::NotYet)]
    #[case::the_second(&["10.2", "11.3"], "11.4", Answer::Ready)]
    #[case::one_and_no_other_in_its_time(&["09", "10.2"], "11.8", Answer::Ready)]
    fn rules_count_when_they_were_written_wholly_after_the_question(
        #[case] written: &[&str],
        #[case] now: &str,
        #[case] answer: Answer,
    ) {
        let history = history(written);
        assert_eq!(history.answer("192.0.2.1".parse().unwrap(), at("10"), at(now)), answer);
        assert_eq!(history.answer("2001:db8::1".parse().unwrap(), at("10"), at(now)), Answer::Unknown, "not told of");
    }

    #[test]
    fn one_that_does_not_say_when_it_wrote_its_rules_cannot_be_asked() {
        let older =
            r#"{"lastUpdated": "2026-11-18 01:00:10 +0000 UTC", "currentTime": "2026-11-18 01:00:10 +0000 UTC"}"#;
        let mut history = History::default();
        history.hear(&serde_json::from_str(older).unwrap());
        assert_eq!(history.answer("192.0.2.1".parse().unwrap(), at("10"), at("20")), Answer::Unknown);
    }

    #[rstest]
    #[case(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}", Some((200, "{}")))]
    #[case(b"HTTP/1.1 503 Service Unavailable\r\n\r\n", Some((503, "")))]
    #[case(b"HTTP/1.0 200 OK\r\n", None)]
    #[case(b"SSH-2.0-OpenSSH\r\n\r\n", None)]
    #[case(b"", None)]
    fn a_reply_has_a_status_and_a_body(#[case] bytes: &[u8], #[case] expected: Option<(u16, &str)>) {
        let read = reply(bytes);
        let read = read.as_ref().map(|reply| (reply.status, str::from_utf8(&reply.body).unwrap()));
        assert_eq!(read, expected);
    }
}
