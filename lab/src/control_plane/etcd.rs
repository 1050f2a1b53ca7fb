//! The one thing the tests ask of etcd itself: to forget.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Compacts etcd's history through its JSON gateway: revisions before `revision` can no longer be read.
///
/// # Errors
/// When etcd cannot be reached or refuses.
pub fn compact(socket: &Path, revision: u64) -> Result<()> {
    let body = format!(r#"{{"revision":"{revision}","physical":true}}"#);
    let request = format!(
        "POST /v3/kv/compaction HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = UnixStream::connect(socket).context("etcd does not listen on its socket")?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "etcd refused to compact revision {revision}: {answer}");
    Ok(())
}
