//! The lab's workload: answers HTTP on port 8080 (or `PORT`) with who it is and who asked; on other paths, with what it
//! sees of itself.
//!
//! `/` is one line: name, node, address of the client. `/file?PATH` is the contents of a file, `/write?PATH` tries to write
//! one, and `/run?PROGRAM&ARGUMENT…` runs a program of the image and prints how it ended. It trusts its callers.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Result, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// Whether connections should be closed instead of answered: set by `/hang`, to look unready.
static HANGS: AtomicBool = AtomicBool::new(false);

/// Runs until it is told to end. The first process of a container must listen for that: nobody else ends it.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let port = env::var("PORT").ok().and_then(|port| port.parse().ok()).unwrap_or(8080);
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    let mut told = signal(SignalKind::terminate())?;
    println!("listening on {port}");
    thread::spawn(move || listen(&listener));
    told.recv().await;
    println!("told to end");
    Ok(())
}

fn listen(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            // A client that goes away is its own problem.
            let _ = serve(stream);
        });
    }
}

fn serve(mut stream: TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let line = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let path = line.split(' ').nth(1).unwrap_or("/");
    let (status, body) = match path.split_once('?').unwrap_or((path, "")) {
        ("/hang", _) => (200, format!("{}\n", HANGS.fetch_xor(true, Ordering::Relaxed))),
        ("/ready", _) if HANGS.load(Ordering::Relaxed) => (503, "not ready\n".to_owned()),
        ("/file", path) => (200, fs::read_to_string(path).unwrap_or_else(|error| format!("{error}\n"))),
        ("/write", path) => (200, outcome(fs::write(path, "written"))),
        ("/run", line) => (200, run(line)),
        _ => (200, greeting(&stream)?),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} lab\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

fn greeting(stream: &TcpStream) -> Result<String> {
    let name = |variable| env::var(variable).unwrap_or_else(|_| "-".to_owned());
    let client = stream.peer_addr()?.ip().to_canonical();
    Ok(format!("{} {} {client}\n", name("HOSTNAME"), name("NODE")))
}

fn outcome(done: Result<()>) -> String {
    done.map_or_else(|error| format!("{error}\n"), |()| "done\n".to_owned())
}

fn run(line: &str) -> String {
    let mut words = line.split('&');
    match Command::new(words.next().unwrap_or_default()).args(words).output() {
        Err(error) => format!("{error}\n"),
        Ok(output) => {
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text += &String::from_utf8_lossy(&output.stderr);
            let _ = writeln!(text, "{}", output.status);
            text
        }
    }
}
