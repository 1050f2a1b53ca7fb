//! `/debug/state` and `/debug/loglevel` on a Unix socket, for whoever may enter the daemon's own file system.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::net::UnixListener;

use super::{Error, serve};
use crate::logs::{Dial, Level};

/// The inside of a daemon. Its state must be free of secrets, as everything that is printed.
pub struct DebugServer {
    listener: UnixListener,
    path: PathBuf,
    router: Router,
}

type Snapshot = Arc<dyn Fn() -> BoxFuture<'static, Value> + Send + Sync>;

impl DebugServer {
    /// Creates the socket, readable by the daemon's own user only. One that a dead process left is replaced.
    pub fn build(
        path: impl Into<PathBuf>,
        state: impl Fn() -> BoxFuture<'static, Value> + Send + Sync + 'static,
        dial: Dial,
    ) -> Result<Self, Error> {
        let path = path.into();
        let listener = listen(&path)?;
        let snapshot: Snapshot = Arc::new(state);
        let router = Router::new()
            .route("/debug/state", get(show_state).with_state(snapshot))
            .route("/debug/loglevel", get(show_level).put(set_level).with_state(dial));
        Ok(Self { listener, path, router })
    }

    /// Answers until `stop`, then removes the socket.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) {
        serve(self.listener, self.router, stop).await;
        // Nothing depends on it: the next process replaces a socket that nobody serves.
        let _ = fs::remove_file(&self.path);
    }
}

fn listen(path: &Path) -> Result<UnixListener, Error> {
    let failed = |source| Error::Socket { path: path.to_owned(), source };
    if UnixStream::connect(path).is_ok() {
        return Err(Error::SocketInUse { path: path.to_owned() });
    }
    remove_stale(path).map_err(failed)?;
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Removes a socket, and nothing else that may stand at this path.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        _ => Ok(()),
    }
}

async fn show_state(State(snapshot): State<Snapshot>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], format!("{:#}\n", snapshot().await)).into_response()
}

async fn show_level(State(dial): State<Dial>) -> String {
    format!("{}\n", dial.level().name())
}

async fn set_level(State(dial): State<Dial>, wanted: String) -> Response {
    let Some(level) = Level::parse(&wanted) else {
        return (StatusCode::BAD_REQUEST, "write info or debug\n").into_response();
    };
    dial.turn(level);
    show_level(State(dial)).await.into_response()
}
