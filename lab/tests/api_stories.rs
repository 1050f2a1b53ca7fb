//! Every API story, told to kubelite and to a real kube-apiserver, with the same assertions.

use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use purelb_kubelite::Kubelite;
use purelb_lab::stories::Past;
use purelb_lab::{ControlPlane, Ground};
use tokio::sync::OnceCell;

/// One server for all tests of this process; the watchdog ends it with the process. A failure to start is kept too, so
/// that it is told by every test and waited for by one.
static SERVER: OnceCell<Result<(ControlPlane, Past)>> = OnceCell::const_new();

async fn start() -> Result<(ControlPlane, Past)> {
    let plane = ControlPlane::start().await?;
    let (past, version) = Past::record(&plane.client()?).await?;
    plane.compact(version)?;
    Ok((plane, past))
}

async fn real_server() -> Result<Ground> {
    let (plane, past) = SERVER.get_or_init(start).await.as_ref().map_err(|error| anyhow!("{error:#}"))?;
    Ground::fresh(plane.client()?, past.clone()).await
}

async fn kubelite_server() -> Result<Ground> {
    let server = Kubelite::new();
    let (past, _) = Past::record(&server.client()).await?;
    server.compact();
    Ground::fresh(server.client(), past).await
}

macro_rules! tests {
    ($($room:ident: [$($story:ident),* $(,)?],)*) => {
        const TOLD: &[&str] = &[$($(concat!(stringify!($room), "::", stringify!($story)),)*)*];
        tests!(@on kubelite, kubelite_server; $($room: [$($story),*],)*);
        tests!(@on real, real_server; $($room: [$($story),*],)*);
    };
    (@on $server:ident, $ground:ident; $($room:ident: [$($story:ident),*],)*) => {
        mod $server {$(
            mod $room {$(
                #[tokio::test]
                async fn $story() -> anyhow::Result<()> {
                    purelb_lab::stories::$room::$story(&crate::$ground().await?).await
                }
            )*}
        )*}
    };
}

purelb_lab::for_each_story!(tests);

#[test]
fn no_story_is_left_untold() -> Result<()> {
    let rooms = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stories");
    for room in fs::read_dir(rooms)? {
        let room = room?.path();
        let name = room.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for line in fs::read_to_string(&room)?.lines() {
            let story = line.strip_prefix("pub async fn ").and_then(|line| line.split_once("(ground: &Ground)"));
            let Some((story, _)) = story else { continue };
            let story = format!("{name}::{story}");
            ensure!(TOLD.contains(&story.as_str()), "{story} is missing in for_each_story");
        }
    }
    Ok(())
}
