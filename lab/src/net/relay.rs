//! A door from a namespace to a server of the machine: what the nodes take for the address of the API server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result};

use super::Namespace;

/// Opens `door` in the namespace, and carries what comes there to `server` (`host:port`) on the machine and back.
///
/// It stays open as long as the process runs. Connections are carried by threads of their own, two for each.
///
/// # Errors
/// When the namespace does not have the address, or the port is taken.
pub fn open(namespace: &Namespace, door: SocketAddr, server: &str) -> Result<()> {
    let listener = namespace.run(|| TcpListener::bind(door)).with_context(|| format!("cannot listen on {door}"))?;
    let server = server.to_owned();
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            // A refusal shows as a closed connection. This thread is outside, and so is its new socket.
            if let Ok(far) = TcpStream::connect(&server) {
                let _ = carry(near, far);
            }
        }
    });
    Ok(())
}

fn carry(near: TcpStream, far: TcpStream) -> std::io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near2, far2) = (near.try_clone()?, far.try_clone()?);
    thread::spawn(move || pour(near, far));
    thread::spawn(move || pour(far2, near2));
    Ok(())
}

/// Until one end is closed or broken; then both are.
fn pour(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    for end in [&from, &to] {
        let _ = end.shutdown(std::net::Shutdown::Both);
    }
}
