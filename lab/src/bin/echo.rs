//! The lab's workload: answers HTTP on port 8080 (or `PORT`) with who it is and who asked; on other paths, with what it
//! sees of itself.
//!
//! `/` is one line: name, node, address of the client. `/file?PATH` is the contents of a file, `/write?PATH` tries to write
//! one, and `/run?PROGRAM&ARGUMENT…` runs a program of the image and prints how it ended. It trusts its callers.
//!
//! On the same port it answers every datagram with what was in it and the address of who sent it.
//!
//! Told to end, it ends; with `LINGER`, it first says for that many seconds that it is not ready, and answers all the same.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Result, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::signal::unix::{SignalKind, signal};

/// Whether `/ready` should say no: toggled by `/hang`, to look unready.
static HANGS: AtomicBool = AtomicBool::new(false);

/// Runs until it is told to end. The first process of a container must listen for that: nobody else ends it.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let port = number("PORT").unwrap_or(8080);
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    let mut told = signal(SignalKind::terminate())?;
    println!("listening on {port}");
    thread::spawn(move || listen(&listener));
    let socket = datagrams(port)?;
    thread::spawn(move || send_back(&socket));
    told.recv().await;
    println!("told to end");
    if let Some(seconds) = number("LINGER") {
        // A server that wants to lose nobody stays for those who have not heard yet.
        HANGS.store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    }
    Ok(())
}

fn number(variable: &str) -> Option<u16> {
    env::var(variable).ok()?.parse().ok()
}

fn listen(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            // A client that goes away is its own problem.
            let _ = serve(stream);
        });
    }
}

/// With room for seconds of packets: who counts losses must not count those of a server that was not scheduled.
fn datagrams(port: u16) -> Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
    socket.set_recv_buffer_size(4 << 20)?;
    socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
    Ok(socket.into())
}

fn send_back(socket: &UdpSocket) {
    let mut packet = [0; 64];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut packet) else { continue };
        let answer = [&packet[..length], client.ip().to_canonical().to_string().as_bytes()].concat();
        // Whoever asked sees that there is no answer.
        let _ = socket.send_to(&answer, client);
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
