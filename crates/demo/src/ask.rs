//! Back-ends that answer with their node and the address they saw, and clients that ask them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use purelb_net::Namespace;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The port of every back-end.
pub const PORT: u16 = 8080;
/// More than any request has.
const ROOM: usize = 4096;

/// A back-end at work; it ends with this value.
pub struct Backend {
    _stop: oneshot::Sender<()>,
}

impl Backend {
    /// Answers HTTP requests in a namespace with the words `POD on NODE saw ADDRESS`.
    pub fn start(pod: &Namespace, node: &str) -> Result<Self> {
        let listener = pod.run(|| std::net::TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)))?;
        listener.set_nonblocking(true)?;
        let name = format!("{} on {node}", pod.name());
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = serve(listener, name) => {}
                }
            });
        });
        Ok(Self { _stop: stop })
    }
}

async fn serve(listener: std::net::TcpListener, name: String) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        let Ok((stream, source)) = listener.accept().await else { continue };
        let words = format!("{name} saw {}\n", source.ip().to_canonical());
        // What becomes of an answer is seen by the client.
        tokio::spawn(async move { answer(stream, &words).await });
    }
}

async fn answer(mut stream: TcpStream, words: &str) -> std::io::Result<()> {
    let _request = stream.read(&mut [0; ROOM]).await?;
    let length = words.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}Connection: close\r\n\r\n{words}").as_bytes()).await?;
    stream.shutdown().await
}

/// Who answered, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The back-end.
    pub pod: String,
    /// The node it runs on.
    pub node: String,
    /// Where the request came from, as the back-end saw it.
    pub source: IpAddr,
}

impl Answer {
    /// Reads the words of a back-end.
    fn read(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.rsplit("\r\n").next()?.split_whitespace().collect();
        let [pod, "on", node, "saw", source] = words[..] else { return None };
        Some(Self { pod: pod.into(), node: node.into(), source: source.parse().ok()? })
    }
}

/// One request on a connection of its own. Called by threads that are inside of a client.
pub async fn ask(target: SocketAddr, patience: Duration) -> Result<Answer> {
    timeout(patience, asked(target)).await.with_context(|| format!("no answer from {target} within {patience:?}"))?
}

async fn asked(target: SocketAddr) -> Result<Answer> {
    let mut stream = TcpStream::connect(target).await.with_context(|| format!("cannot connect to {target}"))?;
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Answer::read(&text).with_context(|| format!("{target} answers {text:?}"))
}

/// Asks so many times, one after the other, each from another port. The first request without an answer is an error.
pub fn ask_often(client: &Namespace, target: SocketAddr, times: usize) -> Result<Vec<Answer>> {
    const PATIENCE: Duration = Duration::from_secs(5);
    client.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut answers = Vec::new();
            for _ in 0..times {
                let answer = ask(target, PATIENCE).await;
                let expected = || format!("expected: {times} answers; the first {} came", answers.len());
                let answer = answer.with_context(expected)?;
                answers.push(answer);
            }
            Ok(answers)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_the_pod_the_node_and_the_client() {
        let answer = Answer::read("HTTP/1.1 200 OK\r\nX: y\r\n\r\nkuard-1 on node1 saw fd00:9::2\n").unwrap();
        assert_eq!((&*answer.pod, &*answer.node), ("kuard-1", "node1"));
        assert_eq!(answer.source, "fd00:9::2".parse::<IpAddr>().unwrap());
        assert_eq!(Answer::read("HTTP/1.1 500 no\r\n\r\nsomething else"), None);
    }
}
